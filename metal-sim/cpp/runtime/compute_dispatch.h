// The arguments of one dispatch, as an encoder collects them.
#pragma once

#include "lane.h"

#include <cstddef>
#include <cstdint>

#ifdef METAL_SIM_VERIFIER
#    include <memory>
#    include <vector>
#endif

namespace metal_sim {

#ifdef METAL_SIM_VERIFIER
// Device memory that a dispatch may touch: a tensor.
struct memory_extent {
    unsigned char *       begin    = nullptr;
    size_t                size     = 0;
    char                  name[64] = "";
    std::shared_ptr<bool> fresh;  // the first dispatch that has it finds it unwritten, and says so here
};
#endif

struct compute_dispatch {
    void *   buffers[max_buffer_bindings]                        = {};
    uint32_t nil_buffers                                         = 0;  // bit n: buffer n was bound, to nothing
    size_t   threadgroup_memory[max_threadgroup_memory_bindings] = {};
    extent3  threadgroups;  // in the grid
    extent3  threads;       // in a threadgroup

#ifdef METAL_SIM_VERIFIER
    std::vector<memory_extent> extents;
    size_t                     constant_bytes[max_buffer_bindings] = {};  // of buffers that hold a copy of bytes
#endif
};

}  // namespace metal_sim
