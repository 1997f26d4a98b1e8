// Barriers, and functions over the lanes of a simdgroup.
//
// Each function publishes the lane's value, waits for the others at the same call site, and reads what they published.
// Lanes that are not there have no value: reading one gives poison.
#pragma once

#include "../runtime/lane.h"
#include "metal_math.h"

namespace metal {

using metal_sim::collective;
using metal_sim::source_position;

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };

constexpr mem_flags operator|(mem_flags a, mem_flags b) {
    return static_cast<mem_flags>(static_cast<int>(a) | static_cast<int>(b));
}

static_assert(static_cast<uint32_t>(mem_flags::mem_device) == metal_sim::memory_device &&
                  static_cast<uint32_t>(mem_flags::mem_threadgroup) == metal_sim::memory_threadgroup,
              "the runtime knows them by the same bits");

inline void threadgroup_barrier(mem_flags flags, source_position at = source_position::current()) {
    metal_sim::wait_at_threadgroup_barrier(static_cast<uint32_t>(flags), at);
}

// Without memory to order nothing can tell whether the lanes met, so they do not: mul_mm has many of these.
inline void simdgroup_barrier(mem_flags flags, source_position at = source_position::current()) {
    if (flags != mem_flags::mem_none) {
        metal_sim::wait_at_simdgroup_barrier(static_cast<uint32_t>(flags), at);
    }
}

namespace detail {

template <class T> inline void exchange(T value, collective what, source_position at) {
    static_assert(sizeof(T) <= sizeof(metal_sim::lane_value), "too large for one register per lane");
    __builtin_memcpy(metal_sim::current_lane->published.bytes, &value, sizeof(T));
    metal_sim::wait_for_simdgroup(what, at);
}

template <class T> inline T value_of(const metal_sim::lane_value & published) {
    T value;
    __builtin_memcpy(&value, published.bytes, sizeof(T));
    return value;
}

template <class T> inline T value_of_lane(uint lane) {
    return value_of<T>(metal_sim::current_lane->simdgroup->values[lane % metal_sim::simd_width]);
}

// All members get the same result: the first one computes it.
template <class T, class Combine> inline T reduce(T value, collective what, source_position at, Combine combine) {
    exchange(value, what, at);
    metal_sim::simdgroup_state & simdgroup = *metal_sim::current_lane->simdgroup;
    if (!simdgroup.reduced) {
        uint rest   = simdgroup.members;
        T    result = value_of_lane<T>(ctz(rest));
        for (rest &= rest - 1; rest != 0; rest &= rest - 1) {
            result = combine(result, value_of_lane<T>(ctz(rest)));
        }
        __builtin_memcpy(simdgroup.reduction.bytes, &result, sizeof(T));
        simdgroup.reduced = true;
    }
    return value_of<T>(simdgroup.reduction);
}

}  // namespace detail

template <class T> inline T simd_sum(T value, source_position at = source_position::current()) {
    return detail::reduce(value, collective::sum, at, [](T a, T b) { return static_cast<T>(a + b); });
}

template <class T> inline T simd_max(T value, source_position at = source_position::current()) {
    return detail::reduce(value, collective::maximum, at, [](T a, T b) { return static_cast<T>(max(a, b)); });
}

template <class T> inline T simd_min(T value, source_position at = source_position::current()) {
    return detail::reduce(value, collective::minimum, at, [](T a, T b) { return static_cast<T>(min(a, b)); });
}

inline bool simd_all(bool value, source_position at = source_position::current()) {
    return detail::reduce(value, collective::all, at, [](bool a, bool b) { return a && b; });
}

inline bool simd_any(bool value, source_position at = source_position::current()) {
    return detail::reduce(value, collective::any, at, [](bool a, bool b) { return a || b; });
}

template <class T> inline T simd_shuffle(T value, ushort lane, source_position at = source_position::current()) {
    detail::exchange(value, collective::shuffle, at);
    return detail::value_of_lane<T>(lane);
}

template <class T> inline T simd_broadcast(T value, ushort lane, source_position at = source_position::current()) {
    return simd_shuffle(value, lane, at);
}

template <class T> inline T simd_shuffle_xor(T value, ushort mask, source_position at = source_position::current()) {
    detail::exchange(value, collective::shuffle, at);
    return detail::value_of_lane<T>(metal_sim::current_lane->index_in_simdgroup ^ mask);
}

// Lanes without a source keep their own value.
template <class T> inline T simd_shuffle_down(T value, ushort delta, source_position at = source_position::current()) {
    detail::exchange(value, collective::shuffle, at);
    const uint from = metal_sim::current_lane->index_in_simdgroup + delta;
    return from < metal_sim::simd_width ? detail::value_of_lane<T>(from) : value;
}

template <class T> inline T simd_shuffle_up(T value, ushort delta, source_position at = source_position::current()) {
    detail::exchange(value, collective::shuffle, at);
    const uint own = metal_sim::current_lane->index_in_simdgroup;
    return own >= delta ? detail::value_of_lane<T>(own - delta) : value;
}

template <class T> inline T simd_prefix_exclusive_sum(T value, source_position at = source_position::current()) {
    detail::exchange(value, collective::prefix_sum, at);
    const metal_sim::lane & self   = *metal_sim::current_lane;
    T                       result = 0;
    for (uint rest = self.simdgroup->members & (self.bit() - 1); rest != 0; rest &= rest - 1) {
        result += detail::value_of_lane<T>(ctz(rest));
    }
    return result;
}

template <class T> inline T simd_prefix_inclusive_sum(T value, source_position at = source_position::current()) {
    return simd_prefix_exclusive_sum(value, at) + value;
}

}  // namespace metal
