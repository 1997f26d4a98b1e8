#include "ggml-cpu-out-prod.h"

#include "ggml-cpu-gemm.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "ops.h"

#include <algorithm>

namespace {

bool is_float(ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

ggml_cpu_gemm product(ggml_tensor * dst) {
    const ggml_tensor * a = dst->src[0];
    const ggml_tensor * b = dst->src[1];
    return { dst, a->ne[1], { a, a->nb[0], a->nb[1] }, { b, b->nb[0], b->nb[1] } };
}

// upstream's kernels and their asserts
bool upstream_has(const ggml_tensor * op) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];

    const bool repeats = a->ne[2] != b->ne[2] || a->ne[3] != b->ne[3];

    return b->type == GGML_TYPE_F32 && a->nb[0] == ggml_type_size(a->type) && a->type != GGML_TYPE_BF16 &&
        (a->type == GGML_TYPE_F32 || !repeats);
}

} // namespace

bool ggml_cpu_out_prod_supported(const ggml_tensor * op) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];

    const bool a_converts = is_float(a->type) ||
        (ggml_get_type_traits(a->type)->to_float != nullptr && a->nb[0] == ggml_type_size(a->type));

    return a_converts && is_float(b->type) && op->type == GGML_TYPE_F32 && ggml_is_contiguous(op);
}

bool ggml_cpu_out_prod_is_ours(const ggml_compute_params * params, const ggml_tensor * op) {
    return !params->use_ref || !upstream_has(op);
}

size_t ggml_cpu_out_prod_work_size(const ggml_tensor * op, int n_tasks) {
    const ggml_cpu_gemm g = product(const_cast<ggml_tensor *>(op));

    // a row of floats for each thread, as upstream's kernels of other types place them
    const size_t upstreams = (sizeof(float)*op->ne[0] + CACHE_LINE_SIZE)*n_tasks;

    return std::max(ggml_cpu_gemm_work_size(&g, n_tasks), upstreams);
}

void ggml_cpu_out_prod(const ggml_compute_params * params, ggml_tensor * dst) {
    const ggml_cpu_gemm g = product(dst);
    ggml_cpu_gemm_run(params, &g);
}
