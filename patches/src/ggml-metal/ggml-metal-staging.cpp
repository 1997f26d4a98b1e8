#include "ggml-metal-staging.h"

#include "ggml-impl.h"

#include <mutex>
#include <set>
#include <tuple>

namespace {

// the rows of src1 from which on the float-staged kernel beats one mat-vec a row, and its k step
constexpr int64_t ROWS_MIN = 32;
constexpr int64_t K_TILE   = 32;

// the lower the value, the higher the precision
bool asks_for_more_than_half(const ggml_tensor * op, int idx) {
    const int32_t prec = ggml_get_op_params_i32(op, 2 + idx);

    return prec != GGML_PREC_UNDEFINED && prec < GGML_PREC_F16;
}

// what the op asks for, whatever its operands' types
int requested(const ggml_tensor * op) {
    if (op->op == GGML_OP_MUL_MAT_ID) {
        return ggml_get_op_params_i32(op, 4);
    }

    return (asks_for_more_than_half(op, 0) ? GGML_STAGING_FLOAT_SRC0 : 0) |
           (asks_for_more_than_half(op, 1) ? GGML_STAGING_FLOAT_SRC1 : 0);
}

// Kernels that a device could not create, so that it is asked once for each, whatever shape is specialized. A library lives as
// long as its device, to the end of the process.
class missing_kernels {
public:
    bool contains(ggml_metal_library_t lib, const ggml_tensor * op) {
        const std::lock_guard<std::mutex> guard(lock);

        return known.count(key(lib, op)) > 0;
    }

    // false if it was there before
    bool insert(ggml_metal_library_t lib, const ggml_tensor * op) {
        const std::lock_guard<std::mutex> guard(lock);

        return known.insert(key(lib, op)).second;
    }

private:
    using kernel = std::tuple<ggml_metal_library_t, ggml_op, ggml_type, ggml_staging>;

    static kernel key(ggml_metal_library_t lib, const ggml_tensor * op) {
        return { lib, op->op, op->src[0]->type, ggml_metal_mul_mat_staging(op) };
    }

    std::mutex       lock;
    std::set<kernel> known;
};

missing_kernels & missing() {
    // never destroyed: a thread may ask while the process exits
    static missing_kernels & kernels = *new missing_kernels;

    return kernels;
}

} // namespace

ggml_staging ggml_metal_mul_mat_staging(const ggml_tensor * op) {
    const int asked = requested(op);

    if (op->src[1]->type != GGML_TYPE_F32 || asked == GGML_STAGING_HALF) {
        return GGML_STAGING_HALF;
    }

    return op->op == GGML_OP_MUL_MAT_ID ? (ggml_staging) asked : GGML_STAGING_FLOAT;
}

bool ggml_metal_staging_supported(const ggml_tensor * op, bool use_mm) {
    const bool float_weights = (requested(op) & GGML_STAGING_FLOAT_SRC0) != 0;

    return !use_mm || !float_weights || op->src[1]->type == GGML_TYPE_F32 || op->src[0]->type == GGML_TYPE_F16;
}

bool ggml_metal_mul_mat_may_batch(const ggml_tensor * op) {
    if (ggml_get_op_params_i32(op, 4) == GGML_MUL_MAT_ROUTE_MAT_VEC) {
        return false;
    }

    return ggml_metal_mul_mat_staging(op) == GGML_STAGING_HALF ||
           (op->src[1]->ne[1] >= ROWS_MIN && op->src[0]->ne[0] % K_TILE == 0);
}

bool ggml_metal_staging_available(ggml_metal_library_t lib, const ggml_tensor * op) {
    if (ggml_metal_mul_mat_staging(op) == GGML_STAGING_HALF) {
        return true;
    }
    if (missing().contains(lib, op)) {
        return false;
    }

    const auto pipeline = op->op == GGML_OP_MUL_MAT_ID
        ? ggml_metal_library_get_pipeline_mul_mm_id(lib, op)
        : ggml_metal_library_get_pipeline_mul_mm   (lib, op);

    if (!pipeline.pipeline && missing().insert(lib, op)) {
        GGML_LOG_WARN("%s: no float-staged kernel for %s with %s weights on this device: it runs in the mat-vec kernels instead\n",
                __func__, ggml_op_name(op->op), ggml_type_name(op->src[0]->type));
    }

    return pipeline.pipeline;
}
