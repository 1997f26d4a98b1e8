#include "ggml-metal-procs.h"

#include "ggml-metal-trace.h"

#include "ggml-backend-impl.h"

#include <mutex>
#include <string>
#include <unordered_map>

namespace {

// whether the device's matrix products run on the tensor API
bool has_tensor(ggml_backend_dev_t dev) {
    return ggml_metal_device_get_props((ggml_metal_device_t) dev->context)->has_tensor;
}

struct procs {
    std::mutex mutex;

    std::unordered_map<std::string, void *> functions {
        { "ggml_metal_trace_start", (void *) ggml_metal_trace_start },
        { "ggml_metal_trace_stop",  (void *) ggml_metal_trace_stop  },
        { "ggml_metal_trace_count", (void *) ggml_metal_trace_count },
        { "ggml_metal_trace_get",   (void *) ggml_metal_trace_get   },
        { "ggml_metal_has_tensor",  (void *) has_tensor             },
    };
};

// never destroyed: backends may outlive static destructors
procs & get_procs() {
    static procs * res = new procs;

    return *res;
}

} // namespace

void ggml_metal_procs_add(const char * name, void * function) {
    procs & p = get_procs();

    std::lock_guard<std::mutex> lock(p.mutex);
    p.functions.emplace(name, function);
}

void * ggml_metal_procs_get(const char * name) {
    procs & p = get_procs();

    std::lock_guard<std::mutex> lock(p.mutex);
    const auto it = p.functions.find(name);

    return it == p.functions.end() ? nullptr : it->second;
}
