// A lane is one thread of a threadgroup, as a kernel sees itself: its indices, its simdgroup, and the points where it
// waits for others. Kernels reach the running lane through `current_lane`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metal_sim {

constexpr uint32_t simd_width                      = 32;
constexpr uint32_t max_threads_per_threadgroup     = 1024;
constexpr size_t   max_threadgroup_memory          = 32 * 1024;
constexpr uint32_t max_buffer_bindings             = 31;  // Metal's buffer argument table
constexpr uint32_t max_threadgroup_memory_bindings = 8;

// A size or a position in up to three dimensions.
struct extent3 {
    uint32_t x = 1;
    uint32_t y = 1;
    uint32_t z = 1;

    uint64_t volume() const { return uint64_t(x) * y * z; }
};

inline bool operator==(const extent3 & a, const extent3 & b) {
    return a.x == b.x && a.y == b.y && a.z == b.z;
}

// A place in the kernel source. Functions that make lanes wait take it as their last, defaulted argument, so that the
// simulator knows which lanes wait at the same place.
struct source_position {
    const char * file = "";
    uint32_t     line = 0;

    static constexpr source_position current(const char * file = __builtin_FILE(), uint32_t line = __builtin_LINE()) {
        return { file, line };
    }
};

// The memory that a barrier orders: MSL's mem_flags.
constexpr uint32_t memory_none        = 0;
constexpr uint32_t memory_device      = 1;
constexpr uint32_t memory_threadgroup = 2;
constexpr uint32_t memory_all         = memory_device | memory_threadgroup;

// What the lanes of a simdgroup do together. Part of a call site: two different operations on one line never mix.
enum class collective : uint8_t {
    none,
    lockstep,
    simdgroup_barrier,
    sum,
    maximum,
    minimum,
    all,
    any,
    shuffle,
    prefix_sum,
    matrix_gather,
    matrix_done,
};

struct call_site {
    source_position at;
    collective      what = collective::none;
};

inline bool operator==(const call_site & a, const call_site & b) {
    // Positions come from one translation unit, where equal file names share their storage.
    return a.at.line == b.at.line && a.what == b.what && a.at.file == b.at.file;
}

inline bool operator!=(const call_site & a, const call_site & b) {
    return !(a == b);
}

// Bytes a lane can publish to its simdgroup in one collective operation.
struct alignas(16) lane_value {
    unsigned char bytes[16];
};

class core;
struct compute_dispatch;
struct fiber;

// The lanes that were released together from a collective operation, and what they had published.
struct simdgroup_state {
    lane_value values[simd_width]   = {};  // entries of lanes outside `members` hold poison
    void *     pointers[simd_width] = {};
    uint32_t   members              = 0;      // one bit per lane, as below
    bool       reduced              = false;  // `reduction` already holds the result of this operation
    lane_value reduction            = {};

    // Where the lanes are. A lane in none of these sets has not started yet, or is running.
    uint32_t ready      = 0;  // may continue
    uint32_t collecting = 0;  // waits in a collective operation
    uint32_t at_barrier = 0;  // waits in threadgroup_barrier
    uint32_t finished   = 0;

    uint32_t first_lane = 0;  // index in the threadgroup
    uint32_t lane_count = 0;

    uint32_t all_lanes() const { return lane_count == simd_width ? ~0u : (1u << lane_count) - 1; }
};

// The threadgroup that a core is running.
struct group_state {
    const compute_dispatch * arguments                               = nullptr;
    core *                   runner                                  = nullptr;
    unsigned char *          memory[max_threadgroup_memory_bindings] = {};
    extent3                  position;
    uint32_t                 simdgroup_count = 0;
    uint64_t                 simdgroup_fmas  = 0;
};

struct lane {
    group_state *     group     = nullptr;
    simdgroup_state * simdgroup = nullptr;
    fiber *           stack     = nullptr;  // the stack it is suspended on

    uint32_t index_in_threadgroup = 0;
    uint32_t index_in_simdgroup   = 0;
    uint32_t simdgroup_index      = 0;
    extent3  position_in_threadgroup;

    uint32_t bit() const { return 1u << index_in_simdgroup; }

    call_site  waits_at;
    uint32_t   orders            = memory_none;  // the barrier that it waits at
    lane_value published         = {};
    void *     published_pointer = nullptr;
};

// The lane that this OS thread is executing. `__thread`, not `thread_local`: no initialisation check on every access.
// Initial-exec, because it is read at every collective and 8 bytes always fit a dlopen'd module's share of static TLS.
extern __thread lane * current_lane __attribute__((tls_model("initial-exec")));

// Waits until every lane of the threadgroup is at this barrier.
void wait_at_threadgroup_barrier(uint32_t orders, source_position at);

// Waits for the simdgroup, as below, and orders this memory.
void wait_at_simdgroup_barrier(uint32_t orders, source_position at);

// Waits until no lane of the simdgroup can run on, then continues together with the lanes at the same call site.
// On return the simdgroup's `members` and `values` describe that set.
void wait_for_simdgroup(collective what, source_position at);

// Ends the dispatch with a fault: the running lane did something that no GPU would define.
[[noreturn]] void fail_lane(const char * what, source_position at);

}  // namespace metal_sim
