#include "ggml-metal-out-prod.h"

#include "ggml-impl.h"
#include "ggml-backend-impl.h"
#include "ggml-metal-impl.h"
#include "ggml-metal-out-prod-direct.h"

#include <algorithm>
#include <cstdint>

namespace {

constexpr size_t MiB = 1024*1024;

// The operands' scratch grows with dst, so that a small LoRA gradient does not hold 128 MiB for as long as it lives,
// while a large one gets k blocks long enough to make the additions between blocks cheap.
constexpr size_t TILES_MIN = 8*MiB;
constexpr size_t TILES_MAX = 128*MiB;

constexpr int64_t K_TILE      = 32;   // kernel_mul_mm's k step
constexpr int64_t K_BLOCK_MAX = 4096; // longer blocks gain nothing: one addition per 4096 multiply-adds is already noise

// kernel_mul_mm holds the number of matrices in a 16-bit function constant and offsets in dst in 32-bit integers
constexpr int64_t GROUP_MAX      = INT16_MAX;
constexpr int64_t GROUP_ELEM_MAX = INT32_MAX;

// floats of scratch per element of k and matrix of dst: a transposed (m), and b transposed (n), whose place
// a's dequantized rows (m) hold before it
int64_t tile_rows(int64_t m, int64_t n) {
    return m + std::max(m, n);
}

size_t tile_bytes(int64_t m, int64_t n, int64_t k) {
    return sizeof(float)*tile_rows(m, n)*k;
}

// behind dst: the operands' tiles, then the product of one k block where it has to be added to dst
struct scratch_layout {
    size_t tiles_offs;
    size_t tiles_size;
    size_t sum_offs;
    size_t end;
};

scratch_layout make_scratch_layout(const ggml_tensor * op) {
    const int64_t m = op->ne[0];
    const int64_t n = op->ne[1];

    const size_t wanted  = tile_bytes(m, n, K_BLOCK_MAX)*op->ne[2];
    const size_t least   = std::max(TILES_MIN, tile_bytes(m, n, K_TILE));
    const size_t allowed = std::max(least, std::min(TILES_MAX, 2*ggml_nbytes(op)));

    // sources of vector loads: keep everything as aligned as the buffer itself
    constexpr size_t align = 32;

    scratch_layout res;
    res.tiles_offs = GGML_PAD(ggml_nbytes(op), align);
    res.tiles_size = std::min(wanted, allowed);
    res.sum_offs   = GGML_PAD(res.tiles_offs + res.tiles_size, align);
    res.end        = res.sum_offs + sizeof(float)*m*n*op->ne[2];

    return res;
}

// how one op is cut up: k in blocks, the matrices of ne2 in groups that one dispatch computes
struct blocking {
    int64_t k_block;
    int64_t group;
};

blocking make_blocking(const ggml_tensor * op, const scratch_layout & scratch) {
    const int64_t m  = op->ne[0];
    const int64_t n  = op->ne[1];
    const int64_t k  = op->src[0]->ne[1];
    const int64_t r2 = op->ne[2]/op->src[0]->ne[2];

    const int64_t k_fits = scratch.tiles_size/tile_bytes(m, n, K_TILE)*K_TILE;
    const int64_t k_need = std::max<int64_t>(K_TILE, GGML_PAD(k, K_TILE));

    blocking res;
    res.k_block = std::min({ k_fits, k_need, K_BLOCK_MAX });

    const int64_t group_fits = scratch.tiles_size/tile_bytes(m, n, res.k_block);

    res.group = std::min({ op->ne[2], group_fits, GROUP_MAX, GROUP_ELEM_MAX/(m*n) });

    // matrices of dst that share a matrix of a stay together, or a group stays within one such set:
    // then src1 matrix i of the dispatch belongs to src0 matrix i/r, which is all that kernel_mul_mm can express
    if (res.group >= r2) {
        res.group -= res.group % r2;
    } else {
        while (r2 % res.group != 0) {
            res.group--;
        }
    }

    return res;
}

ggml_metal_buffer_id buffer_id(const ggml_tensor * t) {
    // each operand's own buffer: a weight and the gradient usually live in different ones
    ggml_backend_buffer_t buffer = t->view_src ? t->view_src->buffer : t->buffer;

    return ggml_metal_buffer_get_id((ggml_metal_buffer_t) buffer->context, t);
}

ggml_metal_buffer_id operator+(ggml_metal_buffer_id id, size_t offs) {
    id.offs += offs;

    return id;
}

// some matrices of a tensor, or of the scratch area: one stride per dimension, in bytes
struct matrices {
    ggml_metal_buffer_id id;
    ggml_type            type;
    int64_t              ne[3];
    uint64_t             nb[3];
};

// kernel_mul_mm reads src1 as float2x4 (16-byte alignment) and the tensor kernel keeps its row stride, and
// the row offset within a matrix, in 32-bit integers
bool readable_in_place(const ggml_tensor * b, const ggml_metal_buffer_id & id) {
    return b->type == GGML_TYPE_F32 && b->nb[1] == sizeof(float) &&
           b->nb[0] % 16 == 0 && b->nb[2] % 16 == 0 && b->nb[3] % 16 == 0 && id.offs % 16 == 0 &&
           b->nb[0]/sizeof(float) <= (size_t) INT32_MAX/(b->ne[0] + 64);
}

int32_t route(const ggml_tensor * op) {
    return ggml_get_op_params_i32(op, GGML_METAL_OUT_PROD_ROUTE);
}

bool half_staging(const ggml_tensor * op) {
    return ggml_get_op_params_i32(op, 2) == GGML_PREC_F16 ||
           ggml_get_op_params_i32(op, 3) == GGML_PREC_F16;
}

// the op's product as the pipeline getters want to see it: an F32 MUL_MAT of the staged operands
struct staged_product {
    ggml_tensor src0 = {};
    ggml_tensor src1 = {};
    ggml_tensor dst  = {};

