// What kernels load from device memory and store there, in bytes. Without METAL_SIM_VERIFIER nobody sees it.
#pragma once

#include <cstdint>

namespace metal_sim {
namespace verifier {

struct traffic {
    uint64_t read    = 0;
    uint64_t written = 0;
};

#ifdef METAL_SIM_VERIFIER

// Since the last reset.
traffic device_traffic();
void    reset_traffic();

#else

inline traffic device_traffic() {
    return {};
}

inline void reset_traffic() {}

#endif

}  // namespace verifier
}  // namespace metal_sim
