// Runs MUL_MAT and OUT_PROD on the CPU backend and compares them with sums in double precision. Compiled for, and run
// as, another architecture by tests/cross.rs. Prints one line per product; ends with 1 if one is wrong.

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

// Values in [-1, 1), the same everywhere.
std::vector<float> values(size_t count, uint32_t seed) {
    std::vector<float> v(count);
    for (float & x : v) {
        seed = seed * 1664525u + 1013904223u;
        x = float(int32_t(seed)) / 2147483648.0f;
    }
    return v;
}

struct product {
    const char * name;
    ggml_type    type_a;
    int64_t      m, n, k;
    bool         outer; // OUT_PROD: a is m x k, b is n x k; MUL_MAT: a is k x m, b is k x n
    double       tolerance;
};

// The operand as ggml stores it, and the values that it then stands for.
struct operand {
    std::vector<uint8_t> stored;
    std::vector<float>   meant;
};

operand store(ggml_type type, int64_t row, int64_t rows, uint32_t seed) {
    operand o;
    o.meant = values(row * rows, seed);
    o.stored.resize(ggml_row_size(type, row) * rows);
    ggml_quantize_chunk(type, o.meant.data(), o.stored.data(), 0, rows, row, nullptr);
    if (type != GGML_TYPE_F32) {
        ggml_get_type_traits(type)->to_float(o.stored.data(), o.meant.data(), row * rows);
    }
    return o;
}

// Sum of squared errors over sum of squares.
double error_of(const product & p, const operand & a, const operand & b, const std::vector<float> & result) {
    double wrong = 0, all = 0;
    for (int64_t j = 0; j < p.n; j++) {
        for (int64_t i = 0; i < p.m; i++) {
            double sum = 0;
            for (int64_t l = 0; l < p.k; l++) {
                const double x = p.outer ? a.meant[l * p.m + i] : a.meant[i * p.k + l];
                const double y = p.outer ? b.meant[l * p.n + j] : b.meant[j * p.k + l];
                sum += x * y;
            }
            const double got = result[j * p.m + i];
            wrong += (got - sum) * (got - sum);
            all += sum * sum;
        }
    }
    return wrong / all;
}

bool check(ggml_backend_t backend, const product & p) {
    const ggml_init_params params = { ggml_tensor_overhead() * 8 + ggml_graph_overhead(), nullptr, true };
    ggml_context * ctx = ggml_init(params);
    const int64_t a_row = p.outer ? p.m : p.k, a_rows = p.outer ? p.k : p.m;
    const int64_t b_row = p.outer ? p.n : p.k, b_rows = p.outer ? p.k : p.n;
    ggml_tensor * a = ggml_new_tensor_2d(ctx, p.type_a, a_row, a_rows);
    ggml_tensor * b = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, b_row, b_rows);
    ggml_tensor * out = p.outer ? ggml_out_prod(ctx, a, b) : ggml_mul_mat(ctx, a, b);
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);

    const operand x = store(p.type_a, a_row, a_rows, 1), y = store(GGML_TYPE_F32, b_row, b_rows, 2);
    ggml_backend_tensor_set(a, x.stored.data(), 0, x.stored.size());
    ggml_backend_tensor_set(b, y.meant.data(), 0, y.meant.size() * sizeof(float));
    const bool computed = ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS;
    std::vector<float> result(p.m * p.n, NAN);
    ggml_backend_tensor_get(out, result.data(), 0, result.size() * sizeof(float));
    const double error = error_of(p, x, y, result);
    const bool right = computed && error <= p.tolerance; // false for NaN
    printf("%s %s: NMSE %.2e %s\n", p.name, ggml_type_name(p.type_a), error, right ? "ok" : "WRONG");
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return right;
}

} // namespace

int main() {
    // MUL_MAT quantizes b for a quantized a; the tolerances are those of test-backend-ops.
    const product products[] = {
        { "MUL_MAT",  GGML_TYPE_F32,  33, 5,  96,  false, 1e-10 },
        { "MUL_MAT",  GGML_TYPE_F16,  33, 5,  96,  false, 1e-6 },
        { "MUL_MAT",  GGML_TYPE_Q8_0, 32, 7,  128, false, 5e-4 },
        { "MUL_MAT",  GGML_TYPE_Q4_0, 32, 7,  128, false, 5e-4 },
        { "MUL_MAT",  GGML_TYPE_Q4_K, 16, 3,  512, false, 5e-4 },
        { "OUT_PROD", GGML_TYPE_F32,  33, 17, 40,  true,  1e-10 },
        { "OUT_PROD", GGML_TYPE_Q8_0, 64, 17, 40,  true,  1e-10 },
    };
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 2);
    int wrong = 0;
    for (const product & p : products) {
        wrong += !check(backend, p);
    }
    ggml_backend_free(backend);
    printf("neon %d, dotprod %d, %d wrong\n", ggml_cpu_has_neon(), ggml_cpu_has_dotprod(), wrong);
    return wrong != 0;
}
