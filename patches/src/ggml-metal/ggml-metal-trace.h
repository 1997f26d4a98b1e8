// Which pipelines a graph dispatched, and with how much threadgroup memory: a passing test alone does not show
// which kernel ran. Ours, not upstream's; the real device (ggml-metal-device.m) and the simulated one call the same hooks.
#pragma once

#include "ggml-metal-device.h"

#ifdef __cplusplus
extern "C" {
#endif

// hooks: an encoder belongs to one thread, so its state between these calls is thread-local
void ggml_metal_trace_name_pipeline        (ggml_metal_pipeline_t pipeline, const char * name);
void ggml_metal_trace_set_pipeline         (ggml_metal_pipeline_t pipeline);
void ggml_metal_trace_set_threadgroup_memory(size_t size, int idx);
void ggml_metal_trace_dispatch             (void);

// reading side: off until started, and then in order of encoding (graphs large enough for several
// command buffers are encoded on several threads: their dispatches interleave)
void   ggml_metal_trace_start(void); // forgets what was recorded before
void   ggml_metal_trace_stop (void);
size_t ggml_metal_trace_count(void);

// the i-th dispatch: its pipeline's name (cut to name_size) and its bytes of threadgroup memory; false beyond the last
bool   ggml_metal_trace_get(size_t i, char * name, size_t name_size, size_t * threadgroup_bytes);

#ifdef __cplusplus
}
#endif
