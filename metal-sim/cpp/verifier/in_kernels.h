// The part of the verifier that kernels are compiled with. Without METAL_SIM_VERIFIER it is nothing.
#pragma once

namespace metal_sim {
namespace verifier {

#ifdef METAL_SIM_VERIFIER

// Whether lanes of a simdgroup run in lockstep, beyond what the kernel asks for.
bool has_lockstep();

// What the whole simdgroup does, though one lane does it for all. `pc`: where, unless it is null.
void begin_simdgroup_access(const void * pc);
void end_simdgroup_access();

#else

inline bool has_lockstep() {
    return true;
}

inline void begin_simdgroup_access(const void *) {}

inline void end_simdgroup_access() {}

#endif

// Between its construction and its end, accesses are the simdgroup's.
struct simdgroup_access {
    explicit simdgroup_access(const void * pc) { begin_simdgroup_access(pc); }

    ~simdgroup_access() { end_simdgroup_access(); }

    simdgroup_access(const simdgroup_access &)             = delete;
    simdgroup_access & operator=(const simdgroup_access &) = delete;
};

}  // namespace verifier
}  // namespace metal_sim
