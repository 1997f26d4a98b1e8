/* What the simulated Metal device tells about itself: counters, the last fault, and what the verifier finds. Plain C, read
 * by ggml-rs (src/sim.rs and src/sim/verifier.rs). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
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

    /* Only in a device with the verifier, which sees each access; else 0. What kernels load and store, as if there were no cache. */
    uint64_t device_bytes_read;
    uint64_t device_bytes_written;

    /* Only in a device with the verifier: how often a fault was seen that is not among the findings, which had no room left. */
    uint64_t lost_findings;
};

void metal_sim_counters_reset(void);
void metal_sim_counters_read(struct metal_sim_counters * counters);

/* What went wrong last: kernel, threadgroup, lane, source line. "" when nothing did. Valid until the next fault. */
const char * metal_sim_last_fault(void);
void         metal_sim_fault_clear(void);

/* ---- The verifier. These functions exist only in a device that was built with it (METAL_SIM_VERIFIER). */

enum metal_sim_detector {
    METAL_SIM_UNINITIALISED = 1, /* reads what nobody wrote */
    METAL_SIM_OUT_OF_BOUNDS,     /* touches memory that belongs to none of the dispatch's tensors */
    METAL_SIM_RACE_SIMDGROUP,    /* two lanes of a simdgroup */
    METAL_SIM_RACE_THREADGROUP,  /* two simdgroups of a threadgroup */
    METAL_SIM_RACE_GRID,         /* two threadgroups of a dispatch */
    METAL_SIM_RACE_DISPATCH,     /* two dispatches without a memory barrier between them */
    METAL_SIM_DIVERGENT_BARRIER, /* lanes of a threadgroup wait at different barriers */
};

enum metal_sim_access {
    METAL_SIM_NO_ACCESS = 0, /* no second party */
    METAL_SIM_READ,
    METAL_SIM_WRITE,
    METAL_SIM_ATOMIC,
};

enum metal_sim_space {
    METAL_SIM_ELSEWHERE = 0, /* memory that is none of the dispatch's */
    METAL_SIM_DEVICE,
    METAL_SIM_THREADGROUP,
};

#define METAL_SIM_WHOLE_SIMDGROUP 0x80000000u /* added to the simdgroup's first lane: a simdgroup matrix was moved */
#define METAL_SIM_UNKNOWN_LANE    0xffffffffu /* it was too long ago */

/* One party. */
struct metal_sim_place {
    uint64_t pc; /* return address behind the access, as an offset in the module's file (metal_sim_verifier_module) */
    uint32_t access;
    uint32_t lane; /* index in the threadgroup */
    uint32_t threadgroup[3];
    uint32_t reserved;
};

struct metal_sim_finding {
    uint32_t               detector;
    uint32_t               same_value; /* of a race: both parties wrote the same bytes */
    char                   kernel[128];
    char                   other_kernel[128]; /* of a race between dispatches, else "" */
    struct metal_sim_place at;
    struct metal_sim_place other; /* the earlier party of a race */
    uint32_t               space;
    int32_t                block;      /* binding of the buffer or of the threadgroup memory; -1: none, or an array */
    char                   name[64];   /* of the tensor or the array, where it has one */
    int64_t                offset;     /* of the first byte in the tensor or the block */
    uint64_t               block_size; /* bytes that it has */
    uint64_t               bytes;      /* accessed */
    uint64_t               count;      /* how often it was seen */
    char                   file[64];   /* of a divergent barrier */
    uint32_t               line;
    uint32_t               reserved;
};

/* Moves up to `capacity` findings out, oldest first. Returns how many. No more than 4096 are kept, and the others counted. */
size_t metal_sim_verifier_take(struct metal_sim_finding * findings, size_t capacity);

/* The file that findings' `pc` are offsets in; "" for the program itself. */
const char * metal_sim_verifier_module(void);

/* Whether the lanes of a simdgroup run in lockstep and are ordered by collective operations, as on known hardware, or only
 * by barriers, as MSL has it. Also METAL_SIM_LOCKSTEP=hardware|strict. */
void metal_sim_verifier_set_strict(bool strict);

/* 0: ascending, 1: reversed, 2: random. As METAL_SIM_ORDER and METAL_SIM_SEED, for dispatches from now on. */
void metal_sim_verifier_set_order(uint32_t order, uint64_t seed);

struct metal_sim_barrier {
    char     file[64];
    uint32_t line;
    uint32_t is_simdgroup; /* simdgroup_barrier, else threadgroup_barrier */
    uint64_t count;        /* how often lanes met there */
};

/* Barriers that have ordered something since the last reset, up to `capacity`. Returns how many there are. */
size_t metal_sim_verifier_barriers(struct metal_sim_barrier * barriers, size_t capacity);
void   metal_sim_verifier_barriers_reset(void);

/* From now on barriers at this place neither wait nor order. `file` may be the end of the path. */
void metal_sim_verifier_remove_barrier(const char * file, uint32_t line);
void metal_sim_verifier_restore_barriers(void);

/* Which kernel wrote last to a byte of device memory, given the address that ggml knows it by (tensor->data + offset).
 * False when none did, or when it is too long ago to know. What the host wrote since then does not count. */
bool metal_sim_verifier_last_writer(const void * address, char * kernel, size_t capacity,
                                    struct metal_sim_place * place);

#ifdef __cplusplus
}
#endif
