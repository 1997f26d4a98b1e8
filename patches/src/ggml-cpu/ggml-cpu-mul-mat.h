#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;

// whether this MUL_MAT is a product of floats that is large enough to be packed
bool ggml_cpu_mul_mat_is_packed(const struct ggml_tensor * op);

// bytes of work buffer for n_tasks threads; 0 if it is not
size_t ggml_cpu_mul_mat_work_size(const struct ggml_tensor * op, int n_tasks);

// dst[i0, i1] = sum over k of src0[k, i0]*src1[k, i1], src0 repeated over dims 2 and 3
void ggml_cpu_mul_mat_packed(const struct ggml_compute_params * params, struct ggml_tensor * dst);

#ifdef __cplusplus
}
#endif
