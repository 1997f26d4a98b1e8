// The threadgroup memory of one core.
//
// Each block is poisoned at the start of a threadgroup and followed by 16 KiB of slack that holds a known pattern, then
// by a guard page: a write behind the block is found after the threadgroup and reported as data, and the process lives.
#pragma once

#include "guarded_memory.h"
#include "lane.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace metal_sim {

// Bytes [begin, end) relative to the start of a block of `size` bytes, written though they lie behind it.
struct overrun {
    bool         found = false;
    size_t       begin = 0;
    size_t       end   = 0;
    size_t       size  = 0;
    uint32_t     index = 0;        // of the binding
    const char * array = nullptr;  // name, if the block was declared inside the kernel
};

class threadgroup_memory {
  public:
    // Where a dispatch's binding lies; all of them are set anew for each dispatch. Null when memory cannot be mapped.
    unsigned char * bind(uint32_t index, size_t size);
    void            unbind_all();

    // Poisons the bound blocks and forgets the arrays of the last threadgroup.
    void begin_threadgroup();

    // Storage of an array declared in the kernel: see declare_threadgroup_array. Null when the threadgroup would have
    // more than 32 KiB, or more arrays than any kernel has.
    unsigned char * declare(const void * tag, size_t size, const char * name);

    // Looks for writes behind the blocks of the threadgroup that just ended, and repairs the slack.
    overrun find_overrun();

    // Bytes in use by the running threadgroup.
    size_t bytes() const { return bound_bytes_ + declared_bytes_; }

  private:
    struct block {
        guarded_memory  memory;
        unsigned char * data = nullptr;
        size_t          size = 0;
        bool            used = false;
        const void *    tag  = nullptr;
        const char *    name = nullptr;

        bool    place(size_t new_size);
        overrun find_overrun();
    };

    static constexpr size_t max_arrays = 16;

    std::array<block, max_threadgroup_memory_bindings> bound_;
    std::array<block, max_arrays>                      arrays_;
    size_t                                             array_count_    = 0;
    size_t                                             bound_bytes_    = 0;
    size_t                                             declared_bytes_ = 0;
};

}  // namespace metal_sim
