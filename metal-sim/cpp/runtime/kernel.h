// How kernels and function constants of one translated .metal file make themselves known, and how a dispatch calls
// them.
//
// A translated file defines one `unit` and one static registrar per function constant and per kernel. Registrars only
// link themselves into their unit, in static storage: nothing is allocated, no order between files matters.
#pragma once

#include "compute_dispatch.h"
#include "lane.h"

#include <cstdint>
#include <type_traits>
#include <utility>

namespace metal_sim {

// Argument kinds, in the order of a kernel's parameters. The names after `K_` are MSL's attributes.
struct K_buffer;
template <uint32_t index> struct K_threadgroup;
struct K_threadgroup_position_in_grid;
struct K_threadgroups_per_grid;
struct K_threads_per_threadgroup;
struct K_thread_position_in_grid;
struct K_thread_position_in_threadgroup;
struct K_thread_index_in_threadgroup;
struct K_thread_index_in_simdgroup;
struct K_simdgroup_index_in_threadgroup;
struct K_simdgroups_per_threadgroup;

template <class... Kinds> struct kinds {};

// A kernel as a dispatch calls it: once per lane.
struct entry_point {
    void (*run)(const lane &);
    uint32_t buffer_count;
    uint32_t threadgroup_memory_mask;  // which [[threadgroup(n)]] it takes
};

enum class constant_type : uint8_t { boolean, int16, int32, float32 };

template <class T> constexpr constant_type constant_type_of() {
    if constexpr (std::is_same<T, bool>::value) {
        return constant_type::boolean;
    } else if constexpr (std::is_same<T, float>::value) {
        return constant_type::float32;
    } else if constexpr (std::is_integral<T>::value && sizeof(T) == 2) {
        return constant_type::int16;
    } else {
        static_assert(std::is_integral<T>::value && sizeof(T) == 4, "no function constant has this type");
        return constant_type::int32;
    }
}

struct function_constant {
    const char *        name;
    int32_t             index;
    constant_type       type;
    void *              storage;
    function_constant * next;
};

class unit;

struct kernel_entry {
    const char *        name;
    const entry_point * entry;
    unit *              owner;
    kernel_entry *      next;
};

// One translated .metal file.
class unit {
  public:
    constexpr explicit unit(const char * name) : name_(name) {}

    unit(const unit &)             = delete;
    unit & operator=(const unit &) = delete;

    const char * name() const { return name_; }

    const kernel_entry * kernels() const { return kernels_; }

    const function_constant * constants() const { return constants_; }

    void add(kernel_entry & kernel) {
        kernel.next = kernels_;
        kernels_    = &kernel;
    }

    void add(function_constant & constant) {
        constant.next = constants_;
        constants_    = &constant;
    }

    // The pipeline whose values the function constants hold; 0: none. They are globals of the unit, so a dispatch sets
    // them when another pipeline used the unit last. Guarded by the lock that serialises dispatches.
    uint64_t configured_for = 0;

  private:
    const char *        name_;
    kernel_entry *      kernels_   = nullptr;
    function_constant * constants_ = nullptr;
};

class function_constant_registrar {
  public:
    template <class T>
    function_constant_registrar(unit & owner, const char * name, int32_t index, T * storage) :
        constant_{ name, index, constant_type_of<T>(), storage, nullptr } {
        owner.add(constant_);
    }

  private:
    function_constant constant_;
};

class kernel_registrar {
  public:
    kernel_registrar(unit & owner, const char * host_name, const entry_point * entry) :
        kernel_{ host_name, entry, &owner, nullptr } {
        owner.add(kernel_);
    }