    staged_product(int64_t m, int64_t n, int64_t k, int64_t n_a, int64_t n_b) {
        init(src0, k, m, n_a);
        init(src1, k, n, n_b);
        init(dst,  m, n, n_b);

        dst.op     = GGML_OP_MUL_MAT;
        dst.src[0] = &src0;
        dst.src[1] = &src1;
    }

    staged_product(const staged_product &) = delete;
    staged_product & operator=(const staged_product &) = delete;

private:
    static void init(ggml_tensor & t, int64_t ne0, int64_t ne1, int64_t ne2) {
        t.type  = GGML_TYPE_F32;
        t.ne[0] = ne0;
        t.ne[1] = ne1;
        t.ne[2] = ne2;
        t.ne[3] = 1;
    }
};

// Float staging, with the simdgroup kernel as with the tensor kernel, unless half staging was asked for, which serves
// measurements only.
ggml_metal_pipeline_with_params product_pipeline(ggml_metal_library_t lib, const staged_product & product, bool half) {
    return half
        ? ggml_metal_library_get_pipeline_mul_mm     (lib, &product.dst)
        : ggml_metal_library_get_pipeline_mul_mm_fp32(lib, &product.dst);
}

class out_prod_encoder {
public:
    out_prod_encoder(ggml_metal_library_t lib, ggml_metal_encoder_t enc, const ggml_tensor * op, const std::function<void()> & barrier) :
        lib(lib), enc(enc), op(op), barrier(barrier),
        m(op->ne[0]), n(op->ne[1]), k(op->src[0]->ne[1]),
        r2(op->ne[2]/op->src[0]->ne[2]), r3(op->ne[3]/op->src[0]->ne[3]),
        scratch(make_scratch_layout(op)), blocks(make_blocking(op, scratch)),
        id_a(k > 0 ? buffer_id(op->src[0]) : ggml_metal_buffer_id {}), // with k == 0 there is no operand to bind
        id_b(k > 0 ? buffer_id(op->src[1]) : ggml_metal_buffer_id {}),
        id_dst(buffer_id(op)),
        b_in_place(k > 0 && readable_in_place(op->src[1], id_b)) {
    }

    void encode() {
        for (int64_t i3 = 0; i3 < op->ne[3]; ++i3) {
            for (int64_t i2 = 0; i2 < op->ne[2]; i2 += blocks.group) {
                encode_group(i3, i2, std::min(blocks.group, op->ne[2] - i2));
            }
        }
    }

private:
    // dst matrices [i2, i2 + n_b) of slice i3
    void encode_group(int64_t i3, int64_t i2, int64_t n_b) {
        const int64_t n_a = std::max<int64_t>(1, n_b/r2);

        const matrices dst = of_dst(id_dst + i2*op->nb[2] + i3*op->nb[3], n_b);
        const matrices sum = of_dst(id_dst + scratch.sum_offs, n_b);

        // at least one block: with k == 0 the product writes the zeros
        int64_t k0 = 0;
        do {
            const int64_t k_len = std::min(blocks.k_block, k - k0);

            if (scratch_in_use) {
                barrier();
            }
            scratch_in_use = true;

            const matrices x = stage_a(i3/r3, i2/r2, n_a, k0, k_len);
            const matrices y = stage_b(i3,    i2,    n_b, k0, k_len);
            barrier();

            multiply(x, y, k0 == 0 ? dst : sum);
            if (k0 > 0) {
                barrier();
                add(dst, sum);
            }

            k0 += k_len;
        } while (k0 < k);
    }

