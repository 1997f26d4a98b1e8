// Dequantize functions of ours, for the types that ggml has none for on Metal.
#pragma once

#include "dequantize.h"

// a sub-block's scale: no sign, 4 exponent bits, 3 mantissa bits; the CPU takes 0x7F for zero
static inline float nvfp4_scale(uint8_t x) {
    const uint exponent = (x >> 3) & 0xF;
    const uint mantissa = x & 7;

    return x == 0x7F ? 0.0f : exponent == 0 ? mantissa/512.0f : as_type<float>((exponent + 120) << 23 | mantissa << 20);
}

template <typename type4x4>
void dequantize_nvfp4(device const block_nvfp4 * xb, short il, thread type4x4 & reg) {
    device const uint8_t * qs = xb->qs + 8*il;
    const float d = nvfp4_scale(xb->d[il]);

    float4x4 reg_f;

    // low nibbles hold the first half of a sub-block
    for (short i = 0; i < 16; ++i) {
        reg_f[i/4][i%4] = d*kvalues_mxfp4_f[i < 8 ? qs[i] & 0xF : qs[i - 8] >> 4];
    }

    reg = (type4x4) reg_f;
}

template <typename type4x4>
void dequantize_tq1_0(device const block_tq1_0 * xb, short il, thread type4x4 & reg) {
    // A byte holds base-3 digits as a fraction of 256: the product with 3^n, modulo 256, has digit n in front.
    const uint8_t pow3[5] = { 1, 3, 9, 27, 81 };
    const float d = xb->d;

    float4x4 reg_f;

    // digit n of 32 bytes in a row, for n = 0 to 4, then of the 16 bytes that follow, then digits 0 to 3 of the 4 bytes of qh
    for (short i = 0; i < 16; ++i) {
        const uint8_t byte = il < 10 ? xb->qs[16*(il%2) + i] : il < 15 ? xb->qs[32 + i] : xb->qh[i%4];
        const uint8_t n    = il < 10 ? il/2 : il < 15 ? il - 10 : i/4;

        const uint8_t digits = byte*pow3[n];

        reg_f[i/4][i%4] = d*(float)((digits*3 >> 8) - 1);
    }

    reg = (type4x4) reg_f;
}
