// Pipelines and the library that makes them.
#pragma once

#include "../runtime/pipeline.h"
#include "device.h"

#include <memory>
#include <mutex>
#include <vector>

struct ggml_metal_cv {
    std::vector<metal_sim::constant_value> values;
};

struct ggml_metal_pipeline {
    std::unique_ptr<metal_sim::pipeline> implementation;
};

// All kernels of the program, as one library.
struct ggml_metal_library {
    ggml_metal_device_t    dev       = nullptr;
    ggml_metal_pipelines_t pipelines = nullptr;
    std::mutex             lock;
};
