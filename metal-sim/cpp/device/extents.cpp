#ifdef METAL_SIM_VERIFIER

#    include "extents.h"

#    include <algorithm>
#    include <cstdio>
#    include <memory>
#    include <vector>

namespace metal_sim {

namespace {

// An op is encoded by one thread. ggml adds to a buffer's offset, for scratch behind a tensor and for fused operands, so a
// binding does not say which tensor it is for: an op's dispatches may touch all tensors that ggml asked for since it began.
struct op_in_progress {
    const ggml_tensor *        result = nullptr;  // whose memory is new
    std::vector<memory_extent> extents;
};

// Freed at the end of a graph, not with the thread: what else ends with the thread may compute after that.
thread_local op_in_progress * op = nullptr;

bool overlap(const ggml_tensor * a, const ggml_tensor * b) {
    const char * const pa = static_cast<const char *>(a->data);
    const char * const pb = static_cast<const char *>(b->data);
    return pa < pb + ggml_nbytes(b) && pb < pa + ggml_nbytes(a);
}

// Whether nothing that is in the memory of the node's result matters. A result may lie where an operand is, and a view's
// memory is another tensor's.
bool begins_unwritten(const ggml_tensor * node) {
    if (node->view_src != nullptr || node->data == nullptr) {
        return false;
    }
    for (const ggml_tensor * source : node->src) {
        if (source != nullptr && (source == node || overlap(source, node))) {
            return false;
        }
    }
    return true;
}

// With the scratch that some ops keep behind their result.
size_t extent_of(const ggml_tensor * t) {
    const ggml_backend_buffer_t buffer = t->view_src != nullptr ? t->view_src->buffer : t->buffer;
    return t->view_src != nullptr ? ggml_nbytes(t) : ggml_backend_buft_get_alloc_size(buffer->buft, t);
}

}  // namespace

void begin_op(const ggml_tensor * node) {
    if (op == nullptr) {
        op = new op_in_progress;
    }
    op->extents.clear();
    op->result = begins_unwritten(node) ? node : nullptr;
}

void end_ops() {
    delete op;
    op = nullptr;
}

void note_tensor(const ggml_tensor * t, unsigned char * data, size_t available) {
    if (op == nullptr) {
        return;
    }
    memory_extent e;
    e.begin = data;
    e.size  = std::min(extent_of(t), available);
    std::snprintf(e.name, sizeof(e.name), "%s", t->name);
    const auto known = std::find_if(op->extents.begin(), op->extents.end(), [&](const memory_extent & other) {
        return other.begin == e.begin && other.size == e.size;
    });
    if (known != op->extents.end()) {
        return;
    }
    if (t == op->result) {
        e.fresh = std::make_shared<bool>(true);
    }
    op->extents.push_back(std::move(e));
}

void give_extents(compute_dispatch & d) {
    if (op != nullptr) {
        d.extents = op->extents;
    }
}

}  // namespace metal_sim

#endif
