// The direct route of OUT_PROD on Metal: one dispatch of kernels/out_prod.h. Included by ggml-metal-out-prod.cpp alone.
#pragma once

#include "ggml-metal-device.h"
#include "ggml-impl.h"

#include "kernels/out_prod_args.h"

#include <cstdint>
#include <cstdio>

// The kernel holds dimensions in 32-bit integers, up to the end of the last tile; offsets have 64 bits.
static bool out_prod_direct_fits(const ggml_tensor * op) {
    constexpr int64_t dim_max = INT32_MAX - OUT_PROD_TILE_M;

    return op->ne[0] <= dim_max && op->ne[1] <= dim_max && op->src[0]->ne[1] <= dim_max && op->ne[2]*op->ne[3] <= dim_max;
}

static ggml_metal_pipeline_with_params out_prod_direct_pipeline(ggml_metal_library_t lib, const ggml_tensor * op) {
    const ggml_type type_b = op->src[1]->type;

    const bool checked = op->ne[0] % OUT_PROD_TILE_M != 0 || op->ne[1] % OUT_PROD_TILE_N != 0 || op->src[0]->ne[1] % OUT_PROD_TILE_K != 0;

    char base[128];
    char name[256];

    snprintf(base, sizeof(base), "kernel_out_prod_%s", ggml_type_name(op->src[0]->type));
    snprintf(name, sizeof(name), "%s_%s_checked=%d", base, ggml_type_name(type_b), checked);

    ggml_metal_pipeline_with_params res = ggml_metal_library_get_pipeline(lib, name);
    if (!res.pipeline) {
        ggml_metal_cv_t cv = ggml_metal_cv_init();

        ggml_metal_cv_set_bool (cv, checked, FC_OUT_PROD + 0);
        ggml_metal_cv_set_int16(cv, type_b == GGML_TYPE_F32 ? OUT_PROD_B_F32 : type_b == GGML_TYPE_F16 ? OUT_PROD_B_F16 : OUT_PROD_B_BF16,
                                             FC_OUT_PROD + 1);

        res = ggml_metal_library_compile_pipeline(lib, base, name, cv);

        ggml_metal_cv_free(cv);
    }

    res.nr0  = OUT_PROD_TILE_M;
    res.nr1  = OUT_PROD_TILE_N;
    res.nsg  = OUT_PROD_SIMDGROUPS;
    res.smem = OUT_PROD_THREADGROUP_BYTES;

    return res;
}

static void out_prod_direct_encode(
        ggml_metal_library_t lib,
        ggml_metal_encoder_t enc,
        const ggml_tensor  * op,
        ggml_metal_buffer_id id_a,
        ggml_metal_buffer_id id_b,
        ggml_metal_buffer_id id_dst) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];

    auto pipeline = out_prod_direct_pipeline(lib, op);

    out_prod_args args = {
        /*.m    =*/ (int32_t) op->ne[0],
        /*.n    =*/ (int32_t) op->ne[1],
        /*.k    =*/ (int32_t) a->ne[1],
        /*.ne2  =*/ (int32_t) op->ne[2],
        /*.r2   =*/ (int32_t) (op->ne[2]/a->ne[2]),
        /*.r3   =*/ (int32_t) (op->ne[3]/a->ne[3]),
        /*.nb00 =*/ a->nb[0],
        /*.nb01 =*/ a->nb[1],
        /*.nb02 =*/ a->nb[2],
        /*.nb03 =*/ a->nb[3],
        /*.nb10 =*/ b->nb[0],
        /*.nb11 =*/ b->nb[1],
        /*.nb12 =*/ b->nb[2],
        /*.nb13 =*/ b->nb[3],
    };

    ggml_metal_encoder_set_pipeline(enc, pipeline);
    ggml_metal_encoder_set_bytes   (enc, &args, sizeof(args), 0);
    ggml_metal_encoder_set_buffer  (enc, id_a,   1);
    ggml_metal_encoder_set_buffer  (enc, id_b,   2);
    ggml_metal_encoder_set_buffer  (enc, id_dst, 3);

    ggml_metal_encoder_set_threadgroup_memory_size(enc, pipeline.smem, 0);

    ggml_metal_encoder_dispatch_threadgroups(enc,
            (args.n + pipeline.nr1 - 1)/pipeline.nr1, (args.m + pipeline.nr0 - 1)/pipeline.nr0, op->ne[2]*op->ne[3], 32, pipeline.nsg, 1);
}
