// What products of the tensor API cost beyond the other counters.
#pragma once

#include <cstdint>

namespace metal_sim {

// Notes multiply-adds that a kernel lets the hardware compute with less than the precision of their float operands
// (relaxed_precision). The simulator computes them exactly, so that only this count shows what the kernel asked for.
void count_relaxed_fmas(uint64_t fmas);

uint64_t relaxed_fmas();
void     reset_relaxed_fmas();

}  // namespace metal_sim
