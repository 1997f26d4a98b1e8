// Kernels of our own that rely on what the translation must preserve. Run by ../execution.rs.
#include <metal_stdlib>
#include "ggml-metal-impl.h"

using namespace metal;

constant short FC_factor [[function_constant(FC_TEST + 1)]];
constant bool  FC_negate [[function_constant(FC_TEST + 2)]];

// Lane 0 overwrites what the others have just read, without a barrier: each lane must see 0 first and 100 afterwards.
kernel void kernel_leader(
        device      float * dst,
        threadgroup float * shared [[threadgroup(0)]],
        ushort tiisg[[thread_index_in_simdgroup]]) {
    shared[tiisg] = tiisg;

    simdgroup_barrier(mem_flags::mem_threadgroup);

    const float first = shared[0];

    if (tiisg == 0) {
        shared[0] = 100.0f;
    }

    dst[tiisg] = 1000.0f*first + shared[0];
}

// x/0 and x%0 have no defined value on a GPU, but they do not stop it.
kernel void kernel_divide_by_zero(
        constant args_t & args,
        device  float * dst,
        uint tiitg[[thread_index_in_threadgroup]]) {
    int quotient = tiitg / args.zero + tiitg % args.zero;
    quotient /= args.zero;
    dst[tiitg] = quotient;
}

// Function constants, an array with a range designator, a swizzle.
template<typename T, short N>
kernel void kernel_scale(
        constant args_t & args,
        device  float * dst,
        uint tiitg[[thread_index_in_threadgroup]]) {
    T sums[N] = { [0 ... N-1] = 0 };

    #pragma unroll
    for (short i = 0; i < N; ++i) {
        sums[i] += (FC_negate ? -1 : 1)*FC_factor*(T) (i + 1);
    }

    const uint4 q = uint4(10, 20, 30, 40);
    const uint2 w = N < 2 ? q.xy : q.zw;

    dst[tiitg] = sums[N - 1] + w[1];
}

typedef decltype(kernel_scale<float, 1>) scale_t;

#define SCALE(name, type) \
template [[host_name("kernel_scale_" name "_1")]] kernel scale_t kernel_scale<type, 1>; \
template [[host_name("kernel_scale_" name "_2")]] kernel scale_t kernel_scale<type, 2>;

SCALE("f32", float)
SCALE("i32", int)

// Lane 1 publishes through an array of the threadgroup; nobody writes element 5.
kernel void kernel_array(
        device float * dst,
        uint tiitg[[thread_index_in_threadgroup]]) {
    threadgroup float values[2*4];

    if (tiitg == 1) {
        values[3] = 7.0f;
    }

    threadgroup_barrier(mem_flags::mem_threadgroup);

    dst[tiitg] = tiitg == 0 ? values[5] : values[3];
}

// Writes one element behind the memory it was given.
kernel void kernel_overrun(
        device      float * dst,
        threadgroup float * shared [[threadgroup(0)]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    shared[32 + tiitg/31] = 1.0f;
    dst[tiitg] = 0.0f;
}
