#include "ggml-cpu-out-prod.h"

#include "ggml-cpu.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "ops.h"
#include "simd-mappings.h"
#include "vec.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

// One thread computes a tile of dst at a time: up to COLS of its columns in up to ROWS_MAX of its rows. K_BLOCK rows of
// src0 are converted to float once for all rows of the tile. COLS is a multiple of every type's block.
constexpr int64_t COLS     = 256;
constexpr int64_t ROWS_MAX = 64;
constexpr int64_t K_BLOCK  = 32;

// enough tiles for the threads to end at about the same time, as far as there are rows to share
constexpr int64_t TILES_PER_THREAD = 4;
constexpr int64_t ROWS_MIN         = 4;

// one thread's part of the work buffer
struct work {
    float a[K_BLOCK][COLS];
    float b[ROWS_MAX][K_BLOCK];
};

bool is_float(ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

float load(ggml_type type, const char * p) {
    switch (type) {
        case GGML_TYPE_F16:  return GGML_CPU_FP16_TO_FP32(*(const ggml_fp16_t *) p);
        case GGML_TYPE_BF16: return GGML_BF16_TO_FP32(*(const ggml_bf16_t *) p);
        default:             return *(const float *) p;
    }
}

// elements [i0, i0 + n) of a row of src0
void convert_row(const ggml_tensor * a, const char * row, int64_t i0, int64_t n, float * out) {
    const char * first = row + i0/ggml_blck_size(a->type)*a->nb[0];

    if (a->nb[0] != ggml_type_size(a->type)) {
        for (int64_t i = 0; i < n; ++i) {
            out[i] = load(a->type, first + i*a->nb[0]);
        }
        return;
    }

    switch (a->type) {
        case GGML_TYPE_F32:  memcpy(out, first, n*sizeof(float)); break;
        case GGML_TYPE_F16:  ggml_cpu_fp16_to_fp32((const ggml_fp16_t *) first, out, n); break;
        case GGML_TYPE_BF16: ggml_cpu_bf16_to_fp32((const ggml_bf16_t *) first, out, n); break;
        default:             ggml_get_type_traits(a->type)->to_float(first, out, n);
    }
}

struct tiling {
    int64_t cols;   // tiles along dim 0
    int64_t rows;   // tiles along dim 1
    int64_t height; // rows of a tile
};

tiling make_tiling(const ggml_tensor * dst, int nth) {
    tiling res;
    res.cols = (dst->ne[0] + COLS - 1)/COLS;

    const int64_t columns = res.cols*dst->ne[2]*dst->ne[3];
    const int64_t wanted  = std::max<int64_t>(1, TILES_PER_THREAD*nth/columns);

    res.height = std::clamp((dst->ne[1] + wanted - 1)/wanted, ROWS_MIN, ROWS_MAX);
    res.rows   = (dst->ne[1] + res.height - 1)/res.height;

    return res;
}

// acc[0, n) += sum over k of a[k][0, n)*b[k]. The order of the additions does not depend on the tiling.
void accumulate(int64_t n, int64_t k_len, float * acc, const float (*a)[COLS], const float * b) {
    constexpr int64_t unroll = GGML_VEC_MAD_UNROLL;

    int64_t k = 0;
    for (; k + unroll <= k_len; k += unroll) {
        ggml_vec_mad_f32_unroll(n, sizeof(a[0]), sizeof(b[0]), acc, a[k], b + k);
    }
    for (; k < k_len; ++k) {
        ggml_vec_mad_f32(n, acc, a[k], b[k]);
    }
}

void compute_tile(const ggml_tensor * dst, int64_t i0, int64_t i1, int64_t rows, int64_t i2, int64_t i3, work & w) {
    const ggml_tensor * a = dst->src[0];
    const ggml_tensor * b = dst->src[1];

    const int64_t cols = std::min(COLS, dst->ne[0] - i0);

    const char * a_matrix = (const char *) a->data + i2/(dst->ne[2]/a->ne[2])*a->nb[2] + i3/(dst->ne[3]/a->ne[3])*a->nb[3];
    const char * b_first  = (const char *) b->data + i1*b->nb[0] + i2*b->nb[2] + i3*b->nb[3];
    char       * d_first  = (char *) dst->data + i0*dst->nb[0] + i1*dst->nb[1] + i2*dst->nb[2] + i3*dst->nb[3];

    for (int64_t row = 0; row < rows; ++row) {
        memset(d_first + row*dst->nb[1], 0, cols*sizeof(float));
    }

    for (int64_t k0 = 0; k0 < a->ne[1]; k0 += K_BLOCK) {
        const int64_t k_len = std::min(K_BLOCK, a->ne[1] - k0);

        for (int64_t k = 0; k < k_len; ++k) {
            convert_row(a, a_matrix + (k0 + k)*a->nb[1], i0, cols, w.a[k]);
            for (int64_t row = 0; row < rows; ++row) {
                w.b[row][k] = load(b->type, b_first + row*b->nb[0] + (k0 + k)*b->nb[1]);
            }
        }
        for (int64_t row = 0; row < rows; ++row) {
            accumulate(cols, k_len, (float *) (d_first + row*dst->nb[1]), w.a, w.b[row]);
        }
    }
}

} // namespace

bool ggml_cpu_out_prod_supported(const ggml_tensor * op) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];

    const bool a_converts = is_float(a->type) ||
        (ggml_get_type_traits(a->type)->to_float != nullptr && a->nb[0] == ggml_type_size(a->type));

    return a_converts && is_float(b->type) && op->type == GGML_TYPE_F32 && ggml_is_contiguous(op);
}

bool ggml_cpu_out_prod_converts(const ggml_tensor * op) {
    return op->src[0]->type != GGML_TYPE_F32 || op->src[1]->type != GGML_TYPE_F32 || op->src[0]->nb[0] != sizeof(float);
}

size_t ggml_cpu_out_prod_work_size(const ggml_tensor * op, int n_tasks) {
    return ggml_cpu_out_prod_converts(op) ? (sizeof(work) + CACHE_LINE_SIZE)*n_tasks : 0;
}

void ggml_cpu_out_prod(const ggml_compute_params * params, ggml_tensor * dst) {
    if (ggml_is_empty(dst)) {
        return;
    }

    const tiling  tiles    = make_tiling(dst, params->nth);
    const int64_t n_matrix = tiles.cols*tiles.rows;
    const int64_t n_all    = n_matrix*dst->ne[2]*dst->ne[3];

    work & w = *(work *) ((char *) params->wdata + params->ith*(sizeof(work) + CACHE_LINE_SIZE));

    for (int64_t i = params->ith; i < n_all; i += params->nth) {
        const int64_t tile   = i % n_matrix;
        const int64_t matrix = i / n_matrix;

        const int64_t i0 = tile % tiles.cols*COLS;
        const int64_t i1 = tile / tiles.cols*tiles.height;

        compute_tile(dst, i0, i1, std::min(tiles.height, dst->ne[1] - i1), matrix % dst->ne[2], matrix / dst->ne[2], w);
    }
}
