// Staging of MUL_MAT and MUL_MAT_ID on Metal. Ours, not upstream's, which rounds both operands to half (bf16 weights: to
// bfloat) on their way through threadgroup memory and does not read the source precision of a MUL_MAT.
//
// The batched kernels have float-staged instantiations for that. The mat-vec kernels never stage an operand: they are float.
#pragma once

#include "ggml-metal-device.h"

#ifdef __cplusplus
extern "C" {
#endif

// The operands that the op's batched kernel must hold as float. MUL_MAT: both, as soon as the source precision of either is
// above half. An F16 src1 is exact in half: its kernels are upstream's, whatever is asked.
enum ggml_staging ggml_metal_mul_mat_staging(const struct ggml_tensor * op);

// false where an op that asks for float weights has no kernel for them: F16 activations come with half-staged kernels only
bool ggml_metal_staging_supported(const struct ggml_tensor * op, bool use_mm);

// whether MUL_MAT may run batched: not where its route says mat-vec; float-staged from 32 rows of src1 and whole k tiles on,
// where it beats one mat-vec a row (published for router logits), else as upstream decides
bool ggml_metal_mul_mat_may_batch(const struct ggml_tensor * op);

// whether the op's batched pipeline can be had. If the device cannot create a float-staged one, it says so once per kernel, and
// the op takes the mat-vec kernels.
bool ggml_metal_staging_available(ggml_metal_library_t lib, const struct ggml_tensor * op);

#ifdef __cplusplus
}
#endif
