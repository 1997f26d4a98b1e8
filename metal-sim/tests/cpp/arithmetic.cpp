// Scalars, vectors, collective operations and simdgroup matrices.
#include "harness.h"

#include <cmath>

namespace {

using namespace metal;
using namespace metal_sim;

unit unit_{ "arithmetic" };

// With more precision than half between two operations, the results would be 2^-20 and 300. g++ 12 rounds with or
// without -fexcess-precision=16; the flag asks the same of every compiler.
kernel void half_square(device const half * in, device half * out) {
    const half x = in[0];
    out[0]       = x * x - in[1];
    out[1]       = in[2] * in[2] / in[2];
}

KERNEL(half_square, K_buffer, K_buffer);

kernel void reductions(device float * out, ushort lane) {
    const float x   = lane + 1;
    out[lane]       = simd_sum(x) + simd_prefix_exclusive_sum(x) * 1000;
    out[32 + lane]  = simd_max(x) + 100 * simd_min(x);
    out[64 + lane]  = simd_shuffle_down(x, 4) + 100 * simd_shuffle_up(x, 4);
    out[96 + lane]  = simd_shuffle_xor(x, 1) + 100 * simd_broadcast(x, 7);
    out[128 + lane] = simd_all(x > 0) + 10 * simd_all(x > 1) + 100 * simd_any(x > 31) + 1000 * simd_any(x > 32);
}

KERNEL(reductions, K_buffer, K_thread_index_in_simdgroup);

// c = a * b for 8x8 matrices, c += a * b once more, transposed into the second half of the output.
kernel void multiply_f32(device const float * a, device const float * b, device float * c) {
    simdgroup_float8x8 ma, mb, mc = make_filled_simdgroup_matrix<float, 8>(0.0f);
    simdgroup_load(ma, a, 8, 0, false);
    simdgroup_load(mb, b);
    simdgroup_multiply_accumulate(mc, ma, mb, mc);
    simdgroup_store(mc, c, 8, 0, false);
    simdgroup_multiply_accumulate(mc, ma, mb, mc);
    simdgroup_store(mc, c + 64, 8, 0, true);
}

KERNEL(multiply_f32, K_buffer, K_buffer, K_buffer);

kernel void load_half(device const float * in, device float * out, threadgroup half * staged, ushort lane) {
    staged[2 * lane]     = static_cast<half>(in[2 * lane]);
    staged[2 * lane + 1] = static_cast<half>(in[2 * lane + 1]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_half8x8 m;
    simdgroup_load(m, staged, 8, 0, false);
    simdgroup_float8x8 one = make_filled_simdgroup_matrix<float, 8>(0.0f), product;
    for (ushort i = 0; i < 2; ++i) {
        one.thread_elements()[i] = in[64 + lane * 2 + i] != 0.0f ? 1.0f : 0.0f;
    }
    simdgroup_multiply(product, m, one);
    simdgroup_store(product, out, 8, 0, false);
}

KERNEL(load_half, K_buffer, K_buffer, K_threadgroup<0>, K_thread_index_in_simdgroup);

kernel void elements(device const float * in, device float * out, ushort lane) {
    simdgroup_float8x8 m;
    simdgroup_load(m, in, 8, 0, false);
    simdgroup_float8x8 copy = m;
    out[64 + 2 * lane]      = m.thread_elements()[0];
    out[64 + 2 * lane + 1]  = m.thread_elements()[1];
    copy.thread_elements()[0] += 1000.0f;
    simdgroup_store(copy, out, 8, 0, false);
}

KERNEL(elements, K_buffer, K_buffer, K_thread_index_in_simdgroup);

std::vector<float> ramp(size_t count, float start, float step) {
    std::vector<float> v(count);
    for (size_t i = 0; i < count; ++i) {
        v[i] = start + step * i;
    }
    return v;
}

TEST(half_rounds_after_every_operation) {
    const auto        power = [](int exponent) { return std::ldexp(1.0f, exponent); };
    std::vector<half> in    = { half(1 + power(-10)), half(1 + power(-9)), half(300) }, out(2);
    CHECK(test::launch("half_square").buffer(in).buffer(out).threads(1).run());
    CHECK(out[0] == half(0));                       // (1 + 2^-10)^2 is 1 + 2^-9 + 2^-20
    CHECK(std::isinf(static_cast<float>(out[1])));  // 90000 overflows before the division
}

TEST(bfloat_rounds_to_nearest_even) {
    const auto rounded = [](float x) { return static_cast<float>(bfloat(x)); };
    CHECK(rounded(1.0f + std::ldexp(1.0f, -8)) == 1.0f);  // a tie, to even
    CHECK(rounded(1.0f + std::ldexp(3.0f, -8)) == 1.0f + std::ldexp(4.0f, -8));
    CHECK(rounded(1.0f + std::ldexp(1.0f, -8) + std::ldexp(1.0f, -20)) == 1.0f + std::ldexp(1.0f, -7));
    CHECK(std::isnan(rounded(NAN)) && std::isinf(rounded(3.4e38f)));
    CHECK(static_cast<float>(bfloat(1.0f) + bfloat(0.001f)) == 1.0f);
    CHECK(bfloat(1.0f) + 0.001f == 1.0f + 0.001f);
}

TEST(vectors_work_by_component) {
    const float4 a(1, 2, 3, 4), b(10);
    CHECK(all(a + b == float4(11, 12, 13, 14)) && all(2 * a == float4(2, 4, 6, 8)));
    CHECK(dot(a, b) == 100 && a.w == a[3] && all(float4(a.zw(), a.xy()) == float4(3, 4, 1, 2)));
    CHECK(all(select(a, b, a > float4(2)) == float4(1, 2, 10, 10)));
    CHECK(sizeof(float3) == 16 && sizeof(packed_float3) == 12 && sizeof(half4) == 8);
    CHECK(all(int4(half4(1.5f, 2.5f, -1.5f, 0)) == int4(1, 2, -1, 0)));
    const float2x4 m(float4(1), float4(2));
    CHECK((m * 3.0f)[1][3] == 6 && float4x4(2.0f)[1][1] == 2 && float4x4(2.0f)[1][0] == 0);
}

TEST(min_and_max_prefer_numbers) {
    CHECK(max(NAN, 1.0f) == 1 && max(1.0f, NAN) == 1 && min(NAN, 1.0f) == 1 && min(1.0f, NAN) == 1);
    CHECK(max(-1, 2) == 2 && clamp(7, 0, 5) == 5 && clamp(half(-3), half(0), half(1)) == half(0));
}

TEST(a_zero_divisor_does_not_trap) {
    volatile int zero = 0;
    CHECK(7 / nonzero(static_cast<int>(zero)) == 7);
    CHECK(nonzero(3) == 3 && nonzero(0.0f) == 0.0f);
}

TEST(simdgroup_functions) {
    std::vector<float> out(160, 0.0f);
    CHECK(test::launch("reductions").buffer(out).threads(32).run());
    for (int i = 0; i < 32; ++i) {
        const float x = i + 1;
        CHECK(out[i] == 528 + 1000 * (x * (x - 1) / 2));
        CHECK(out[32 + i] == 32 + 100);
        CHECK(out[64 + i] == (i < 28 ? x + 4 : x) + 100 * (i >= 4 ? x - 4 : x));
        CHECK(out[96 + i] == (i % 2 == 0 ? x + 1 : x - 1) + 100 * 8);
        CHECK(out[128 + i] == 1 + 0 + 100 + 0);
    }
}

TEST(simdgroup_matrices_multiply) {
    std::vector<float> a = ramp(64, -10, 0.5f), b = ramp(64, 3, -0.25f), c(128, 0.0f);
    reset_counters();
    CHECK(test::launch("multiply_f32").buffer(a).buffer(b).buffer(c).threads(32).run());
    for (int i = 0; i < 8; ++i) {
        for (int j = 0; j < 8; ++j) {
            double sum = 0;
            for (int k = 0; k < 8; ++k) {
                sum += static_cast<double>(a[8 * i + k]) * b[8 * k + j];
            }
            CHECK(c[8 * i + j] == sum && c[64 + 8 * j + i] == 2 * sum);
        }
    }
    CHECK(read_counters().simdgroup_fmas == 2 * 512);
}

TEST(half_matrices_hold_halves) {
    std::vector<float> in = ramp(64, 60000, 32), out(64, 0.0f);
    in.resize(128, 0.0f);
    in[56] = 65600;  // beyond the largest half
    in[64] = 1.0f;   // element (0, 0) of the other matrix, held by lane 0
    CHECK(test::launch("load_half").buffer(in).buffer(out).threadgroup_memory(0, 128).threads(32).run());
    CHECK(out[0] == 60000 && out[8] == 60256 && std::isinf(out[56]));
    CHECK(out[1] == 0 && std::isnan(out[57]));  // infinity times zero
}

TEST(a_lane_holds_the_elements_that_apple_gives_it) {
    std::vector<float> in = ramp(64, 0, 1), out(128, 0.0f);
    CHECK(test::launch("elements").buffer(in).buffer(out).threads(32).run());
    const int first[32] = { 0,  2,  8,  10, 16, 18, 24, 26, 4,  6,  12, 14, 20, 22, 28, 30,
                            32, 34, 40, 42, 48, 50, 56, 58, 36, 38, 44, 46, 52, 54, 60, 62 };
    for (int lane = 0; lane < 32; ++lane) {
        CHECK(out[64 + 2 * lane] == first[lane] && out[64 + 2 * lane + 1] == first[lane] + 1);
        CHECK(out[first[lane]] == first[lane] + 1000 && out[first[lane] + 1] == first[lane] + 1);
    }
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
