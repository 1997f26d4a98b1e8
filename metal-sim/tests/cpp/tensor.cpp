// The tensor API: a product whose right operand is staged in threadgroup memory, with ragged extents.
#include "metal_tensor_shim.h"

#include "harness.h"

namespace {

using namespace metal;
using namespace metal_sim;

unit unit_{ "mul_tensor" };

constexpr int tile = 16;

// c[n][m] = sum over k of b[n][k] * a[m][k]: rows of c follow b, columns follow a.
kernel void multiply(constant int3 & mnk, device const float * a, device const float * b, device float * c,
                     threadgroup half * staged, ushort i) {
    const int m = mnk.x, n = mnk.y, k = mnk.z;
    for (int e = i; e < tile * k; e += 64) {
        staged[e] = e / k < m ? static_cast<half>(a[e]) : static_cast<half>(0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    auto left  = tensor(b, dextents<int32_t, 2>(k, n), array<int, 2>({ 1, k }));
    auto right = tensor(staged, dextents<int32_t, 2>(k, tile));
    mpp::tensor_ops::matmul2d<mpp::tensor_ops::matmul2d_descriptor(
                                  tile, tile, static_cast<int>(dynamic_extent), false, true, true,
                                  mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate),
                              execution_simdgroups<2>>
         product;
    auto sums = product.get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
    product.run(left, right, sums);
    product.run(left, right, sums);
    sums.store(tensor(c, dextents<int32_t, 2>(m, n), array<int, 2>({ 1, m })).slice(0, 0));
}

KERNEL(multiply, K_buffer, K_buffer, K_buffer, K_buffer, K_threadgroup<0>, K_thread_index_in_threadgroup);

TEST(cooperative_product) {
    const int          m = 11, n = 9, k = 13;
    const int3         mnk(m, n, k);
    std::vector<float> a(m * k), b(n * k), c(m * n + 1, -1.0f);
    for (int i = 0; i < m * k; ++i) {
        a[i] = i % 7 - 3;
    }
    for (int i = 0; i < n * k; ++i) {
        b[i] = 100000.0f + i;  // beyond half: b must not be staged in it
    }
    CHECK(test::launch("multiply")
              .argument(mnk)
              .buffer(a)
              .buffer(b)
              .buffer(c)
              .threadgroup_memory(0, 432)
              .threads(64)
              .run({}, true));
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j < m; ++j) {
            double sum = 0;
            for (int l = 0; l < k; ++l) {
                sum += static_cast<double>(b[i * k + l]) * a[j * k + l];
            }
            CHECK(c[i * m + j] == static_cast<float>(2 * sum));
        }
    }
    CHECK(c[m * n] == -1.0f);  // nothing beyond the extents
}

}  // namespace

extern "C" metal_sim::unit * const * metal_sim_units(size_t * count) {
    static metal_sim::unit * const units[] = { &unit_ };
    *count                                 = 1;
    return units;
}

int main() {
    return test::run_all();
}
