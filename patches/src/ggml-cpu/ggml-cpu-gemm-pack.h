#pragma once

// Copies of an operand in the order in which the kernel reads them: panels of W rows, in each of them k after k.

#include "ggml-cpu.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "simd-mappings.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

// An operand: its row i at step k lies at data + i*row + k*step, in bytes. Blocks of quantized types lie along the rows.
struct source {
    ggml_type    type;
    const char * data;
    size_t       row;
    size_t       step;
};

// Floats of scratch: what is converted at a time.
constexpr int64_t SCRATCH = 2048;

// Steps that are copied at a time. With all of them at once, rows that are a power of two apart would evict each other.
constexpr int64_t STEPS = 8;

// Rows that are converted at a time: a multiple of every type's block.
constexpr int64_t CONVERTED = SCRATCH/STEPS;

inline float to_float(ggml_type type, const char * p) {
    switch (type) {
        case GGML_TYPE_F16:  return GGML_CPU_FP16_TO_FP32(*(const ggml_fp16_t *) p);
        case GGML_TYPE_BF16: return GGML_BF16_TO_FP32(*(const ggml_bf16_t *) p);
        default:             return *(const float *) p;
    }
}

inline void to_floats(ggml_type type, const char * p, float * out, int64_t n) {
    switch (type) {
        case GGML_TYPE_F32:  memcpy(out, p, n*sizeof(float)); break;
        case GGML_TYPE_F16:  ggml_cpu_fp16_to_fp32((const ggml_fp16_t *) p, out, n); break;
        case GGML_TYPE_BF16: ggml_cpu_bf16_to_fp32((const ggml_bf16_t *) p, out, n); break;
        default:             ggml_get_type_traits(type)->to_float(p, out, n);
    }
}

// Where panel i of a block lies, and how many floats a step of it has: W, or what is left of it if nothing is padded.
struct panels {
    float * out;
    int64_t rows;
    int64_t steps;
    bool    padded;

    int64_t width(int64_t w, int64_t i) const { return padded ? w : std::min(w, rows - i); }
    float * at(int64_t i) const { return out + i*steps; }
};

// `steps` steps of floats whose rows follow each other, to panels from row `first` on.
template <int W>
void copy_rows(const panels & to, int64_t first, int64_t n, int64_t k, int64_t steps, const float * from, int64_t step) {
    for (int64_t i = 0; i < n; i += W) {
        const int64_t width = to.width(W, first + i);
        const int64_t left  = std::min<int64_t>(W, n - i);
        float *       out   = to.at(first + i) + k*width;
        const float * in    = from + i;

        if (left == W) {
            for (int64_t s = 0; s < steps; ++s) {
                memcpy(out + s*W, in + s*step, W*sizeof(float));
            }
            continue;
        }
        for (int64_t s = 0; s < steps; ++s) {
            for (int64_t j = 0; j < width; ++j) {
                out[s*width + j] = j < left ? in[s*step + j] : 0.0f;
            }
        }
    }
}

template <int W>
void pack_rows(const source & from, const panels & to, float * scratch) {
    const bool    is_float = from.type == GGML_TYPE_F32 && from.step % sizeof(float) == 0;
    const int64_t at_once  = is_float ? to.rows : CONVERTED/W*W;

    for (int64_t k = 0; k < to.steps; k += STEPS) {
        const int64_t steps = std::min(STEPS, to.steps - k);
        const char *  data  = from.data + k*from.step;

        for (int64_t i = 0; i < to.rows; i += at_once) {
            const int64_t n = std::min(at_once, to.rows - i);
            const char * row = data + i/ggml_blck_size(from.type)*from.row;

            if (is_float) {
                copy_rows<W>(to, i, n, k, steps, (const float *) row, from.step/sizeof(float));
                continue;
            }
            for (int64_t s = 0; s < steps; ++s) {
                to_floats(from.type, row + s*from.step, scratch + s*CONVERTED, n);
            }
            copy_rows<W>(to, i, n, k, steps, scratch, CONVERTED);
        }
    }
}

#if defined(__GNUC__)

typedef float four __attribute__((vector_size(16)));

