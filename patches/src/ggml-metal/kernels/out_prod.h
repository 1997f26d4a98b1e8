// OUT_PROD without temporaries: the tiles of both operands are staged from where they lie, whatever their strides, into
// float threadgroup memory. A threadgroup computes 64x32 elements of dst, as kernel_mul_mm does, in steps of 32 along k.
//
// Both operands have k as dimension 1, so a quantized a has its blocks along m: a step takes a quarter of a block of 256, or
// two blocks of 32, from each of its 32 rows, and reads of them what a MUL_MAT of the same size reads.
//
// A header of quantize.metal, beside the kernels that dequantize for the route with temporaries.
#pragma once

#include "dequantize_more.h"
#include "out_prod_args.h"

constant bool  FC_out_prod_checked [[function_constant(FC_OUT_PROD + 0)]]; // some tile is not whole
constant short FC_out_prod_type_b  [[function_constant(FC_OUT_PROD + 1)]];

// where a tile of `width` values by 32 steps of k keeps one: 8x8 blocks, a row for each k
template <short width>
static inline short out_prod_place(short i, short k) {
    return 64*((width/8)*(k/8) + i/8) + 8*(k%8) + i%8;
}

// Floats with any strides. Threads that follow one another read along the dimension whose values lie closer together.
template <typename T, short width>
void out_prod_stage_strided(device const char * src, uint64_t nb0, uint64_t nb1, int n, int nk, threadgroup float * tile, ushort thread_index) {
    const bool along_k = nb1 < nb0;

    FOR_UNROLL (short j = 0; j < width*OUT_PROD_TILE_K/OUT_PROD_THREADS; j++) {
        const short index = thread_index + OUT_PROD_THREADS*j;

        const short i = along_k ? index/OUT_PROD_TILE_K : index%width;
        const short k = along_k ? index%OUT_PROD_TILE_K : index/width;

        // zeros beyond k: whatever the other operand has there must not count
        const bool inside = !FC_out_prod_checked || (i < n && k < nk);

        tile[out_prod_place<width>(i, k)] = inside ? (float) *(device const T *)(src + i*nb0 + k*nb1) : 0.f;
    }
}

// a of floats
template <typename T>
void out_prod_stage_floats(constant out_prod_args & args, device const char * a, int i0, int k0, threadgroup float * tile, ushort thread_index) {
    out_prod_stage_strided<T, OUT_PROD_TILE_M>(a + i0*args.nb00 + k0*args.nb01, args.nb00, args.nb01, args.m - i0, args.k - k0, tile, thread_index);
}

// a of blocks, which hold 16*nl values along m: each thread decodes 16 of them, once
template <typename block_q, short nl, void (*dequantize)(device const block_q *, short, thread float4x4 &)>
void out_prod_stage_blocks(constant out_prod_args & args, device const char * a, int i0, int k0, threadgroup float * tile, ushort thread_index) {
    const short part = thread_index%(OUT_PROD_TILE_M/16);
    const short k    = thread_index/(OUT_PROD_TILE_M/16);

    float4x4 values = float4x4(0.f);

    if (!FC_out_prod_checked || (16*part < args.m - i0 && k < args.k - k0)) {
        const int piece = i0/16 + part;

        dequantize((device const block_q *)(a + (k0 + k)*args.nb01) + piece/nl, piece%nl, values);
    }

    FOR_UNROLL (short j = 0; j < 4; j++) {
        *(threadgroup float4 *)(tile + out_prod_place<OUT_PROD_TILE_M>(16*part + 4*j, k)) = values[j];
    }
}

static void out_prod_stage_b(constant out_prod_args & args, device const char * b, int i1, int k0, threadgroup float * tile, ushort thread_index) {
    device const char * src = b + i1*args.nb10 + k0*args.nb11;

    const int n  = args.n - i1;
    const int nk = args.k - k0;

    switch (FC_out_prod_type_b) {
        case OUT_PROD_B_F32:
            out_prod_stage_strided<float, OUT_PROD_TILE_N>(src, args.nb10, args.nb11, n, nk, tile, thread_index);
            break;
        case OUT_PROD_B_F16:
            out_prod_stage_strided<half, OUT_PROD_TILE_N>(src, args.nb10, args.nb11, n, nk, tile, thread_index);
            break;
#if defined(GGML_METAL_HAS_BF16)
        case OUT_PROD_B_BF16:
            out_prod_stage_strided<bfloat, OUT_PROD_TILE_N>(src, args.nb10, args.nb11, n, nk, tile, thread_index);
            break;
#endif
    }
}

