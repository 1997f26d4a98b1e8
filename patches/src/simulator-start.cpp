// The way into the simulated Metal device. Its objects are compiled for AVX2, FMA and F16C, so ggml-sys's build script
// keeps their static constructors from running at start-up and their entry point from being called directly: both go
// through here, where the CPU is checked first. This file is compiled without any instruction set option.

#include "ggml-metal.h"

extern "C" {

ggml_backend_reg_t ggmlrs_backend_metal_reg_unchecked(void) __asm__("ggmlrs_ggml_backend_metal_reg.sim");

// The table of constructors: the linker defines both ends.
extern void (*const __start_ggmlrs_sim_constructors[])(void);
extern void (*const __stop_ggmlrs_sim_constructors[])(void);

// Why the simulated device cannot be used; NULL if it can. The built-ins ask the operating system too. Every CPU with AVX2
// has F16C.
const char * ggmlrs_sim_error(void) {
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        return "the simulated Metal device needs a CPU with AVX2 and FMA";
    }
#endif
    return nullptr;
}

// NULL where the simulated device cannot be used.
ggml_backend_reg_t ggml_backend_metal_reg(void) {
    if (ggmlrs_sim_error() != nullptr) {
        return nullptr;
    }
    static const bool constructed = [] {
        for (auto constructor = __start_ggmlrs_sim_constructors; constructor != __stop_ggmlrs_sim_constructors; constructor++) {
            (*constructor)();
        }
        return true;
    }();
    (void) constructed;
    return ggmlrs_backend_metal_reg_unchecked();
}

} // extern "C"
