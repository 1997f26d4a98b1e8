// Lanes, barriers and collective operations. Run once per METAL_SIM_ORDER: what is checked holds in any order, unless
// it is about the order.
#include "harness.h"

#include <cmath>

namespace {

using namespace metal;
using namespace metal_sim;

unit unit_{ "scheduling" };

kernel void positions(device uint * out, uint3 group [[maybe_unused]], uint3 in_group, uint3 size, uint3 grid,
                      uint flat) {
    const uint index = ((group.z * grid.y + group.y) * grid.x + group.x) * size.x * size.y * size.z + flat;
    out[index]       = in_group.x + 100 * in_group.y + 10000 * in_group.z;
}

KERNEL(positions, K_buffer, K_threadgroup_position_in_grid, K_thread_position_in_threadgroup, K_threads_per_threadgroup,
       K_threadgroups_per_grid, K_thread_index_in_threadgroup);

kernel void sum_over_threadgroup(device float * out, threadgroup float * shared, uint group, ushort i, ushort n) {
    shared[i] = i + 1;
    for (ushort half_n = n / 2; half_n > 0; half_n /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i < half_n) {
            shared[i] += shared[i + half_n];
        }
    }
    if (i == 0) {
        out[group] = shared[0];
    }
}

KERNEL(sum_over_threadgroup, K_buffer, K_threadgroup<0>, K_threadgroup_position_in_grid, K_thread_index_in_threadgroup,
       K_threads_per_threadgroup);

// Lane i reads what lane i - 1 wrote, without a barrier between.
kernel void missing_barrier(device float * out, threadgroup float * shared, ushort i) {
    shared[i] = 1.0f;
    out[i]    = i > 0 ? shared[i - 1] : 1.0f;
}

KERNEL(missing_barrier, K_buffer, K_threadgroup<0>, K_thread_index_in_threadgroup);

kernel void leader_writes(device float * out, threadgroup float * shared, ushort i) {
    shared[0] = -1.0f;
    if (lockstep() && i == 0) {
        shared[0] = 7.0f;
    }
    lockstep();
    out[i] = shared[0];
}

KERNEL(leader_writes, K_buffer, K_threadgroup<0>, K_thread_index_in_threadgroup);

kernel void two_collectives_in_branches(device float * out, ushort lane) {
    float r;
    if (lane % 2 == 0) {
        r = simd_sum(1.0f);
    } else {
        r = simd_max(static_cast<float>(lane));
    }
    out[lane] = r + 1000 * simd_sum(1.0f);
}

KERNEL(two_collectives_in_branches, K_buffer, K_thread_index_in_simdgroup);

kernel void one_collective_in_two_branches(device float * out, ushort lane) {
    float r;
    if (lane < 8) {
        r = simd_sum(1.0f);
    } else {
        r = simd_sum(10.0f);
    }
    out[lane] = r;
}

KERNEL(one_collective_in_two_branches, K_buffer, K_thread_index_in_simdgroup);

kernel void collective_in_a_loop(device float * out, ushort lane) {
    float r = 0.0f;
    for (ushort turn = 0; turn < lane % 4; ++turn) {
        r += simd_sum(1.0f);
    }
    out[lane] = r + 1000 * simd_sum(1.0f);
}

KERNEL(collective_in_a_loop, K_buffer, K_thread_index_in_simdgroup);

kernel void shuffle_from_absent_lane(device float * out, ushort lane) {
    float r = 0.0f;
    if (lane < 16) {
        r = simd_shuffle(static_cast<float>(lane), lane + 8);
    }
    out[lane] = r;
}

KERNEL(shuffle_from_absent_lane, K_buffer, K_thread_index_in_simdgroup);

