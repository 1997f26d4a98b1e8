#include "ggml-metal-procs.h"

#include "ggml-metal-trace.h"

#include <mutex>
#include <string>
#include <unordered_map>

namespace {

struct procs {
    std::mutex mutex;

    std::unordered_map<std::string, void *> functions {
        { "ggml_metal_trace_start", (void *) ggml_metal_trace_start },
        { "ggml_metal_trace_stop",  (void *) ggml_metal_trace_stop  },
        { "ggml_metal_trace_count", (void *) ggml_metal_trace_count },
        { "ggml_metal_trace_get",   (void *) ggml_metal_trace_get   },
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
