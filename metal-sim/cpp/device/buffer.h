// Device memory, and its life as a ggml buffer.
#pragma once

#include "../runtime/guarded_memory.h"
#include "device.h"

#include <cstddef>

namespace metal_sim {

// What ggml_metal_buffer_id::metal points to, in place of an MTLBuffer.
struct device_memory {
    unsigned char * data = nullptr;
    size_t          size = 0;
};

}  // namespace metal_sim

struct ggml_metal_buffer {
    metal_sim::device_memory memory;
    bool                     is_shared = false;    // the host may dereference tensor->data
    char *                   base      = nullptr;  // where ggml places tensors: memory.data, or a virtual address

    metal_sim::guarded_memory                 pages;  // of a buffer that owns its memory
    std::shared_ptr<metal_sim::memory_ledger> ledger;

    ~ggml_metal_buffer();

    unsigned char * at(const ggml_tensor * tensor, size_t offset) const;

    void copy_from(const ggml_metal_buffer & other, const ggml_tensor * src, ggml_tensor * dst) const;
};
