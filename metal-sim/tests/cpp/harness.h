// What the test programs of the simulator's runtime share. A program is one unit of kernels, written as the transform
// would emit them, and checks that run them. It prints one line per test and exits with 1 if a check failed.
#pragma once

#include "dispatcher.h"
#include "fault.h"
#include "metal_shim.h"
#include "pipeline.h"
#include "registry.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace test {

struct test_case {
    const char * name;
    void (*run)();
};

inline std::vector<test_case> & cases() {
    static std::vector<test_case> all;
    return all;
}

inline int & failures() {
    static int count = 0;
    return count;
}

inline bool add(const char * name, void (*run)()) {
    cases().push_back({ name, run });
    return true;
}

inline void check(bool passed, const char * what, int line) {
    if (!passed) {
        std::printf("  line %d: %s\n", line, what);
        ++failures();
    }
}

inline void check_contains(const std::string & text, const std::string & part, int line) {
    if (text.find(part) == std::string::npos) {
        std::printf("  line %d: \"%s\" does not contain \"%s\"\n", line, text.c_str(), part.c_str());
        ++failures();
    }
}

inline int run_all() {
    for (const test_case & c : cases()) {
        const int before = failures();
        metal_sim::clear_fault();
        c.run();
        std::printf("%s %s\n", failures() == before ? "ok    " : "FAILED", c.name);
    }
    return failures() == 0 ? 0 : 1;
}

// The order in which this process runs lanes.
inline std::string lane_order() {
    const char * order = std::getenv("METAL_SIM_ORDER");
    return order != nullptr ? order : "ascending";
}

template <class First, class Second> void on_two_threads(First first, Second second) {
    std::thread other(first);
    second();
    other.join();
}

// Runs a kernel of the program's unit. Buffers are numbered in the order of the calls.
class launch {
  public:
    explicit launch(const char * kernel) : kernel_(kernel) {}

    template <class T> launch & buffer(std::vector<T> & data) {
        dispatch_.buffers[buffers_++] = data.data();
        return *this;
    }

    template <class T> launch & argument(const T & value) {
        dispatch_.buffers[buffers_++] = const_cast<T *>(&value);
        return *this;
    }

    launch & nil_buffer() {
        dispatch_.nil_buffers |= 1u << buffers_++;
        return *this;
    }

    launch & threadgroup_memory(uint32_t index, size_t bytes) {
        dispatch_.threadgroup_memory[index] = bytes;
        return *this;
    }

    launch & threadgroups(uint32_t x, uint32_t y = 1, uint32_t z = 1) {
        dispatch_.threadgroups = { x, y, z };
        return *this;
    }

    launch & threads(uint32_t x, uint32_t y = 1, uint32_t z = 1) {
        dispatch_.threads = { x, y, z };
        return *this;
    }

    bool run(std::vector<metal_sim::constant_value> constants = {}, bool tensor = false) {
        const metal_sim::kernel_entry * kernel = metal_sim::find_kernel(kernel_, tensor);
        if (kernel == nullptr) {
            std::printf("  no kernel %s\n", kernel_);
            ++failures();
            return false;
        }
        const auto pipeline = metal_sim::pipeline::create(*kernel, std::move(constants));
        return pipeline != nullptr && metal_sim::execute(*pipeline, dispatch_);
    }

  private:
    const char *                kernel_;
    uint32_t                    buffers_ = 0;
    metal_sim::compute_dispatch dispatch_;
};

}  // namespace test

#define TEST(name)                                              \
    static void       name();                                   \
    static const bool name##_added = test::add(#name, &(name)); \
    static void       name()

#define CHECK(condition) test::check(condition, #condition, __LINE__)

#define CHECK_FAULT(part) test::check_contains(metal_sim::last_fault(), part, __LINE__)

// The address spaces, as the transform defines them for a kernel file.
#define device
#define constant const
#define thread
#define threadgroup
#define kernel

// Registers a kernel under its own name.
#define KERNEL(function, ...)                                          \
    static ::metal_sim::kernel_registrar METAL_SIM_UNIQUE(registrar_)( \
        unit_, #function, &::metal_sim::thunk<&function, ::metal_sim::kinds<__VA_ARGS__>>::call)
