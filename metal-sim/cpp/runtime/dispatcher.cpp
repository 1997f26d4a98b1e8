#include "dispatcher.h"

#include "core.h"
#include "fault.h"
#include "settings.h"
#include "tensor_unit.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace metal_sim {

namespace {

// A core with a thread of its own. It sleeps until a dispatch is offered; the thread that offers it works too and never
// waits for one that is slow to wake up. It ends with the process.
class helper {
  public:
    explicit helper(const settings & how) : core_(how) {}

    bool start() {
        try {
            thread_ = std::thread([this] { run(); });
            return true;
        } catch (const std::system_error &) {
            return false;  // fewer cores, the same results
        }
    }

    void offer(dispatch_in_progress & d) {
        {
            const std::lock_guard<std::mutex> guard(lock_);
            offered_ = &d;
        }
        changed_.notify_all();
    }

    // Withdraws the offer. Returns when the helper, if it took it, has finished.
    void withdraw() {
        std::unique_lock<std::mutex> guard(lock_);
        offered_ = nullptr;
        changed_.wait(guard, [this] { return !busy_; });
    }

    counters take_counters() { return core_.take_counters(); }

  private:
    void run() noexcept {
        std::unique_lock<std::mutex> guard(lock_);
        for (;;) {
            changed_.wait(guard, [this] { return offered_ != nullptr; });
            dispatch_in_progress * const taken = offered_;
            offered_                           = nullptr;
            busy_                              = true;
            guard.unlock();
            core_.work(*taken);
            guard.lock();
            busy_ = false;
            changed_.notify_all();
        }
    }

    core                    core_;
    std::thread             thread_;
    std::mutex              lock_;
    std::condition_variable changed_;
    dispatch_in_progress *  offered_ = nullptr;
    bool                    busy_    = false;
};

class dispatcher {
  public:
    // Never destroyed, and its helpers never joined, since another thread may dispatch while the process exits. ggml never
    // unmaps a plugin that it has registered.
    static dispatcher & instance() {
        static dispatcher & d = *new dispatcher;
        return d;
    }

    bool execute(const pipeline & p, const compute_dispatch & d) {
        const std::lock_guard<std::mutex> guard(lock_);
        if (!valid(p.kernel(), d)) {
            return false;
        }
        p.configure();
        dispatch_in_progress progress = { p.kernel(), d };
        run(progress);
        ++totals_.dispatches;
        return !progress.failed;
    }

    const settings & how() const { return settings_; }

    void set_order(lane_order order, uint64_t seed) {
        const std::lock_guard<std::mutex> guard(lock_);
        settings_.order = order;
        settings_.seed  = seed;
    }

    counters read() {
        const std::lock_guard<std::mutex> guard(lock_);
        counters                          all = totals_;
        all.relaxed_fmas                      = relaxed_fmas();
        return all;
    }

    void reset() {
        const std::lock_guard<std::mutex> guard(lock_);
        totals_ = {};
        reset_relaxed_fmas();
    }

  private:
    dispatcher() : settings_(settings::from_environment()), core_(settings_) {
        for (uint32_t i = 1; i < settings_.threads; ++i) {
            auto h = std::make_unique<helper>(settings_);
            if (h->start()) {
                helpers_.push_back(std::move(h));
            }
        }
    }

    void run(dispatch_in_progress & progress) {
        const bool share = progress.arguments.threadgroups.volume() > 1;
        if (share) {
            for (auto & h : helpers_) {
                h->offer(progress);
            }
        }
        core_.work(progress);
        totals_ += core_.take_counters();
        if (share) {
            for (auto & h : helpers_) {
                h->withdraw();
                totals_ += h->take_counters();
            }
        }
    }

    // What Metal's validation layer would refuse.
    bool valid(const kernel_entry & kernel, const compute_dispatch & d) const {
        if (!settings_.error.empty()) {
            report(fault().set("%s", settings_.error.c_str()));
            return false;
        }
        const uint64_t threads = d.threads.volume();
        if (threads == 0 || threads > max_threads_per_threadgroup) {
            report(fault().set("%s: (%u, %u, %u) threads in a threadgroup; 1 to %u are possible", kernel.name,
                               d.threads.x, d.threads.y, d.threads.z, max_threads_per_threadgroup));
            return false;
        }
        size_t memory = 0;
        for (const size_t bytes : d.threadgroup_memory) {
            memory += bytes;
        }
        if (memory > max_threadgroup_memory) {
            report(fault().set("%s: %zu bytes of threadgroup memory; the device has %zu", kernel.name, memory,
                               max_threadgroup_memory));
            return false;
        }
        const uint32_t taken = (1u << kernel.entry->buffer_count) - 1;
        if ((d.nil_buffers & taken) != 0) {
            report(fault().set("%s: buffer %d is nil", kernel.name, __builtin_ctz(d.nil_buffers & taken)));
            return false;
        }
        return true;
    }

    std::mutex                           lock_;  // one dispatch at a time
    settings                             settings_;
    core                                 core_;
    std::vector<std::unique_ptr<helper>> helpers_;
    counters                             totals_;
};

}  // namespace

bool execute(const pipeline & p, const compute_dispatch & d) {
    return dispatcher::instance().execute(p, d);
}

const settings & current_settings() {
    return dispatcher::instance().how();
}

void set_order(lane_order order, uint64_t seed) {
    dispatcher::instance().set_order(order, seed);
}

counters read_counters() {
    return dispatcher::instance().read();
}

void reset_counters() {
    dispatcher::instance().reset();
}

}  // namespace metal_sim
