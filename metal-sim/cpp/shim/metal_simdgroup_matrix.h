// 8x8 matrices of a simdgroup.
//
// On a GPU each lane holds two elements. Here the leader, lane 0, holds and computes all of them, eight at a time,
// while the others pass: valid because MSL has the whole simdgroup execute these functions, and fast. Only
// thread_elements() spreads a matrix over the lanes, until an operation needs it whole again.
//
// Elements are kept as float, rounded to T. Products are summed in float in the order of the inner index, which is not
// necessarily the order of a GPU.
#pragma once

#include "../runtime/lane.h"
#include "../runtime/matrix_unit.h"
#include "../verifier/in_kernels.h"
#include "metal_vector.h"

#ifdef __F16C__
#    include <immintrin.h>
#endif

namespace metal {

namespace detail {

using metal_sim::row_of_8;
typedef float unaligned_row_of_8 __attribute__((vector_size(32), aligned(4)));

inline bool is_leader() {
    return metal_sim::current_lane->index_in_simdgroup == 0;
}

template <class T> inline row_of_8 load_row(const T * from) {
    row_of_8 r;
    for (int j = 0; j < 8; ++j) {
        r[j] = static_cast<float>(from[j]);
    }
    return r;
}

inline row_of_8 load_row(const float * from) {
    return *reinterpret_cast<const unaligned_row_of_8 *>(from);
}

#ifdef __F16C__
inline row_of_8 load_row(const half * from) {
    return static_cast<row_of_8>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from))));
}
#endif

template <class T> inline void store_row(T * to, row_of_8 row) {
    for (int j = 0; j < 8; ++j) {
        to[j] = static_cast<T>(row[j]);
    }
}

inline void store_row(float * to, row_of_8 row) {
    *reinterpret_cast<unaligned_row_of_8 *>(to) = row;
}

template <class T> inline row_of_8 round_row(row_of_8 row) {
    if constexpr (!std::is_same<T, float>::value) {
        for (int j = 0; j < 8; ++j) {
            row[j] = static_cast<float>(static_cast<T>(row[j]));
        }
    }
    return row;
}

}  // namespace detail

template <class T, int C, int R> struct simdgroup_matrix {
    static_assert(C == 8 && R == 8, "Metal has 8x8 matrices only");

    using source_position = metal_sim::source_position;
    using collective      = metal_sim::collective;

    // Row-major; defined in the leader, while not spread.
    union {
        detail::row_of_8 rows[8];
        float            elements[64];
    };

    T    own[2];  // this lane's elements, while spread
    bool spread = false;

    simdgroup_matrix() {}

    simdgroup_matrix(const simdgroup_matrix & other) { assign(other); }

    simdgroup_matrix & operator=(const simdgroup_matrix & other) {
        assign(other);
        return *this;
    }

    // The two elements of this lane.
    T * thread_elements(source_position at = source_position::current()) {
        if (!spread) {
            const float * const shared = leaders_elements(at);
            own[0]                     = static_cast<T>(shared[own_index()]);
            own[1]                     = static_cast<T>(shared[own_index() + 1]);
            metal_sim::wait_for_simdgroup(collective::matrix_done, at);
            spread = true;
        }
        return own;
    }

    // Gives the elements back to the leader.
    void gather(source_position at) const {
        if (spread) {
            const_cast<simdgroup_matrix *>(this)->gather_own(at);
        }
    }

  private:
    void assign(const simdgroup_matrix & other) {
        spread = other.spread;
        if (spread) {
            own[0] = other.own[0];
            own[1] = other.own[1];
        } else if (detail::is_leader()) {
            for (int i = 0; i < 8; ++i) {
                rows[i] = other.rows[i];
            }
        }
    }

    void gather_own(source_position at) {
        float * const shared    = leaders_elements(at);
        shared[own_index()]     = static_cast<float>(own[0]);
        shared[own_index() + 1] = static_cast<float>(own[1]);
        metal_sim::wait_for_simdgroup(collective::matrix_done, at);
        spread = false;
    }

    // Each lane has this object on its own stack: the lanes meet, and get the leader's.
    float * leaders_elements(source_position at) {
        metal_sim::current_lane->published_pointer = this;
        metal_sim::wait_for_simdgroup(collective::matrix_gather, at);
        const metal_sim::simdgroup_state & simdgroup = *metal_sim::current_lane->simdgroup;
        if ((simdgroup.members & 1) == 0) {
            metal_sim::fail_lane("simdgroup matrix used without the simdgroup's first lane", at);
        }
        return static_cast<simdgroup_matrix *>(simdgroup.pointers[0])->elements;
    }

    // The layout of Apple's hardware: lane l holds (row, column) and (row, column + 1).
    static uint own_index() {
        const uint l      = metal_sim::current_lane->index_in_simdgroup;
        const uint row    = (l / 4 & 4) + l / 2 % 4;
        const uint column = (l / 4 & 2) * 2 + l % 2 * 2;
        return 8 * row + column;
    }
};

