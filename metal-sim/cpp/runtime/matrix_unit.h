// The arithmetic of simdgroup matrices. Out of line: a kernel has hundreds of these products, and each would be unrolled.
#pragma once

namespace metal_sim {

// A row of a simdgroup matrix, whatever its element type.
typedef float row_of_8 __attribute__((vector_size(32)));

// d = a*b + c for 8x8 matrices by rows. The products of one element are added in the order of the inner index, each with
// one rounding. `d` may be `c`.
void multiply_accumulate(row_of_8 * d, const float * a, const row_of_8 * b, const row_of_8 * c);

}  // namespace metal_sim
