#include "ggml-cpu-mul-mat.h"

#include "ggml-cpu-gemm.h"
#include "ggml-impl.h"

namespace {

// Below, upstream's kernels, which read the operands where they are, are about as fast.
constexpr int64_t ROWS    = 16;
constexpr int64_t COLUMNS = 16;
constexpr int64_t STEPS   = 32;

ggml_cpu_gemm product(ggml_tensor * dst) {
    const ggml_tensor * a = dst->src[0];
    const ggml_tensor * b = dst->src[1];
    return { dst, a->ne[0], { a, a->nb[1], a->nb[0] }, { b, b->nb[1], b->nb[0] } };
}

bool is_float(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float);
}

} // namespace

bool ggml_cpu_mul_mat_is_packed(const ggml_tensor * op) {
    return is_float(op->src[0]) && is_float(op->src[1]) && is_float(op) && op->ne[0] >= ROWS && op->ne[1] >= COLUMNS &&
        op->src[0]->ne[0] >= STEPS;
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
