// How the simulator runs, from the environment. None of these settings changes what a correct kernel computes.
#pragma once

#include <cstdint>
#include <string>

namespace metal_sim {

// In which order things run that no barrier separates: the lanes of a simdgroup, the simdgroups of a threadgroup, the
// threadgroups of a dispatch, and dispatches. Where a result depends on it, a barrier is missing.
enum class lane_order : uint32_t { ascending, reversed, random };

struct settings {
    lane_order  order   = lane_order::ascending;  // METAL_SIM_ORDER
    uint64_t    seed    = 1;                      // METAL_SIM_SEED, for the random order
    uint32_t    threads = 1;                      // METAL_SIM_THREADS, default: one per CPU, at most 16; 1 with the verifier
    std::string error;                            // what is wrong with the environment; then nothing runs

    static settings from_environment();
};

}  // namespace metal_sim
