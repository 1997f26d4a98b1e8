// Vectors of 2, 3 and 4 components.
#pragma once

#include "metal_scalar.h"

namespace metal {

// Components by index and by name. A vector of 3 has the size of one of 4, as in MSL.
template <class T, int N> struct vector_storage;

template <class T> struct vector_storage<T, 2> {
    union {
        T v[2];

        struct {
            T x, y;
        };
    };
};

template <class T> struct vector_storage<T, 3> {
    union {
        T v[4];

        struct {
            T x, y, z, padding;
        };
    };
};

template <class T> struct vector_storage<T, 4> {
    union {
        T v[4];

        struct {
            T x, y, z, w;
        };
    };
};

template <class T, int N> struct vec : vector_storage<T, N> {
    using vector_storage<T, N>::v;

    vec() = default;

    template <class S, class = if_scalars<S>> vec(S s) {
        for (int i = 0; i < N; ++i) {
            v[i] = static_cast<T>(s);
        }
    }

    template <class A, class B, class = if_scalars<A, B>, std::enable_if_t<sizeof(A) != 0 && N == 2, int> = 0>
    vec(A a, B b) {
        v[0] = static_cast<T>(a);
        v[1] = static_cast<T>(b);
    }

    template <class A, class B, class C, class = if_scalars<A, B, C>,
              std::enable_if_t<sizeof(A) != 0 && N == 3, int> = 0>
    vec(A a, B b, C c) {
        v[0] = static_cast<T>(a);
        v[1] = static_cast<T>(b);
        v[2] = static_cast<T>(c);
    }

    template <class A, class B, class C, class D, class = if_scalars<A, B, C, D>,
              std::enable_if_t<sizeof(A) != 0 && N == 4, int> = 0>
    vec(A a, B b, C c, D d) {
        v[0] = static_cast<T>(a);
        v[1] = static_cast<T>(b);
        v[2] = static_cast<T>(c);
        v[3] = static_cast<T>(d);
    }

    template <class U, int M, std::enable_if_t<M == 2 && N == 4, int> = 0> vec(vec<U, M> low, vec<U, M> high) {
        v[0] = low.v[0];
        v[1] = low.v[1];
        v[2] = high.v[0];
        v[3] = high.v[1];
    }

    template <class U, std::enable_if_t<!std::is_same<U, T>::value, int> = 0> explicit vec(vec<U, N> other) {
        for (int i = 0; i < N; ++i) {
            v[i] = static_cast<T>(other.v[i]);
        }
    }

    T & operator[](int i) { return v[i]; }

    const T & operator[](int i) const { return v[i]; }

    // The transform turns `.xy` and `.zw` into calls.
    vec<T, 2> xy() const { return vec<T, 2>(v[0], v[1]); }

    vec<T, 2> zw() const { return vec<T, 2>(v[2], v[3]); }

    vec operator-() const {
        vec r;
        for (int i = 0; i < N; ++i) {
            r.v[i] = -v[i];
        }
        return r;
    }

    vec operator~() const {
        vec r;
        for (int i = 0; i < N; ++i) {
            r.v[i] = ~v[i];
        }
        return r;
    }

    vec<bool, N> operator!() const {
        vec<bool, N> r;
        for (int i = 0; i < N; ++i) {
            r.v[i] = !v[i];
        }
        return r;
    }

    // Friends of the class, so that the other operand converts: `2 * float4(x)`.
#define METAL_SHIM_COMPONENTWISE(op)                   \
    friend vec operator op(vec a, vec b) {             \
        vec r;                                         \
        for (int i = 0; i < N; ++i) {                  \
            r.v[i] = static_cast<T>(a.v[i] op b.v[i]); \
        }                                              \
        return r;                                      \
    }                                                  \
    vec & operator op##=(vec b) { return *this = *this op b; }

    METAL_SHIM_COMPONENTWISE(+)
    METAL_SHIM_COMPONENTWISE(-)
    METAL_SHIM_COMPONENTWISE(*)
    METAL_SHIM_COMPONENTWISE(/)
    METAL_SHIM_COMPONENTWISE(%)
    METAL_SHIM_COMPONENTWISE(&)
    METAL_SHIM_COMPONENTWISE(|)
    METAL_SHIM_COMPONENTWISE(^)
    METAL_SHIM_COMPONENTWISE(<<)
    METAL_SHIM_COMPONENTWISE(>>)
#undef METAL_SHIM_COMPONENTWISE

#define METAL_SHIM_COMPARISON(op)                   \
    friend vec<bool, N> operator op(vec a, vec b) { \
        vec<bool, N> r;                             \
        for (int i = 0; i < N; ++i) {               \
            r.v[i] = a.v[i] op b.v[i];              \
        }                                           \
        return r;                                   \
    }

    METAL_SHIM_COMPARISON(<)
    METAL_SHIM_COMPARISON(>)
    METAL_SHIM_COMPARISON(<=)
    METAL_SHIM_COMPARISON(>=)
    METAL_SHIM_COMPARISON(==)
    METAL_SHIM_COMPARISON(!=)
    METAL_SHIM_COMPARISON(&&)
    METAL_SHIM_COMPARISON(||)
#undef METAL_SHIM_COMPARISON
};

// Components without padding or alignment of their own: a view of memory that converts to a vector.
template <class T, int N> struct packed_vec {
    T v[N];

    T & operator[](int i) { return v[i]; }

    const T & operator[](int i) const { return v[i]; }

    template <class U> explicit operator vec<U, N>() const { return as<U>(); }

    operator vec<T, N>() const { return as<T>(); }

  private:
    template <class U> vec<U, N> as() const {
        vec<U, N> r;
        for (int i = 0; i < N; ++i) {
            r.v[i] = static_cast<U>(v[i]);
        }
        return r;
    }
};

}  // namespace metal

#define METAL_SHIM_VECTOR_NAMES(name, T) \
    typedef metal::vec<T, 2> name##2;    \
    typedef metal::vec<T, 3> name##3;    \
    typedef metal::vec<T, 4> name##4;

METAL_SHIM_VECTOR_NAMES(bool, bool)
METAL_SHIM_VECTOR_NAMES(char, int8_t)
METAL_SHIM_VECTOR_NAMES(uchar, uint8_t)
METAL_SHIM_VECTOR_NAMES(short, int16_t)
METAL_SHIM_VECTOR_NAMES(ushort, uint16_t)
METAL_SHIM_VECTOR_NAMES(int, int32_t)
METAL_SHIM_VECTOR_NAMES(uint, uint32_t)
METAL_SHIM_VECTOR_NAMES(long, int64_t)
METAL_SHIM_VECTOR_NAMES(ulong, uint64_t)
METAL_SHIM_VECTOR_NAMES(half, half)
METAL_SHIM_VECTOR_NAMES(bfloat, bfloat)
METAL_SHIM_VECTOR_NAMES(float, float)
#undef METAL_SHIM_VECTOR_NAMES

typedef metal::packed_vec<int8_t, 4> packed_char4;
typedef metal::packed_vec<float, 3>  packed_float3;
