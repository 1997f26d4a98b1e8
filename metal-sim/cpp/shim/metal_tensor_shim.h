// The tensor API of MSL 4 and Metal Performance Primitives, as far as ggml uses it: matmul2d over tensors in device and
// threadgroup memory, with cooperative tensors as results. C++20: a descriptor is a template argument.
//
// Each lane computes the elements of the result that it holds, by dot products in float: relaxed precision, which the
// kernels ask for, is counted and not modelled. Operands read as zero beyond their extents.
#pragma once

#include "../runtime/tensor_unit.h"
#include "metal_shim.h"

namespace metal {

constexpr size_t dynamic_extent = static_cast<size_t>(-1);

template <class T, int N> struct array {
    T v[N];

    constexpr T operator[](int i) const { return v[i]; }
};

template <class Index, int N> struct dextents {
    Index sizes[N];

    template <class... Size> constexpr dextents(Size... size) : sizes{ static_cast<Index>(size)... } {}

    constexpr Index extent(int i) const { return sizes[i]; }
};

struct tensor_inline {};  // a tensor made in the kernel, not bound by the host

// A view of memory with two dimensions: dimension 0 runs along a row.
template <class T, class Extents = dextents<int32_t, 2>, class Tag = tensor_inline> struct tensor {
    using element = std::remove_const_t<T>;

    T *     data;
    int32_t extent0;
    int32_t extent1;
    int64_t stride0;
    int64_t stride1;

    tensor(T * data, Extents e) :
        data(data), extent0(e.extent(0)), extent1(e.extent(1)), stride0(1), stride1(e.extent(0)) {}

    template <class Stride>
    tensor(T * data, Extents e, array<Stride, 2> strides) :
        data(data), extent0(e.extent(0)), extent1(e.extent(1)), stride0(strides[0]), stride1(strides[1]) {}

    tensor slice(int i0, int i1) const {
        tensor r = *this;
        r.data += i0 * stride0 + i1 * stride1;
        r.extent0 -= i0;
        r.extent1 -= i1;
        return r;
    }

    bool contains(int i0, int i1) const { return i0 < extent0 && i1 < extent1; }

    T & at(int i0, int i1) const { return data[i0 * stride0 + i1 * stride1]; }
};

template <class T, class Extents> tensor(T *, Extents) -> tensor<T, Extents, tensor_inline>;
template <class T, class Extents, class Strides> tensor(T *, Extents, Strides) -> tensor<T, Extents, tensor_inline>;

template <int N> struct execution_simdgroups {
    static constexpr int lanes = N * static_cast<int>(metal_sim::simd_width);
};

}  // namespace metal

namespace mpp {
namespace tensor_ops {

struct matmul2d_descriptor {
    enum class mode { multiply, multiply_accumulate };

    int  rows;
    int  columns;
    int  depth;  // -1 (dynamic_extent): that of the operands
    bool transpose_left;
    bool transpose_right;
    bool relaxed_precision;
    mode operation;

    constexpr matmul2d_descriptor(int rows, int columns, int depth = -1, bool transpose_left = false,
                                  bool transpose_right = false, bool relaxed_precision = false,
                                  mode operation = mode::multiply) :
        rows(rows), columns(columns), depth(depth), transpose_left(transpose_left), transpose_right(transpose_right),
        relaxed_precision(relaxed_precision), operation(operation) {}
};

// A matrix spread over the lanes that compute it: each holds a run of elements in row-major order.
template <class T, int rows, int columns, int lanes> struct cooperative_tensor {
    static constexpr int capacity = (rows * columns + lanes - 1) / lanes;

    T own[capacity] = {};

    short get_capacity() const { return capacity; }

    bool is_valid_element(short i) const { return position(i) < rows * columns; }

    T & operator[](short i) { return own[i]; }

    static int row(int i) { return position(i) / columns; }

    static int column(int i) { return position(i) % columns; }

    metal::array<int, 2> get_multidimensional_index(short i) const { return { { column(i), row(i) } }; }

    template <class Tensor> void store(const Tensor & to) const {
        for (int i = 0; i < capacity; ++i) {
            if (is_valid_element(static_cast<short>(i)) && to.contains(column(i), row(i))) {
                to.at(column(i), row(i)) = static_cast<typename Tensor::element>(own[i]);
            }
        }
    }

  private:
    static int position(int i) {
        return static_cast<int>(metal_sim::current_lane->index_in_threadgroup) * capacity + i;
    }
};

template <matmul2d_descriptor descriptor, class Execution> struct matmul2d {
    template <class T> using result = cooperative_tensor<T, descriptor.rows, descriptor.columns, Execution::lanes>;

    template <class Left, class Right, class T> result<T> get_destination_cooperative_tensor() const { return {}; }

    template <class Left, class Right, class T> void run(const Left & left, const Right & right, result<T> & to) const {
        count(left, right);
        for (int i = 0; i < to.capacity; ++i) {
            if (to.is_valid_element(static_cast<short>(i))) {
                to.own[i] = combine(product(left, right, to.row(i), to.column(i)), to.own[i]);
            }
        }
    }

    template <class Left, class Right, class T, class Extents, class Tag>
    void run(const Left & left, const Right & right, const metal::tensor<T, Extents, Tag> & to) const {
        count(left, right);
        using layout = result<float>;
        const layout own;
        for (int i = 0; i < own.capacity; ++i) {
            const int r = own.row(i), c = own.column(i);
            if (own.is_valid_element(static_cast<short>(i)) && to.contains(c, r)) {
                to.at(c, r) = combine(product(left, right, r, c), to.at(c, r));
            }
        }
    }

  private:
    template <class Left, class Right> static int depth(const Left & left, const Right & right) {
        const int of_operands = metal::min(descriptor.transpose_left ? left.extent1 : left.extent0,
                                           descriptor.transpose_right ? right.extent0 : right.extent1);
        return descriptor.depth >= 0 ? metal::min(of_operands, descriptor.depth) : of_operands;
    }

    template <class Left, class Right> static void count(const Left & left, const Right & right) {
        constexpr bool floats = std::is_same_v<typename Left::element, float> || std::is_same_v<typename Right::element, float>;
        if (descriptor.relaxed_precision && floats && metal_sim::current_lane->index_in_threadgroup == 0) {
            metal_sim::count_relaxed_fmas(uint64_t(descriptor.rows) * descriptor.columns * depth(left, right));
        }
    }

    template <class T> static T combine(float product, T previous) {
        return descriptor.operation == matmul2d_descriptor::mode::multiply ?
                   static_cast<T>(product) :
                   static_cast<T>(product + static_cast<float>(previous));
    }

    // Element (row, column) of left * right.
    template <class Left, class Right>
    static float product(const Left & left, const Right & right, int row, int column) {
        constexpr bool tl = descriptor.transpose_left, tr = descriptor.transpose_right;
        if (row >= (tl ? left.extent0 : left.extent1) || column >= (tr ? right.extent1 : right.extent0)) {
            return 0.0f;
        }
        const auto *  l      = left.data + row * (tl ? left.stride0 : left.stride1);
        const auto *  r      = right.data + column * (tr ? right.stride1 : right.stride0);
        const int64_t l_step = tl ? left.stride1 : left.stride0;
        const int64_t r_step = tr ? right.stride0 : right.stride1;

        float sum = 0.0f;
        for (int k = 0, n = depth(left, right); k < n; ++k) {
            sum += static_cast<float>(l[k * l_step]) * static_cast<float>(r[k * r_step]);
        }
        return sum;
    }
};

}  // namespace tensor_ops
}  // namespace mpp