kernel void lanes_return_before_the_barrier(device float * out, ushort i) {
    if (i >= 5) {
        return;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = 1.0f;
}

KERNEL(lanes_return_before_the_barrier, K_buffer, K_thread_index_in_threadgroup);

kernel void barrier_in_each_branch(device float * out, ushort i) {
    if (i < 32) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    } else {
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    out[i] = 1.0f;
}

KERNEL(barrier_in_each_branch, K_buffer, K_thread_index_in_threadgroup);

kernel void no_barrier(device float * out, uint i) {
    out[i] = 2.0f * i;
}

KERNEL(no_barrier, K_buffer, K_thread_position_in_grid);

TEST(a_lane_knows_where_it_is) {
    std::vector<uint> out(2 * 3 * 2 * 5 * 2 * 3, ~0u);
    CHECK(test::launch("positions").buffer(out).threadgroups(2, 3, 2).threads(5, 2, 3).run());
    bool right = true;
    for (uint i = 0; i < out.size(); ++i) {
        const uint flat = i % 30;
        right           = right && out[i] == flat % 5 + 100 * (flat / 5 % 2) + 10000 * (flat / 10);
    }
    CHECK(right);
}

TEST(a_barrier_separates_writes_from_reads) {
    std::vector<float> out(100, 0.0f);
    CHECK(test::launch("sum_over_threadgroup")
              .buffer(out)
              .threadgroup_memory(0, 256 * 4)
              .threadgroups(100)
              .threads(256)
              .run());
    for (float sum : out) {
        CHECK(sum == 256 * 257 / 2);
    }
}

TEST(the_order_of_lanes_shows_a_missing_barrier) {
    std::vector<float> out(32, 0.0f);
    CHECK(test::launch("missing_barrier").buffer(out).threadgroup_memory(0, 128).threads(32).run());
    int poisoned = 0;
    for (float x : out) {
        poisoned += std::isnan(x) ? 1 : 0;
    }
    CHECK(test::lane_order() == "ascending" ? poisoned == 0 : poisoned > 0);
    CHECK(test::lane_order() != "reversed" || poisoned == 31);
}

TEST(lockstep_orders_a_leader_only_block) {
    std::vector<float> out(32, 0.0f);
    CHECK(test::launch("leader_writes").buffer(out).threadgroup_memory(0, 16).threads(32).run());
    for (float x : out) {
        CHECK(x == 7.0f);
    }
}

TEST(collectives_in_divergent_branches_do_not_mix) {
    std::vector<float> out(32, 0.0f);
    CHECK(test::launch("two_collectives_in_branches").buffer(out).threads(32).run());
    for (int i = 0; i < 32; ++i) {
        CHECK(out[i] == 32000 + (i % 2 == 0 ? 16 : 31));
    }
}

TEST(the_same_collective_in_two_branches_does_not_mix) {
    std::vector<float> out(32, 0.0f);
    CHECK(test::launch("one_collective_in_two_branches").buffer(out).threads(32).run());
    for (int i = 0; i < 32; ++i) {
        CHECK(out[i] == (i < 8 ? 8 : 240));
    }
}

TEST(lanes_that_leave_a_loop_early_wait_for_the_others) {
    std::vector<float> out(32, 0.0f);
    CHECK(test::launch("collective_in_a_loop").buffer(out).threads(32).run());
    const float in_loop[] = { 0, 24, 24 + 16, 24 + 16 + 8 };
    for (int i = 0; i < 32; ++i) {
        CHECK(out[i] == 32000 + in_loop[i % 4]);
    }
}

TEST(an_absent_lane_has_no_value) {
    std::vector<float> out(32, 0.0f);
    CHECK(test::launch("shuffle_from_absent_lane").buffer(out).threads(32).run());
    for (int i = 0; i < 16; ++i) {
        CHECK(i < 8 ? out[i] == i + 8 : std::isnan(out[i]));
    }
}

TEST(returning_before_a_barrier_is_a_fault) {
    std::vector<float> out(64, 0.0f);
    CHECK(!test::launch("lanes_return_before_the_barrier").buffer(out).threads(64).run());
    CHECK_FAULT("lanes_return_before_the_barrier: threadgroup (0, 0, 0): lane 0 waits at the threadgroup barrier of ");
    CHECK_FAULT("scheduling.cpp:");
    CHECK_FAULT("lane 5 has returned");
    CHECK(out[0] == 0.0f);
}

TEST(different_barriers_are_a_fault) {
    std::vector<float> out(64, 0.0f);
    CHECK(!test::launch("barrier_in_each_branch").buffer(out).threads(64).run());
    CHECK_FAULT("lane 0 waits at the threadgroup barrier of ");
    CHECK_FAULT("lane 32 at that of ");
}

TEST(after_a_fault_the_next_dispatch_runs) {
    std::vector<float> out(64, 0.0f);
    CHECK(!test::launch("lanes_return_before_the_barrier").buffer(out).threadgroups(50).threads(64).run());
    CHECK(test::launch("sum_over_threadgroup")
              .buffer(out)
              .threadgroup_memory(0, 64 * 4)
              .threadgroups(20)
              .threads(64)
              .run());
    for (int i = 0; i < 20; ++i) {
        CHECK(out[i] == 64 * 65 / 2);
    }
}

TEST(counters_count) {
    std::vector<float> out(640, 0.0f);
    reset_counters();
    CHECK(test::launch("no_barrier").buffer(out).threadgroups(10).threads(64).run());
    counters c = read_counters();
    CHECK(c.dispatches == 1 && c.threadgroups == 10);
    CHECK(c.threadgroup_barriers == 0 && c.threadgroup_bytes == 0 && c.simdgroup_fmas == 0);
    CHECK(c.lane_switches == 10 * 2);  // one stack per simdgroup: lanes that never wait follow one another on it
    CHECK(out[639] == 2 * 639);

    reset_counters();
    CHECK(
        test::launch("sum_over_threadgroup").buffer(out).threadgroup_memory(0, 256).threadgroups(10).threads(64).run());
    c = read_counters();
    CHECK(c.threadgroup_barriers == 10 * 6 && c.threadgroup_bytes == 10 * 256);
}

TEST(a_threadgroup_has_a_possible_size) {
    std::vector<float> out(1, 0.0f);
    CHECK(!test::launch("no_barrier").buffer(out).threads(1025).run());
    CHECK_FAULT("(1025, 1, 1) threads in a threadgroup; 1 to 1024 are possible");
    CHECK(!test::launch("no_barrier").buffer(out).threads(0).run());
}

TEST(a_nil_buffer_is_a_fault) {
    CHECK(!test::launch("no_barrier").nil_buffer().threads(1).run());
    CHECK_FAULT("no_barrier: buffer 0 is nil");
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
