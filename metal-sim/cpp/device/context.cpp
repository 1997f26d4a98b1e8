// The backend context, in place of ggml-metal-context.m. A graph has run when the call that computes it returns, on the
// calling thread and the simulator's helpers: nothing is asynchronous.
#include "../runtime/fault.h"
#include "buffer.h"
#include "encoder.h"
#include "extents.h"
#include "ggml-metal-context.h"
#include "ggml-metal-ops.h"

#include <cstdlib>
#include <vector>

struct ggml_metal {
    ggml_metal_device_t dev = nullptr;

    ggml_metal_event_t ev_cpy = nullptr;

    bool use_concurrency    = true;
    bool use_graph_optimize = true;
    int  debug_graph        = 0;

    ggml_abort_callback abort_callback      = nullptr;
    void *              abort_callback_data = nullptr;

    // Sticky, as upstream: after a failed graph the backend has to be recreated.
    bool has_error = false;
};

namespace {

ggml_metal_buffer_t buffer_of(const ggml_tensor * tensor) {
    ggml_backend_buffer_t buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
    return static_cast<ggml_metal_buffer_t>(buffer->context);
}

// The nodes that ggml_metal_op_encode counts: those that do something.
std::vector<const ggml_tensor *> nodes_of(const ggml_cgraph * gf) {
    std::vector<const ggml_tensor *> nodes;
    for (int i = 0; i < gf->n_nodes; ++i) {
        if (!ggml_op_is_empty(gf->nodes[i]->op) && !ggml_is_empty(gf->nodes[i])) {
            nodes.push_back(gf->nodes[i]);
        }
    }
    return nodes;
}

ggml_status encode_all(ggml_metal & ctx, ggml_metal_op_t ops, const ggml_cgraph * gf,
                       const metal_sim::command_buffer & commands) {
    const std::vector<const ggml_tensor *> nodes = nodes_of(gf);
    for (int i = 0; i < ggml_metal_op_n_nodes(ops);) {
        if (ctx.abort_callback != nullptr && ctx.abort_callback(ctx.abort_callback_data)) {
            return GGML_STATUS_ABORTED;
        }
        metal_sim::begin_op(nodes[i]);
        const int encoded = ggml_metal_op_encode(ops, i);  // more than one when ops are fused
        if (commands.failed) {
            return GGML_STATUS_FAILED;
        }
        if (encoded == 0) {
            break;
        }
        i += encoded;
    }
    return GGML_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

ggml_metal_t ggml_metal_init(ggml_metal_device_t dev) {
    ggml_metal * const ctx  = new ggml_metal;
    ctx->dev                = dev;
    ctx->ev_cpy             = ggml_metal_device_event_init(dev);
    ctx->use_concurrency    = std::getenv("GGML_METAL_CONCURRENCY_DISABLE") == nullptr;
    ctx->use_graph_optimize = std::getenv("GGML_METAL_GRAPH_OPTIMIZE_DISABLE") == nullptr;

    const char * debug = std::getenv("GGML_METAL_GRAPH_DEBUG");
    ctx->debug_graph   = debug != nullptr ? std::atoi(debug) : 0;

    if (ggml_metal_fusion_info_stats(dev->finfo)) {
        ggml_metal_fusion_info_labels_init(dev->finfo);
    }
    return ctx;
}

void ggml_metal_free(ggml_metal_t ctx) {
    ggml_metal_device_event_free(ctx->dev, ctx->ev_cpy);
    delete ctx;
}

const char * ggml_metal_get_name(ggml_metal_t ctx) {
    return ctx->dev->props.name;
}

void ggml_metal_synchronize(ggml_metal_t ctx) {
    GGML_UNUSED(ctx);
}

void ggml_metal_set_tensor_async(ggml_metal_t ctx, ggml_tensor * tensor, const void * data, size_t offset,
                                 size_t size) {
    GGML_UNUSED(ctx);
    ggml_metal_buffer_set_tensor(buffer_of(tensor), tensor, data, offset, size);
}

void ggml_metal_get_tensor_async(ggml_metal_t ctx, const ggml_tensor * tensor, void * data, size_t offset,
                                 size_t size) {
    GGML_UNUSED(ctx);
    ggml_metal_buffer_get_tensor(buffer_of(tensor), tensor, data, offset, size);
}

bool ggml_metal_cpy_tensor_async(ggml_metal_t ctx_src, ggml_metal_t ctx_dst, const ggml_tensor * src,
                                 ggml_tensor * dst) {
    GGML_UNUSED(ctx_src);
    GGML_UNUSED(ctx_dst);
    buffer_of(dst)->copy_from(*buffer_of(src), src, dst);
    return true;
}

ggml_status ggml_metal_graph_compute(ggml_metal_t ctx, ggml_cgraph * gf) {
    if (ctx->has_error) {
        GGML_LOG_ERROR("%s: backend is in error state from a previous failure - recreate the backend to recover\n",
                       __func__);
        return GGML_STATUS_FAILED;
    }
    if (gf->n_nodes == 0) {
        return GGML_STATUS_SUCCESS;
    }

    metal_sim::command_buffer commands;
    ggml_metal_op_t           ops    = ggml_metal_op_init(ctx->dev, &commands, gf, ctx->dev->finfo, 0, gf->n_nodes,
                                                          ctx->use_concurrency, false, ctx->debug_graph);
    ggml_status               status = encode_all(*ctx, ops, gf, commands);
    if (status == GGML_STATUS_ABORTED) {
        commands.failed = true;  // what is encoded and has not run is dropped
    }
    ggml_metal_op_free(ops);  // ends the encoder: what was encoded behind the last barrier runs here
    metal_sim::end_ops();
    if (status == GGML_STATUS_SUCCESS && commands.failed) {
        status = GGML_STATUS_FAILED;
    }

    if (status == GGML_STATUS_FAILED) {
        ctx->has_error = true;
        GGML_LOG_ERROR("%s: %s\n", __func__, metal_sim::last_fault());
    }
    return status;
}

void ggml_metal_graph_optimize(ggml_metal_t ctx, ggml_cgraph * gf) {
    if (ctx->use_graph_optimize) {
        ggml_graph_optimize(gf);
    }
}

void ggml_metal_event_record(ggml_metal_t ctx, ggml_metal_event_t ev) {
    GGML_UNUSED(ctx);
    GGML_UNUSED(ev);
}

void ggml_metal_event_wait(ggml_metal_t ctx, ggml_metal_event_t ev) {
    GGML_UNUSED(ctx);
    GGML_UNUSED(ev);
}

ggml_metal_event_t ggml_metal_get_ev_cpy(ggml_metal_t ctx) {
    return ctx->ev_cpy;
}

// Graphs are encoded by one thread: a second one would only wait for the same cores.
void ggml_metal_set_n_cb(ggml_metal_t ctx, int n_cb) {
    GGML_UNUSED(ctx);
    GGML_UNUSED(n_cb);
}

void ggml_metal_set_abort_callback(ggml_metal_t ctx, ggml_abort_callback abort_callback, void * user_data) {
    ctx->abort_callback      = abort_callback;
    ctx->abort_callback_data = user_data;
}

bool ggml_metal_supports_family(ggml_metal_t ctx, int family) {
    return family <= ctx->dev->props.gpu_family;
}

void ggml_metal_capture_next_compute(ggml_metal_t ctx) {
    GGML_UNUSED(ctx);
    GGML_LOG_WARN("%s: the simulated device cannot capture a GPU trace\n", __func__);
}
}
