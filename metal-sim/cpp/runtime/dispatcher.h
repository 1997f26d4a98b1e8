// Runs dispatches: one at a time, each spread over the simulator's cores.
#pragma once

#include "compute_dispatch.h"
#include "counters.h"
#include "pipeline.h"
#include "settings.h"

namespace metal_sim {

// Runs one dispatch to its end. False when it failed; what happened is then the last fault.
bool execute(const pipeline & p, const compute_dispatch & d);

// How this process simulates.
const settings & current_settings();

// The order of dispatches from now on, and the seed of a random one.
void set_order(lane_order order, uint64_t seed);

// Sums over all dispatches since the last reset.
counters read_counters();
void     reset_counters();

}  // namespace metal_sim