typedef simdgroup_matrix<half, 8, 8>   simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
typedef simdgroup_matrix<float, 8, 8>  simdgroup_float8x8;

template <class T, int C, int R = C> inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, C, R> r;
    if (detail::is_leader()) {
        for (float & element : r.elements) {
            element = static_cast<float>(value);
        }
    }
    return r;
}

namespace detail {

// What the leader does is out of line: there are hundreds of calls in a unit, and 31 of 32 lanes only pass them.

template <class T>
[[gnu::noinline]] void load(row_of_8 * rows, const T * from, ulong elements_per_row, bool transpose) {
    const metal_sim::verifier::simdgroup_access all(__builtin_return_address(0));
    float * const elements = reinterpret_cast<float *>(rows);
    for (ulong i = 0; i < 8; ++i) {
        if (!transpose) {
            rows[i] = load_row(from + i * elements_per_row);
            continue;
        }
        for (ulong j = 0; j < 8; ++j) {
            elements[8 * j + i] = static_cast<float>(from[i * elements_per_row + j]);
        }
    }
}

template <class D, class A, class B, class C>
[[gnu::noinline]] void multiply_accumulate(simdgroup_matrix<D, 8, 8> & d, const simdgroup_matrix<A, 8, 8> & a,
                                           const simdgroup_matrix<B, 8, 8> & b, const simdgroup_matrix<C, 8, 8> & c,
                                           metal_sim::source_position at) {
    a.gather(at);
    b.gather(at);
    c.gather(at);
    d.spread = false;
    if (is_leader()) {
        metal_sim::multiply_accumulate(d.rows, a.elements, b.rows, c.rows);
        for (int i = 0; i < 8; ++i) {
            d.rows[i] = round_row<D>(d.rows[i]);
        }
        metal_sim::current_lane->group->simdgroup_fmas += 8 * 8 * 8;
    }
}

}  // namespace detail

template <class T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8> & d, const T * from, ulong elements_per_row = 8,
                           vec<uint64_t, 2> origin = 0, bool transpose = false) {
    d.spread = false;
    if (detail::is_leader()) {
        detail::load(d.rows, from + origin.y * elements_per_row + origin.x, elements_per_row, transpose);
    }
}

template <class T>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8> & s, T * to, ulong elements_per_row = 8,
                            vec<uint64_t, 2> origin = 0, bool transpose = false,
                            metal_sim::source_position at = metal_sim::source_position::current()) {
    s.gather(at);
    if (!detail::is_leader()) {
        return;
    }
    const metal_sim::verifier::simdgroup_access all(nullptr);
    to += origin.y * elements_per_row + origin.x;
    for (ulong i = 0; i < 8; ++i) {
        if (!transpose) {
            detail::store_row(to + i * elements_per_row, s.rows[i]);
            continue;
        }
        for (ulong j = 0; j < 8; ++j) {
            to[i * elements_per_row + j] = static_cast<T>(s.elements[8 * j + i]);
        }
    }
}

// d = a*b + c
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> & d, const simdgroup_matrix<A, 8, 8> & a,
                                          const simdgroup_matrix<B, 8, 8> & b, const simdgroup_matrix<C, 8, 8> & c,
                                          metal_sim::source_position at = metal_sim::source_position::current()) {
    if (detail::is_leader() || a.spread || b.spread || c.spread) {
        detail::multiply_accumulate(d, a, b, c, at);
    } else {
        d.spread = false;
    }
}

template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8> & d, const simdgroup_matrix<A, 8, 8> & a,
                               const simdgroup_matrix<B, 8, 8> & b,
                               metal_sim::source_position        at = metal_sim::source_position::current()) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8>(static_cast<D>(0.0f)), at);
}

}  // namespace metal
