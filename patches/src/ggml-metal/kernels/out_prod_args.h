// What the host tells the direct kernel of OUT_PROD. Read by both: plain C, and nothing is included.
#pragma once

// a tile of dst, and a step along k
#define OUT_PROD_TILE_M 64
#define OUT_PROD_TILE_N 32
#define OUT_PROD_TILE_K 32

#define OUT_PROD_SIMDGROUPS 4
#define OUT_PROD_THREADS    (32*OUT_PROD_SIMDGROUPS)

// both operands' tiles as float; the tile of dst, which needs 8192 bytes, takes their place at the end
#define OUT_PROD_THREADGROUP_BYTES (4*OUT_PROD_TILE_K*(OUT_PROD_TILE_M + OUT_PROD_TILE_N))

// function constants, behind the last block of ggml-metal-impl.h
#define FC_OUT_PROD 2400

// values of FC_OUT_PROD + 1: what b consists of
#define OUT_PROD_B_F32  0
#define OUT_PROD_B_F16  1
#define OUT_PROD_B_BF16 2

// dst[m, n, ne2, ne3] = sum over k of a[m, k, ne2/r2, ne3/r3] * b[n, k, ne2, ne3], strides in bytes; dst is contiguous
struct out_prod_args {
    int32_t  m;
    int32_t  n;
    int32_t  k;
    int32_t  ne2;
    int32_t  r2;
    int32_t  r3;
    uint64_t nb00;
    uint64_t nb01;
    uint64_t nb02;
    uint64_t nb03;
    uint64_t nb10;
    uint64_t nb11;
    uint64_t nb12;
    uint64_t nb13;
};
