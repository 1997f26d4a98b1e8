// A core runs threadgroups one after another, on one OS thread at a time.
//
// The lanes of a threadgroup share that thread: a lane runs until it must wait for others, then the next one runs.
// A lane starts on the stack of its predecessor if that has finished, so a kernel without barriers needs one stack and
// no switches; only a lane that waits keeps a stack to itself.
#pragma once

#include "compute_dispatch.h"
#include "counters.h"
#include "fault.h"
#include "fiber.h"
#include "kernel.h"
#include "lane.h"
#include "settings.h"
#include "threadgroup_memory.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace metal_sim {

// One dispatch while cores work on it.
struct dispatch_in_progress {
    const kernel_entry &     kernel;
    const compute_dispatch & arguments;
    std::atomic<uint64_t>    next{ 0 };  // threadgroup to run next
    std::atomic<bool>        failed{ false };
};

class core {
  public:
    explicit core(const settings & how);
    core(const core &)             = delete;
    core & operator=(const core &) = delete;

    // Runs threadgroups of `d` until none is left or one has failed. A fault is reported, once per dispatch.
    void work(dispatch_in_progress & d) noexcept;

    // What this core did since the last call.
    counters take_counters();

    // Called on a lane's stack.
    void              suspend(lane & l);
    [[noreturn]] void fail(lane & l, const char * what, source_position at);
    unsigned char *   declare_array(const void * tag, size_t size, const char * name, source_position at);

  private:
    void run_threadgroups(dispatch_in_progress & d);
    bool begin_dispatch(dispatch_in_progress & d);
    void shape_threadgroup(const extent3 & threads);
    bool bind_memory(const compute_dispatch & arguments);

    bool     run_threadgroup(uint64_t index);
    uint64_t arrange_lanes(uint64_t index);
    bool     run_lanes();
    void run_simdgroup(simdgroup_state & simdgroup);
    void start_lanes(simdgroup_state & simdgroup);
    void resume_lanes(simdgroup_state & simdgroup);
    bool release_collective(simdgroup_state & simdgroup);
    bool release_barrier();
    bool check_memory();

    static void fiber_body(void * self);
    void        run_unstarted_lanes();
    void        switch_to(fiber & f);

    bool lanes_left() const;
    void report_divergence(const lane & waiting, const lane & other);
    void give_up(const fault & f);

    static constexpr uint32_t max_simdgroups = max_threads_per_threadgroup / simd_width;

    const settings &       settings_;
    dispatch_in_progress * dispatch_ = nullptr;
    group_state            group_;
    threadgroup_memory     memory_;
    fiber_pool             fibers_;
    counters               counters_;

    extent3    shape_      = { 0, 0, 0 };            // the one that lanes_ and simdgroups_ are set up for,
    lane_order shaped_for_ = lane_order::ascending;  // in this order
    uint32_t   lane_count_ = 0;
    bool       failed_     = false;  // the running threadgroup

    std::array<lane, max_threads_per_threadgroup>     lanes_;
    std::array<simdgroup_state, max_simdgroups>       simdgroups_;
    std::array<uint16_t, max_threads_per_threadgroup> lane_order_;  // a permutation within each simdgroup
    std::array<uint16_t, max_simdgroups>              simdgroup_order_;

    void *           scheduler_stack_ = nullptr;
    fiber *          running_         = nullptr;
    const uint16_t * next_unstarted_  = nullptr;  // into lane_order_
    const uint16_t * end_unstarted_   = nullptr;
};

}  // namespace metal_sim
