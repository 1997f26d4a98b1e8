// The simulated device behind ggml-metal-device.h. Also included by the code that the build extracts from
// ggml-metal-device.m (supports_op, the table of device names), which reads `dev->props`.
#pragma once

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "ggml-metal-common.h"
#include "ggml-metal-device.h"
#include "ggml-metal-fusion.h"
#include "ggml-metal-impl.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>

namespace metal_sim {

// Bytes in device buffers. Shared by a device and its buffers, since a buffer may outlive the device at exit.
using memory_ledger = std::atomic<size_t>;

}  // namespace metal_sim

struct ggml_metal_device {
    ggml_metal_device_props  props   = {};
    ggml_metal_library_t     library = nullptr;
    ggml_metal_fusion_info * finfo   = nullptr;

    // Base addresses handed out for private buffers, which the host must not dereference.
    std::atomic<uintptr_t> addr_virt{ 0x400 };

    std::shared_ptr<metal_sim::memory_ledger> allocated = std::make_shared<metal_sim::memory_ledger>(0);
};

extern "C" {

// Upstream's ggml_metal_device_id_parse, which is static in ggml-metal-device.m: the extracted code exports it.
enum ggml_metal_device_id metal_sim_device_id_parse(const char * name);
}
