#pragma once

#include <cstdint>

namespace metal_sim {

// What dispatches cost in terms that do not depend on the host: see device/metal_sim.h for each member's meaning.
struct counters {
    uint64_t dispatches           = 0;
    uint64_t threadgroups         = 0;
    uint64_t threadgroup_barriers = 0;
    uint64_t simdgroup_fmas       = 0;
    uint64_t threadgroup_bytes    = 0;
    uint64_t lane_switches        = 0;
    uint64_t relaxed_fmas         = 0;

    counters & operator+=(const counters & other) {
        dispatches += other.dispatches;
        threadgroups += other.threadgroups;
        threadgroup_barriers += other.threadgroup_barriers;
        simdgroup_fmas += other.simdgroup_fmas;
        threadgroup_bytes += other.threadgroup_bytes;
        lane_switches += other.lane_switches;
        relaxed_fmas += other.relaxed_fmas;
        return *this;
    }
};

}  // namespace metal_sim
