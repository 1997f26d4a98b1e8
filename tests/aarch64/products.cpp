// The CPU's float products on AArch64: whole numbers whose sums must be exact, in several types, layouts and shapes, with one thread
// and with three. Prints the shape of the first wrong element, or the error of a long sum of random numbers.
#include "ggml-cpu-gemm-kernel.h"
#include "ggml-cpu-gemm.h"
#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "simd-mappings.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static_assert(PANEL_Q == 12 && LANES == 4, "this must be NEON's kernel");

// What the products use of ggml, for floats.
namespace {
int                     threads;
std::atomic<int>        chunk;
std::atomic<int>        waiting;
std::atomic<int>        turn;
} // namespace

extern "C" {
void ggml_barrier(ggml_threadpool *) {
    const int now = turn;
    if (++waiting == threads) {
        waiting = 0;
        ++turn;
    }
    while (turn == now) {
        std::this_thread::yield();
    }
}

void ggml_threadpool_chunk_set(ggml_threadpool *, int value) { chunk = value; }
int  ggml_threadpool_chunk_add(ggml_threadpool *, int value) { return chunk.fetch_add(value); }

size_t  ggml_type_size(ggml_type type) { return type == GGML_TYPE_F32 ? 4 : 2; }
int64_t ggml_blck_size(ggml_type) { return 1; }
bool    ggml_is_quantized(ggml_type) { return false; }
bool    ggml_is_empty(const ggml_tensor *) { return false; }

const ggml_type_traits * ggml_get_type_traits(ggml_type) { abort(); }

void ggml_cpu_fp16_to_fp32(const ggml_fp16_t * x, float * y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = GGML_CPU_FP16_TO_FP32(x[i]);
    }
}

void ggml_cpu_bf16_to_fp32(const ggml_bf16_t * x, float * y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = GGML_BF16_TO_FP32(x[i]);
    }
}
}

namespace {

// rows x steps, each row's steps together or each step's rows
struct matrix {
    int                rows, steps;
    bool               along_k;
    ggml_type          type;
    std::vector<float> values;
    std::vector<char>  data;
    ggml_tensor        tensor = {};

    matrix(int rows, int steps, bool along_k, ggml_type type, std::vector<float> all)
        : rows(rows), steps(steps), along_k(along_k), type(type), values(std::move(all)), data(rows*steps*ggml_type_size(type)) {
        for (int i = 0; i < rows; ++i) {
            for (int k = 0; k < steps; ++k) {
                put(along_k ? i*steps + k : k*rows + i, at(i, k));
            }
        }
        tensor.type  = type;
        tensor.data  = data.data();
        tensor.ne[2] = tensor.ne[3] = 1;
    }

    float at(int i, int k) const { return values[i*steps + k]; }

    void put(int place, float value) {
        char * to = data.data() + place*ggml_type_size(type);
        if (type == GGML_TYPE_F32) {
            *(float *) to = value;
        } else if (type == GGML_TYPE_F16) {
            *(ggml_fp16_t *) to = GGML_CPU_FP32_TO_FP16(value);
        } else {
            *(ggml_bf16_t *) to = GGML_FP32_TO_BF16(value);
        }
    }

    ggml_cpu_gemm_operand operand() const {
        const size_t size = ggml_type_size(type);
        return { &tensor, along_k ? size*steps : size, along_k ? size : size*rows };
    }
};

std::vector<float> multiply(const matrix & a, const matrix & b, int with_threads) {
    std::vector<float> out(a.rows*b.rows, NAN);
    ggml_tensor dst = {};
    dst.data  = out.data();
    dst.ne[0] = a.rows;
    dst.ne[1] = b.rows;
    dst.ne[2] = dst.ne[3] = 1;
    dst.nb[0] = sizeof(float);
    dst.nb[1] = dst.nb[2] = dst.nb[3] = sizeof(float)*a.rows;

    const ggml_cpu_gemm product = { &dst, a.steps, a.operand(), b.operand() };
    std::vector<char>   work(ggml_cpu_gemm_work_size(&product, with_threads));

    threads = with_threads;
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) {
        running.emplace_back([&, i] {
            ggml_compute_params params = {};
            params.ith   = i;
            params.nth   = threads;
            params.wsize = work.size();
            params.wdata = work.data();
            ggml_cpu_gemm_run(&params, &product);
        });
    }
    for (std::thread & thread : running) {
        thread.join();
    }
    return out;
}

double sum(const matrix & a, const matrix & b, int i, int j) {
    double s = 0;
    for (int k = 0; k < a.steps; ++k) {
        s += (double) a.at(i, k)*b.at(j, k);
    }
    return s;
}

std::vector<float> whole_numbers(int n, int factor) {
    std::vector<float> res(n);
    for (int i = 0; i < n; ++i) {
        res[i] = i*factor % 7 - 3;
    }
    return res;
}

std::vector<float> random_numbers(int n, unsigned seed) {
    std::vector<float> res(n);
    for (float & x : res) {
        seed = seed*1664525u + 1013904223u;
        x    = (float) (seed >> 8)/8388608.0f - 1.0f;
    }
    return res;
}

bool is_exact(const int (&shape)[3], bool a_along_k, bool b_along_k, ggml_type type) {
    const auto [m, n, k] = shape;
    const matrix a(m, k, a_along_k, type, whole_numbers(m*k, 3));
    const matrix b(n, k, b_along_k, type, whole_numbers(n*k, 5));

    for (int with_threads : { 1, 3 }) {
        const std::vector<float> out = multiply(a, b, with_threads);
        for (int j = 0; j < n; ++j) {
            for (int i = 0; i < m; ++i) {
                if (out[j*m + i] != sum(a, b, i, j)) {
                    printf("%d x %d x %d, type %d, along k %d %d, %d threads: [%d, %d] is %g, not %g\n", m, n, k, type,
                        a_along_k, b_along_k, with_threads, i, j, out[j*m + i], sum(a, b, i, j));
                    return false;
                }
            }
        }
    }
    return true;
}

double error_of_a_long_sum() {
    const matrix a(40, 4096, false, GGML_TYPE_F32, random_numbers(40*4096, 1));
    const matrix b(30, 4096, true,  GGML_TYPE_F32, random_numbers(30*4096, 2));
    const std::vector<float> out = multiply(a, b, 2);

    double wrong = 0, all = 0;
    for (int j = 0; j < b.rows; ++j) {
        for (int i = 0; i < a.rows; ++i) {
            const double s = sum(a, b, i, j);
            wrong += (out[j*a.rows + i] - s)*(out[j*a.rows + i] - s);
            all   += s*s;
        }
    }
    return wrong/all;
}

} // namespace

int main() {
    const int shapes[][3] = { { 1, 1, 1 }, { 8, 12, 384 }, { 9, 13, 385 }, { 7, 11, 5 }, { 3, 90, 40 }, { 259, 30, 390 }, { 100, 1030, 3 } };
    for (const auto & shape : shapes) {
        for (int along_k = 0; along_k < 4; ++along_k) {
            for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16 }) {
                if (!is_exact(shape, along_k & 1, along_k & 2, type)) {
                    return 1;
                }
            }
        }
    }
    printf("%.3e\n", error_of_a_long_sum());
}
