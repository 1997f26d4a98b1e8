// The orders in which the simulator runs what a GPU may run in any order.
#pragma once

#include "settings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace metal_sim {

// SplitMix64: a few instructions, and every seed gives an independent sequence.
inline uint64_t next_random(uint64_t & state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z          = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z          = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

template <class T> void shuffle(T * first, size_t count, uint64_t & state) {
    for (size_t i = count; i > 1; --i) {
        std::swap(first[i - 1], first[next_random(state) % i]);
    }
}

// Where the random order of the `turn`th thing starts: the same one in every run with this seed.
inline uint64_t random_state(const settings & how, uint64_t turn) {
    return how.seed * 0x9e3779b97f4a7c15 + turn;
}

// Rearranges what stands in the ascending order.
template <class T> void arrange(T * first, size_t count, const settings & how, uint64_t turn) {
    if (how.order == lane_order::reversed) {
        std::reverse(first, first + count);
    } else if (how.order == lane_order::random) {
        uint64_t state = random_state(how, turn);
        shuffle(first, count, state);
    }
}

}  // namespace metal_sim
