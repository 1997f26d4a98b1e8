/* What the simulated Metal device tells about itself: counters and the last fault. Plain C, read by ggml-rs (src/sim.rs). */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sums since the last reset, over all simulated devices of the process. */
struct metal_sim_counters {
    uint64_t dispatches;
    uint64_t threadgroups;
    uint64_t threadgroup_barriers; /* barriers passed, counted once per threadgroup */
    uint64_t simdgroup_fmas;       /* multiply-adds in simdgroup matrix operations */
    uint64_t threadgroup_bytes;    /* threadgroup memory, summed over the threadgroups that had it */
    uint64_t lane_switches;        /* resumptions of a lane that had waited, plus stacks started */
    uint64_t relaxed_fmas;         /* multiply-adds of float operands that a tensor product may round (relaxed_precision) */
};

void metal_sim_counters_reset(void);
void metal_sim_counters_read(struct metal_sim_counters * counters);

/* What went wrong last: kernel, threadgroup, lane, source line. "" when nothing did. Valid until the next fault. */
const char * metal_sim_last_fault(void);
void         metal_sim_fault_clear(void);

#ifdef __cplusplus
}
#endif
