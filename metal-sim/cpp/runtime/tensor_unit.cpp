#include "tensor_unit.h"

#include <atomic>

namespace metal_sim {

namespace {

std::atomic<uint64_t> total;  // threadgroups on several threads add to it

}  // namespace

void count_relaxed_fmas(uint64_t fmas) {
    total.fetch_add(fmas, std::memory_order_relaxed);
}

uint64_t relaxed_fmas() {
    return total.load(std::memory_order_relaxed);
}

void reset_relaxed_fmas() {
    total.store(0, std::memory_order_relaxed);
}

}  // namespace metal_sim
