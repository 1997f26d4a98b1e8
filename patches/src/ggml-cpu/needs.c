// What a CPU must have before any of ggml is called: what the options that this file is compiled with, the same as the
// core's, let the compiler use. Only names, no code, so that it can be read on any CPU. ggml-rs checks each.

extern const char * const ggmlrs_cpu_needs;

const char * const ggmlrs_cpu_needs = ""
#ifdef __SSE3__
    " sse3"
#endif
#ifdef __SSSE3__
    " ssse3"
#endif
#ifdef __SSE4_1__
    " sse4.1"
#endif
#ifdef __SSE4_2__
    " sse4.2"
#endif
#ifdef __POPCNT__
    " popcnt"
#endif
#ifdef __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16
#ifdef __x86_64__
    " cmpxchg16b"
#endif
#endif
#ifdef __LZCNT__
    " lzcnt"
#endif
#ifdef __MOVBE__
    " movbe"
#endif
#ifdef __BMI__
    " bmi1"
#endif
#ifdef __BMI2__
    " bmi2"
#endif
#ifdef __AVX__
    " avx"
#endif
#ifdef __AVX2__
    " avx2"
#endif
#ifdef __FMA__
    " fma"
#endif
#ifdef __F16C__
    " f16c"
#endif
#ifdef __AVX512F__
    " avx512f"
#endif
#ifdef __AVX512BW__
    " avx512bw"
#endif
#ifdef __AVX512CD__
    " avx512cd"
#endif
#ifdef __AVX512DQ__
    " avx512dq"
#endif
#ifdef __AVX512VL__
    " avx512vl"
#endif
#ifdef __AVX512IFMA__
    " avx512ifma"
#endif
#ifdef __AVX512VBMI__
    " avx512vbmi"
#endif
#ifdef __AVX512VBMI2__
    " avx512vbmi2"
#endif
#ifdef __AVX512VNNI__
    " avx512vnni"
#endif
#ifdef __AVX512BITALG__
    " avx512bitalg"
#endif
#ifdef __AVX512VPOPCNTDQ__
    " avx512vpopcntdq"
#endif
#ifdef __AVX512BF16__
    " avx512bf16"
#endif
#ifdef __AVX512FP16__
    " avx512fp16"
#endif
#ifdef __AVXVNNI__
    " avxvnni"
#endif
#ifdef __AVXVNNIINT8__
    " avxvnniint8"
#endif
#ifdef __AMX_INT8__
    " amx-int8"
#endif
#ifdef __GFNI__
    " gfni"
#endif
#ifdef __ARM_FEATURE_DOTPROD
    " dotprod"
#endif
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
    " fp16"
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
    " i8mm"
#endif
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    " bf16"
#endif
#ifdef __ARM_FEATURE_SVE
    " sve"
#endif
#ifdef __ARM_FEATURE_SVE2
    " sve2"
#endif
#ifdef __ARM_FEATURE_ATOMICS
    " lse"
#endif
    ;
