// The CPU backend is in the archive once per level of x86-64 (v2, v3, v4), and ggml-sys's build script puts the level
// behind every symbol of each copy (ggml_cpu_init.v3). This file picks the level that the CPU and the operating system
// support, once, and defines the functions of ggml-cpu.h under their own names: each goes to the picked copy.
//
// It is compiled without any instruction set option, because it runs before anything is known about the CPU.

#include "ggml-cpu.h"

#include <cpuid.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum cpuid_register { EAX, EBX, ECX, EDX };

// What a level's option lets the compiler use, and the bit of cpuid that promises it.
struct feature {
    const char *   name;
    int            level;
    unsigned       leaf;
    cpuid_register reg;
    int            bit;
};

const feature FEATURES[] = {
    { "cx16",     2, 1,          ECX, 13 },
    { "sahf",     2, 0x80000001, ECX,  0 },
    { "popcnt",   2, 1,          ECX, 23 },
    { "sse3",     2, 1,          ECX,  0 },
    { "ssse3",    2, 1,          ECX,  9 },
    { "sse4.1",   2, 1,          ECX, 19 },
    { "sse4.2",   2, 1,          ECX, 20 },
    { "avx",      3, 1,          ECX, 28 },
    { "avx2",     3, 7,          EBX,  5 },
    { "bmi",      3, 7,          EBX,  3 },
    { "bmi2",     3, 7,          EBX,  8 },
    { "f16c",     3, 1,          ECX, 29 },
    { "fma",      3, 1,          ECX, 12 },
    { "lzcnt",    3, 0x80000001, ECX,  5 },
    { "movbe",    3, 1,          ECX, 22 },
    { "xsave",    3, 1,          ECX, 27 },
    { "avx512f",  4, 7,          EBX, 16 },
    { "avx512bw", 4, 7,          EBX, 30 },
    { "avx512cd", 4, 7,          EBX, 28 },
    { "avx512dq", 4, 7,          EBX, 17 },
    { "avx512vl", 4, 7,          EBX, 31 },
};

const int LOWEST  = 2;
const int HIGHEST = 4;

// Overrides nothing but the choice between levels, and only downwards, so that tests reach each of them on one machine.
// Results are those of a CPU of that level.
const char * const VARIABLE = "GGML_RS_CPU_LEVEL";

bool cpu_has(const feature & f) {
    unsigned reg[4] = {};
    return __get_cpuid_count(f.leaf, 0, &reg[EAX], &reg[EBX], &reg[ECX], &reg[EDX]) && (reg[f.reg] >> f.bit & 1);
}

// The registers that the operating system saves when it switches threads. Without them a wide instruction faults even
// if the CPU has it. Needs xsave.
uint32_t saved_registers() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool system_saves_registers_of(int level) {
    const uint32_t ymm = 0x06; // xmm, upper halves of ymm
    const uint32_t zmm = 0xe6; // and masks, upper halves of zmm, zmm16 to zmm31
    const uint32_t needed = level >= 4 ? zmm : ymm;
    return level < 3 || (saved_registers() & needed) == needed;
}

// Whether a level runs here, given that those below it do.
bool machine_has(int level) {
    for (const feature & f : FEATURES) {
        if (f.level == level && !cpu_has(f)) {
            return false;
        }
    }
    return system_saves_registers_of(level);
}

struct choice {
    int  level; // 0 if there is none
    char error[256];
};

choice choose() {
    choice c = {};
    for (int level = LOWEST; level <= HIGHEST && machine_has(level); level++) {
        c.level = level;
    }
    if (c.level == 0) {
        snprintf(c.error, sizeof(c.error), "this CPU is below x86-64-v2, the lowest level that ggml is compiled for");
        return c;
    }
    const char * wanted = getenv(VARIABLE);
    if (wanted == nullptr) {
        return c;
    }
    const bool is_level = wanted[0] == 'v' && wanted[1] >= '0' + LOWEST && wanted[1] <= '0' + HIGHEST && wanted[2] == 0;
    if (!is_level) {
        snprintf(c.error, sizeof(c.error), "%s is `%.40s`: it must be v2, v3 or v4", VARIABLE, wanted);
    } else if (wanted[1] - '0' > c.level) {
        snprintf(c.error, sizeof(c.error), "%s is %s, but this machine supports no more than v%d", VARIABLE, wanted, c.level);
    } else {
        c.level = wanted[1] - '0';
    }
    return c;
}

