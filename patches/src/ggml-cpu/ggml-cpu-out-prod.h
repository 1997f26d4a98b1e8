#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;

// whether the CPU backend computes this OUT_PROD
bool ggml_cpu_out_prod_supported(const struct ggml_tensor * op);

// whether this kernel computes it: always, unless upstream's is asked for and has it
bool ggml_cpu_out_prod_is_ours(const struct ggml_compute_params * params, const struct ggml_tensor * op);

// bytes of work buffer for n_tasks threads, whichever kernel computes it
size_t ggml_cpu_out_prod_work_size(const struct ggml_tensor * op, int n_tasks);

// dst[i0, i1] = sum over k of src0[i0, k]*src1[i1, k], src0 repeated over dims 2 and 3
void ggml_cpu_out_prod(const struct ggml_compute_params * params, struct ggml_tensor * dst);

#ifdef __cplusplus
}
#endif
