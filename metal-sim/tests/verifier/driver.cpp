// Runs kernels under the verifier and prints what it finds, one line each, tab-separated.
// Usage: driver [strict] [order=N] [remove=FILE:LINE] [threads=N] [groups=N] [findings=N] [write-dst] [wide-dst] [segment] KERNEL...
//   findings: so many are there before a kernel runs.
//   segment: the kernels run without a memory barrier between them.
#include "../../cpp/device/metal_sim.h"
#include "../../cpp/verifier/findings.h"
#include "../../cpp/verifier/hooks.h"
#include "dispatcher.h"
#include "fault.h"
#include "guarded_memory.h"
#include "pipeline.h"
#include "registry.h"
#include "segment.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr size_t elements = 512;  // of the buffer, in which two tensors lie with room behind each

struct options {
    unsigned                 threads = 32;
    unsigned                 groups  = 1;
    bool                     write   = false;
    bool                     wide    = false;
    bool                     segment = false;
    std::vector<std::string> kernels;
};

bool value_of(const std::string & argument, const char * name, std::string & value) {
    const std::string start = std::string(name) + "=";
    if (argument.compare(0, start.size(), start) != 0) {
        return false;
    }
    value = argument.substr(start.size());
    return true;
}

// Findings at as many places.
void record(unsigned count) {
    metal_sim_finding f = {};
    f.detector          = METAL_SIM_UNINITIALISED;
    f.at.access         = 1;
    for (unsigned i = 1; i <= count; ++i) {
        f.at.pc = i;
        metal_sim::verifier::record(f);
    }
}

options parse(int argc, char ** argv) {
    options o;
    for (int i = 1; i < argc; ++i) {
        const std::string a = argv[i];
        std::string       value;
        if (a == "strict") {
            metal_sim_verifier_set_strict(true);
        } else if (a == "write-dst") {
            o.write = true;
        } else if (a == "wide-dst") {
            o.wide = true;
        } else if (a == "segment") {
            o.segment = true;
        } else if (value_of(a, "order", value)) {
            metal_sim_verifier_set_order(static_cast<uint32_t>(std::atoi(value.c_str())), 1);
        } else if (value_of(a, "threads", value)) {
            o.threads = static_cast<unsigned>(std::atoi(value.c_str()));
        } else if (value_of(a, "groups", value)) {
            o.groups = static_cast<unsigned>(std::atoi(value.c_str()));
        } else if (value_of(a, "findings", value)) {
            record(static_cast<unsigned>(std::atoi(value.c_str())));
        } else if (value_of(a, "remove", value)) {
            const size_t colon = value.rfind(':');
            metal_sim_verifier_remove_barrier(value.substr(0, colon).c_str(),
                                              static_cast<uint32_t>(std::atoi(value.c_str() + colon + 1)));
        } else {
            o.kernels.push_back(a);
        }
    }
    return o;
}

metal_sim::memory_extent extent(float * begin, size_t count, const char * name) {
    metal_sim::memory_extent e;
    e.begin = reinterpret_cast<unsigned char *>(begin);
    e.size  = count * sizeof(float);
    std::snprintf(e.name, sizeof(e.name), "%s", name);
    return e;
}

void print(const char * what, const metal_sim_place & p) {
    std::printf("\t%s=%u,%llx,%x,%u.%u.%u", what, p.access, static_cast<unsigned long long>(p.pc), p.lane,
                p.threadgroup[0], p.threadgroup[1], p.threadgroup[2]);
}

void print(const metal_sim_finding & f) {
    std::printf("finding\t%u\t%s\t%s\tsame=%u", f.detector, f.kernel, f.other_kernel, f.same_value);
    print("at", f.at);
    print("other", f.other);
    std::printf("\twhere=%u,%d,%s,%lld,%llu,%llu\tline=%u\tcount=%llu\n", f.space, f.block, f.name,
                static_cast<long long>(f.offset), static_cast<unsigned long long>(f.block_size),
                static_cast<unsigned long long>(f.bytes), f.line, static_cast<unsigned long long>(f.count));
}

}  // namespace

int main(int argc, char ** argv) {
    const options o = parse(argc, argv);

    // Poison is readable behind a tensor, as it is behind a buffer of the device.
    metal_sim::guarded_memory pages;
    if (!pages.map_poisoned(elements * sizeof(float))) {
        return 2;
    }
    float * const src = reinterpret_cast<float *>(pages.begin());
    float * const dst = src + elements / 2;
    metal_sim::verifier::add_memory(pages.begin(), elements * sizeof(float), pages.begin(), pages.readable_end(),
                                    pages.begin(), false);
    const size_t n     = o.threads * o.groups;
    const size_t n_dst = n == 32 && !o.wide ? n : elements / 2;
    for (size_t i = 0; i < n; ++i) {
        src[i] = static_cast<float>(i + 1);
    }
    metal_sim::verifier::initialise(pages.begin(), n * sizeof(float));
    if (o.write) {
        std::memset(dst, 0, n_dst * sizeof(float));
        metal_sim::verifier::initialise(reinterpret_cast<unsigned char *>(dst), n_dst * sizeof(float));
    }

    std::vector<std::unique_ptr<metal_sim::pipeline>> pipelines;
    metal_sim::segment                                segment;
    bool                                              passed = true;
    for (const std::string & name : o.kernels) {
        const metal_sim::kernel_entry * const kernel = metal_sim::find_kernel(name.c_str(), false);
        if (kernel == nullptr) {
            std::printf("no kernel %s\n", name.c_str());
            return 2;
        }
        pipelines.push_back(metal_sim::pipeline::create(*kernel, {}));
        metal_sim::compute_dispatch d;
        d.buffers[0]   = dst;
        d.buffers[1]   = src;
        d.threadgroups = { o.groups, 1, 1 };
        d.threads      = { o.threads, 1, 1 };
        d.extents      = { extent(dst, n_dst, "dst"), extent(src, n, "src") };
        if ((kernel->entry->threadgroup_memory_mask & 1) != 0) {
            d.threadgroup_memory[0] = name.find("matrix") != std::string::npos ? 256 : o.threads * sizeof(float);
        }
        segment.add(*pipelines.back(), d, {});
        if (!o.segment) {
            passed = segment.run() && passed;
        }
    }
    if (o.segment) {
        passed = segment.run();
    }
    if (!passed) {
        std::printf("fault\t%s\n", metal_sim::last_fault());
    }

    metal_sim_finding findings[16];
    for (size_t found = 0; (found = metal_sim_verifier_take(findings, 16)) > 0;) {
        for (size_t i = 0; i < found; ++i) {
            print(findings[i]);
        }
    }
    std::printf("lost\t%llu\n", static_cast<unsigned long long>(metal_sim::verifier::lost_findings()));
    metal_sim_barrier barriers[16];
    const size_t      met = metal_sim_verifier_barriers(barriers, 16);
    for (size_t i = 0; i < met && i < 16; ++i) {
        std::printf("barrier\t%s\t%u\t%u\t%llu\n", barriers[i].file, barriers[i].line, barriers[i].is_simdgroup,
                    static_cast<unsigned long long>(barriers[i].count));
    }
    char            kernel[64] = "";
    metal_sim_place place      = {};
    if (metal_sim_verifier_last_writer(dst, kernel, sizeof(kernel), &place)) {
        std::printf("writer\t%s", kernel);
        print("at", place);
        std::puts("");
    }
    std::printf("value\t%g\n", dst[0]);
    return passed ? 0 : 1;
}
