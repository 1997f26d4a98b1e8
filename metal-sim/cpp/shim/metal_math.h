// Math functions. half is computed in float and rounded once, as MSL allows; bfloat arguments give a float. Fast-math
// and flushed denormals are not modelled: results are those of the precise variants.
#pragma once

#include "metal_vector.h"

#include <cfloat>
#include <climits>
#include <cmath>

namespace metal {

// A function of one argument: `expression` of `x`, for scalars and componentwise.
#define METAL_SHIM_FUNCTION_1(name, expression)                    \
    inline float name(float x) {                                   \
        return expression;                                         \
    }                                                              \
    inline float name(bfloat value) {                              \
        const float x = value;                                     \
        return expression;                                         \
    }                                                              \
    inline half name(half value) {                                 \
        const float x = value;                                     \
        return static_cast<half>(expression);                      \
    }                                                              \
    template <class T, int N> inline vec<T, N> name(vec<T, N> a) { \
        vec<T, N> r;                                               \
        for (int i = 0; i < N; ++i) {                              \
            r.v[i] = static_cast<T>(name(a.v[i]));                 \
        }                                                          \
        return r;                                                  \
    }

// The same, of two arguments `x` and `y`.
#define METAL_SHIM_FUNCTION_2(name, expression)                                 \
    inline float name(float x, float y) {                                       \
        return expression;                                                      \
    }                                                                           \
    inline half name(half a, half b) {                                          \
        const float x = a, y = b;                                               \
        return static_cast<half>(expression);                                   \
    }                                                                           \
    template <class T, int N> inline vec<T, N> name(vec<T, N> a, vec<T, N> b) { \
        vec<T, N> r;                                                            \
        for (int i = 0; i < N; ++i) {                                           \
            r.v[i] = static_cast<T>(name(a.v[i], b.v[i]));                      \
        }                                                                       \
        return r;                                                               \
    }

METAL_SHIM_FUNCTION_1(acos, ::std::acos(x))
METAL_SHIM_FUNCTION_1(asin, ::std::asin(x))
METAL_SHIM_FUNCTION_1(atan, ::std::atan(x))
METAL_SHIM_FUNCTION_1(ceil, ::std::ceil(x))
METAL_SHIM_FUNCTION_1(cos, ::std::cos(x))
METAL_SHIM_FUNCTION_1(cosh, ::std::cosh(x))
METAL_SHIM_FUNCTION_1(exp, ::std::exp(x))
METAL_SHIM_FUNCTION_1(exp2, ::std::exp2(x))
METAL_SHIM_FUNCTION_1(fabs, ::std::fabs(x))
METAL_SHIM_FUNCTION_1(floor, ::std::floor(x))
METAL_SHIM_FUNCTION_1(log, ::std::log(x))
METAL_SHIM_FUNCTION_1(log10, ::std::log10(x))
METAL_SHIM_FUNCTION_1(log2, ::std::log2(x))
METAL_SHIM_FUNCTION_1(rint, ::std::rint(x))
METAL_SHIM_FUNCTION_1(round, ::std::round(x))
METAL_SHIM_FUNCTION_1(rsqrt, 1.0f / ::std::sqrt(x))
METAL_SHIM_FUNCTION_1(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x == x ? x : 0.0f)
METAL_SHIM_FUNCTION_1(sin, ::std::sin(x))
METAL_SHIM_FUNCTION_1(sinh, ::std::sinh(x))
METAL_SHIM_FUNCTION_1(sqrt, ::std::sqrt(x))
METAL_SHIM_FUNCTION_1(tan, ::std::tan(x))
METAL_SHIM_FUNCTION_1(tanh, ::std::tanh(x))
METAL_SHIM_FUNCTION_1(trunc, ::std::trunc(x))

METAL_SHIM_FUNCTION_2(atan2, ::std::atan2(x, y))
METAL_SHIM_FUNCTION_2(fmax, ::std::fmax(x, y))
METAL_SHIM_FUNCTION_2(fmin, ::std::fmin(x, y))
METAL_SHIM_FUNCTION_2(fmod, ::std::fmod(x, y))
METAL_SHIM_FUNCTION_2(pow, ::std::pow(x, y))
METAL_SHIM_FUNCTION_2(powr, ::std::pow(x, y))
METAL_SHIM_FUNCTION_2(step, y < x ? 0.0f : 1.0f)

#undef METAL_SHIM_FUNCTION_1
#undef METAL_SHIM_FUNCTION_2

template <class T, int N, class S, class = if_scalars<S>> inline vec<T, N> fmin(S a, vec<T, N> b) {
    return fmin(vec<T, N>(a), b);
}

template <class T, int N, class S, class = if_scalars<S>> inline vec<T, N> fmin(vec<T, N> a, S b) {
    return fmin(a, vec<T, N>(b));
}

template <class T, int N, class S, class = if_scalars<S>> inline vec<T, N> fmax(S a, vec<T, N> b) {
    return fmax(vec<T, N>(a), b);
}

template <class T, int N, class S, class = if_scalars<S>> inline vec<T, N> fmax(vec<T, N> a, S b) {
    return fmax(a, vec<T, N>(b));
}

inline int abs(int x) {
    return x < 0 ? -x : x;
}

inline short abs(short x) {
    return static_cast<short>(x < 0 ? -x : x);
}

inline half abs(half x) {
    return fabs(x);
}

inline float abs(float x) {
    return ::std::fabs(x);
}

template <class T, int N> inline vec<T, N> abs(vec<T, N> a) {
    vec<T, N> r;
    for (int i = 0; i < N; ++i) {
        r.v[i] = abs(a.v[i]);
    }
    return r;
}

inline float fma(float a, float b, float c) {
    return ::std::fma(a, b, c);
}

inline half fma(half a, half b, half c) {
    return static_cast<half>(::std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)));
}

