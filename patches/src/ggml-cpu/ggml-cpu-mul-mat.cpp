#include "ggml-cpu-mul-mat.h"

#include "ggml-cpu-gemm.h"
#include "ggml-impl.h"

#include <algorithm>

namespace {

// From how many rows, columns and elements packing wins over upstream's kernels, which read operands where they are. Those come
// to speed with k: up to 128 they are left behind early. docs/performance.md has the measurements.
bool is_worth_packing(int64_t m, int64_t n, int64_t k) {
    const int64_t least = std::min(m, n);
#if defined(__AVX__) || defined(__ARM_NEON)
    if (k > 128) {
        return least >= 96 && m*n >= 256*256;
    }
    if (k > 64) {
        return least >= 32;
    }
#endif
    // without such vectors, upstream has no blocked product of floats
    return least >= 16 && k >= 8;
}

ggml_cpu_gemm product(ggml_tensor * dst) {
    const ggml_tensor * a = dst->src[0];
    const ggml_tensor * b = dst->src[1];
    return { dst, a->ne[0], { a, a->nb[1], a->nb[0] }, { b, b->nb[1], b->nb[0] } };
}

bool is_float(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float);
}

} // namespace

// Convolutions call MUL_MAT from within, on a tensor that is no node: nobody planned a work buffer for it, and what is there
// holds their patches.
bool ggml_cpu_mul_mat_is_packed(const ggml_tensor * op) {
    return op->op == GGML_OP_MUL_MAT && is_float(op->src[0]) && is_float(op->src[1]) && is_float(op) &&
        is_worth_packing(op->ne[0], op->ne[1], op->src[0]->ne[0]);
}

size_t ggml_cpu_mul_mat_work_size(const ggml_tensor * op, int n_tasks) {
    if (!ggml_cpu_mul_mat_is_packed(op)) {
        return 0;
    }
    const ggml_cpu_gemm g = product(const_cast<ggml_tensor *>(op));
    return ggml_cpu_gemm_work_size(&g, n_tasks);
}

void ggml_cpu_mul_mat_packed(const ggml_compute_params * params, ggml_tensor * dst) {
    const ggml_cpu_gemm g = product(dst);
    ggml_cpu_gemm_run(params, &g);
}
