// OUT_PROD on Metal. Ours, not upstream's: ggml 0.26.0 has no Metal OUT_PROD, and it is the whole backward of MUL_MAT.
//
//   dst[m, n] = sum over k of a[m, k] * b[n, k]      a = src0, b = src1, ne order, batches over ne2 and ne3
//
// The product runs on kernel_mul_mm, which wants both operands with k contiguous, so a and b are first copied
// (a also dequantized) into a scratch area that lies behind dst: see ggml_metal_out_prod_scratch_size.
//
// A node may ask for the direct route instead: one kernel that stages both operands from where they lie, always in float and
// always with simdgroup matrices, whether the device has the tensor API or not. It needs no scratch.
#pragma once

#include "ggml-metal-device.h"

// the route of a node, in its op_params[GGML_METAL_OUT_PROD_ROUTE]; any other value is refused
// never set by ggml: the direct route has not been seen on a real device
enum {
    GGML_METAL_OUT_PROD_ROUTE = 4,

    GGML_METAL_OUT_PROD_SPLIT  = 0, // with temporaries
    GGML_METAL_OUT_PROD_DIRECT = 1,
};

#ifdef __cplusplus
#include <functional>

extern "C" {
#endif

// whether the device can run this OUT_PROD: exact, so a node it accepts never fails while it is encoded
bool ggml_metal_out_prod_supported(ggml_metal_device_t dev, const struct ggml_tensor * op);

// bytes of scratch that get_alloc_size adds behind dst
// depends on dst's shape alone, because the RPC backend caches allocation sizes by op, op_params, type and
// dst shape; at most 128 MiB for the operands plus one ne3 slice of dst; none for the direct route
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
