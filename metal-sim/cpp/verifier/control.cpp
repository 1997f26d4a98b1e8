#ifdef METAL_SIM_VERIFIER

#    include "control.h"

#    include "../runtime/dispatcher.h"
#    include "findings.h"
#    include "hooks.h"

#    include <atomic>
#    include <cstdlib>
#    include <cstring>
#    include <map>
#    include <mutex>
#    include <string>
#    include <tuple>
#    include <unordered_map>
#    include <vector>

namespace metal_sim {
namespace verifier {

namespace {

struct place {
    std::string file;
    uint32_t    line;
};

struct place_key {
    const char * file;  // of one translation unit: not unique, which reading makes up for
    uint32_t     line;
    bool         simdgroup;

    bool operator==(const place_key & o) const {
        return file == o.file && line == o.line && simdgroup == o.simdgroup;
    }
};

struct place_hash {
    size_t operator()(const place_key & k) const {
        return reinterpret_cast<size_t>(k.file) * 31 + k.line * 2 + (k.simdgroup ? 1 : 0);
    }
};

struct state {
    std::mutex                                          lock;
    std::atomic<bool>                                   any_removed{ false };
    std::vector<place>                                  removed;
    std::unordered_map<place_key, uint64_t, place_hash> executed;
    std::atomic<bool>                                   strict{ false };

    state() {
        const char * const mode = std::getenv("METAL_SIM_LOCKSTEP");
        strict                  = mode != nullptr && std::strcmp(mode, "strict") == 0;
    }
};

state & control() {
    static state & s = *new state;
    return s;
}

bool ends_with(const char * path, const std::string & end) {
    const size_t length = std::strlen(path);
    if (length < end.size() || end.compare(path + (length - end.size())) != 0) {
        return false;
    }
    return length == end.size() || path[length - end.size() - 1] == '/';
}

}  // namespace

bool has_lockstep() {
    return !control().strict.load(std::memory_order_relaxed);
}

bool is_removed(source_position barrier) {
    state & s = control();
    if (!s.any_removed.load(std::memory_order_relaxed)) {
        return false;
    }
    const std::lock_guard<std::mutex> guard(s.lock);
    for (const place & p : s.removed) {
        if (p.line == barrier.line && ends_with(barrier.file, p.file)) {
            return true;
        }
    }
    return false;
}

void count_barrier(source_position at, bool simdgroup) {
    state &                           s = control();
    const std::lock_guard<std::mutex> guard(s.lock);
    ++s.executed[{ at.file, at.line, simdgroup }];
}

}  // namespace verifier
}  // namespace metal_sim

extern "C" {

void metal_sim_verifier_set_strict(bool strict) {
    metal_sim::verifier::control().strict = strict;
}

void metal_sim_verifier_set_order(uint32_t order, uint64_t seed) {
    metal_sim::set_order(static_cast<metal_sim::lane_order>(order < 3 ? order : 0), seed);
}

size_t metal_sim_verifier_barriers(metal_sim_barrier * barriers, size_t capacity) {
    auto &                                                       s = metal_sim::verifier::control();
    std::map<std::tuple<std::string, uint32_t, bool>, uint64_t> all;
    {
        const std::lock_guard<std::mutex> guard(s.lock);
        for (const auto & entry : s.executed) {
            all[{ entry.first.file, entry.first.line, entry.first.simdgroup }] += entry.second;
        }
    }
    size_t n = 0;
    for (const auto & entry : all) {
        if (n < capacity) {
            metal_sim_barrier & b = barriers[n];
            metal_sim::verifier::copy_text(b.file, std::get<0>(entry.first).c_str());
            b.line         = std::get<1>(entry.first);
            b.is_simdgroup = std::get<2>(entry.first) ? 1 : 0;
            b.count        = entry.second;
        }
        ++n;
    }
    return n;
}

void metal_sim_verifier_barriers_reset(void) {
    auto &                            s = metal_sim::verifier::control();
    const std::lock_guard<std::mutex> guard(s.lock);
    s.executed.clear();
}

void metal_sim_verifier_remove_barrier(const char * file, uint32_t line) {
    auto &                            s = metal_sim::verifier::control();
    const std::lock_guard<std::mutex> guard(s.lock);
    s.removed.push_back({ file, line });
    s.any_removed = true;
}

void metal_sim_verifier_restore_barriers(void) {
    auto &                            s = metal_sim::verifier::control();
    const std::lock_guard<std::mutex> guard(s.lock);
    s.removed.clear();
    s.any_removed = false;
}

size_t metal_sim_verifier_take(metal_sim_finding * findings, size_t capacity) {
    return metal_sim::verifier::take_findings(findings, capacity);
}
}

#endif
