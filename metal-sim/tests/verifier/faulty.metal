// One kernel for each fault that the verifier looks for, and a correct twin that it must be silent about. Run by
// ../verifier.rs, which finds lines by the words behind `//!`.
#include <metal_stdlib>
#include "ggml-metal-impl.h"

using namespace metal;

// ---- reads of what nobody wrote

kernel void kernel_uninitialised_threadgroup(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    if (tiitg != 7) {
        shared[tiitg] = src[tiitg];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    dst[tiitg] = shared[31 - tiitg]; //! uninitialised-threadgroup
}

kernel void kernel_initialised_threadgroup(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        uint tgpig[[threadgroup_position_in_grid]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    shared[tiitg] = src[tiitg];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    dst[32*tgpig + tiitg] = shared[31 - tiitg];
}

kernel void kernel_uninitialised_array(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    threadgroup float values[32];
    if (tiitg < 31) {
        values[tiitg] = src[tiitg];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    dst[tiitg] = values[tiitg]; //! uninitialised-array
}

// Reads its own result before it writes it; of `src`, which the host wrote, all may be read.
kernel void kernel_uninitialised_device(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    const float before = tiitg == 5 ? dst[tiitg] : 0.0f; //! uninitialised-device
    dst[tiitg] = src[tiitg] + before;
}

kernel void kernel_copy(
        device      float * dst,
        device const float * src,
        uint tgpig[[threadgroup_position_in_grid]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    dst[32*tgpig + tiitg] = src[32*tgpig + tiitg]; //! copy
}

// ---- out of bounds

kernel void kernel_reads_beyond(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    dst[tiitg] = src[tiitg + 1]; //! reads-beyond
}

kernel void kernel_writes_beyond(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    dst[tiitg + 1] = src[tiitg]; //! writes-beyond
}

kernel void kernel_reads_beyond_threadgroup(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    shared[tiitg] = src[tiitg];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    dst[tiitg] = shared[tiitg + 1]; //! reads-beyond-threadgroup
}

kernel void kernel_writes_beyond_threadgroup(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    shared[tiitg + 1] = src[tiitg]; //! writes-beyond-threadgroup
    dst[tiitg] = 0.0f;
}

// ---- races

// Lane i reads what lane i ^ 1 wrote.
kernel void kernel_race_simdgroup(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    shared[tiitg] = src[tiitg]; //! race-simdgroup-write
    dst[tiitg] = shared[tiitg & 30]; //! race-simdgroup-read
}

kernel void kernel_ordered_simdgroup(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    shared[tiitg] = src[tiitg];
    simdgroup_barrier(mem_flags::mem_threadgroup); //! simdgroup-barrier
    dst[tiitg] = shared[tiitg & 30];
}

// The second simdgroup reads what the first wrote, behind a barrier of simdgroups only.
kernel void kernel_race_threadgroup(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    shared[tiitg] = src[tiitg]; //! race-threadgroup-write
    simdgroup_barrier(mem_flags::mem_threadgroup);
    dst[tiitg] = shared[tiitg & 31]; //! race-threadgroup-read
}

kernel void kernel_ordered_threadgroup(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        uint tiitg[[thread_index_in_threadgroup]]) {
    shared[tiitg] = src[tiitg]; //! removed-barrier-write
    threadgroup_barrier(mem_flags::mem_threadgroup); //! threadgroup-barrier
    dst[tiitg] = shared[tiitg & 31]; //! removed-barrier-read
}

// Every threadgroup adds to the same elements, which the host wrote.
kernel void kernel_race_grid(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    dst[tiitg] += src[tiitg]; //! race-grid
}

kernel void kernel_atomic_grid(
        device atomic_int * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    atomic_fetch_add_explicit(dst + tiitg, (int) src[tiitg], memory_order_relaxed);
}

// All lanes write the same value to one element, then threadgroup 1 too.
kernel void kernel_same_value(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    dst[0] = src[0]; //! same-value
    dst[tiitg + 1] = src[tiitg];
}

// Device memory, behind a barrier that orders threadgroup memory alone.
kernel void kernel_wrong_flags(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    dst[tiitg] = src[tiitg]; //! wrong-flags-write
    threadgroup_barrier(mem_flags::mem_threadgroup);
    dst[tiitg + 64] = dst[63 - tiitg]; //! wrong-flags-read
}

kernel void kernel_right_flags(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    dst[tiitg] = src[tiitg];
    threadgroup_barrier(mem_flags::mem_device);
    dst[tiitg + 64] = dst[63 - tiitg];
}

// Lane 0 overwrites what the others have read, which is right only where they run in lockstep.
kernel void kernel_lockstep(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        ushort tiisg[[thread_index_in_simdgroup]]) {
    shared[tiisg] = src[tiisg];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const float first = shared[0]; //! lockstep-read
    if (tiisg == 0) {
        shared[0] = first + 1.0f; //! lockstep-write
    }
    dst[tiisg] = first;
}

// A sum orders the lanes on hardware, and is no barrier by MSL.
kernel void kernel_sum_as_barrier(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        ushort tiisg[[thread_index_in_simdgroup]]) {
    shared[tiisg] = src[tiisg]; //! sum-as-barrier-write
    const float sum = simd_sum(src[tiisg]);
    dst[tiisg] = sum + shared[31 - tiisg]; //! sum-as-barrier-read
}

// Lanes 0 to 15 meet, and lane 16 reads what one of them wrote.
kernel void kernel_half_met(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        ushort tiisg[[thread_index_in_simdgroup]]) {
    shared[tiisg] = src[tiisg]; //! half-met-write
    float sum = 0.0f;
    if (tiisg < 16) {
        sum = simd_sum(src[tiisg]);
        sum += shared[15 - tiisg];
    } else if (tiisg == 16) {
        sum = shared[3]; //! half-met-read
    }
    dst[tiisg] = sum;
}

// A matrix is loaded by all lanes, also when lane 0 has written it all.
kernel void kernel_matrix_race(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        ushort tiisg[[thread_index_in_simdgroup]]) {
    shared[tiisg] = src[tiisg];
    shared[tiisg + 32] = src[tiisg]; //! matrix-race-write
    simdgroup_float8x8 m;
    simdgroup_load(m, shared, 8, 0, false); //! matrix-race-load
    simdgroup_store(m, dst, 8, 0, false);
}

kernel void kernel_matrix_ordered(
        device      float * dst,
        device const float * src,
        threadgroup float * shared [[threadgroup(0)]],
        ushort tiisg[[thread_index_in_simdgroup]]) {
    shared[tiisg] = src[tiisg];
    shared[tiisg + 32] = src[tiisg];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 m;
    simdgroup_load(m, shared, 8, 0, false);
    simdgroup_store(m, dst, 8, 0, false);
}

// Lane order decides which value stays; and lanes that stop at different barriers.
kernel void kernel_last_one_wins(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    dst[tiitg + 1] = src[tiitg];
    dst[0] = src[tiitg]; //! last-one-wins
}

kernel void kernel_divergent(
        device      float * dst,
        device const float * src,
        uint tiitg[[thread_index_in_threadgroup]]) {
    if (tiitg < 32) {
        threadgroup_barrier(mem_flags::mem_threadgroup); //! divergent
    } else {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    dst[tiitg] = src[tiitg];
}
