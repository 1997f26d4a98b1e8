#include "encoder.h"

#include "../runtime/fault.h"
#include "../runtime/segment.h"
#include "buffer.h"
#include "extents.h"
#include "ggml-metal-trace.h"
#include "library.h"

#include <memory>
#include <vector>

// As in Metal, what is set stays set for later dispatches of the same encoder.
struct ggml_metal_encoder {
    metal_sim::command_buffer * commands = nullptr;
    const metal_sim::pipeline * pipeline = nullptr;
    metal_sim::compute_dispatch arguments;
    metal_sim::bound_bytes      bytes;

    bool               concurrent = false;  // whether only memory barriers order dispatches
    metal_sim::segment pending;             // dispatched since the last barrier

    void run_pending() {
        if (commands->failed) {
            pending.clear();
        } else {
            commands->failed = !pending.run();
        }
    }

    void fail(const metal_sim::fault & f) {
        commands->failed = true;
        metal_sim::report(f);
    }

    bool check_index(int index, uint32_t limit, const char * what) {
        if (index >= 0 && index < static_cast<int>(limit)) {
            return true;
        }
        fail(metal_sim::fault().set("%s index %d: the device has %u", what, index, limit));
        return false;
    }
};

namespace {

// How many bytes a binding holds that is a copy of the host's.
void set_constant_bytes(metal_sim::compute_dispatch & d, int index, size_t size) {
#ifdef METAL_SIM_VERIFIER
    d.constant_bytes[index] = size;
#else
    GGML_UNUSED(d);
    GGML_UNUSED(index);
    GGML_UNUSED(size);
#endif
}

}  // namespace

extern "C" {

ggml_metal_encoder_t ggml_metal_encoder_init(ggml_metal_cmd_buf_t cmd_buf_raw, bool concurrent) {
    ggml_metal_encoder * const encoder = new ggml_metal_encoder;
    encoder->commands                  = static_cast<metal_sim::command_buffer *>(cmd_buf_raw);
    encoder->concurrent                = concurrent;
    return encoder;
}

void ggml_metal_encoder_free(ggml_metal_encoder_t encoder) {
    delete encoder;
}

void ggml_metal_encoder_debug_group_push(ggml_metal_encoder_t encoder, const char * name) {
    GGML_UNUSED(encoder);
    GGML_UNUSED(name);
}

void ggml_metal_encoder_debug_group_pop(ggml_metal_encoder_t encoder) {
    GGML_UNUSED(encoder);
}

void ggml_metal_encoder_set_pipeline(ggml_metal_encoder_t encoder, ggml_metal_pipeline_with_params pipeline) {
    if (pipeline.pipeline == nullptr) {
        encoder->pipeline         = nullptr;
        encoder->commands->failed = true;  // what is wrong was reported when the pipeline was made
        return;
    }
    encoder->pipeline = pipeline.pipeline->implementation.get();
    ggml_metal_trace_set_pipeline(pipeline.pipeline);
}

void ggml_metal_encoder_set_bytes(ggml_metal_encoder_t encoder, void * data, size_t size, int idx) {
    if (!encoder->check_index(idx, metal_sim::max_buffer_bindings, "buffer")) {
        return;
    }
    const unsigned char * const first = static_cast<const unsigned char *>(data);
    const auto copy = std::make_shared<std::vector<unsigned char>>(first, first + size);
    encoder->arguments.buffers[idx] = copy->data();
    set_constant_bytes(encoder->arguments, idx, size);
    encoder->bytes[idx]             = copy;  // what earlier dispatches hold stays as it is
    encoder->arguments.nil_buffers &= ~(1u << idx);
}

void ggml_metal_encoder_set_buffer(ggml_metal_encoder_t encoder, ggml_metal_buffer_id buffer, int idx) {
    if (!encoder->check_index(idx, metal_sim::max_buffer_bindings, "buffer")) {
        return;
    }
    if (buffer.metal == nullptr) {
        encoder->arguments.buffers[idx] = nullptr;
        set_constant_bytes(encoder->arguments, idx, 0);
        encoder->arguments.nil_buffers |= 1u << idx;
        return;
    }
    const auto & memory = *static_cast<const metal_sim::device_memory *>(buffer.metal);
    if (buffer.offs > memory.size) {
        encoder->fail(
            metal_sim::fault().set("buffer %d: offset %zu lies beyond its %zu bytes", idx, buffer.offs, memory.size));
        return;
    }
    encoder->arguments.buffers[idx] = memory.data + buffer.offs;
    set_constant_bytes(encoder->arguments, idx, 0);
    encoder->arguments.nil_buffers &= ~(1u << idx);
}

void ggml_metal_encoder_set_threadgroup_memory_size(ggml_metal_encoder_t encoder, size_t size, int idx) {
    if (!encoder->check_index(idx, metal_sim::max_threadgroup_memory_bindings, "threadgroup memory")) {
        return;
    }
    if (size % 16 != 0) {
        encoder->fail(metal_sim::fault().set("threadgroup memory %d: %zu bytes are no multiple of 16", idx, size));
        return;
    }
    encoder->arguments.threadgroup_memory[idx] = size;
    ggml_metal_trace_set_threadgroup_memory(size, idx);
}

void ggml_metal_encoder_dispatch_threadgroups(ggml_metal_encoder_t encoder, int tg0, int tg1, int tg2, int tptg0,
                                              int tptg1, int tptg2) {
    if (encoder->commands->failed) {
        return;
    }
    if (encoder->pipeline == nullptr) {
        encoder->fail(metal_sim::fault().set("dispatch without a pipeline"));
        return;
    }
    const auto size = [](int x, int y, int z) {
        return metal_sim::extent3{ static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z) };
    };
    ggml_metal_trace_dispatch();
    encoder->arguments.threadgroups = size(tg0, tg1, tg2);
    encoder->arguments.threads      = size(tptg0, tptg1, tptg2);
    metal_sim::give_extents(encoder->arguments);
    encoder->pending.add(*encoder->pipeline, encoder->arguments, encoder->bytes);
    if (!encoder->concurrent) {
        encoder->run_pending();
    }
}

void ggml_metal_encoder_memory_barrier(ggml_metal_encoder_t encoder) {
    encoder->run_pending();
}

// Whatever is encoded next, in this or another command buffer, sees the results.
void ggml_metal_encoder_end_encoding(ggml_metal_encoder_t encoder) {
    encoder->run_pending();
}
}
