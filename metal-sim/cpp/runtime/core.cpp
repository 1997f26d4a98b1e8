#include "core.h"

#include "../verifier/hooks.h"
#include "order.h"
#include "stack_switch.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace metal_sim {

__thread lane * current_lane = nullptr;

namespace {

// Out of line, so that no fiber keeps the address of a thread-local in its frame: a core's fibers outlive a dispatch,
// and the next dispatch may come from another OS thread.
[[gnu::noinline]] void enter(lane & l) {
    current_lane = &l;
    verifier::enter_lane(l, l.stack->stack.begin(), l.stack->stack.end());
}

}  // namespace

// ---- called by lanes

void wait_at_threadgroup_barrier(uint32_t orders, source_position at) {
    if (verifier::is_removed(at)) {
        return;
    }
    lane & l   = *current_lane;
    l.waits_at = { at, collective::none };
    l.orders   = orders;
    l.simdgroup->at_barrier |= l.bit();
    l.group->runner->suspend(l);
}

void wait_for_simdgroup(collective what, source_position at) {
    lane & l   = *current_lane;
    l.waits_at = { at, what };
    l.simdgroup->collecting |= l.bit();
    l.group->runner->suspend(l);
}

void wait_at_simdgroup_barrier(uint32_t orders, source_position at) {
    if (verifier::is_removed(at)) {
        return;
    }
    current_lane->orders = orders;
    wait_for_simdgroup(collective::simdgroup_barrier, at);
}

void fail_lane(const char * what, source_position at) {
    lane & l = *current_lane;
    l.group->runner->fail(l, what, at);
}

unsigned char * declare_threadgroup_array(const void * tag, size_t size, const char * name, source_position at) {
    return current_lane->group->runner->declare_array(tag, size, name, at);
}

void core::suspend(lane & l) {
    switch_stack(&l.stack->stack_pointer, scheduler_stack_);
}

void core::fail(lane & l, const char * what, source_position at) {
    const extent3 & p = group_.position;
    if (at.line == 0) {
        give_up(fault().set("%s: threadgroup (%u, %u, %u), lane %u: %s", dispatch_->kernel.name, p.x, p.y, p.z,
                            l.index_in_threadgroup, what));
    } else {
        give_up(fault().set("%s: threadgroup (%u, %u, %u), lane %u, %s:%u: %s", dispatch_->kernel.name, p.x, p.y, p.z,
                            l.index_in_threadgroup, at.file, at.line, what));
    }
    for (;;) {
        suspend(l);  // for good: the scheduler abandons the stacks of a failed threadgroup
    }
}

unsigned char * core::declare_array(const void * tag, size_t size, const char * name, source_position at) {
    unsigned char * const data = memory_.declare(tag, size, name);
    if (data == nullptr) {
        char what[256];
        std::snprintf(what, sizeof(what), "no room for %s: %zu bytes of threadgroup memory in use, %zu more asked",
                      name, memory_.bytes(), size);
        fail(*current_lane, what, at);
    }
    return data;
}

// ---- dispatch

core::core(const settings & how) : settings_(how), fibers_(&core::fiber_body, this) {
    group_.runner = this;
}

void core::work(dispatch_in_progress & d) noexcept {
    run_threadgroups(d);
    verifier::end_dispatch();
}

void core::run_threadgroups(dispatch_in_progress & d) {
    const uint64_t total = d.arguments.threadgroups.volume();
    bool           ready = false;
    for (;;) {
        const uint64_t index = d.next.fetch_add(1, std::memory_order_relaxed);
        if (index >= total || d.failed.load(std::memory_order_relaxed)) {
            return;
        }
        // Prepared only by cores that get a threadgroup.
        if (!ready && !(ready = begin_dispatch(d))) {
            return;
        }
        if (!run_threadgroup(index)) {
            return;
        }
    }
}

counters core::take_counters() {
    counters taken        = counters_;
    taken.simdgroup_fmas  = group_.simdgroup_fmas;
    counters_             = {};
    group_.simdgroup_fmas = 0;
    return taken;
}