// 4 rows of 4 steps become 4 steps of 4 rows.
inline void transpose_4(const float * in, int64_t row, float * out, int64_t step) {
    four a, b, c, d;
    memcpy(&a, in,         sizeof(a));
    memcpy(&b, in + row,   sizeof(b));
    memcpy(&c, in + 2*row, sizeof(c));
    memcpy(&d, in + 3*row, sizeof(d));

    const four ab_low  = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const four cd_low  = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);

    a = __builtin_shufflevector(ab_low,  cd_low,  0, 1, 4, 5);
    b = __builtin_shufflevector(ab_low,  cd_low,  2, 3, 6, 7);
    c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);

    memcpy(out,          &a, sizeof(a));
    memcpy(out + step,   &b, sizeof(b));
    memcpy(out + 2*step, &c, sizeof(c));
    memcpy(out + 3*step, &d, sizeof(d));
}

#else

inline void transpose_4(const float * in, int64_t row, float * out, int64_t step) {
    for (int i = 0; i < 4; ++i) {
        for (int k = 0; k < 4; ++k) {
            out[k*step + i] = in[i*row + k];
        }
    }
}

#endif

// One panel of floats whose steps follow each other, from step k on.
inline void copy_steps(float * out, int64_t width, int64_t rows, const float * in, int64_t row, int64_t steps) {
    // as many steps as a cache line holds, so that each line is read once
    constexpr int64_t LINE = 16;

    for (int64_t k = 0; k < steps; k += LINE) {
        const int64_t n = std::min(LINE, steps - k);

        int64_t i = 0;
        for (; i + 4 <= rows; i += 4) {
            int64_t s = 0;
            for (; s + 4 <= n; s += 4) {
                transpose_4(in + i*row + k + s, row, out + (k + s)*width + i, width);
            }
            for (; s < n; ++s) {
                for (int64_t j = i; j < i + 4; ++j) {
                    out[(k + s)*width + j] = in[j*row + k + s];
                }
            }
        }
        for (; i < width; ++i) {
            for (int64_t s = 0; s < n; ++s) {
                out[(k + s)*width + i] = i < rows ? in[i*row + k + s] : 0.0f;
            }
        }
    }
}

template <int W>
void pack_steps(const source & from, const panels & to, float * scratch) {
    constexpr int64_t AT_ONCE = SCRATCH/W/16*16;
    const bool        is_float = from.type == GGML_TYPE_F32 && from.row % sizeof(float) == 0;

    for (int64_t i = 0; i < to.rows; i += W) {
        const int64_t width = to.width(W, i);
        const int64_t rows  = std::min<int64_t>(W, to.rows - i);
        const char *  data  = from.data + i*from.row;

        if (is_float) {
            copy_steps(to.at(i), width, rows, (const float *) data, from.row/sizeof(float), to.steps);
            continue;
        }
        for (int64_t k = 0; k < to.steps; k += AT_ONCE) {
            const int64_t n = std::min(AT_ONCE, to.steps - k);
            for (int64_t j = 0; j < rows; ++j) {
                to_floats(from.type, data + j*from.row + k*from.step, scratch + j*AT_ONCE, n);
            }
            copy_steps(to.at(i) + k*width, width, rows, scratch, AT_ONCE, n);
        }
    }
}

// Neither rows nor steps follow each other.
template <int W>
void pack_scattered(const source & from, const panels & to) {
    for (int64_t i = 0; i < to.rows; i += W) {
        const int64_t width = to.width(W, i);
        const int64_t rows  = std::min<int64_t>(W, to.rows - i);
        float *       out   = to.at(i);

        for (int64_t k = 0; k < to.steps; ++k) {
            for (int64_t j = 0; j < width; ++j) {
                out[k*width + j] = j < rows ? to_float(from.type, from.data + (i + j)*from.row + k*from.step) : 0.0f;
            }
        }
    }
}

// Every row of an operand's block at every step of it, as floats.
template <int W>
void pack(const source & from, const panels & to, float * scratch) {
    const size_t size = ggml_type_size(from.type);

    if (from.row == size) {
        pack_rows<W>(from, to, scratch);
    } else if (from.step == size) {
        pack_steps<W>(from, to, scratch);
    } else {
        pack_scattered<W>(from, to);
    }
}

} // namespace
