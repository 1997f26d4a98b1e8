// Small matrices, by columns: `matrix<T, C, R>` has C columns of R components.
#pragma once

#include "metal_vector.h"

namespace metal {

template <class T, int C, int R> struct matrix {
    vec<T, R> columns[C];

    matrix() = default;

    // A scalar goes to the diagonal.
    template <class S, class = if_scalars<S>> explicit matrix(S s) {
        for (int i = 0; i < C; ++i) {
            for (int j = 0; j < R; ++j) {
                columns[i].v[j] = i == j ? static_cast<T>(s) : static_cast<T>(0);
            }
        }
    }

    template <class U, std::enable_if_t<!std::is_same<U, T>::value, int> = 0>
    explicit matrix(const matrix<U, C, R> & other) {
        for (int i = 0; i < C; ++i) {
            columns[i] = vec<T, R>(other.columns[i]);
        }
    }

    template <class... Rest, std::enable_if_t<sizeof...(Rest) + 1 == C && (C > 1), int> = 0>
    matrix(vec<T, R> first, Rest... rest) : columns{ first, rest... } {}

    vec<T, R> & operator[](int i) { return columns[i]; }

    const vec<T, R> & operator[](int i) const { return columns[i]; }

    matrix & operator+=(const matrix & other) {
        for (int i = 0; i < C; ++i) {
            columns[i] += other.columns[i];
        }
        return *this;
    }

    matrix & operator-=(const matrix & other) {
        for (int i = 0; i < C; ++i) {
            columns[i] -= other.columns[i];
        }
        return *this;
    }

    template <class S, class = if_scalars<S>> matrix & operator*=(S s) {
        for (int i = 0; i < C; ++i) {
            columns[i] *= static_cast<T>(s);
        }
        return *this;
    }

    friend matrix operator+(matrix a, const matrix & b) { return a += b; }

    friend matrix operator-(matrix a, const matrix & b) { return a -= b; }

    template <class S, class = if_scalars<S>> friend matrix operator*(matrix a, S s) { return a *= s; }

    template <class S, class = if_scalars<S>> friend matrix operator*(S s, matrix a) { return a *= s; }
};

}  // namespace metal

#define METAL_SHIM_MATRIX_NAMES(T)         \
    typedef metal::matrix<T, 2, 2> T##2x2; \
    typedef metal::matrix<T, 2, 4> T##2x4; \
    typedef metal::matrix<T, 3, 3> T##3x3; \
    typedef metal::matrix<T, 4, 4> T##4x4;

METAL_SHIM_MATRIX_NAMES(half)
METAL_SHIM_MATRIX_NAMES(float)
#undef METAL_SHIM_MATRIX_NAMES
