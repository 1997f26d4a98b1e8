// MSL's scalar types.
#pragma once

#include <cstdint>
#include <type_traits>

typedef unsigned char  uchar;
typedef unsigned short ushort;
typedef unsigned int   uint;
typedef unsigned long  ulong;

// The native type: arithmetic rounds after every operation under -fexcess-precision=16, and `c ? half(x) : 0` has one
// meaning, which it would not have for a class.
typedef _Float16 half;

#define HALF_MAX ((half)65504.0f)
#define MAXHALF  HALF_MAX
#define M_PI_F   3.14159265358979323846f

// bfloat: the upper half of a float. It converts implicitly to float only, so that mixed expressions are float ones.
struct bfloat {
    uint16_t bits;

    bfloat() = default;

    template <class S, class = std::enable_if_t<std::is_arithmetic<S>::value || std::is_same<S, half>::value>>
    constexpr bfloat(S value) : bits(round_to_nearest_even(static_cast<float>(value))) {}

    // Templates, constrained, so that no conversion sequence goes through float to something else.
    template <class F, std::enable_if_t<std::is_same<F, float>::value, int> = 0> constexpr operator F() const {
        return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
    }

    template <class S, std::enable_if_t<!std::is_same<S, float>::value &&
                                            (std::is_arithmetic<S>::value || std::is_same<S, half>::value),
                                        int> = 0>
    constexpr explicit operator S() const {
        return static_cast<S>(static_cast<float>(*this));
    }

    static constexpr uint16_t round_to_nearest_even(float value) {
        const uint32_t u = __builtin_bit_cast(uint32_t, value);
        if ((u & 0x7fffffff) > 0x7f800000) {
            return static_cast<uint16_t>(u >> 16 | 0x40);  // stay a NaN, quiet
        }
        return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }

    constexpr bfloat operator-() const { return bfloat(-static_cast<float>(*this)); }

    bfloat & operator+=(bfloat other) { return *this = *this + other; }

    bfloat & operator*=(bfloat other) { return *this = *this * other; }

    friend float & operator+=(float & a, bfloat b) { return a += static_cast<float>(b); }

    friend float & operator-=(float & a, bfloat b) { return a -= static_cast<float>(b); }

    friend float & operator*=(float & a, bfloat b) { return a *= static_cast<float>(b); }

#define METAL_SHIM_BFLOAT_OPERATOR(op)                                                           \
    friend constexpr bfloat operator op(bfloat a, bfloat b) {                                    \
        return bfloat(static_cast<float>(a) op static_cast<float>(b));                           \
    }                                                                                            \
    friend constexpr float operator op(bfloat a, float b) { return static_cast<float>(a) op b; } \
    friend constexpr float operator op(float a, bfloat b) { return a op static_cast<float>(b); }

    METAL_SHIM_BFLOAT_OPERATOR(+)
    METAL_SHIM_BFLOAT_OPERATOR(-)
    METAL_SHIM_BFLOAT_OPERATOR(*)
    METAL_SHIM_BFLOAT_OPERATOR(/)
#undef METAL_SHIM_BFLOAT_OPERATOR
};

namespace metal {

using std::conditional;
using std::enable_if;
using std::integral_constant;
using std::is_same;

template <class T> struct is_scalar : std::is_arithmetic<T> {};

template <> struct is_scalar<half> : std::true_type {};

template <> struct is_scalar<bfloat> : std::true_type {};

template <class... T> using if_scalars = std::enable_if_t<(is_scalar<T>::value && ...)>;

template <class To, class From> inline To as_type(const From & value) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the bits");
    To result;
    __builtin_memcpy(&result, &value, sizeof(To));
    return result;
}

}  // namespace metal

// 16.0h: without the underscore that user-defined suffixes must have outside of system headers.
#include "metal_literals.h"
