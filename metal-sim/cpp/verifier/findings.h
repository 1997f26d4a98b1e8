// What the verifier has found: kept until asked for, each kind of fault at each pair of places once.
#pragma once

#include "../device/metal_sim.h"

#include <cstddef>
#include <cstdint>

namespace metal_sim {
namespace verifier {

// Counts a finding that is known already: same detector, kernel and places.
void record(const metal_sim_finding & f);

// Moves up to `capacity` findings out, oldest first, and returns how many.
size_t take_findings(metal_sim_finding * out, size_t capacity);

#ifdef METAL_SIM_VERIFIER

// How often a fault was seen that is not among the findings, as there was no room left.
uint64_t lost_findings();
void     reset_lost_findings();

#else

inline uint64_t lost_findings() {
    return 0;
}

inline void reset_lost_findings() {}

#endif

// Copies `text`, cut to what fits.
template <size_t size> void copy_text(char (&to)[size], const char * text) {
    size_t length = 0;
    for (; text != nullptr && length + 1 < size && text[length] != '\0'; ++length) {
        to[length] = text[length];
    }
    to[length] = '\0';
}

}  // namespace verifier
}  // namespace metal_sim
