// Atomics. The lanes of a threadgroup share an OS thread, but threadgroups that share device memory may not.
#pragma once

#include "metal_scalar.h"

namespace metal {

template <class T> struct atomic {
    T value;
};

typedef atomic<int>  atomic_int;
typedef atomic<uint> atomic_uint;

enum memory_order { memory_order_relaxed };  // MSL knows no other for these functions

template <class T> inline T atomic_load_explicit(const atomic<T> * object, memory_order) {
    return __atomic_load_n(&object->value, __ATOMIC_RELAXED);
}

template <class T, class U> inline void atomic_store_explicit(atomic<T> * object, U desired, memory_order) {
    __atomic_store_n(&object->value, static_cast<T>(desired), __ATOMIC_RELAXED);
}

template <class T, class U> inline T atomic_fetch_add_explicit(atomic<T> * object, U operand, memory_order) {
    return __atomic_fetch_add(&object->value, static_cast<T>(operand), __ATOMIC_RELAXED);
}

}  // namespace metal