template <void (*stage_a)(constant out_prod_args &, device const char *, int, int, threadgroup float *, ushort)>
kernel void kernel_out_prod(
        constant out_prod_args & args,
        device const char * a,
        device const char * b,
        device       char * dst,
        threadgroup  char * shmem [[threadgroup(0)]],
        uint3  tgpig [[threadgroup_position_in_grid]],
        ushort tiitg [[thread_index_in_threadgroup]],
        ushort sgitg [[simdgroup_index_in_threadgroup]]) {
    threadgroup float * tile_a = (threadgroup float *) shmem;
    threadgroup float * tile_b = tile_a + OUT_PROD_TILE_M*OUT_PROD_TILE_K; // behind tile_a

    const int i0 = tgpig.y*OUT_PROD_TILE_M;
    const int i1 = tgpig.x*OUT_PROD_TILE_N;
    const int i2 = (int) tgpig.z%args.ne2;
    const int i3 = (int) tgpig.z/args.ne2;

    a += (i2/args.r2)*args.nb02 + (i3/args.r3)*args.nb03;
    b += i2*args.nb12 + i3*args.nb13;

    // each simdgroup has 32x16 elements of the tile
    const short m_first = 32*(sgitg%2);
    const short n_first = 16*(sgitg/2);

    // acc restarts every 512 products, as in the float-staged kernel_mul_mm: the rounding of one long sum would outweigh the rest
    simdgroup_float8x8 acc[8];
    simdgroup_float8x8 sum[8];

    for (short i = 0; i < 8; i++) {
        acc[i] = make_filled_simdgroup_matrix<float, 8>(0.f);
        sum[i] = make_filled_simdgroup_matrix<float, 8>(0.f);
    }

    for (int k0 = 0; k0 < args.k; k0 += OUT_PROD_TILE_K) {
        threadgroup_barrier(mem_flags::mem_threadgroup); // nobody reads the last step's tiles any more

        stage_a(args, a, i0, k0, tile_a, tiitg);
        out_prod_stage_b(args, b, i1, k0, tile_b, tiitg);

        threadgroup_barrier(mem_flags::mem_threadgroup); // the tiles are there

        FOR_UNROLL (short k = 0; k < OUT_PROD_TILE_K; k += 8) {
            simdgroup_float8x8 ma[4];
            simdgroup_float8x8 mb[2];

            FOR_UNROLL (short i = 0; i < 4; i++) {
                simdgroup_load(ma[i], tile_a + out_prod_place<OUT_PROD_TILE_M>(m_first + 8*i, k), 8, 0, false);
            }
            FOR_UNROLL (short i = 0; i < 2; i++) {
                simdgroup_load(mb[i], tile_b + out_prod_place<OUT_PROD_TILE_N>(n_first + 8*i, k), 8, 0, true);
            }
            FOR_UNROLL (short i = 0; i < 8; i++) {
                simdgroup_multiply_accumulate(acc[i], mb[i/4], ma[i%4], acc[i]);
            }
        }

        if ((k0 + OUT_PROD_TILE_K)%512 == 0 && k0 + OUT_PROD_TILE_K < args.k) {
            for (short i = 0; i < 8; i++) {
                sum[i].thread_elements()[0] += acc[i].thread_elements()[0];
                sum[i].thread_elements()[1] += acc[i].thread_elements()[1];
                acc[i] = make_filled_simdgroup_matrix<float, 8>(0.f);
            }
        }
    }

    if (args.k > 512) {
        for (short i = 0; i < 8; i++) {
            acc[i].thread_elements()[0] += sum[i].thread_elements()[0];
            acc[i].thread_elements()[1] += sum[i].thread_elements()[1];
        }
    }

    const uint64_t row = args.m; // of dst

    device float * out = (device float *) dst + (uint64_t) tgpig.z*args.n*row + i1*row + i0;

    if (!FC_out_prod_checked || (args.m - i0 >= OUT_PROD_TILE_M && args.n - i1 >= OUT_PROD_TILE_N)) {
        for (short i = 0; i < 8; i++) {
            simdgroup_store(acc[i], out + (n_first + 8*(i/4))*row + m_first + 8*(i%4), row, 0, false);
        }
        return;
    }

    // only what lies in dst is written: by way of threadgroup memory, in which the tiles have served
    threadgroup float * tile = (threadgroup float *) shmem;

    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (short i = 0; i < 8; i++) {
        simdgroup_store(acc[i], tile + (n_first + 8*(i/4))*OUT_PROD_TILE_M + m_first + 8*(i%4), OUT_PROD_TILE_M, 0, false);
    }

    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (short index = tiitg; index < OUT_PROD_TILE_M*OUT_PROD_TILE_N; index += OUT_PROD_THREADS) {
        const short i = index%OUT_PROD_TILE_M;
        const short j = index/OUT_PROD_TILE_M;

        if (i < args.m - i0 && j < args.n - i1) {
            out[j*row + i] = tile[index];
        }
    }
}

