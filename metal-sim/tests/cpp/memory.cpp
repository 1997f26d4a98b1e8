// Threadgroup memory and guarded memory.
#include "guarded_memory.h"
#include "harness.h"

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace metal;
using namespace metal_sim;

unit unit_{ "memory" };

kernel void read_fresh(device uint * out, threadgroup uint * shared, uint group, ushort i) {
    out[16 * group + i] = shared[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[i] = 42;
}

KERNEL(read_fresh, K_buffer, K_threadgroup<0>, K_threadgroup_position_in_grid, K_thread_index_in_threadgroup);

kernel void write_range(constant uint2 & range, threadgroup uchar * shared, uint group) {
    if (group == 3) {
        for (uint i = range.x; i < range.y; ++i) {
            shared[i] = 1;
        }
    }
}

KERNEL(write_range, K_buffer, K_threadgroup<0>, K_threadgroup_position_in_grid);

kernel void array_in_kernel(device float * out, uint group, ushort i) {
    METAL_SIM_THREADGROUP_ARRAY(float, x, [4][8]);
    METAL_SIM_THREADGROUP_ARRAY(float, y, [32]);
    out[64 * group + i] = x[i / 8][i % 8];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i / 8][i % 8] = i;
    y[i]            = 100 + i;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[64 * group + 32 + i] = x[3 - i / 8][7 - i % 8] + y[i];
}

KERNEL(array_in_kernel, K_buffer, K_threadgroup_position_in_grid, K_thread_index_in_threadgroup);

kernel void array_overrun(constant int & extra) {
    METAL_SIM_THREADGROUP_ARRAY(int, short_array, [5]);
    for (int i = 0; i < 5 + extra; ++i) {
        short_array[i] = 0;
    }
}

KERNEL(array_overrun, K_buffer);

kernel void array_too_large(threadgroup char * shared, ushort) {
    shared[0] = 0;
    METAL_SIM_THREADGROUP_ARRAY(float, large, [8000]);
    large[0] = 0.0f;
}

KERNEL(array_too_large, K_threadgroup<0>, K_thread_index_in_threadgroup);

bool overruns(uint begin, uint end, size_t bytes) {
    const uint2 range(begin, end);
    return !test::launch("write_range").argument(range).threadgroup_memory(0, bytes).threadgroups(8).threads(1).run();
}

// Whether `access` is stopped by a signal, in a process of its own.
template <class Access> bool is_stopped(Access access) {
    const pid_t child = fork();
    if (child == 0) {
        access();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

TEST(each_threadgroup_starts_with_poison) {
    std::vector<uint> out(50 * 16, 0);
    CHECK(test::launch("read_fresh").buffer(out).threadgroup_memory(0, 64).threadgroups(50).threads(16).run());
    for (uint x : out) {
        CHECK(x == 0xffffffff);
    }
}

TEST(a_write_behind_threadgroup_memory_is_data) {
    CHECK(!overruns(0, 8192, 8192));
    CHECK(overruns(8192, 12288, 8192));
    CHECK_FAULT(
        "write_range: threadgroup (3, 0, 0) wrote bytes [8192, 12288) of threadgroup memory 0, which has 8192 bytes");
    CHECK(overruns(32, 33, 32));
    CHECK_FAULT("wrote bytes [32, 33) of threadgroup memory 0, which has 32 bytes");
    CHECK(overruns(32 * 1024 + 16 * 1024 - 1, 32 * 1024 + 16 * 1024, 32 * 1024));  // the last byte of the slack
    CHECK(!overruns(0, 32, 32));                                                   // and the slack is whole again
}

TEST(memory_that_is_not_set_has_no_bytes) {
    CHECK(overruns(0, 1, 0));
    CHECK_FAULT("wrote bytes [0, 1) of threadgroup memory 0, which has 0 bytes");
}

TEST(more_memory_than_the_device_has_is_a_fault) {
    CHECK(!overruns(0, 0, 32 * 1024));
    CHECK(overruns(0, 0, 32 * 1024 + 16));
    CHECK_FAULT("write_range: 32784 bytes of threadgroup memory; the device has 32768");
}

TEST(arrays_in_kernels_are_shared_and_start_with_poison) {
    std::vector<float> out(20 * 64, 0.0f);
    reset_counters();
    CHECK(test::launch("array_in_kernel").buffer(out).threadgroups(20).threads(32).run());
    for (int group = 0; group < 20; ++group) {
        for (int i = 0; i < 32; ++i) {
            CHECK(std::isnan(out[64 * group + i]));
            CHECK(out[64 * group + 32 + i] == 31 - i + 100 + i);
        }
    }
    CHECK(read_counters().threadgroup_bytes == 20 * 256);
}

TEST(a_write_behind_an_array_is_data) {
    const int none = 0, two = 2;
    CHECK(test::launch("array_overrun").argument(none).threads(1).run());
    CHECK(!test::launch("array_overrun").argument(two).threads(1).run());
    CHECK_FAULT("array_overrun: threadgroup (0, 0, 0) wrote bytes [20, 28) of threadgroup array short_array, which has "
                "20 bytes");
}

TEST(arrays_count_against_the_limit) {
    CHECK(test::launch("array_too_large").threadgroup_memory(0, 768).threads(64).run());
    CHECK(!test::launch("array_too_large").threadgroup_memory(0, 784).threads(64).run());
    CHECK_FAULT("no room for large: 784 bytes of threadgroup memory in use, 32000 more asked");
    CHECK_FAULT("memory.cpp:");
}

TEST(device_memory_is_poisoned_and_guarded) {
    const size_t   size = 5 * 1024 * 1024 + 96;
    guarded_memory memory;
    CHECK(memory.map_poisoned(size));
    volatile unsigned char * const data = memory.last(size, 32);
    CHECK(reinterpret_cast<uintptr_t>(data) % 32 == 0 && data + size == memory.end());
    CHECK(data[0] == poison_byte && data[size / 2] == poison_byte && data[size - 1] == poison_byte);
    data[size - 1] = 1;
    CHECK(data[size - 1] == 1);

    // Reading behind it is what a GPU allows.
    const char * const behind = std::getenv("METAL_SIM_BEHIND");
    const bool         guards = behind != nullptr && std::strcmp(behind, "guard") == 0;
    CHECK(is_stopped([&] { (void) data[size]; }) == guards);
    CHECK(guards || data[size] == poison_byte);
    CHECK(is_stopped([&] { data[size] = 1; }));
    CHECK(is_stopped([&] { memory.begin()[-1] = 1; }));
    CHECK(!is_stopped([&] { data[0] = 1; }));
}

TEST(writes_to_one_buffer_do_not_reach_another) {
    guarded_memory a, b;
    CHECK(a.map_poisoned(4096) && b.map_poisoned(4096));
    a.begin()[0] = 1;
    CHECK(b.begin()[0] == poison_byte);
}

}  // namespace

extern "C" metal_sim::unit * const * metal_sim_units(size_t * count) {
    static metal_sim::unit * const units[] = { &unit_ };
    *count                                 = 1;
    return units;
}

int main() {
    return test::run_all();
}
