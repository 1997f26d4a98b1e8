// Device memory that the host has made, with its shadow.
#pragma once

#include "shadow.h"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace metal_sim {
namespace verifier {

struct device_memory_shadow {
    unsigned char *       data         = nullptr;
    size_t                size         = 0;
    const unsigned char * readable     = nullptr;  // a read in [readable, readable_end) does not end the process
    const unsigned char * readable_end = nullptr;
    uintptr_t             base         = 0;  // the address that ggml knows `data` by
    shadow                bytes;
};

// The memory that `address` lies in or just behind; null if there is none. It lives until remove_memory.
device_memory_shadow * memory_around(const unsigned char * address);

// The same by ggml's address; only memory that contains it.
device_memory_shadow * memory_at_host_address(uintptr_t address);

void for_each_memory(const std::function<void(device_memory_shadow &)> & f);

}  // namespace verifier
}  // namespace metal_sim
