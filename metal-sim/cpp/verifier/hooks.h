// What the simulator tells the verifier. Without METAL_SIM_VERIFIER every call here is nothing.
//
// The verifier is written for one OS thread: settings::from_environment gives a verified simulator one core.
#pragma once

#include "../runtime/lane.h"
#include "in_kernels.h"

#include <cstddef>
#include <cstdint>

namespace metal_sim {

struct compute_dispatch;
struct kernel_entry;

namespace verifier {

#ifdef METAL_SIM_VERIFIER

constexpr bool enabled = true;

// ---- device memory, as the host sees it

// Memory that ggml may place tensors in. A read between `readable` and `readable_end` does not end the process.
// `base`: the address that the host knows it by.
void add_memory(unsigned char * data, size_t size, unsigned char * readable, unsigned char * readable_end,
                const void * base, bool initialised);
void remove_memory(unsigned char * data);

// The host has written there.
void initialise(const unsigned char * data, size_t size);
void poison(const unsigned char * data, size_t size);  // with nothing
void initialise_as(const unsigned char * to, const unsigned char * from, size_t size);

// ---- what a dispatch does

// Dispatches between these two may run in any order and at the same time.
void begin_segment();
void end_segment();

// `internal`: the core, which the shim reads and writes on a kernel's behalf.
void begin_dispatch(const kernel_entry & kernel, const compute_dispatch & d, const void * internal,
                    size_t internal_size);
void end_dispatch();

void begin_threadgroup(uint64_t index, uint32_t lanes);

// The first `max_threadgroup_memory_bindings` slots are bindings, which stay for the dispatch; the rest are arrays, which a
// new threadgroup forgets.
void place_threadgroup_memory(uint32_t slot, const char * name, unsigned char * data, size_t size,
                              const unsigned char * readable, const unsigned char * readable_end);
void forget_threadgroup_memory();

void add_stack(const unsigned char * begin, const unsigned char * end);

// `l` runs until another one does.
void enter_lane(const lane & l, const unsigned char * stack, const unsigned char * stack_end);

// ---- what orders lanes

void threadgroup_synchronised(source_position at, uint32_t memory);
void simdgroup_synchronised(const simdgroup_state & simdgroup, call_site at, uint32_t memory);
void diverged(source_position at, uint32_t lane, uint32_t other_lane);

// Whether this barrier is taken out.
bool is_removed(source_position barrier);

#else

constexpr bool enabled = false;

inline void add_memory(unsigned char *, size_t, unsigned char *, unsigned char *, const void *, bool) {}

inline void remove_memory(unsigned char *) {}

inline void initialise(const unsigned char *, size_t) {}

inline void poison(const unsigned char *, size_t) {}

inline void initialise_as(const unsigned char *, const unsigned char *, size_t) {}

inline void begin_segment() {}

inline void end_segment() {}

inline void begin_dispatch(const kernel_entry &, const compute_dispatch &, const void *, size_t) {}

inline void end_dispatch() {}

inline void begin_threadgroup(uint64_t, uint32_t) {}

inline void place_threadgroup_memory(uint32_t, const char *, unsigned char *, size_t, const unsigned char *,
                                     const unsigned char *) {}

inline void forget_threadgroup_memory() {}

inline void add_stack(const unsigned char *, const unsigned char *) {}

inline void enter_lane(const lane &, const unsigned char *, const unsigned char *) {}

inline void threadgroup_synchronised(source_position, uint32_t) {}

inline void simdgroup_synchronised(const simdgroup_state &, call_site, uint32_t) {}

inline void diverged(source_position, uint32_t, uint32_t) {}

inline bool is_removed(source_position) {
    return false;
}

#endif

}  // namespace verifier
}  // namespace metal_sim
