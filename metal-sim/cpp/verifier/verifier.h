// The verifier's memory checks, called for every access that a kernel makes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metal_sim {
namespace verifier {

enum class access_kind : uint32_t { read, write, atomic_read, atomic_write };

// The running lane's stack: where most accesses go, and nobody else's business. While no kernel runs it is all memory.
struct own_stack {
    uintptr_t begin = 0;
    uintptr_t size  = UINTPTR_MAX;

    bool contains(const void * address) const { return reinterpret_cast<uintptr_t>(address) - begin < size; }
};

extern own_stack stack_of_lane;

// Checks an access that is about to happen. `pc`: the return address of the instrumentation.
void check_access(const void * address, size_t size, const void * pc, access_kind kind);

inline void access(const void * address, size_t size, const void * pc, access_kind kind) {
    if (!stack_of_lane.contains(address)) {
        check_access(address, size, pc, kind);
    }
}

}  // namespace verifier
}  // namespace metal_sim