typedef decltype(kernel_out_prod<out_prod_stage_floats<float> >) out_prod_t;

#define OUT_PROD_FLOATS(name, type) \
template [[host_name("kernel_out_prod_" name)]] kernel out_prod_t kernel_out_prod<out_prod_stage_floats<type> >;

#define OUT_PROD_BLOCKS(name, block, nl, dequantize) \
template [[host_name("kernel_out_prod_" name)]] kernel out_prod_t kernel_out_prod<out_prod_stage_blocks<block, nl, dequantize> >;

OUT_PROD_FLOATS("f32",     float)
OUT_PROD_FLOATS("f16",     half)
#if defined(GGML_METAL_HAS_BF16)
OUT_PROD_FLOATS("bf16",    bfloat)
#endif
OUT_PROD_BLOCKS("q1_0",    block_q1_0,    8,     dequantize_q1_0)
OUT_PROD_BLOCKS("q2_0",    block_q2_0,    4,     dequantize_q2_0)
OUT_PROD_BLOCKS("q4_0",    block_q4_0,    2,     dequantize_q4_0)
OUT_PROD_BLOCKS("q4_1",    block_q4_1,    2,     dequantize_q4_1)
OUT_PROD_BLOCKS("q5_0",    block_q5_0,    2,     dequantize_q5_0)
OUT_PROD_BLOCKS("q5_1",    block_q5_1,    2,     dequantize_q5_1)
OUT_PROD_BLOCKS("q8_0",    block_q8_0,    2,     dequantize_q8_0)
OUT_PROD_BLOCKS("mxfp4",   block_mxfp4,   2,     dequantize_mxfp4)
OUT_PROD_BLOCKS("nvfp4",   block_nvfp4,   4,     dequantize_nvfp4)
OUT_PROD_BLOCKS("q2_K",    block_q2_K,    QK_NL, dequantize_q2_K)
OUT_PROD_BLOCKS("q3_K",    block_q3_K,    QK_NL, dequantize_q3_K)
OUT_PROD_BLOCKS("q4_K",    block_q4_K,    QK_NL, dequantize_q4_K)
OUT_PROD_BLOCKS("q5_K",    block_q5_K,    QK_NL, dequantize_q5_K)
OUT_PROD_BLOCKS("q6_K",    block_q6_K,    QK_NL, dequantize_q6_K)
OUT_PROD_BLOCKS("iq1_s",   block_iq1_s,   QK_NL, dequantize_iq1_s)
OUT_PROD_BLOCKS("iq1_m",   block_iq1_m,   QK_NL, dequantize_iq1_m)
OUT_PROD_BLOCKS("iq2_xxs", block_iq2_xxs, QK_NL, dequantize_iq2_xxs)
OUT_PROD_BLOCKS("iq2_xs",  block_iq2_xs,  QK_NL, dequantize_iq2_xs)
OUT_PROD_BLOCKS("iq2_s",   block_iq2_s,   QK_NL, dequantize_iq2_s)
OUT_PROD_BLOCKS("iq3_xxs", block_iq3_xxs, QK_NL, dequantize_iq3_xxs)
OUT_PROD_BLOCKS("iq3_s",   block_iq3_s,   QK_NL, dequantize_iq3_s)
OUT_PROD_BLOCKS("iq4_nl",  block_iq4_nl,  2,     dequantize_iq4_nl)
OUT_PROD_BLOCKS("iq4_xs",  block_iq4_xs,  QK_NL, dequantize_iq4_xs)
OUT_PROD_BLOCKS("tq1_0",   block_tq1_0,   QK_NL, dequantize_tq1_0)
OUT_PROD_BLOCKS("tq2_0",   block_tq2_0,   QK_NL, dequantize_tq2_0)

#undef OUT_PROD_FLOATS
#undef OUT_PROD_BLOCKS
