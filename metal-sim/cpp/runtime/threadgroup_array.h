// `threadgroup T x[N];` inside a kernel body.
#pragma once

#include "lane.h"

namespace metal_sim {

// Storage of one array in the running threadgroup's memory: the same for all of its lanes, poisoned when the first lane
// of a threadgroup asks, counted against the 32 KiB limit. `tag` is the address of something unique to the declaration.
unsigned char * declare_threadgroup_array(const void * tag, size_t size, const char * name, source_position at);

template <class Array, class Tag>
inline Array & threadgroup_array(const char * name, source_position at = source_position::current()) {
    static const char tag = 0;
    return *reinterpret_cast<Array *>(declare_threadgroup_array(&tag, sizeof(Array), name, at));
}

}  // namespace metal_sim

// Declares `x` as a reference to an array `element x dimensions` in threadgroup memory. The local type makes the
// declaration unique, also in every instantiation of a kernel template.
#define METAL_SIM_THREADGROUP_ARRAY(element, x, dimensions) \
    struct x##_in_threadgroup_memory;                       \
    auto & x = ::metal_sim::threadgroup_array<element dimensions, struct x##_in_threadgroup_memory>(#x)
