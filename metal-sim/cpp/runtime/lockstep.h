// Two things that a GPU gives for free and a CPU does not.
#pragma once

#include "../verifier/in_kernels.h"
#include "lane.h"

#include <type_traits>

namespace metal_sim {

// The lanes of a simdgroup execute in lockstep: before a leader-only block they have all arrived, after it they have
// all seen its effect. The transform inserts these points. Returns true, so that it can stand in a condition.
inline bool lockstep(source_position at = source_position::current()) {
    if (verifier::has_lockstep()) {
        wait_for_simdgroup(collective::lockstep, at);
    }
    return true;
}

// A divisor that may be zero: integer division by zero yields an unspecified value on a GPU but traps on x86.
template <class T> constexpr T nonzero(T divisor) {
    if constexpr (std::is_integral<T>::value) {
        return divisor == 0 ? T(1) : divisor;
    } else {
        return divisor;
    }
}

}  // namespace metal_sim