    matrices of_dst(ggml_metal_buffer_id id, int64_t n_b) const {
        return { id, GGML_TYPE_F32, { m, n, n_b }, { sizeof(float), sizeof(float)*m, sizeof(float)*m*n } };
    }

    // a place in the scratch area for matrices of `rows` rows of the k block
    matrices staged(size_t offs, int64_t k_len, int64_t rows, int64_t count) const {
        const uint64_t row = sizeof(float)*blocks.k_block;

        return { id_dst + scratch.tiles_offs + offs, GGML_TYPE_F32, { k_len, rows, count }, { sizeof(float), row, row*rows } };
    }

    // a's rows [k0, k0 + k_len), as float and transposed: [k_len, m]
    matrices stage_a(int64_t i03, int64_t i02, int64_t n_a, int64_t k0, int64_t k_len) {
        const ggml_tensor * a = op->src[0];

        const matrices x = staged(0, k_len, m, n_a);
        if (k_len == 0) {
            return x;
        }

        const matrices rows = {
            id_a + k0*a->nb[1] + i02*a->nb[2] + i03*a->nb[3], a->type, { m, k_len, n_a }, { a->nb[0], a->nb[1], a->nb[2] },
        };

        if (!ggml_is_quantized(a->type)) {
            copy(transposed(rows), x);
            return x;
        }

        // the dequantized rows take the place that b's tile takes afterwards
        const uint64_t row = sizeof(float)*m;
        const matrices dequantized = {
            id_dst + scratch.tiles_offs + y_offs(n_a), GGML_TYPE_F32, { m, k_len, n_a }, { sizeof(float), row, row*k_len },
        };

        copy(rows, dequantized);
        barrier();
        copy(transposed(dequantized), x);
        if (!b_in_place) {
            barrier();
        }

        return x;
    }

    // b's rows [k0, k0 + k_len), transposed: [k_len, n]
    matrices stage_b(int64_t i3, int64_t i2, int64_t n_b, int64_t k0, int64_t k_len) {
        const ggml_tensor * b = op->src[1];

        const matrices columns = {
            id_b + k0*b->nb[1] + i2*b->nb[2] + i3*b->nb[3], b->type, { k_len, n, n_b }, { b->nb[1], b->nb[0], b->nb[2] },
        };
        if (b_in_place) {
            return columns;
        }

        const matrices y = staged(y_offs(std::max<int64_t>(1, n_b/r2)), k_len, n, n_b);
        if (k_len > 0) {
            copy(columns, y);
        }

        return y;
    }

    // b's tile lies behind a's
    size_t y_offs(int64_t n_a) const {
        return sizeof(float)*blocks.k_block*m*n_a;
    }

    static matrices transposed(matrices t) {
        std::swap(t.ne[0], t.ne[1]);
        std::swap(t.nb[0], t.nb[1]);

        return t;
    }

    // to F32, with any strides in the source
    void copy(const matrices & src, const matrices & dst) {
        auto pipeline = ggml_metal_library_get_pipeline_cpy(lib, src.type, GGML_TYPE_F32);

        // what one thread copies: an element, or 16 of a quantized row
        const int64_t nk0 = ggml_is_quantized(src.type) ? src.ne[0]/16 : src.ne[0];
        const int64_t nth = std::min<int64_t>(nk0, 256);

        // short rows share a threadgroup; the kernels tell the two layouts apart by the number of rows in one
        const int64_t rows = ggml_is_quantized(src.type) ? 1 : std::min(256/nth, src.ne[1]);
        const int64_t ntg  = rows == 1 ? (nk0 + nth - 1)/nth*src.ne[1] : (src.ne[1] + rows - 1)/rows;

        ggml_metal_kargs_cpy args = {
            /*.nk0  =*/ nk0,
            /*.ne00 =*/ src.ne[0],
            /*.ne01 =*/ src.ne[1],
            /*.ne02 =*/ src.ne[2],
            /*.ne03 =*/ 1,
            /*.nb00 =*/ src.nb[0],
            /*.nb01 =*/ src.nb[1],
            /*.nb02 =*/ src.nb[2],
            /*.nb03 =*/ 0,
            /*.ne0  =*/ dst.ne[0],
            /*.ne1  =*/ dst.ne[1],
            /*.ne2  =*/ dst.ne[2],
            /*.ne3  =*/ 1,
            /*.nb0  =*/ dst.nb[0],
            /*.nb1  =*/ dst.nb[1],
            /*.nb2  =*/ dst.nb[2],
            /*.nb3  =*/ 0,
        };

        ggml_metal_encoder_set_pipeline(enc, pipeline);
        ggml_metal_encoder_set_bytes   (enc, &args, sizeof(args), 0);
        ggml_metal_encoder_set_buffer  (enc, src.id, 1);
        ggml_metal_encoder_set_buffer  (enc, dst.id, 2);

        ggml_metal_encoder_dispatch_threadgroups(enc, ntg, src.ne[2], 1, nth, rows, 1);
    }

