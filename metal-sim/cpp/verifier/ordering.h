// Whether two accesses are ordered. Dispatches, threadgroups and what lies between two barriers run one after the other
// here, so each of them is a range of context numbers.
#pragma once

#include "contexts.h"
#include "shadow.h"

#include <array>
#include <cstdint>

namespace metal_sim {
namespace verifier {

// The first context of what is running, for one address space: a device access outlives its threadgroup, and a barrier
// orders only the memory that it names.
struct ordering {
    uint32_t segment  = 1;
    uint32_t dispatch = 1;
    uint32_t group    = 1;
    uint32_t epoch    = 1;  // since the last threadgroup barrier

    std::array<uint32_t, max_threads_per_threadgroup / simd_width> simdgroup = {};  // since all its lanes met
};

enum class conflict : uint32_t { none, simdgroup, threadgroup, grid, dispatch };

// The one that accesses now.
struct accessor {
    const contexts &         known;
    const simdgroup_clocks & clocks;
    uint32_t                 lane = 0;  // as in a context

    uint32_t index() const { return lane & ~whole_simdgroup; }
};

// How the accesses that `c` stands for conflict with one that happens now, given that one of the two writes.
inline conflict judge(const ordering & o, const accessor & now, cell c) {
    const uint32_t before = c.context();
    if (before < o.segment) {
        return conflict::none;
    }
    if (before < o.dispatch || c.who() == readers::dispatches) {
        return conflict::dispatch;
    }
    if (before < o.group || c.who() == readers::threadgroups) {
        return conflict::grid;
    }
    if (before < o.epoch) {
        return conflict::none;
    }
    const context * const other = now.known.find(before);
    if (other == nullptr) {
        return conflict::none;
    }
    if (c.who() == readers::simdgroups || other->simdgroup() != now.index() / simd_width) {
        return conflict::threadgroup;
    }
    if (before < o.simdgroup[other->simdgroup()] || (other->lane == now.lane && c.who() == readers::one)) {
        return conflict::none;
    }
    return now.clocks.ordered(now.index(), other->index(), other->clock) ? conflict::none : conflict::simdgroup;
}

// What to remember of a byte that `c` stands for and that `mine` reads now. Of several readers the first one: what writes
// next is often the last one itself.
inline cell joined(const ordering & o, const accessor & now, cell c, cell mine) {
    const auto with = [&](readers r) {
        return cell::of(c.context(), c.pc(), r, false);
    };
    const uint32_t before = c.context();
    if (before < o.segment) {
        return mine;
    }
    if (c.who() == readers::dispatches) {
        return c;
    }
    if (before < o.dispatch) {
        return with(readers::dispatches);
    }
    if (c.who() == readers::threadgroups) {
        return c;
    }
    if (before < o.group) {
        return with(readers::threadgroups);
    }
    if (before < o.epoch) {
        return mine;
    }
    if (c.who() == readers::simdgroups) {
        return c;
    }
    const context * const other = now.known.find(before);
    if (other == nullptr) {
        return mine;
    }
    if (other->simdgroup() != now.index() / simd_width) {
        return with(readers::simdgroups);
    }
    if (before < o.simdgroup[other->simdgroup()]) {
        return mine;
    }
    if (other->lane == now.lane) {
        return c.who() == readers::one ? mine : c;
    }
    return now.clocks.ordered(now.index(), other->index(), other->clock) ? mine : with(readers::lanes);
}

}  // namespace verifier
}  // namespace metal_sim