  private:
    kernel_entry kernel_;
};

// Turns a position into the parameter's own type: uint, ushort, uint2, ushort3, ...
template <class T> inline T position_as(const extent3 & p) {
    if constexpr (std::is_integral<T>::value) {
        return static_cast<T>(p.x);
    } else if constexpr (std::is_constructible<T, uint32_t, uint32_t, uint32_t>::value) {
        return T(p.x, p.y, p.z);
    } else {
        return T(p.x, p.y);
    }
}

// `argument<Kind, Parameter, buffer index>::get(lane)`: the value of one kernel parameter.
template <class Kind, class T, uint32_t buffer> struct argument;

template <class T, uint32_t buffer> struct argument<K_buffer, T &, buffer> {
    static T & get(const lane & l) { return *static_cast<T *>(l.group->arguments->buffers[buffer]); }
};

template <class T, uint32_t buffer> struct argument<K_buffer, T *, buffer> {
    static T * get(const lane & l) { return static_cast<T *>(l.group->arguments->buffers[buffer]); }
};

template <uint32_t index, class T, uint32_t buffer> struct argument<K_threadgroup<index>, T *, buffer> {
    static_assert(index < max_threadgroup_memory_bindings, "threadgroup memory index out of range");

    static T * get(const lane & l) { return reinterpret_cast<T *>(l.group->memory[index]); }
};

template <class T, uint32_t buffer> struct argument<K_threadgroup_position_in_grid, T, buffer> {
    static T get(const lane & l) { return position_as<T>(l.group->position); }
};

template <class T, uint32_t buffer> struct argument<K_threadgroups_per_grid, T, buffer> {
    static T get(const lane & l) { return position_as<T>(l.group->arguments->threadgroups); }
};

template <class T, uint32_t buffer> struct argument<K_threads_per_threadgroup, T, buffer> {
    static T get(const lane & l) { return position_as<T>(l.group->arguments->threads); }
};

template <class T, uint32_t buffer> struct argument<K_thread_position_in_threadgroup, T, buffer> {
    static T get(const lane & l) { return position_as<T>(l.position_in_threadgroup); }
};

template <class T, uint32_t buffer> struct argument<K_thread_position_in_grid, T, buffer> {
    static T get(const lane & l) {
        const extent3 & group = l.group->position;
        const extent3 & size  = l.group->arguments->threads;
        const extent3 & in    = l.position_in_threadgroup;
        return position_as<T>({ group.x * size.x + in.x, group.y * size.y + in.y, group.z * size.z + in.z });
    }
};

template <class T, uint32_t buffer> struct argument<K_thread_index_in_threadgroup, T, buffer> {
    static T get(const lane & l) { return static_cast<T>(l.index_in_threadgroup); }
};

template <class T, uint32_t buffer> struct argument<K_thread_index_in_simdgroup, T, buffer> {
    static T get(const lane & l) { return static_cast<T>(l.index_in_simdgroup); }
};

template <class T, uint32_t buffer> struct argument<K_simdgroup_index_in_threadgroup, T, buffer> {
    static T get(const lane & l) { return static_cast<T>(l.simdgroup_index); }
};

template <class T, uint32_t buffer> struct argument<K_simdgroups_per_threadgroup, T, buffer> {
    static T get(const lane & l) { return static_cast<T>(l.group->simdgroup_count); }
};

// Buffers are numbered in the order of the parameters (ggml's kernels never use [[buffer(n)]]): the number of
// K_buffer among the first `count` kinds.
template <class... Kinds> constexpr uint32_t buffers_before(size_t count) {
    constexpr bool is_buffer[] = { std::is_same<Kinds, K_buffer>::value..., false };
    uint32_t       n           = 0;
    for (size_t i = 0; i < count; ++i) {
        n += is_buffer[i] ? 1 : 0;
    }
    return n;
}

template <class Kind> struct threadgroup_memory_bit : std::integral_constant<uint32_t, 0> {};

template <uint32_t index>
struct threadgroup_memory_bit<K_threadgroup<index>> : std::integral_constant<uint32_t, 1u << index> {};

// `&thunk<&kernel_function, kinds<...>>::call` is the entry point of a kernel function.
template <auto function, class Kinds> struct thunk;

template <class... Parameters, void (*function)(Parameters...), class... Kinds>
struct thunk<function, kinds<Kinds...>> {
    static_assert(sizeof...(Parameters) == sizeof...(Kinds), "one kind per parameter");

    template <size_t... position> static void apply(const lane & l, std::index_sequence<position...>) {
        function(argument<Kinds, Parameters, buffers_before<Kinds...>(position)>::get(l)...);
    }

    static void run(const lane & l) { apply(l, std::index_sequence_for<Parameters...>()); }

    static constexpr entry_point call = {
        &run,
        buffers_before<Kinds...>(sizeof...(Kinds)),
        (0u | ... | threadgroup_memory_bit<Kinds>::value),
    };
};

}  // namespace metal_sim

#define METAL_SIM_JOIN_(a, b) a##b
#define METAL_SIM_JOIN(a, b)  METAL_SIM_JOIN_(a, b)

// A name that is used once in a translation unit, also when a macro of the kernel source repeats a registration.
#define METAL_SIM_UNIQUE(prefix) METAL_SIM_JOIN(prefix, __COUNTER__)
