// Command buffers and their compute encoder.
#pragma once

#include "device.h"

namespace metal_sim {

// What ggml_metal_cmd_buf_t points to. Commands run before their encoder ends, so all that remains is whether they did.
struct command_buffer {
    bool failed = false;
};

}  // namespace metal_sim