bool core::begin_dispatch(dispatch_in_progress & d) {
    dispatch_        = &d;
    group_.arguments = &d.arguments;
    shape_threadgroup(d.arguments.threads);
    verifier::begin_dispatch(d.kernel, d.arguments, this, sizeof(*this));
    if (!bind_memory(d.arguments)) {
        give_up(fault().set("%s: the system has no memory for the simulated threadgroup memory", d.kernel.name));
        return false;
    }
    return true;
}

void core::shape_threadgroup(const extent3 & threads) {
    if (threads == shape_ && settings_.order == shaped_for_) {
        return;
    }
    shape_                 = threads;
    shaped_for_            = settings_.order;
    lane_count_            = static_cast<uint32_t>(threads.volume());
    group_.simdgroup_count = (lane_count_ + simd_width - 1) / simd_width;

    for (uint32_t i = 0; i < lane_count_; ++i) {
        lane & l                  = lanes_[i];
        l.group                   = &group_;
        l.simdgroup               = &simdgroups_[i / simd_width];
        l.index_in_threadgroup    = i;
        l.index_in_simdgroup      = i % simd_width;
        l.simdgroup_index         = i / simd_width;
        l.position_in_threadgroup = { i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y };
    }
    for (uint32_t s = 0; s < group_.simdgroup_count; ++s) {
        simdgroups_[s].first_lane = s * simd_width;
        simdgroups_[s].lane_count = std::min(simd_width, lane_count_ - s * simd_width);
    }

    const bool reversed = settings_.order == lane_order::reversed;
    for (uint32_t s = 0; s < group_.simdgroup_count; ++s) {
        simdgroup_order_[s]  = static_cast<uint16_t>(reversed ? group_.simdgroup_count - 1 - s : s);
        const uint32_t first = simdgroups_[s].first_lane;
        const uint32_t count = simdgroups_[s].lane_count;
        for (uint32_t i = 0; i < count; ++i) {
            lane_order_[first + i] = static_cast<uint16_t>(first + (reversed ? count - 1 - i : i));
        }
    }
}

// A kernel that takes memory which the dispatch does not set gets a block of no bytes: using it is an overrun.
bool core::bind_memory(const compute_dispatch & arguments) {
    memory_.unbind_all();
    verifier::forget_threadgroup_memory();
    for (uint32_t i = 0; i < max_threadgroup_memory_bindings; ++i) {
        const bool wanted =
            arguments.threadgroup_memory[i] > 0 || (dispatch_->kernel.entry->threadgroup_memory_mask >> i & 1) != 0;
        group_.memory[i] = wanted ? memory_.bind(i, arguments.threadgroup_memory[i]) : nullptr;
        if (wanted && group_.memory[i] == nullptr) {
            return false;
        }
    }
    return true;
}

// ---- threadgroup

bool core::run_threadgroup(uint64_t index) {
    verifier::begin_threadgroup(arrange_lanes(index), lane_count_);
    memory_.begin_threadgroup();
    failed_ = false;

    if (!run_lanes()) {
        fibers_.reset();
        memory_.find_overrun();  // only to repair the slack: the dispatch has failed already
        return false;
    }

    ++counters_.threadgroups;
    counters_.threadgroup_bytes += memory_.bytes();
    return check_memory();
}

// Returns which threadgroup it is.
uint64_t core::arrange_lanes(uint64_t index) {
    const extent3 & grid  = dispatch_->arguments.threadgroups;
    const uint64_t  total = grid.volume();
    const uint64_t  turn  = settings_.order == lane_order::reversed ? total - 1 - index : index;
    group_.position       = { static_cast<uint32_t>(turn % grid.x), static_cast<uint32_t>(turn / grid.x % grid.y),
                              static_cast<uint32_t>(turn / grid.x / grid.y) };

    for (uint32_t s = 0; s < group_.simdgroup_count; ++s) {
        simdgroup_state & simdgroup = simdgroups_[s];
        simdgroup.ready             = 0;
        simdgroup.collecting        = 0;
        simdgroup.at_barrier        = 0;
        simdgroup.finished          = 0;
    }
    if (settings_.order == lane_order::random) {
        uint64_t state = random_state(settings_, turn);
        shuffle(simdgroup_order_.data(), group_.simdgroup_count, state);
        for (uint32_t s = 0; s < group_.simdgroup_count; ++s) {
            uint16_t * const first = lane_order_.data() + simdgroups_[s].first_lane;
            for (uint32_t i = 0; i < simdgroups_[s].lane_count; ++i) {
                first[i] = static_cast<uint16_t>(simdgroups_[s].first_lane + i);
            }
            shuffle(first, simdgroups_[s].lane_count, state);
        }
    }
    return turn;
}

