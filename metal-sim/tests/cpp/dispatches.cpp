// The order of dispatches: any between two memory barriers, as on a GPU. Run once per METAL_SIM_ORDER.
#include "harness.h"
#include "segment.h"

#include <memory>

namespace {

using namespace metal;
using namespace metal_sim;

unit unit_{ "dispatches" };

constexpr uint count = 8;

kernel void produce(device float * out, uint i) {
    out[i] = 1.0f + i;
}

KERNEL(produce, K_buffer, K_thread_position_in_grid);

kernel void consume(device const float * in, device float * out, uint i) {
    out[i] = 10.0f * in[i];
}

KERNEL(consume, K_buffer, K_buffer, K_thread_position_in_grid);

kernel void store(constant float & value, device float * out, uint i) {
    out[i] = value;
}

KERNEL(store, K_buffer, K_buffer, K_thread_position_in_grid);

kernel void take(device float * out, threadgroup float * shared, uint i) {
    shared[i] = 1.0f;
    out[i]    = shared[i];
}

KERNEL(take, K_buffer, K_threadgroup<0>, K_thread_position_in_grid);

std::unique_ptr<pipeline> pipeline_of(const char * name) {
    return pipeline::create(*find_kernel(name, false), {});
}

compute_dispatch dispatch_of(std::vector<void *> buffers) {
    compute_dispatch d;
    std::copy(buffers.begin(), buffers.end(), d.buffers);
    d.threads = { count, 1, 1 };
    return d;
}

// Runs producer and consumer, with or without a barrier between. True when the consumer saw what the producer wrote.
bool consumer_is_right(segment & s, bool barrier) {
    static const auto  producer = pipeline_of("produce"), consumer = pipeline_of("consume");
    std::vector<float> middle(count, -1.0f), out(count, 0.0f);
    s.add(*producer, dispatch_of({ middle.data() }), {});
    if (barrier) {
        CHECK(s.run());
    }
    s.add(*consumer, dispatch_of({ middle.data(), out.data() }), {});
    CHECK(out[0] == 0.0f);  // recorded, not run
    CHECK(s.run());
    bool stale = true, right = true;
    for (uint i = 0; i < count; ++i) {
        stale = stale && out[i] == -10.0f;
        right = right && out[i] == 10.0f * (i + 1);
    }
    CHECK(stale != right);
    return right;
}

TEST(a_barrier_orders_dispatches) {
    segment s;
    for (int i = 0; i < 20; ++i) {
        CHECK(consumer_is_right(s, true));
    }
}

TEST(without_a_barrier_the_order_shows) {
    segment s;
    int     right = 0;
    for (int i = 0; i < 20; ++i) {
        right += consumer_is_right(s, false) ? 1 : 0;
    }
    if (test::lane_order() == "ascending") {
        CHECK(right == 20);
    } else if (test::lane_order() == "reversed") {
        CHECK(right == 0);
    } else {
        CHECK(right > 0 && right < 20);
    }
}

TEST(a_random_order_is_the_same_in_every_encoder) {
    segment a, b;
    for (int i = 0; i < 20; ++i) {
        CHECK(consumer_is_right(a, false) == consumer_is_right(b, false));
    }
}

TEST(a_dispatch_keeps_the_bytes_it_was_recorded_with) {
    const auto         p = pipeline_of("store");
    std::vector<float> first(count), second(count);
    segment            s;
    bound_bytes        bytes;
    for (std::vector<float> * out : { &first, &second }) {
        const float value = out == &first ? 1.0f : 2.0f;
        const auto  begin = reinterpret_cast<const unsigned char *>(&value);
        const auto  copy  = std::make_shared<std::vector<unsigned char>>(begin, begin + sizeof(value));
        bytes[0]          = copy;
        s.add(*p, dispatch_of({ copy->data(), out->data() }), bytes);
    }
    bytes = {};
    CHECK(s.run());
    CHECK(first[0] == 1.0f && second[0] == 2.0f);
}

TEST(a_fault_names_its_dispatch_and_stops_the_others) {
    const auto         good = pipeline_of("produce"), bad = pipeline_of("take");
    std::vector<float> before(count, 0.0f), after(count, 0.0f);
    segment            s;
    s.add(*good, dispatch_of({ before.data() }), {});
    s.add(*bad, dispatch_of({ before.data() }), {});  // no threadgroup memory set
    s.add(*good, dispatch_of({ after.data() }), {});
    CHECK(!s.run());
    CHECK_FAULT("take: threadgroup (0, 0, 0) wrote bytes [0, 32) of threadgroup memory 0, which has 0 bytes");
    CHECK(test::lane_order() != "ascending" || after[0] == 0.0f);
    CHECK(s.run());  // what did not run is forgotten
}

TEST(counters_count_what_was_recorded) {
    reset_counters();
    segment s;
    consumer_is_right(s, false);
    CHECK(read_counters().dispatches == 2);
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
