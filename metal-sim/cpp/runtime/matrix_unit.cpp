#include "matrix_unit.h"

#ifdef __FMA__
#    include <immintrin.h>
#endif

namespace metal_sim {

namespace {

#ifdef __FMA__
inline void add_product(row_of_8 & sum, float a, const row_of_8 & b) {
    sum = static_cast<row_of_8>(_mm256_fmadd_ps(_mm256_set1_ps(a), static_cast<__m256>(b), static_cast<__m256>(sum)));
}
#else
inline void add_product(row_of_8 & sum, float a, const row_of_8 & b) {
#    pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
        sum[j] = __builtin_fmaf(a, b[j], sum[j]);
    }
}
#endif

}  // namespace

// Unrolled, so that the eight sums stay in registers.
void multiply_accumulate(row_of_8 * d, const float * a, const row_of_8 * b, const row_of_8 * c) {
    row_of_8 sums[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        sums[i] = c[i];
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
        const row_of_8 row = b[k];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            add_product(sums[i], a[8 * i + k], row);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        d[i] = sums[i];
    }
}

}  // namespace metal_sim
