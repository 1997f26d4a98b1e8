// The arguments of one dispatch, as an encoder collects them.
#pragma once

#include "lane.h"

#include <cstddef>
#include <cstdint>

namespace metal_sim {

struct compute_dispatch {
    void *   buffers[max_buffer_bindings]                        = {};
    uint32_t nil_buffers                                         = 0;  // bit n: buffer n was bound, to nothing
    size_t   threadgroup_memory[max_threadgroup_memory_bindings] = {};
    extent3  threadgroups;  // in the grid
    extent3  threads;       // in a threadgroup
};

}  // namespace metal_sim