const choice & chosen() {
    static const choice c = choose();
    return c;
}

// Callers that do not ask ggmlrs_cpu_level_error first end here instead of in an illegal instruction.
int level() {
    const choice & c = chosen();
    if (c.error[0]) {
        GGML_ABORT("%s", c.error);
    }
    return c.level;
}

} // namespace

extern "C" {

// Why no level can be used; NULL if one can.
const char * ggmlrs_cpu_level_error(void) {
    return chosen().error[0] ? chosen().error : nullptr;
}

const char * ggmlrs_cpu_level_name(void) {
    switch (level()) {
        case 4:  return "x86-64-v4";
        case 3:  return "x86-64-v3";
        default: return "x86-64-v2";
    }
}

// Two steps, because the prefix header renames the name and that must have happened before it is pasted and quoted.
#define FORWARD(type, name, parameters, arguments) FORWARD_RENAMED(type, name, parameters, arguments)
#define FORWARD_RENAMED(type, name, parameters, arguments) \
    type name##_v2 parameters __asm__(#name ".v2");        \
    type name##_v3 parameters __asm__(#name ".v3");        \
    type name##_v4 parameters __asm__(#name ".v4");        \
    type name parameters {                                 \
        switch (level()) {                                 \
            case 4:  return name##_v4 arguments;           \
            case 3:  return name##_v3 arguments;           \
            default: return name##_v2 arguments;           \
        }                                                  \
    }

// Every function of ggml-cpu.h, in its order, but for ggml_threadpool_get_n_threads, which ggml declares and nowhere
// defines. ggml-sys/tests/levels.rs compares this list with the header.

FORWARD(void, ggml_numa_init, (enum ggml_numa_strategy numa), (numa))
FORWARD(bool, ggml_is_numa, (void), ())

FORWARD(ggml_tensor *, ggml_new_i32, (ggml_context * ctx, int32_t value), (ctx, value))
FORWARD(ggml_tensor *, ggml_new_f32, (ggml_context * ctx, float value), (ctx, value))
FORWARD(ggml_tensor *, ggml_set_i32, (ggml_tensor * tensor, int32_t value), (tensor, value))
FORWARD(ggml_tensor *, ggml_set_f32, (ggml_tensor * tensor, float value), (tensor, value))
FORWARD(int32_t, ggml_get_i32_1d, (const ggml_tensor * tensor, int i), (tensor, i))
FORWARD(void, ggml_set_i32_1d, (const ggml_tensor * tensor, int i, int32_t value), (tensor, i, value))
FORWARD(int32_t, ggml_get_i32_nd, (const ggml_tensor * tensor, int i0, int i1, int i2, int i3), (tensor, i0, i1, i2, i3))
FORWARD(void, ggml_set_i32_nd, (const ggml_tensor * tensor, int i0, int i1, int i2, int i3, int32_t value), (tensor, i0, i1, i2, i3, value))
FORWARD(float, ggml_get_f32_1d, (const ggml_tensor * tensor, int i), (tensor, i))
FORWARD(void, ggml_set_f32_1d, (const ggml_tensor * tensor, int i, float value), (tensor, i, value))
FORWARD(float, ggml_get_f32_nd, (const ggml_tensor * tensor, int i0, int i1, int i2, int i3), (tensor, i0, i1, i2, i3))
FORWARD(void, ggml_set_f32_nd, (const ggml_tensor * tensor, int i0, int i1, int i2, int i3, float value), (tensor, i0, i1, i2, i3, value))

FORWARD(ggml_threadpool *, ggml_threadpool_new, (ggml_threadpool_params * params), (params))
FORWARD(void, ggml_threadpool_free, (ggml_threadpool * threadpool), (threadpool))
FORWARD(void, ggml_threadpool_pause, (ggml_threadpool * threadpool), (threadpool))
FORWARD(void, ggml_threadpool_resume, (ggml_threadpool * threadpool), (threadpool))

FORWARD(ggml_cplan, ggml_graph_plan, (const ggml_cgraph * cgraph, int n_threads, ggml_threadpool * threadpool), (cgraph, n_threads, threadpool))
FORWARD(enum ggml_status, ggml_graph_compute, (ggml_cgraph * cgraph, ggml_cplan * cplan), (cgraph, cplan))
FORWARD(enum ggml_status, ggml_graph_compute_with_ctx, (ggml_context * ctx, ggml_cgraph * cgraph, int n_threads), (ctx, cgraph, n_threads))

FORWARD(int, ggml_cpu_has_sse3, (void), ())
FORWARD(int, ggml_cpu_has_ssse3, (void), ())
FORWARD(int, ggml_cpu_has_avx, (void), ())
FORWARD(int, ggml_cpu_has_avx_vnni, (void), ())
FORWARD(int, ggml_cpu_has_avx2, (void), ())
FORWARD(int, ggml_cpu_has_bmi2, (void), ())
FORWARD(int, ggml_cpu_has_f16c, (void), ())
FORWARD(int, ggml_cpu_has_fma, (void), ())
FORWARD(int, ggml_cpu_has_avx512, (void), ())
FORWARD(int, ggml_cpu_has_avx512_vbmi, (void), ())
FORWARD(int, ggml_cpu_has_avx512_vnni, (void), ())
FORWARD(int, ggml_cpu_has_avx512_bf16, (void), ())
FORWARD(int, ggml_cpu_has_amx_int8, (void), ())
FORWARD(int, ggml_cpu_has_neon, (void), ())
FORWARD(int, ggml_cpu_has_arm_fma, (void), ())
FORWARD(int, ggml_cpu_has_fp16_va, (void), ())
FORWARD(int, ggml_cpu_has_dotprod, (void), ())
FORWARD(int, ggml_cpu_has_matmul_int8, (void), ())
FORWARD(int, ggml_cpu_has_sve, (void), ())
FORWARD(int, ggml_cpu_get_sve_cnt, (void), ())
FORWARD(int, ggml_cpu_has_sme, (void), ())
FORWARD(int, ggml_cpu_has_sme2, (void), ())
FORWARD(int, ggml_cpu_has_riscv_v, (void), ())
FORWARD(int, ggml_cpu_get_rvv_vlen, (void), ())
FORWARD(int, ggml_cpu_has_vsx, (void), ())
FORWARD(int, ggml_cpu_has_vxe, (void), ())
FORWARD(int, ggml_cpu_has_wasm_simd, (void), ())
FORWARD(int, ggml_cpu_has_llamafile, (void), ())

FORWARD(const ggml_type_traits_cpu *, ggml_get_type_traits_cpu, (enum ggml_type type), (type))
FORWARD(void, ggml_cpu_init, (void), ())

FORWARD(ggml_backend_t, ggml_backend_cpu_init, (void), ())
FORWARD(bool, ggml_backend_is_cpu, (ggml_backend_t backend), (backend))
FORWARD(void, ggml_backend_cpu_set_n_threads, (ggml_backend_t backend, int n_threads), (backend, n_threads))
FORWARD(void, ggml_backend_cpu_set_threadpool, (ggml_backend_t backend, ggml_threadpool_t threadpool), (backend, threadpool))
FORWARD(void, ggml_backend_cpu_set_abort_callback, (ggml_backend_t backend, ggml_abort_callback callback, void * data), (backend, callback, data))
FORWARD(void, ggml_backend_cpu_set_use_ref, (ggml_backend_t backend, bool use_ref), (backend, use_ref))
FORWARD(ggml_backend_reg_t, ggml_backend_cpu_reg, (void), ())

FORWARD(void, ggml_cpu_fp32_to_fp32, (const float * x, float * y, int64_t n), (x, y, n))
FORWARD(void, ggml_cpu_fp32_to_i32, (const float * x, int32_t * y, int64_t n), (x, y, n))
FORWARD(void, ggml_cpu_fp32_to_fp16, (const float * x, ggml_fp16_t * y, int64_t n), (x, y, n))
FORWARD(void, ggml_cpu_fp16_to_fp32, (const ggml_fp16_t * x, float * y, int64_t n), (x, y, n))
FORWARD(void, ggml_cpu_fp32_to_bf16, (const float * x, ggml_bf16_t * y, int64_t n), (x, y, n))
FORWARD(void, ggml_cpu_bf16_to_fp32, (const ggml_bf16_t * x, float * y, int64_t n), (x, y, n))

} // extern "C"
