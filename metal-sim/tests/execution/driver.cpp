// Dispatches one kernel on one threadgroup of 32 threads and prints what it wrote, or the fault.
// Usage: driver KERNEL [FACTOR NEGATE]
#include "dispatcher.h"
#include "fault.h"
#include "ggml-metal-impl.h"
#include "pipeline.h"
#include "registry.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char ** argv) {
    const metal_sim::kernel_entry * kernel = argc > 1 ? metal_sim::find_kernel(argv[1], false) : nullptr;
    if (kernel == nullptr) {
        std::puts("no such kernel");
        return 2;
    }
    std::vector<metal_sim::constant_value> constants;
    if (argc > 3) {
        constants.push_back({ FC_TEST + 1, metal_sim::constant_type::int16, std::atoi(argv[2]) });
        constants.push_back({ FC_TEST + 2, metal_sim::constant_type::boolean, std::atoi(argv[3]) });
    }
    const auto pipeline = metal_sim::pipeline::create(*kernel, constants);

    args_t             args = { 0 };
    std::vector<float> dst(32, -1.0f);

    metal_sim::compute_dispatch dispatch;
    const bool takes_arguments     = kernel->entry->buffer_count == 2;
    dispatch.buffers[0]            = takes_arguments ? static_cast<void *>(&args) : dst.data();
    dispatch.buffers[1]            = dst.data();
    dispatch.threadgroup_memory[0] = 32*sizeof(float);
    dispatch.threadgroups          = { 1, 1, 1 };
    dispatch.threads               = { 32, 1, 1 };

    if (pipeline == nullptr || !metal_sim::execute(*pipeline, dispatch)) {
        std::printf("fault: %s\n", metal_sim::last_fault());
        return 1;
    }
    for (const float x : dst) {
        std::printf("%g ", x);
    }
    std::puts("");
    return 0;
}
