// What a dispatch may touch.
#pragma once

#include "../runtime/compute_dispatch.h"
#include "memory.h"
#include "ordering.h"
#include "shadow.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace metal_sim {
namespace verifier {

// Bytes that kernels may touch. Without a shadow: the simulator's own, or constant.
struct region {
    const unsigned char * begin  = nullptr;
    const unsigned char * end    = nullptr;
    shadow *              bytes  = nullptr;
    size_t                offset = 0;  // of `begin` in the shadow
    bool                  shared = false;  // threadgroup memory

    bool contains(const unsigned char * address, size_t size) const {
        return address >= begin && address < end && size <= static_cast<size_t>(end - address);
    }
};

// One block of threadgroup memory.
struct threadgroup_block {
    const char *            name         = nullptr;  // of an array
    const unsigned char *   readable     = nullptr;
    const unsigned char *   readable_end = nullptr;
    region                  where;
    std::unique_ptr<shadow> bytes;
};

class regions {
  public:
    static constexpr size_t max_slots = max_threadgroup_memory_bindings + 16;

    // For a new dispatch, which gets its tensors, its constants, and `internals`.
    void begin_dispatch(const compute_dispatch & d, const std::vector<region> & internals);

    bool place(uint32_t slot, const char * name, unsigned char * data, size_t size, const unsigned char * readable,
               const unsigned char * readable_end);
    void forget_threadgroup_memory();
    void forget_shared_accesses();

    // Arrays are gone, bindings hold nothing.
    void begin_threadgroup();

    void add_stack(const unsigned char * begin, const unsigned char * end);

    // Null when the bytes lie in no single region.
    const region * find(const unsigned char * address, size_t size) {
        for (size_t i = 0; i < order_.size(); ++i) {
            region * const r = order_[i];
            if (r->contains(address, size)) {
                for (; i > 0; --i) {
                    order_[i] = order_[i - 1];
                }
                order_[0] = r;
                return r;
            }
        }
        return in_a_stack(address, size) ? &stack_ : nullptr;
    }

    // The block of threadgroup memory that an address lies in or around.
    const threadgroup_block * block_around(const unsigned char * address, uint32_t & slot) const;

  private:
    void add(const region & r);
    void add_tensors(const compute_dispatch & d);
    bool in_a_stack(const unsigned char * address, size_t size) const;

    std::deque<region>                       of_dispatch_;
    std::array<threadgroup_block, max_slots> blocks_;
    std::vector<region *>                    order_;   // the last one hit comes first
    std::vector<region>                      stacks_;  // by address
    region                                   stack_;   // stands for all of them
};

}  // namespace verifier
}  // namespace metal_sim
