// Function constants, and which unit a kernel is taken from.
#include "harness.h"

namespace {

using namespace metal;
using namespace metal_sim;

unit unit_{ "plain" };

static bool    flag;
static int16_t narrow;
static int32_t wide;

function_constant_registrar flag_registrar(unit_, "flag", (100 + 0), &flag);
function_constant_registrar narrow_registrar(unit_, "narrow", (100 + 1), &narrow);
function_constant_registrar wide_registrar(unit_, "wide", (100 + 2), &wide);

kernel void read_constants(device int * out) {
    out[0] = flag;
    out[1] = narrow;
    out[2] = wide;
}

KERNEL(read_constants, K_buffer);

// Counts its own threadgroups that see another value than the argument says.
kernel void compare_constant(constant int & expected, device atomic_int * wrong) {
    if (wide != expected) {
        atomic_fetch_add_explicit(wrong, 1, memory_order_relaxed);
    }
}

KERNEL(compare_constant, K_buffer, K_buffer);

kernel void only_without_tensor(device int * out) {
    out[0] = 1;
}

KERNEL(only_without_tensor, K_buffer);

// The tensor variant of `plain`: the same host name, another kernel.
namespace variant {
unit unit_{ "plain_tensor" };

kernel void read_constants(device int * out) {
    out[0] = 77;
}

KERNEL(read_constants, K_buffer);
}  // namespace variant

unit other_{ "other" };

kernel void in_both(device int * out) {
    out[0] = 5;
}

kernel_registrar in_both_registrar(other_, "in_both", &thunk<&in_both, kinds<K_buffer>>::call);

std::vector<int> read(std::vector<constant_value> constants, bool tensor = false) {
    std::vector<int> out(3, -1);
    CHECK(test::launch("read_constants").buffer(out).threads(1).run(std::move(constants), tensor));
    return out;
}

TEST(constants_are_the_pipelines_own) {
    CHECK(read({ { 100, constant_type::boolean, 1 },
                 { 101, constant_type::int16, -3 },
                 { 102, constant_type::int32, 70000 } }) == std::vector<int>({ 1, -3, 70000 }));
    CHECK(read({ { 101, constant_type::int16, 9 } }) == std::vector<int>({ 0, 9, 0 }));  // nothing is left over
    CHECK(read({}) == std::vector<int>({ 0, 0, 0 }));
}

TEST(an_unknown_constant_is_a_fault) {
    std::vector<int> out(3, -1);
    CHECK(!test::launch("read_constants").buffer(out).threads(1).run({ { 103, constant_type::int16, 1 } }));
    CHECK_FAULT("read_constants: function constant 103 was set, but unit plain declares none with that index");
    CHECK(out[0] == -1);
}

TEST(a_mistyped_constant_is_a_fault) {
    std::vector<int> out(3, -1);
    CHECK(!test::launch("read_constants").buffer(out).threads(1).run({ { 102, constant_type::int16, 1 } }));
    CHECK_FAULT("read_constants: function constant 102 (wide) has type int, but a short was set");
}

TEST(pipelines_of_one_unit_can_be_used_by_two_threads) {
    std::vector<atomic_int> wrong(1);
    const kernel_entry *    kernel_found = find_kernel("compare_constant", false);

    const auto use = [&](int value) {
        const auto       p = pipeline::create(*kernel_found, { { 102, constant_type::int32, value } });
        compute_dispatch d;
        d.buffers[0]   = &value;
        d.buffers[1]   = wrong.data();
        d.threadgroups = { 4, 1, 1 };
        for (int i = 0; i < 2000; ++i) {
            if (!execute(*p, d)) {
                return;
            }
        }
    };
    test::on_two_threads([&] { use(1); }, [&] { use(2); });
    CHECK(wrong[0].value == 0);
}

TEST(a_tensor_variant_replaces_its_unit) {
    CHECK(read({}, false)[0] == 0);
    CHECK(read({}, true)[0] == 77);
    CHECK(find_kernel("only_without_tensor", false) != nullptr);
    CHECK(find_kernel("only_without_tensor", true) == nullptr);
    CHECK(find_kernel("in_both", false) != nullptr && find_kernel("in_both", true) != nullptr);
    CHECK(find_kernel("nowhere", false) == nullptr);
}

}  // namespace

extern "C" metal_sim::unit * const * metal_sim_units(size_t * count) {
    static metal_sim::unit * const units[] = { &unit_, &variant::unit_, &other_ };
    *count                                 = 3;
    return units;
}

int main() {
    return test::run_all();
}