template <class T, int N> inline vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
    vec<T, N> r;
    for (int i = 0; i < N; ++i) {
        r.v[i] = fma(a.v[i], b.v[i], c.v[i]);
    }
    return r;
}

inline bool isfinite(float x) {
    return ::std::isfinite(x);
}

inline bool isinf(float x) {
    return ::std::isinf(x);
}

inline bool isnan(float x) {
    return ::std::isnan(x);
}

// The type that `max(a, b)` is computed in: half with an integer stays half.
template <class T, class U> struct common_scalar {
    using type = std::common_type_t<T, U>;
};

template <> struct common_scalar<half, half> {
    using type = half;
};

template <class U> struct common_scalar<half, U> {
    using type = std::conditional_t<std::is_integral<U>::value, half, U>;
};

template <class T> struct common_scalar<T, half> {
    using type = std::conditional_t<std::is_integral<T>::value, half, T>;
};

template <class T, class U> using common_scalar_t = typename common_scalar<T, U>::type;

// For floats MSL's min and max are fmin and fmax: a NaN loses against a number.
template <class T, class U, class = if_scalars<T, U>> inline common_scalar_t<T, U> max(T a, U b) {
    using R   = common_scalar_t<T, U>;
    const R x = static_cast<R>(a), y = static_cast<R>(b);
    if constexpr (!std::is_integral<R>::value) {
        if (x != x) {
            return y;
        }
    }
    return x < y ? y : x;
}

template <class T, class U, class = if_scalars<T, U>> inline common_scalar_t<T, U> min(T a, U b) {
    using R   = common_scalar_t<T, U>;
    const R x = static_cast<R>(a), y = static_cast<R>(b);
    if constexpr (!std::is_integral<R>::value) {
        if (x != x) {
            return y;
        }
    }
    return y < x ? y : x;
}

template <class T, int N> inline vec<T, N> max(vec<T, N> a, vec<T, N> b) {
    vec<T, N> r;
    for (int i = 0; i < N; ++i) {
        r.v[i] = max(a.v[i], b.v[i]);
    }
    return r;
}

template <class T, int N> inline vec<T, N> min(vec<T, N> a, vec<T, N> b) {
    vec<T, N> r;
    for (int i = 0; i < N; ++i) {
        r.v[i] = min(a.v[i], b.v[i]);
    }
    return r;
}

template <class T, int N, class S, class = if_scalars<S>> inline vec<T, N> max(vec<T, N> a, S b) {
    return max(a, vec<T, N>(b));
}

template <class T, int N, class S, class = if_scalars<S>> inline vec<T, N> min(vec<T, N> a, S b) {
    return min(a, vec<T, N>(b));
}

template <class T, class Low, class High> inline T clamp(T x, Low low, High high) {
    return static_cast<T>(min(max(x, low), high));
}

template <class T> inline T mix(T a, T b, T t) {
    return a + (b - a) * t;
}

template <class T, class = if_scalars<T>> inline T select(T a, T b, bool c) {
    return c ? b : a;
}

template <class T, int N> inline vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
    vec<T, N> r;
    for (int i = 0; i < N; ++i) {
        r.v[i] = c.v[i] ? b.v[i] : a.v[i];
    }
    return r;
}

template <class T, int N> inline T dot(vec<T, N> a, vec<T, N> b) {
    T sum = 0;
    for (int i = 0; i < N; ++i) {
        sum += a.v[i] * b.v[i];
    }
    return sum;
}

template <class T, int N> inline T length(vec<T, N> a) {
    return static_cast<T>(sqrt(dot(a, a)));
}

template <int N> inline bool all(vec<bool, N> a) {
    bool r = true;
    for (int i = 0; i < N; ++i) {
        r = r && a.v[i];
    }
    return r;
}

template <int N> inline bool any(vec<bool, N> a) {
    bool r = false;
    for (int i = 0; i < N; ++i) {
        r = r || a.v[i];
    }
    return r;
}

inline uint popcount(uint x) {
    return static_cast<uint>(__builtin_popcount(x));
}

inline uint ctz(uint x) {
    return x != 0 ? static_cast<uint>(__builtin_ctz(x)) : 32;
}

inline uint clz(uint x) {
    return x != 0 ? static_cast<uint>(__builtin_clz(x)) : 32;
}

namespace precise {
using metal::cos;
using metal::exp;
using metal::log;
using metal::sin;
using metal::sqrt;
using metal::tanh;
}  // namespace precise

namespace fast {
using metal::exp;
using metal::tanh;
}  // namespace fast

}  // namespace metal
