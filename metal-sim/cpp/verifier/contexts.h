// Who runs when. A context is one lane between two points where it stopped; contexts are numbered as they begin, so that
// "before the last barrier" is a comparison of two numbers.
#pragma once

#include "../runtime/lane.h"

#include <cstdint>
#include <vector>

namespace metal_sim {
namespace verifier {

// Beyond a lane's index: the whole simdgroup, whose first lane it is.
constexpr uint32_t whole_simdgroup = 0x8000;

struct context {
    uint32_t dispatch = 0;  // counted since the program started
    uint32_t group    = 0;  // index of the threadgroup
    uint32_t lane     = 0;  // index in the threadgroup, plus `whole_simdgroup`
    uint32_t clock    = 0;  // of the lane: see simdgroup_clocks

    uint32_t index() const { return lane & ~whole_simdgroup; }

    uint32_t simdgroup() const { return index() / simd_width; }
};

class contexts {
  public:
    // Numbers begin at 1.
    uint32_t add(const context & c) {
        table_.push_back(c);
        return next_++;
    }

    uint32_t next() const { return next_; }

    // Null when it is no longer known.
    const context * find(uint32_t number) const {
        return number < first_ || number >= next_ ? nullptr : &table_[number - first_];
    }

    // Forgets those before the next, if there are many.
    void trim() {
        if (table_.size() > limit) {
            table_.clear();
            first_ = next_;
        }
    }

    // Numbers would repeat soon.
    bool exhausted() const { return next_ > 0xe0000000u; }

    void restart() {
        table_.clear();
        first_ = next_ = 1;
    }

  private:
    static constexpr size_t limit = 4 * 1024 * 1024;

    std::vector<context> table_;
    uint32_t             first_ = 1;
    uint32_t             next_  = 1;
};

// Vector clocks of a threadgroup's simdgroups, for collective operations that not all lanes take part in: `known` is how
// much of another lane's work is ordered before a lane's.
class simdgroup_clocks {
  public:
    void reset(uint32_t lanes) {
        for (uint32_t i = 0; i < lanes; ++i) {
            own_[i] = 0;
            for (uint32_t & k : known_[i]) {
                k = 0;
            }
        }
    }

    uint32_t own(uint32_t lane) const { return own_[lane]; }

    // Whether what lane `other` did at `clock` is ordered before what `lane` does now; both are of one simdgroup.
    bool ordered(uint32_t lane, uint32_t other, uint32_t clock) const {
        return known_[lane][other % simd_width] > clock;
    }

    // `members` are bits of the simdgroup that starts at lane `first`.
    void meet(uint32_t first, uint32_t members) {
        uint32_t merged[simd_width] = {};
        for (uint32_t rest = members; rest != 0; rest &= rest - 1) {
            const uint32_t i = static_cast<uint32_t>(__builtin_ctz(rest));
            for (uint32_t k = 0; k < simd_width; ++k) {
                merged[k] = merged[k] < known_[first + i][k] ? known_[first + i][k] : merged[k];
            }
        }
        for (uint32_t rest = members; rest != 0; rest &= rest - 1) {
            const uint32_t i = static_cast<uint32_t>(__builtin_ctz(rest));
            merged[i]        = ++own_[first + i];
        }
        for (uint32_t rest = members; rest != 0; rest &= rest - 1) {
            const uint32_t i = static_cast<uint32_t>(__builtin_ctz(rest));
            for (uint32_t k = 0; k < simd_width; ++k) {
                known_[first + i][k] = merged[k];
            }
        }
    }

  private:
    uint32_t own_[max_threads_per_threadgroup]               = {};
    uint32_t known_[max_threads_per_threadgroup][simd_width] = {};
};

}  // namespace verifier
}  // namespace metal_sim
