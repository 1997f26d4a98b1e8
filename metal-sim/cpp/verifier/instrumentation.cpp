// What code compiled with -fsanitize=thread calls. The compiler's half of ThreadSanitizer is all that is used: its library
// knows threads, not lanes, and is never linked.
#ifdef METAL_SIM_VERIFIER

#    include "verifier.h"

#    include <cstring>

using metal_sim::verifier::access;
using metal_sim::verifier::access_kind;

#    define HERE __builtin_return_address(0)

#    define PLAIN(size)                                                                                       \
        void __tsan_read##size(void * p) { access(p, size, HERE, access_kind::read); }                        \
        void __tsan_write##size(void * p) { access(p, size, HERE, access_kind::write); }                      \
        void __tsan_unaligned_read##size(void * p) { access(p, size, HERE, access_kind::read); }              \
        void __tsan_unaligned_write##size(void * p) { access(p, size, HERE, access_kind::write); }            \
        void __tsan_volatile_read##size(void * p) { access(p, size, HERE, access_kind::read); }               \
        void __tsan_volatile_write##size(void * p) { access(p, size, HERE, access_kind::write); }             \
        void __tsan_unaligned_volatile_read##size(void * p) { access(p, size, HERE, access_kind::read); }     \
        void __tsan_unaligned_volatile_write##size(void * p) { access(p, size, HERE, access_kind::write); }   \
        void __tsan_read_write##size(void * p) {                                                              \
            access(p, size, HERE, access_kind::read);                                                         \
            access(p, size, HERE, access_kind::write);                                                        \
        }                                                                                                     \
        void __tsan_unaligned_read_write##size(void * p) {                                                    \
            access(p, size, HERE, access_kind::read);                                                         \
            access(p, size, HERE, access_kind::write);                                                        \
        }

// One OS thread runs all lanes: an atomic operation is a plain one that two lanes may do at once.
#    define FETCH(bits, type, name, expression)                                     \
        type __tsan_atomic##bits##_fetch_##name(volatile type * p, type v, int) {   \
            access(const_cast<type *>(p), sizeof(type), HERE, access_kind::atomic_write); \
            const type old = *p;                                                    \
            *p             = static_cast<type>(expression);                         \
            return old;                                                             \
        }

#    define ATOMIC(bits, type)                                                                        \
        type __tsan_atomic##bits##_load(const volatile type * p, int) {                               \
            access(const_cast<const type *>(p), sizeof(type), HERE, access_kind::atomic_read);        \
            return *p;                                                                                \
        }                                                                                             \
        void __tsan_atomic##bits##_store(volatile type * p, type v, int) {                            \
            access(const_cast<type *>(p), sizeof(type), HERE, access_kind::atomic_write);             \
            *p = v;                                                                                   \
        }                                                                                             \
        type __tsan_atomic##bits##_exchange(volatile type * p, type v, int) {                         \
            access(const_cast<type *>(p), sizeof(type), HERE, access_kind::atomic_write);             \
            const type old = *p;                                                                      \
            *p             = v;                                                                       \
            return old;                                                                               \
        }                                                                                             \
        int __tsan_atomic##bits##_compare_exchange_strong(volatile type * p, type * expected, type v, \
                                                          int, int) {                                 \
            access(const_cast<type *>(p), sizeof(type), HERE, access_kind::atomic_write);             \
            const type old  = *p;                                                                     \
            const bool same = old == *expected;                                                       \
            *p              = same ? v : old;                                                         \
            *expected       = old;                                                                    \
            return same;                                                                              \
        }                                                                                             \
        int __tsan_atomic##bits##_compare_exchange_weak(volatile type * p, type * expected, type v,   \
                                                        int a, int b) {                               \
            return __tsan_atomic##bits##_compare_exchange_strong(p, expected, v, a, b);               \
        }                                                                                             \
        FETCH(bits, type, add, old + v)                                                               \
        FETCH(bits, type, sub, old - v)                                                               \
        FETCH(bits, type, and, old & v)                                                               \
        FETCH(bits, type, or, old | v)                                                                \
        FETCH(bits, type, xor, old ^ v)

extern "C" {

void __tsan_init() {}

void __tsan_func_entry(void *) {}

void __tsan_func_exit() {}

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void * p, unsigned long size) {
    access(p, size, HERE, access_kind::read);
}

void __tsan_write_range(void * p, unsigned long size) {
    access(p, size, HERE, access_kind::write);
}

void __tsan_vptr_read(void ** p) {
    access(p, sizeof(*p), HERE, access_kind::read);
}

void __tsan_vptr_update(void ** p, void *) {
    access(p, sizeof(*p), HERE, access_kind::write);
}

// clang's.
void * __tsan_memcpy(void * to, const void * from, size_t size) {
    access(from, size, HERE, access_kind::read);
    access(to, size, HERE, access_kind::write);
    return std::memcpy(to, from, size);
}

void * __tsan_memmove(void * to, const void * from, size_t size) {
    access(from, size, HERE, access_kind::read);
    access(to, size, HERE, access_kind::write);
    return std::memmove(to, from, size);
}

void * __tsan_memset(void * to, int value, size_t size) {
    access(to, size, HERE, access_kind::write);
    return std::memset(to, value, size);
}

ATOMIC(8, unsigned char)
ATOMIC(16, unsigned short)
ATOMIC(32, unsigned int)
ATOMIC(64, unsigned long)

void __tsan_atomic_thread_fence(int) {}

void __tsan_atomic_signal_fence(int) {}
}

#endif