bool core::run_lanes() {
    for (uint32_t s = 0; s < group_.simdgroup_count && !failed_; ++s) {
        start_lanes(simdgroups_[simdgroup_order_[s]]);
        run_simdgroup(simdgroups_[simdgroup_order_[s]]);
    }
    while (!failed_ && lanes_left()) {
        if (!release_barrier()) {
            return false;
        }
        for (uint32_t s = 0; s < group_.simdgroup_count && !failed_; ++s) {
            run_simdgroup(simdgroups_[simdgroup_order_[s]]);
        }
    }
    return !failed_;
}

// Until each lane has finished or waits at a threadgroup barrier.
void core::run_simdgroup(simdgroup_state & simdgroup) {
    do {
        resume_lanes(simdgroup);
    } while (!failed_ && release_collective(simdgroup));
}

void core::start_lanes(simdgroup_state & simdgroup) {
    next_unstarted_ = lane_order_.data() + simdgroup.first_lane;
    end_unstarted_  = next_unstarted_ + simdgroup.lane_count;
    while (next_unstarted_ != end_unstarted_ && !failed_) {
        fiber * const f = fibers_.take();
        if (f == nullptr) {
            give_up(fault().set("%s: the system has no memory for another lane's stack", dispatch_->kernel.name));
            return;
        }
        switch_to(*f);
    }
}

void core::resume_lanes(simdgroup_state & simdgroup) {
    const uint16_t * const order = lane_order_.data() + simdgroup.first_lane;
    for (uint32_t i = 0; simdgroup.ready != 0 && i < simdgroup.lane_count; ++i) {
        lane & l = lanes_[order[i]];
        if ((simdgroup.ready & l.bit()) == 0) {
            continue;
        }
        simdgroup.ready &= ~l.bit();
        enter(l);
        switch_to(*l.stack);
        if (failed_) {
            return;
        }
    }
}

// Lanes that wait at different places are in divergent branches. The one that comes first in the source goes first: its
// lanes run on and meet the others behind the branch, or run the remaining turns of a loop.
bool core::release_collective(simdgroup_state & simdgroup) {
    if (simdgroup.collecting == 0) {
        return false;
    }
    const lane * const in = &lanes_[simdgroup.first_lane];

    const lane * first = nullptr;
    for (uint32_t rest = simdgroup.collecting; rest != 0; rest &= rest - 1) {
        const lane * const l = in + __builtin_ctz(rest);
        if (first == nullptr || l->waits_at.at.line < first->waits_at.at.line) {
            first = l;
        }
    }

    uint32_t members = 0;
    for (uint32_t rest = simdgroup.collecting; rest != 0; rest &= rest - 1) {
        const uint32_t i = static_cast<uint32_t>(__builtin_ctz(rest));
        if (in[i].waits_at == first->waits_at) {
            members |= 1u << i;
            simdgroup.values[i]   = in[i].published;
            simdgroup.pointers[i] = in[i].published_pointer;
        }
    }
    if (members != ~0u) {
        for (uint32_t rest = ~members; rest != 0; rest &= rest - 1) {
            std::memset(&simdgroup.values[__builtin_ctz(rest)], poison_byte, sizeof(lane_value));
        }
    }

    simdgroup.members = members;
    simdgroup.reduced = false;
    const bool barrier = first->waits_at.what == collective::simdgroup_barrier;
    verifier::simdgroup_synchronised(simdgroup, first->waits_at, barrier ? first->orders : memory_all);
    simdgroup.collecting &= ~members;
    simdgroup.ready |= members;
    return true;
}

bool core::lanes_left() const {
    for (uint32_t s = 0; s < group_.simdgroup_count; ++s) {
        if (simdgroups_[s].finished != simdgroups_[s].all_lanes()) {
            return true;
        }
    }
    return false;
}

