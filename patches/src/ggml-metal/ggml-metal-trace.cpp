#include "ggml-metal-trace.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct dispatch {
    std::string pipeline;
    size_t      threadgroup_bytes;
};

struct trace {
    std::mutex mutex;

    std::unordered_map<ggml_metal_pipeline_t, std::string> names;
    std::vector<dispatch> dispatches;
};

std::atomic<bool> g_enabled { false };

// never destroyed: backends may outlive static destructors
trace & get_trace() {
    static trace * res = new trace;

    return *res;
}

constexpr int N_THREADGROUP_BUFFERS = 31; // what Metal allows

struct encoder_state {
    ggml_metal_pipeline_t pipeline = nullptr;
    size_t                threadgroup_bytes[N_THREADGROUP_BUFFERS] = {};
};

thread_local encoder_state t_state;

} // namespace

void ggml_metal_trace_name_pipeline(ggml_metal_pipeline_t pipeline, const char * name) {
    trace & t = get_trace();

    std::lock_guard<std::mutex> lock(t.mutex);
    t.names[pipeline] = name;
}

void ggml_metal_trace_set_pipeline(ggml_metal_pipeline_t pipeline) {
    // threadgroup memory lengths outlive a change of pipeline in Metal, but every ggml op that needs
    // some sets its own: what an earlier op left behind would only blur the record
    t_state = encoder_state {};
    t_state.pipeline = pipeline;
}

void ggml_metal_trace_set_threadgroup_memory(size_t size, int idx) {
    if (idx >= 0 && idx < N_THREADGROUP_BUFFERS) {
        t_state.threadgroup_bytes[idx] = size;
    }
}

void ggml_metal_trace_dispatch(void) {
    if (!g_enabled.load(std::memory_order_relaxed)) {
        return;
    }

    size_t bytes = 0;
    for (size_t size : t_state.threadgroup_bytes) {
        bytes += size;
    }

    trace & t = get_trace();

    std::lock_guard<std::mutex> lock(t.mutex);
    const auto name = t.names.find(t_state.pipeline);
    t.dispatches.push_back({ name == t.names.end() ? "(unnamed pipeline)" : name->second, bytes });
}

void ggml_metal_trace_start(void) {
    trace & t = get_trace();

    std::lock_guard<std::mutex> lock(t.mutex);
    t.dispatches.clear();
    g_enabled = true;
}

void ggml_metal_trace_stop(void) {
    g_enabled = false;
}

size_t ggml_metal_trace_count(void) {
    trace & t = get_trace();

    std::lock_guard<std::mutex> lock(t.mutex);
    return t.dispatches.size();
}

bool ggml_metal_trace_get(size_t i, char * name, size_t name_size, size_t * threadgroup_bytes) {
    trace & t = get_trace();

    std::lock_guard<std::mutex> lock(t.mutex);
    if (i >= t.dispatches.size()) {
        return false;
    }

    snprintf(name, name_size, "%s", t.dispatches[i].pipeline.c_str());
    *threadgroup_bytes = t.dispatches[i].threadgroup_bytes;

    return true;
}