    void multiply(const matrices & x, const matrices & y, const matrices & out) {
        const staged_product product(m, n, x.ne[0], x.ne[2], y.ne[2]);

        auto pipeline = product_pipeline(lib, product, half_staging(op));

        ggml_metal_kargs_mul_mm args = {
            /*.ne00 =*/ (int32_t) x.ne[0],
            /*.ne02 =*/ (int32_t) x.ne[2],
            /*.nb01 =*/ x.nb[1],
            /*.nb02 =*/ x.nb[2],
            /*.nb03 =*/ 0,
            /*.ne12 =*/ (int32_t) y.ne[2],
            /*.nb10 =*/ y.nb[0],
            /*.nb11 =*/ y.nb[1],
            /*.nb12 =*/ y.nb[2],
            /*.nb13 =*/ 0,
            /*.ne0  =*/ (int32_t) m,
            /*.ne1  =*/ (int32_t) n,
            /*.r2   =*/ (int16_t) (y.ne[2]/x.ne[2]),
            /*.r3   =*/ 1,
        };

        ggml_metal_encoder_set_pipeline(enc, pipeline);
        ggml_metal_encoder_set_bytes   (enc, &args, sizeof(args), 0);
        ggml_metal_encoder_set_buffer  (enc, x.id,   1);
        ggml_metal_encoder_set_buffer  (enc, y.id,   2);
        ggml_metal_encoder_set_buffer  (enc, out.id, 3);

        ggml_metal_encoder_set_threadgroup_memory_size(enc, pipeline.smem, 0);

        ggml_metal_encoder_dispatch_threadgroups(enc,
                (n + pipeline.nr1 - 1)/pipeline.nr1, (m + pipeline.nr0 - 1)/pipeline.nr0, y.ne[2], 32, pipeline.nsg, 1);
    }

    // acc += term
    void add(const matrices & acc, const matrices & term) {
        auto pipeline = ggml_metal_library_get_pipeline_bin_one(lib, GGML_OP_ADD);

        const int32_t ne[3] = { (int32_t) m, (int32_t) n, (int32_t) acc.ne[2] };

        ggml_metal_kargs_bin args = {
            /*.ne00 =*/ ne[0],
            /*.ne01 =*/ ne[1],
            /*.ne02 =*/ ne[2],
            /*.ne03 =*/ 1,
            /*.nb00 =*/ acc.nb[0],
            /*.nb01 =*/ acc.nb[1],
            /*.nb02 =*/ acc.nb[2],
            /*.nb03 =*/ 0,
            /*.ne10 =*/ ne[0],
            /*.ne11 =*/ ne[1],
            /*.ne12 =*/ ne[2],
            /*.ne13 =*/ 1,
            /*.nb10 =*/ term.nb[0],
            /*.nb11 =*/ term.nb[1],
            /*.nb12 =*/ term.nb[2],
            /*.nb13 =*/ 0,
            /*.ne0  =*/ ne[0],
            /*.ne1  =*/ ne[1],
            /*.ne2  =*/ ne[2],
            /*.ne3  =*/ 1,
            /*.nb0  =*/ acc.nb[0],
            /*.nb1  =*/ acc.nb[1],
            /*.nb2  =*/ acc.nb[2],
            /*.nb3  =*/ 0,
            /*.offs =*/ 0,
            /*.o1   =*/ { 0 },
        };

        ggml_metal_encoder_set_pipeline(enc, pipeline);
        ggml_metal_encoder_set_bytes   (enc, &args, sizeof(args), 0);
        ggml_metal_encoder_set_buffer  (enc, acc.id,  1);
        ggml_metal_encoder_set_buffer  (enc, term.id, 2);
        ggml_metal_encoder_set_buffer  (enc, acc.id,  3);

        ggml_metal_encoder_dispatch_threadgroups(enc, ne[1], ne[2], 1, std::min<int64_t>(m, 256), 1, 1);
    }

