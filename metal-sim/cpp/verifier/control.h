// What can be told to the verifier while it runs: the lockstep mode, and barriers that are taken out.
#pragma once

#include "../runtime/lane.h"

#include <cstdint>

namespace metal_sim {
namespace verifier {

// Notes that lanes met there.
void count_barrier(source_position at, bool simdgroup);

}  // namespace verifier
}  // namespace metal_sim
