// OUT_PROD on Metal. Ours, not upstream's: ggml 0.26.0 has no Metal OUT_PROD, and it is the whole backward of MUL_MAT.
//
//   dst[m, n] = sum over k of a[m, k] * b[n, k]      a = src0, b = src1, ne order, batches over ne2 and ne3
//
// The product runs on kernel_mul_mm, which wants both operands with k contiguous, so a and b are first copied
// (a also dequantized) into a scratch area that lies behind dst: see ggml_metal_out_prod_scratch_size.
#pragma once

#include "ggml-metal-device.h"

#ifdef __cplusplus
#include <functional>

extern "C" {
#endif

// whether the device can run this OUT_PROD: exact, so a node it accepts never fails while it is encoded
bool ggml_metal_out_prod_supported(ggml_metal_device_t dev, const struct ggml_tensor * op);

// bytes of scratch that get_alloc_size adds behind dst
// depends on dst's shape alone, because the RPC backend caches allocation sizes by op, type and dst shape;
// at most 128 MiB for the operands plus one ne3 slice of dst
size_t ggml_metal_out_prod_scratch_size(const struct ggml_tensor * op);

#ifdef __cplusplus
}

// encode the whole op; barrier() must order everything encoded before it ahead of everything encoded after it
void ggml_metal_out_prod_encode(
        ggml_metal_library_t          lib,
        ggml_metal_encoder_t          enc,
        const ggml_tensor           * op,
        const std::function<void()> & barrier);
#endif