// All lanes have stopped, and not all have finished: then all must wait at the same barrier.
bool core::release_barrier() {
    const lane * waiting = nullptr;
    for (uint32_t i = 0; i < lane_count_ && waiting == nullptr; ++i) {
        waiting = (lanes_[i].simdgroup->at_barrier & lanes_[i].bit()) != 0 ? &lanes_[i] : nullptr;
    }
    for (uint32_t i = 0; i < lane_count_; ++i) {
        const lane & l = lanes_[i];
        if ((l.simdgroup->at_barrier & l.bit()) == 0 || l.waits_at != waiting->waits_at) {
            report_divergence(*waiting, l);
            return false;
        }
    }
    for (uint32_t s = 0; s < group_.simdgroup_count; ++s) {
        simdgroups_[s].ready      = simdgroups_[s].at_barrier;
        simdgroups_[s].at_barrier = 0;
    }
    ++counters_.threadgroup_barriers;
    verifier::threadgroup_synchronised(waiting->waits_at.at, waiting->orders);
    return true;
}

bool core::check_memory() {
    const overrun o = memory_.find_overrun();
    if (!o.found) {
        return true;
    }
    const extent3 & p = group_.position;
    fault           f;
    if (o.array != nullptr) {
        f.set("%s: threadgroup (%u, %u, %u) wrote bytes [%zu, %zu) of threadgroup array %s, which has %zu bytes",
              dispatch_->kernel.name, p.x, p.y, p.z, o.begin, o.end, o.array, o.size);
    } else {
        f.set("%s: threadgroup (%u, %u, %u) wrote bytes [%zu, %zu) of threadgroup memory %u, which has %zu bytes",
              dispatch_->kernel.name, p.x, p.y, p.z, o.begin, o.end, o.index, o.size);
    }
    give_up(f);
    return false;
}

void core::report_divergence(const lane & waiting, const lane & other) {
    const extent3 & p     = group_.position;
    const auto &    where = waiting.waits_at.at;
    verifier::diverged(where, waiting.index_in_threadgroup, other.index_in_threadgroup);
    fault           f;
    if ((other.simdgroup->finished & other.bit()) != 0) {
        f.set(
            "%s: threadgroup (%u, %u, %u): lane %u waits at the threadgroup barrier of %s:%u, but lane %u has returned",
            dispatch_->kernel.name, p.x, p.y, p.z, waiting.index_in_threadgroup, where.file, where.line,
            other.index_in_threadgroup);
    } else {
        f.set(
            "%s: threadgroup (%u, %u, %u): lane %u waits at the threadgroup barrier of %s:%u, lane %u at that of %s:%u",
            dispatch_->kernel.name, p.x, p.y, p.z, waiting.index_in_threadgroup, where.file, where.line,
            other.index_in_threadgroup, other.waits_at.at.file, other.waits_at.at.line);
    }
    give_up(f);
}

// Only the first fault of a dispatch is reported: what follows on other cores may be its consequence.
void core::give_up(const fault & f) {
    failed_ = true;
    if (!dispatch_->failed.exchange(true)) {
        report(f);
    }
}

// ---- on a fiber's stack

void core::fiber_body(void * self) {
    core & c = *static_cast<core *>(self);
    for (;;) {
        c.run_unstarted_lanes();
        fiber & idle = *c.running_;
        c.fibers_.give_back(idle);
        switch_stack(&idle.stack_pointer, c.scheduler_stack_);
    }
}

// A lane that waits leaves this loop to the scheduler's next fiber, and ends it when it is resumed on this one.
void core::run_unstarted_lanes() {
    while (next_unstarted_ != end_unstarted_) {
        lane & l = lanes_[*next_unstarted_++];
        l.stack  = running_;
        enter(l);
        dispatch_->kernel.entry->run(l);
        l.simdgroup->finished |= l.bit();
    }
}

void core::switch_to(fiber & f) {
    running_ = &f;
    ++counters_.lane_switches;
    switch_stack(&scheduler_stack_, f.stack_pointer);
}

}  // namespace metal_sim