    ggml_metal_library_t          lib;
    ggml_metal_encoder_t          enc;
    const ggml_tensor           * op;
    const std::function<void()> & barrier;

    const int64_t m;
    const int64_t n;
    const int64_t k;
    const int64_t r2;
    const int64_t r3;

    const scratch_layout scratch;
    const blocking       blocks;

    const ggml_metal_buffer_id id_a;
    const ggml_metal_buffer_id id_b;
    const ggml_metal_buffer_id id_dst;

    const bool b_in_place;

    bool scratch_in_use = false;
};

bool is_float(ggml_type type) {
    // supports_op has refused BF16 already where the device has no bfloat
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

// What a copy kernel turns into F32: floats with any strides, and packed blocks of every type that ggml can dequantize
// (Q8_1 and Q8_K live only inside dot products).
bool src0_supported(const ggml_tensor * a) {
    return is_float(a->type) ||
           (ggml_is_quantized(a->type) && a->type != GGML_TYPE_Q8_1 && a->type != GGML_TYPE_Q8_K &&
            a->nb[0] == ggml_type_size(a->type));
}

// what kernel_mul_mm, the copy kernels and the scratch area can hold
bool split_fits(const ggml_tensor * op) {
    const int64_t m = op->ne[0];
    const int64_t n = op->ne[1];
    const int64_t k = op->src[0]->ne[1];

    return m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX && op->ne[2] <= INT32_MAX &&
           m*n <= GROUP_ELEM_MAX && tile_bytes(m, n, K_TILE) <= TILES_MAX;
}

bool route_supported(const ggml_tensor * op) {
    switch (route(op)) {
        case GGML_METAL_OUT_PROD_SPLIT:  return ggml_is_empty(op) || split_fits(op); // where dst is empty nothing is encoded
        case GGML_METAL_OUT_PROD_DIRECT: return !half_staging(op) && (ggml_is_empty(op) || out_prod_direct_fits(op));
        default:                         return false;
    }
}

// Creates the pipeline (once: the library caches it). Without it OUT_PROD is refused: never run in half, nor on another route.
bool product_pipeline_exists(ggml_metal_device_t dev, const ggml_tensor * op) {
    ggml_metal_library_t lib = ggml_metal_device_get_library(dev);

    if (route(op) == GGML_METAL_OUT_PROD_DIRECT) {
        return out_prod_direct_pipeline(lib, op).pipeline != nullptr;
    }

    const staged_product probe(1, 1, 1, 1, 1);

    return product_pipeline(lib, probe, half_staging(op)).pipeline != nullptr;
}

void encode_direct(ggml_metal_library_t lib, ggml_metal_encoder_t enc, const ggml_tensor * op) {
    if (ggml_is_empty(op)) {
        return;
    }

    const ggml_metal_buffer_id dst = buffer_id(op);

    // with k == 0 there is no operand to bind, and none is read
    const bool any = op->src[0]->ne[1] > 0;

    out_prod_direct_encode(lib, enc, op, any ? buffer_id(op->src[0]) : dst, any ? buffer_id(op->src[1]) : dst, dst);
}

} // namespace

size_t ggml_metal_out_prod_scratch_size(const ggml_tensor * op) {
    return ggml_is_empty(op) || route(op) == GGML_METAL_OUT_PROD_DIRECT ? 0 : make_scratch_layout(op).end - ggml_nbytes(op);
}

bool ggml_metal_out_prod_supported(ggml_metal_device_t dev, const ggml_tensor * op) {
    return ggml_metal_device_get_props(dev)->has_simdgroup_mm &&
           src0_supported(op->src[0]) &&
           is_float(op->src[1]->type) && op->type == GGML_TYPE_F32 && ggml_is_contiguous(op) &&
           route_supported(op) && product_pipeline_exists(dev, op);
}

void ggml_metal_out_prod_encode(
        ggml_metal_library_t          lib,
        ggml_metal_encoder_t          enc,
        const ggml_tensor           * op,
        const std::function<void()> & barrier) {
    if (route(op) == GGML_METAL_OUT_PROD_DIRECT) {
        encode_direct(lib, enc, op);
    } else {
        out_prod_encoder(lib, enc, op, barrier).encode();
    }
}
