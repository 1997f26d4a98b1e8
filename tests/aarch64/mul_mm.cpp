// Dispatches kernel_mul_mm on 70 x 40 x 96, or on the given cube several times, and compares with sums in double.
// Prints the largest error relative to the largest sum, or the fault. Usage: mul_mm KERNEL THREADGROUP_BYTES [SIDE RUNS]
#include "dispatcher.h"
#include "fault.h"
#include "ggml-metal-impl.h"
#include "pipeline.h"
#include "registry.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using metal_sim::constant_type;
using metal_sim::constant_value;

struct product {
    int m, n, k;

    std::vector<float> a, b, c;

    product(int m, int n, int k) : m(m), n(n), k(k), a(m * k), b(n * k), c(m * n, NAN) {
        for (size_t i = 0; i < a.size(); ++i) {
            a[i] = static_cast<float>(i * 7919 % 2003) / 1001.5f - 1.0f;
        }
        for (size_t i = 0; i < b.size(); ++i) {
            b[i] = static_cast<float>(i * 104729 % 1999) / 999.5f - 1.0f;
        }
    }

    bool run(const metal_sim::pipeline & pipeline, size_t threadgroup_bytes) {
        ggml_metal_kargs_mul_mm args = {};
        args.ne00                    = k;
        args.ne02 = args.ne12 = 1;
        args.nb01 = args.nb11 = sizeof(float) * k;
        args.nb10             = sizeof(float);
        args.ne0              = m;
        args.ne1              = n;
        args.r2 = args.r3 = 1;

        metal_sim::compute_dispatch dispatch;
        dispatch.buffers[0]            = &args;
        dispatch.buffers[1]            = a.data();
        dispatch.buffers[2]            = b.data();
        dispatch.buffers[3]            = c.data();
        dispatch.threadgroup_memory[0] = threadgroup_bytes;
        dispatch.threadgroups          = { (n + 31u) / 32, (m + 63u) / 64, 1 };
        dispatch.threads               = { 128, 1, 1 };
        return metal_sim::execute(pipeline, dispatch);
    }

    double error() const {
        double largest = 0, worst = 0;
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < m; ++j) {
                double sum = 0;
                for (int l = 0; l < k; ++l) {
                    sum += static_cast<double>(a[j * k + l]) * b[i * k + l];
                }
                const double error = std::fabs(sum - c[i * m + j]);
                largest            = std::max(largest, std::fabs(sum));
                worst              = error <= worst ? worst : error;  // a NaN stays
            }
        }
        return worst / largest;
    }
};

// The function constants of ggml-metal-device.cpp: input and output bounds checks, and one matrix.
std::vector<constant_value> constants(bool whole_tiles) {
    return {
        { FC_MUL_MM + 0, constant_type::boolean, 0 },
        { FC_MUL_MM + 1, constant_type::boolean, whole_tiles ? 0 : 1 },
        { FC_MUL_MM + 2, constant_type::int16,   1 },
        { FC_MUL_MM + 3, constant_type::int16,   1 },
        { FC_MUL_MM + 4, constant_type::int16,   1 },
        { FC_MUL_MM + 5, constant_type::int16,   1 },
    };
}

}  // namespace

int main(int argc, char ** argv) {
    const metal_sim::kernel_entry * kernel = argc > 2 ? metal_sim::find_kernel(argv[1], false) : nullptr;
    if (kernel == nullptr) {
        std::puts("no such kernel");
        return 2;
    }
    const int  side     = argc > 4 ? std::atoi(argv[3]) : 0;
    const int  runs     = argc > 4 ? std::atoi(argv[4]) : 1;
    product    p        = side > 0 ? product(side, side, side) : product(70, 40, 96);
    const auto pipeline = metal_sim::pipeline::create(*kernel, constants(side > 0 && side % 64 == 0));
    for (int i = 0; i < runs; ++i) {
        if (pipeline == nullptr || !p.run(*pipeline, std::strtoul(argv[2], nullptr, 10))) {
            std::printf("fault: %s\n", metal_sim::last_fault());
            return 1;
        }
    }
    std::printf("%g\n", p.error());
    return 0;
}
