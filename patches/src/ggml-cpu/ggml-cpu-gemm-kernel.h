#pragma once

// The innermost loop of a product of floats: a tile of PANEL_P rows times N <= PANEL_Q columns whose sums stay in registers
// while k runs. The CPU backend is compiled once per level of the CPU, and the compiler's macros say which.
//
// One multiply-add after the other, in the order of k, in every lane and for every N: how a result is cut into tiles does not
// show in its bits.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__GNUC__)
#define GEMM_UNROLL       _Pragma("GCC unroll 16")
#define GEMM_PREFETCHW(p) __builtin_prefetch(p, 1)
#else
#define GEMM_UNROLL
#define GEMM_PREFETCHW(p)
#endif

namespace {

// PANEL_Q is as large as the registers allow: two vectors of sums for each column, two of p, one of q.
#if defined(__AVX512F__)

using vec = __m512;
constexpr int PANEL_Q = 12; // of 32 registers

inline vec  vec_zero()                        { return _mm512_setzero_ps(); }
inline vec  vec_load(const float * p)         { return _mm512_loadu_ps(p); }
inline void vec_store(float * p, vec x)       { _mm512_storeu_ps(p, x); }
inline vec  vec_all(float x)                  { return _mm512_set1_ps(x); }
inline vec  vec_add(vec x, vec y)             { return _mm512_add_ps(x, y); }
inline vec  vec_mul_add(vec x, vec y, vec z)  { return _mm512_fmadd_ps(x, y, z); }

#elif defined(__AVX2__) && defined(__FMA__)

using vec = __m256;
constexpr int PANEL_Q = 6; // of 16 registers

inline vec  vec_zero()                        { return _mm256_setzero_ps(); }
inline vec  vec_load(const float * p)         { return _mm256_loadu_ps(p); }
inline void vec_store(float * p, vec x)       { _mm256_storeu_ps(p, x); }
inline vec  vec_all(float x)                  { return _mm256_set1_ps(x); }
inline vec  vec_add(vec x, vec y)             { return _mm256_add_ps(x, y); }
inline vec  vec_mul_add(vec x, vec y, vec z)  { return _mm256_fmadd_ps(x, y, z); }

#elif defined(__ARM_NEON) && defined(__aarch64__)

using vec = float32x4_t;
constexpr int PANEL_Q = 12; // of 32 registers

inline vec  vec_zero()                        { return vdupq_n_f32(0); }
inline vec  vec_load(const float * p)         { return vld1q_f32(p); }
inline void vec_store(float * p, vec x)       { vst1q_f32(p, x); }
inline vec  vec_all(float x)                  { return vdupq_n_f32(x); }
inline vec  vec_add(vec x, vec y)             { return vaddq_f32(x, y); }
inline vec  vec_mul_add(vec x, vec y, vec z)  { return vfmaq_f32(z, x, y); }

#else

// Plain C++, four floats at a time. The product is rounded before it is added, unless the target multiplies and adds in one.
struct vec { float lane[4]; };
constexpr int PANEL_Q = 4; // of 16 registers, some of which hold products

inline vec  vec_zero()                        { return {}; }
inline vec  vec_load(const float * p)         { vec x; memcpy(&x, p, sizeof(x)); return x; }
inline void vec_store(float * p, vec x)       { memcpy(p, &x, sizeof(x)); }
inline vec  vec_all(float x)                  { return {{ x, x, x, x }}; }

inline vec vec_add(vec x, vec y) {
    for (int i = 0; i < 4; ++i) {
        x.lane[i] += y.lane[i];
    }
    return x;
}

inline vec vec_mul_add(vec x, vec y, vec z) {
    for (int i = 0; i < 4; ++i) {
        z.lane[i] += x.lane[i]*y.lane[i];
    }
    return z;
}

#endif

constexpr int LANES   = sizeof(vec)/sizeof(float);
constexpr int VECTORS = 2;
constexpr int PANEL_P = VECTORS*LANES;

// k steps of p, `step` floats from one to the next, and of q, N floats each. The sums go to `out`, whose columns are `column`
// floats apart: they are added to what is there, or take its place.
template <int V, int N>
void kernel(int64_t k, const float * p, ptrdiff_t step, const float * q, float * out, ptrdiff_t column, bool add) {
    vec sum[N][V];

    GEMM_UNROLL
    for (int j = 0; j < N; ++j) {
        GEMM_UNROLL
        for (int v = 0; v < V; ++v) {
            sum[j][v] = vec_zero();
        }
    }

    for (; k > 0; --k) {
        vec x[V];
        GEMM_UNROLL
        for (int v = 0; v < V; ++v) {
            x[v] = vec_load(p + v*LANES);
        }
        GEMM_UNROLL
        for (int j = 0; j < N; ++j) {
            const vec y = vec_all(q[j]);
            GEMM_UNROLL
            for (int v = 0; v < V; ++v) {
                sum[j][v] = vec_mul_add(x[v], y, sum[j][v]);
            }
        }
        p += step;
        q += N;
    }

    GEMM_UNROLL
    for (int j = 0; j < N; ++j) {
        GEMM_UNROLL
        for (int v = 0; v < V; ++v) {
            float * to = out + j*column + v*LANES;
            vec_store(to, add ? vec_add(vec_load(to), sum[j][v]) : sum[j][v]);
        }
    }
}

using kernel_t = void (*)(int64_t, const float *, ptrdiff_t, const float *, float *, ptrdiff_t, bool);

// A kernel for each number of columns, so that the last panel costs no more than it holds.
template <int V, int... J>
kernel_t kernel_of(int n, std::integer_sequence<int, J...>) {
    static constexpr kernel_t all[] = { kernel<V, J + 1>... };
    return all[n - 1];
}

inline kernel_t kernel_for(int vectors, int n) {
    const auto columns = std::make_integer_sequence<int, PANEL_Q>();
    return vectors == 1 ? kernel_of<1>(n, columns) : kernel_of<VECTORS>(n, columns);
}

} // namespace
