#include "library.h"

#include "../runtime/fault.h"
#include "../runtime/registry.h"

#include <cstdlib>
#include <string>
#include <utility>

namespace {

// METAL_SIM_WITHOUT names kernels, with commas between them, that this device cannot create, as some real device or driver
// might not: what runs instead can be seen then.
bool is_withheld(const std::string & kernel) {
    const char * const names = std::getenv("METAL_SIM_WITHOUT");

    return names != nullptr && ("," + std::string(names) + ",").find("," + kernel + ",") != std::string::npos;
}

}  // namespace

extern "C" {

// ---- function constants

ggml_metal_cv_t ggml_metal_cv_init(void) {
    return new ggml_metal_cv;
}

void ggml_metal_cv_free(ggml_metal_cv_t cv) {
    delete cv;
}

void ggml_metal_cv_set_int16(ggml_metal_cv_t cv, int16_t value, int32_t idx) {
    cv->values.push_back({ idx, metal_sim::constant_type::int16, value });
}

void ggml_metal_cv_set_int32(ggml_metal_cv_t cv, int32_t value, int32_t idx) {
    cv->values.push_back({ idx, metal_sim::constant_type::int32, value });
}

void ggml_metal_cv_set_bool(ggml_metal_cv_t cv, bool value, int32_t idx) {
    cv->values.push_back({ idx, metal_sim::constant_type::boolean, value });
}

// ---- pipelines

ggml_metal_pipeline_t ggml_metal_pipeline_init(void) {
    return new ggml_metal_pipeline;
}

void ggml_metal_pipeline_free(ggml_metal_pipeline_t pipeline) {
    delete pipeline;
}

int ggml_metal_pipeline_max_theads_per_threadgroup(ggml_metal_pipeline_with_params pipeline) {
    GGML_UNUSED(pipeline);
    return metal_sim::max_threads_per_threadgroup;
}

// ---- library

ggml_metal_library_t ggml_metal_library_init(ggml_metal_device_t dev) {
    ggml_metal_library * const lib = new ggml_metal_library;
    lib->dev                       = dev;
    lib->pipelines                 = ggml_metal_pipelines_init();
    return lib;
}

ggml_metal_library_t ggml_metal_library_init_from_source(ggml_metal_device_t dev, const char * source, bool verbose) {
    GGML_UNUSED(dev);
    GGML_UNUSED(source);
    GGML_UNUSED(verbose);
    GGML_LOG_ERROR("%s: the simulated device has no Metal compiler; its kernels are translated at build time\n",
                   __func__);
    return nullptr;
}

void ggml_metal_library_free(ggml_metal_library_t lib) {
    if (lib != nullptr) {
        ggml_metal_pipelines_free(lib->pipelines);
        delete lib;
    }
}

ggml_metal_device_t ggml_metal_library_get_device(ggml_metal_library_t lib) {
    return lib->dev;
}

ggml_metal_pipeline_with_params ggml_metal_library_get_pipeline(ggml_metal_library_t lib, const char * name) {
    const std::lock_guard<std::mutex> guard(lib->lock);
    ggml_metal_pipeline_with_params   result = {};
    result.pipeline                          = ggml_metal_pipelines_get(lib->pipelines, name);
    return result;
}

// A null pipeline, with a fault reported, if there is no such kernel or the constants do not fit it; without one if the
// kernel is withheld.
ggml_metal_pipeline_with_params ggml_metal_library_compile_pipeline(ggml_metal_library_t lib, const char * base,
                                                                    const char * name, ggml_metal_cv_t cv) {
    const std::lock_guard<std::mutex> guard(lib->lock);
    ggml_metal_pipeline_with_params   result = {};
    result.pipeline                          = ggml_metal_pipelines_get(lib->pipelines, name);
    if (result.pipeline != nullptr) {
        return result;
    }

    if (is_withheld(base)) {
        GGML_LOG_ERROR("%s: the simulated device is told not to create %s (METAL_SIM_WITHOUT)\n", __func__, base);
        return result;
    }
    const metal_sim::kernel_entry * const kernel = metal_sim::find_kernel(base, lib->dev->props.has_tensor);
    if (kernel == nullptr) {
        metal_sim::report(metal_sim::fault().set("pipeline %s: there is no kernel %s", name, base));
        return result;
    }
    auto implementation = metal_sim::pipeline::create(*kernel, cv != nullptr ? cv->values : decltype(cv->values)());
    if (implementation == nullptr) {
        return result;
    }
    result.pipeline                 = ggml_metal_pipeline_init();
    result.pipeline->implementation = std::move(implementation);
    ggml_metal_pipelines_add(lib->pipelines, name, result.pipeline);
    return result;
}
}
