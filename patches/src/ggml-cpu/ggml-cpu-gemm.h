#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;

// An operand of a product of matrices: row i at step k lies at data + i*row + k*step + matrix and batch, in bytes. It is
// repeated over the result's dims 2 and 3. Blocks of quantized types lie along the rows.
struct ggml_cpu_gemm_operand {
    const struct ggml_tensor * tensor;
    size_t                     row;
    size_t                     step;
};

// dst[i0, i1] = sum over k of a[i0, k]*b[i1, k], for every matrix of dst, which is F32 and contiguous along dim 0
struct ggml_cpu_gemm {
    struct ggml_tensor *         dst;
    int64_t                      k;
    struct ggml_cpu_gemm_operand a;
    struct ggml_cpu_gemm_operand b; // a float type
};

// bytes of work buffer for n_tasks threads
size_t ggml_cpu_gemm_work_size(const struct ggml_cpu_gemm * product, int n_tasks);

// Called by all threads. The result does not depend on their number.
void ggml_cpu_gemm_run(const struct ggml_compute_params * params, const struct ggml_cpu_gemm * product);

#ifdef __cplusplus
}
#endif
