// Rules of the backward pass, composed of ops that every backend runs.
//
// In comments g is the gradient of a node's result y, and x its source. Reductions go through SUM_ROWS, products through OUT_PROD,
// which is float-staged on Metal; REPEAT_BACK, SOFT_MAX_BACK and RMS_NORM_BACK, which the CPU alone has, are not used.

#include "ggml-backward.h"

#include "ggml-impl.h"

#include <math.h>
#include <string.h>

#define C(t) ggml_backward_cont(ctx, (t))

static const float PI_F = 3.14159265358979323846f;

struct ggml_tensor * ggml_backward_cont(struct ggml_context * ctx, struct ggml_tensor * a) {
    if (!ggml_is_contiguous(a)) {
        return ggml_cont(ctx, a);
    }
    // A dimension of 1 may have any stride, by which kernels step all the same: those of a new tensor, without a copy.
    bool new_strides = a->nb[0] == ggml_type_size(a->type) && a->nb[1] == ggml_row_size(a->type, a->ne[0]);
    for (int d = 2; d < GGML_MAX_DIMS; ++d) {
        new_strides = new_strides && a->nb[d] == a->nb[d - 1]*a->ne[d - 1];
    }
    return new_strides ? a : ggml_reshape_4d(ctx, a, a->ne[0], a->ne[1], a->ne[2], a->ne[3]);
}

struct ggml_tensor * ggml_backward_gradient(struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * grad) {
    switch (node->op) {
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
            return grad;
        default:
            return ggml_backward_cont(ctx, grad);
    }
}

bool ggml_backward_is_flat(const struct ggml_tensor * node, int i) {
    switch (node->op) {
        case GGML_OP_FILL:
            return true;
        case GGML_OP_ADD_ID:
        case GGML_OP_MUL_MAT_ID:
            return i == 2;
        case GGML_OP_SET_ROWS:
            return i == 1;
        case GGML_OP_UNARY:
            switch (ggml_get_unary_op(node)) {
                case GGML_UNARY_OP_FLOOR:
                case GGML_UNARY_OP_CEIL:
                case GGML_UNARY_OP_ROUND:
                case GGML_UNARY_OP_TRUNC:
                    return true;
                default:
                    return false;
            }
        default:
            return false;
    }
}

// One element, c; `any` is contiguous F32 and not read.
static struct ggml_tensor * constant(struct ggml_context * ctx, struct ggml_tensor * any, float c) {
    return ggml_fill(ctx, ggml_view_1d(ctx, any, 1, 0), c);
}

struct ggml_tensor * ggml_backward_zeros(struct ggml_context * ctx, const struct ggml_tensor * like, struct ggml_tensor * any) {
    return ggml_repeat_4d(ctx, constant(ctx, any, 0.0f), like->ne[0], like->ne[1], like->ne[2], like->ne[3]);
}

// a*s + b.
static struct ggml_tensor * line(struct ggml_context * ctx, struct ggml_tensor * a, float s, float b) {
    return ggml_scale_bias(ctx, a, s, b);
}

// 1 - a.
static struct ggml_tensor * rest(struct ggml_context * ctx, struct ggml_tensor * a) {
    return line(ctx, a, -1.0f, 1.0f);
}

// 1 where lo < x < hi, else 0.
static struct ggml_tensor * between(struct ggml_context * ctx, struct ggml_tensor * x, float lo, float hi) {
    return ggml_mul(ctx, ggml_step(ctx, line(ctx, x, 1.0f, -lo)), ggml_step(ctx, line(ctx, x, -1.0f, hi)));
}

// 1 where lo <= x <= hi, else 0: where a clamp leaves x as it is, the bounds included.
static struct ggml_tensor * unclamped(struct ggml_context * ctx, struct ggml_tensor * x, float lo, float hi) {
    return rest(ctx, ggml_sqr(ctx, ggml_sgn(ctx, ggml_sub(ctx, x, ggml_clamp(ctx, x, lo, hi)))));
}

////////////////////////////////////////////////////////////////////////////////
// sums

// Sums a contiguous tensor, seen as [inner, n, outer], over n: [1, inner, outer].
static struct ggml_tensor * sum_middle(struct ggml_context * ctx, struct ggml_tensor * a, int64_t inner, int64_t n, int64_t outer) {
    struct ggml_tensor * t = ggml_reshape_3d(ctx, a, inner, n, outer);
    t = inner == 1 ? ggml_reshape_3d(ctx, t, n, 1, outer) : ggml_cont(ctx, ggml_permute(ctx, t, 1, 0, 2, 3));
    return ggml_sum_rows(ctx, t);
}

// What repeating a tensor of like's shape to a's adds up to: sums over all of its copies.
static struct ggml_tensor * sum_copies(struct ggml_context * ctx, struct ggml_tensor * a, const struct ggml_tensor * like) {
    if (ggml_are_same_shape(a, like)) {
        return a;
    }
    GGML_ASSERT(ggml_can_repeat(like, a));
    int64_t ne[GGML_MAX_DIMS];
    memcpy(ne, a->ne, sizeof(ne));
    struct ggml_tensor * t = C(a);
    // From the last dimension on, the copies of a dimension are the middle one of three, and what was summed follows as one.
    for (int d = GGML_MAX_DIMS - 1; d >= 0; --d) {
        if (ne[d] == like->ne[d]) {
            continue;
        }
        int64_t n = ne[d]/like->ne[d];
        // Neighbours of which one element is left are one dimension: a bias of [D] is summed over T and B of [D, T, B] at once.
        int first = d;
        while (first > 0 && like->ne[first] == 1 && like->ne[first - 1] == 1) {
            --first;
            n *= ne[first];
            ne[first] = 1;
        }
        int64_t inner = like->ne[first];
        for (int i = 0; i < first; ++i) {
            inner *= ne[i];
        }
        int64_t outer = 1;
        for (int i = d + 1; i < GGML_MAX_DIMS; ++i) {
            outer *= ne[i];
        }
        t     = sum_middle(ctx, t, inner, n, outer);
        ne[d] = like->ne[d];
    }
    return ggml_reshape_4d(ctx, t, like->ne[0], like->ne[1], like->ne[2], like->ne[3]);
}

// As sum_copies, where source i is read r times in a row (products broadcast like this) instead of as a whole r times.
static struct ggml_tensor * sum_runs(struct ggml_context * ctx, struct ggml_tensor * a, const struct ggml_tensor * like) {
    struct ggml_tensor * t = C(a);
    const int64_t slice = a->ne[0]*a->ne[1];
    const int64_t r2 = a->ne[2]/like->ne[2];
    const int64_t r3 = a->ne[3]/like->ne[3];
    if (r2 > 1) {
        t = sum_middle(ctx, t, slice, r2, like->ne[2]*a->ne[3]);
    }
    if (r3 > 1) {
        t = sum_middle(ctx, t, slice*like->ne[2], r3, like->ne[3]);
    }
    return ggml_reshape_4d(ctx, t, a->ne[0], a->ne[1], like->ne[2], like->ne[3]);
}

// Of each row, as [1, ...].
static struct ggml_tensor * dot_rows(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b) {
    return ggml_sum_rows(ctx, ggml_mul(ctx, a, b));
}

////////////////////////////////////////////////////////////////////////////////
// functions of one element: their derivatives at a contiguous x, where y is the function's value

enum curve {
    CURVE_RELU,
    CURVE_SILU, // its slope is an op of ggml's
    CURVE_GELU,
    CURVE_GELU_ERF,
    CURVE_GELU_QUICK,
};

static struct ggml_tensor * curve_value(struct ggml_context * ctx, enum curve curve, struct ggml_tensor * x) {
    switch (curve) {
        case CURVE_RELU:       return ggml_relu(ctx, x);
        case CURVE_SILU:       return ggml_silu(ctx, x);
        case CURVE_GELU:       return ggml_gelu(ctx, x);
        case CURVE_GELU_ERF:   return ggml_gelu_erf(ctx, x);
        case CURVE_GELU_QUICK: return ggml_gelu_quick(ctx, x);
    }
    GGML_ABORT("no such curve");
}

// x*sigmoid(k*x) has this slope: s*(1 + k*x*(1 - s)), where s = sigmoid(k*x).
static struct ggml_tensor * slope_swish(struct ggml_context * ctx, struct ggml_tensor * x, float k) {
    struct ggml_tensor * kx = k == 1.0f ? x : ggml_scale(ctx, x, k);
    struct ggml_tensor * s  = ggml_sigmoid(ctx, kx);
    return ggml_mul(ctx, s, line(ctx, ggml_mul(ctx, kx, rest(ctx, s)), 1.0f, 1.0f));
}

// x/2*(1 + t), t = tanh(u), u = c*x*(1 + a*x²): (1 + t)/2 + x/2*(1 - t²)*c*(1 + 3*a*x²).
static struct ggml_tensor * slope_gelu(struct ggml_context * ctx, struct ggml_tensor * x) {
    const float a = 0.044715f;
    const float c = sqrtf(2.0f/PI_F);
    // Beyond, the slope is 0 or 1, and du overflows.
    x = ggml_clamp(ctx, x, -10.0f, 10.0f);
    struct ggml_tensor * xx = ggml_sqr(ctx, x);
    struct ggml_tensor * u  = ggml_mul(ctx, x, line(ctx, xx, a*c, c));
    struct ggml_tensor * t  = ggml_tanh(ctx, u);
    struct ggml_tensor * du = ggml_mul(ctx, x, line(ctx, xx, 3.0f*a*c, c));
    struct ggml_tensor * dt = ggml_mul(ctx, du, rest(ctx, ggml_sqr(ctx, t)));
    return line(ctx, ggml_add(ctx, t, dt), 0.5f, 0.5f);
}

// x*P(x), P the normal distribution's: P(x) + x*p(x). There is no op for P; it is y/x, and 1/2 where x is next to nothing.
static struct ggml_tensor * slope_gelu_erf(struct ggml_context * ctx, struct ggml_tensor * x) {
    struct ggml_tensor * away = ggml_step(ctx, line(ctx, ggml_abs(ctx, x), 1.0f, -1e-6f));
    struct ggml_tensor * z    = ggml_add(ctx, ggml_mul(ctx, x, away), rest(ctx, away));
    struct ggml_tensor * p    = line(ctx, ggml_div(ctx, ggml_gelu_erf(ctx, z), z), 1.0f, -0.5f);
    struct ggml_tensor * dist = line(ctx, ggml_mul(ctx, p, away), 1.0f, 0.5f);
    struct ggml_tensor * dens = ggml_scale(ctx, ggml_exp(ctx, ggml_scale(ctx, ggml_sqr(ctx, x), -0.5f)), 1.0f/sqrtf(2.0f*PI_F));
    return ggml_add(ctx, dist, ggml_mul(ctx, x, dens));
}

static struct ggml_tensor * curve_slope(struct ggml_context * ctx, enum curve curve, struct ggml_tensor * x) {
    switch (curve) {
        case CURVE_RELU:       return ggml_step(ctx, x);
        case CURVE_SILU:       break;
        case CURVE_GELU:       return slope_gelu(ctx, x);
        case CURVE_GELU_ERF:   return slope_gelu_erf(ctx, x);
        case CURVE_GELU_QUICK: return slope_swish(ctx, x, 1.702f);
    }
    GGML_ABORT("no slope of this curve");
}

// min(1, max(0, (x + 3)/6)) rises by 1/6 in between; times x it also has that value.
static struct ggml_tensor * slope_hardswish(struct ggml_context * ctx, struct ggml_tensor * x) {
    struct ggml_tensor * rise = ggml_scale(ctx, between(ctx, x, -3.0f, 3.0f), 1.0f/6.0f);
    return ggml_add(ctx, ggml_hardsigmoid(ctx, x), ggml_mul(ctx, x, rise));
}

// NULL: no rule here.
static struct ggml_tensor * unary_slope(struct ggml_context * ctx, const struct ggml_tensor * node) {
    struct ggml_tensor * y = (struct ggml_tensor *) node;
    struct ggml_tensor * x = node->src[0];
    switch (ggml_get_unary_op(node)) {
        case GGML_UNARY_OP_ABS:         return ggml_sgn(ctx, C(x));
        case GGML_UNARY_OP_RELU:        return ggml_step(ctx, C(x));
        case GGML_UNARY_OP_EXP:         return C(y);
        case GGML_UNARY_OP_EXPM1:       return ggml_exp(ctx, C(x));
        case GGML_UNARY_OP_SOFTPLUS:    return ggml_sigmoid(ctx, C(x));
        case GGML_UNARY_OP_GELU:        return curve_slope(ctx, CURVE_GELU, C(x));
        case GGML_UNARY_OP_GELU_ERF:    return curve_slope(ctx, CURVE_GELU_ERF, C(x));
        case GGML_UNARY_OP_GELU_QUICK:  return curve_slope(ctx, CURVE_GELU_QUICK, C(x));
        case GGML_UNARY_OP_HARDSWISH:   return slope_hardswish(ctx, C(x));
        case GGML_UNARY_OP_HARDSIGMOID: return ggml_scale(ctx, between(ctx, C(x), -3.0f, 3.0f), 1.0f/6.0f);
        case GGML_UNARY_OP_SIGMOID:     y = C(y); return ggml_mul(ctx, y, rest(ctx, y));
        case GGML_UNARY_OP_TANH:        return rest(ctx, ggml_sqr(ctx, C(y)));
        // 1 above zero, else y + 1.
        case GGML_UNARY_OP_ELU:         y = C(y); return line(ctx, ggml_sub(ctx, y, ggml_relu(ctx, y)), 1.0f, 1.0f);
        default:                        return NULL;
    }
}

////////////////////////////////////////////////////////////////////////////////
// gated units: y = act(x)*gate

// A half of the rows of a.
static struct ggml_tensor * half(struct ggml_context * ctx, struct ggml_tensor * a, bool second) {
    const int64_t n = a->ne[0]/2;
    return ggml_cont(ctx, ggml_view_4d(ctx, a, n, a->ne[1], a->ne[2], a->ne[3], a->nb[1], a->nb[2], a->nb[3], second ? n*a->nb[0] : 0));
}

// Makes dx and dgate from contiguous x, gate and g.
static void gated(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g,
        struct ggml_tensor * x, struct ggml_tensor * gate, const bool wanted[2], struct ggml_tensor * out[2]) {
    enum curve curve = CURVE_SILU;
    switch (ggml_get_glu_op(node)) {
        case GGML_GLU_OP_REGLU:       curve = CURVE_RELU;       break;
        case GGML_GLU_OP_GEGLU:       curve = CURVE_GELU;       break;
        case GGML_GLU_OP_GEGLU_ERF:   curve = CURVE_GELU_ERF;   break;
        case GGML_GLU_OP_GEGLU_QUICK: curve = CURVE_GELU_QUICK; break;
        case GGML_GLU_OP_SWIGLU:
        case GGML_GLU_OP_SWIGLU_CLAMP:
        case GGML_GLU_OP_SWIGLU_OAI:  break;
        default:                      GGML_ABORT("no backward for %s", ggml_glu_op_name(ggml_get_glu_op(node)));
    }
    const bool  oai   = ggml_get_glu_op(node) == GGML_GLU_OP_SWIGLU_OAI;
    const bool  clamp = ggml_get_glu_op(node) == GGML_GLU_OP_SWIGLU_CLAMP || oai;
    const float alpha = oai ? ggml_get_op_params_f32(node, 2) : 1.0f;
    const float limit = ggml_get_op_params_f32(node, 3);
    struct ggml_tensor * x_in    = x;
    struct ggml_tensor * gate_in = gate;
    if (clamp) {
        // As the forward: x from above only.
        x    = ggml_clamp(ctx, x, -INFINITY, limit);
        gate = ggml_clamp(ctx, gate, -limit, limit);
    }
    if (oai) {
        gate = line(ctx, gate, 1.0f, 1.0f);
    }
    if (wanted[0]) {
        struct ggml_tensor * dx = ggml_mul(ctx, g, gate);
        out[0] = curve == CURVE_SILU && !oai ?
            ggml_silu_back(ctx, dx, x) : ggml_mul(ctx, dx, oai ? slope_swish(ctx, x, alpha) : curve_slope(ctx, curve, x));
        if (clamp) {
            out[0] = ggml_mul(ctx, out[0], unclamped(ctx, x_in, -INFINITY, limit));
        }
    }
    if (wanted[1]) {
        struct ggml_tensor * value = oai ?
            ggml_mul(ctx, x, ggml_sigmoid(ctx, ggml_scale(ctx, x, alpha))) : curve_value(ctx, curve, x);
        out[1] = ggml_mul(ctx, g, value);
        if (clamp) {
            out[1] = ggml_mul(ctx, out[1], unclamped(ctx, gate_in, -limit, limit));
        }
    }
}

static void glu_rule(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    struct ggml_tensor * a = node->src[0];
    struct ggml_tensor * b = node->src[1];
    if (b) {
        gated(ctx, node, g, C(a), C(b), needs, to);
        return;
    }
    if (!needs[0]) {
        return;
    }
    const bool swapped = ggml_get_op_params_i32(node, 1);
    const bool both[2] = { true, true };
    struct ggml_tensor * d[2] = { NULL, NULL };
    gated(ctx, node, g, half(ctx, a, swapped), half(ctx, a, !swapped), both, d);
    to[0] = ggml_concat(ctx, d[swapped ? 1 : 0], d[swapped ? 0 : 1], 0);
}

////////////////////////////////////////////////////////////////////////////////
// normalizations of rows

// y = (x - mean(x))/s, s = sqrt(mean((x - mean(x))²) + eps): (g - mean(g) - y*mean(g*y))/s; rms: without the means of x and g.
static struct ggml_tensor * norm_rule(
        struct ggml_context * ctx, struct ggml_tensor * x, struct ggml_tensor * y, struct ggml_tensor * g, float eps, bool rms) {
    if (!rms) {
        x = ggml_sub(ctx, x, ggml_mean(ctx, x));
    }
    struct ggml_tensor * s = ggml_sqrt(ctx, line(ctx, ggml_mean(ctx, ggml_sqr(ctx, x)), 1.0f, eps));
    struct ggml_tensor * d = rms ? g : ggml_sub(ctx, g, ggml_mean(ctx, g));
    d = ggml_sub(ctx, d, ggml_mul(ctx, y, ggml_mean(ctx, ggml_mul(ctx, g, y))));
    return ggml_div(ctx, d, s);
}

// The same where rows are groups of channels, of which there are whole ones only.
static struct ggml_tensor * group_norm_rule(struct ggml_context * ctx, struct ggml_tensor * node, struct ggml_tensor * g) {
    struct ggml_tensor * x = C(node->src[0]);
    const int64_t groups = ggml_get_op_params_i32(node, 0);
    GGML_ASSERT(x->ne[2] % groups == 0);
    const int64_t n    = x->ne[0]*x->ne[1]*(x->ne[2]/groups);
    const int64_t rows = groups*x->ne[3];
    struct ggml_tensor * d = norm_rule(ctx, ggml_reshape_2d(ctx, x, n, rows), ggml_reshape_2d(ctx, C(node), n, rows),
        ggml_reshape_2d(ctx, g, n, rows), ggml_get_op_params_f32(node, 1), false);
    return ggml_reshape(ctx, d, x);
}

// y = x/max(|x|, eps): (g - y*dot(g, y))/|x|; below eps y is x/eps, and the term of the dot product goes away.
static struct ggml_tensor * l2_norm_rule(struct ggml_context * ctx, struct ggml_tensor * node, struct ggml_tensor * g) {
    const float eps = ggml_get_op_params_f32(node, 0);
    struct ggml_tensor * y    = C(node);
    struct ggml_tensor * size = ggml_sqrt(ctx, ggml_sum_rows(ctx, ggml_sqr(ctx, C(node->src[0]))));
    struct ggml_tensor * dot  = ggml_mul(ctx, dot_rows(ctx, g, y), ggml_step(ctx, line(ctx, size, 1.0f, -eps)));
    return ggml_div(ctx, ggml_sub(ctx, g, ggml_mul(ctx, y, dot)), ggml_clamp(ctx, size, eps, INFINITY));
}

////////////////////////////////////////////////////////////////////////////////
// rows chosen by ids

// 1 where id n is row e, else 0: [1, N, E, batches]. ids are I32 [N, ...], as many as N*batches.
static struct ggml_tensor * one_hot(struct ggml_context * ctx, struct ggml_tensor * ids, int64_t n, int64_t rows, int64_t batches) {
    struct ggml_tensor * f = ggml_cast(ctx, C(ids), GGML_TYPE_F32);
    f = ggml_repeat_4d(ctx, ggml_reshape_4d(ctx, f, 1, n, 1, batches), 1, n, rows, batches);
    struct ggml_tensor * e = ggml_reshape_3d(ctx, ggml_arange(ctx, 0.0f, (float) rows, 1.0f), 1, 1, rows);
    return rest(ctx, ggml_sqr(ctx, ggml_sgn(ctx, ggml_sub(ctx, f, e))));
}

// Adds the rows of g, [k, N, batches], up by their ids: [k, rows, batches]. A product with zeros and ones: an infinity in a row of g
// is NaN in the rows of other ids. Selecting instead takes k*N*rows*batches floats, and there is no op that adds rows up on Metal.
static struct ggml_tensor * scatter(struct ggml_context * ctx, struct ggml_tensor * g, struct ggml_tensor * ids, int64_t rows) {
    const int64_t n       = g->ne[1];
    const int64_t batches = g->ne[2]*g->ne[3];
    struct ggml_tensor * hot = ggml_permute(ctx, one_hot(ctx, ids, n, rows, batches), 3, 1, 0, 2); // [rows, N, batches, 1]
    struct ggml_tensor * sum = ggml_out_prod(ctx, ggml_reshape_3d(ctx, g, g->ne[0], n, batches), hot);
    return ggml_reshape_4d(ctx, sum, g->ne[0], rows, g->ne[2], g->ne[3]);
}

// y[:, u, t] = as[:, :, ids[u, t]]ᵀ · b[:, u % ne1, t].
static void mul_mat_id_rule(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    struct ggml_tensor * as  = node->src[0];
    struct ggml_tensor * b   = node->src[1];
    struct ggml_tensor * ids = node->src[2];
    const int64_t used = ids->ne[0];
    const int64_t n    = used*ids->ne[1];
    if (needs[0]) {
        // For each expert, the outer product with its own rows of g among zeros: m*experts*n floats. The rows are written there, not
        // multiplied with 0 and 1: an infinity in a row of one expert is none of the others'.
        struct ggml_tensor * zeros = ggml_repeat_4d(ctx, constant(ctx, g, 0.0f), g->ne[0], as->ne[2], n, 1);
        struct ggml_tensor * rows  = ggml_set_rows(ctx, zeros,
            ggml_reshape_3d(ctx, g, g->ne[0], 1, n), ggml_reshape_2d(ctx, C(ids), 1, n)); // [m, experts, n]
        struct ggml_tensor * in    = C(b);
        if (b->ne[1] != used) {
            in = ggml_repeat_4d(ctx, in, b->ne[0], used, b->ne[2], 1);
        }
        to[0] = ggml_out_prod(ctx, ggml_reshape_3d(ctx, in, b->ne[0], n, 1), ggml_permute(ctx, rows, 0, 2, 1, 3));
    }
    if (needs[1]) {
        // A float copy of all experts: blocks cannot be transposed, and products with halves round g to half.
        struct ggml_tensor * w = as->type == GGML_TYPE_F32 ? as : ggml_cast(ctx, as, GGML_TYPE_F32);
        struct ggml_tensor * d = ggml_mul_mat_id(ctx, ggml_cont(ctx, ggml_transpose(ctx, w)), g, ids);
        ggml_mul_mat_id_set_staging(d, GGML_STAGING_FLOAT);
        to[1] = sum_copies(ctx, d, b);
    }
}

static void set_rows_rule(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    struct ggml_tensor * rows = node->src[0];
    struct ggml_tensor * ids  = node->src[1];
    if (ids->ne[1] != rows->ne[2] || ids->ne[2] != rows->ne[3]) {
        ids = ggml_repeat_4d(ctx, C(ids), ids->ne[0], rows->ne[2], rows->ne[3], 1);
    }
    if (needs[0]) {
        to[0] = ggml_get_rows(ctx, g, ids);
    }
    if (needs[2]) {
        to[2] = ggml_set_rows(ctx, ggml_dup(ctx, g), ggml_backward_zeros(ctx, rows, g), ids);
    }
}

////////////////////////////////////////////////////////////////////////////////
// products

static void mul_mat_rule(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    struct ggml_tensor * a = node->src[0]; // [n, m, q2, q3]
    struct ggml_tensor * b = node->src[1]; // [n, p, r2*q2, r3*q3]
    if (needs[0]) {
        // The first operand of a product must not be transposed, and strides of 0 look like that. Those of a the forward has asserted.
        struct ggml_tensor * x = ggml_is_transposed(b) ? C(b) : b;
        struct ggml_tensor * y = g;            // [m, p, r2*q2, r3*q3]
        // The matrices that share one of a follow each other: one product sums over their rows.
        const int64_t r2 = b->ne[2]/a->ne[2];
        const int64_t r3 = a->ne[2] == 1 ? b->ne[3]/a->ne[3] : 1;
        if (r2*r3 > 1) {
            const int64_t rows = b->ne[1]*r2*r3;
            x = ggml_reshape_4d(ctx, C(b), b->ne[0], rows, a->ne[2], b->ne[3]/r3);
            y = ggml_reshape_4d(ctx, g,    g->ne[0], rows, a->ne[2], b->ne[3]/r3);
        }
        to[0] = ggml_out_prod(ctx, x, y);
        if (!ggml_are_same_shape(to[0], a)) {
            to[0] = sum_runs(ctx, to[0], a);
        }
    }
    if (needs[1]) {
        to[1] = ggml_out_prod(ctx, a, ggml_transpose(ctx, g));
    }
}

// y = a · bᵀ: da = g · b, db = gᵀ · a.
static void out_prod_rule(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    struct ggml_tensor * a = node->src[0];
    struct ggml_tensor * b = node->src[1];
    if (needs[0]) {
        to[0] = ggml_out_prod(ctx, g, ggml_transpose(ctx, b));
        if (!ggml_are_same_shape(to[0], a)) {
            to[0] = sum_runs(ctx, to[0], a);
        }
    }
    if (needs[1]) {
        // Only the first operand of a product is broadcast, and it must not be transposed: the transpose of db.
        struct ggml_tensor * at = ggml_cont(ctx, ggml_transpose(ctx, a));
        to[1] = ggml_cont(ctx, ggml_transpose(ctx, ggml_out_prod(ctx, at, ggml_transpose(ctx, g))));
    }
}

////////////////////////////////////////////////////////////////////////////////
// arithmetic, reductions, parts

// A part of a contiguous g, in the shape of `like`.
static struct ggml_tensor * part(struct ggml_context * ctx, struct ggml_tensor * g, const struct ggml_tensor * like, size_t offset) {
    return ggml_cont(ctx, ggml_view_4d(ctx, g, like->ne[0], like->ne[1], like->ne[2], like->ne[3], g->nb[1], g->nb[2], g->nb[3], offset));
}

static void arithmetic_rule(
        struct ggml_context * ctx, struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    struct ggml_tensor * a = node->src[0];
    struct ggml_tensor * b = node->src[1];
    const enum ggml_op op = node->op;
    if (needs[0]) {
        to[0] = op == GGML_OP_MUL ? ggml_mul(ctx, g, C(b)) : op == GGML_OP_DIV ? ggml_div(ctx, g, C(b)) : g;
    }
    if (needs[1]) {
        struct ggml_tensor * d = g;
        switch (op) {
            case GGML_OP_SUB: d = ggml_neg(ctx, g); break;
            case GGML_OP_MUL: d = ggml_mul(ctx, g, C(a)); break;
            case GGML_OP_DIV: d = ggml_neg(ctx, ggml_mul(ctx, g, ggml_div(ctx, C(node), C(b)))); break;
            default: break;
        }
        to[1] = sum_copies(ctx, d, b);
    }
}

static void cross_entropy_rule(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g, struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    // -sum(labels*log(softmax(x)))/rows, whatever the labels of a row add up to: (softmax(x)*sum(labels) - labels)*g/rows.
    struct ggml_tensor * labels = C(node->src[1]);
    struct ggml_tensor * p      = ggml_soft_max(ctx, C(node->src[0]));
    struct ggml_tensor * d      = ggml_sub(ctx, ggml_mul(ctx, p, ggml_sum_rows(ctx, labels)), labels);
    to[0] = ggml_mul(ctx, d, ggml_scale(ctx, g, 1.0f/(float) ggml_nrows(labels)));
}

static void concat_rule(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    const int dim = ggml_get_op_params_i32(node, 0);
    if (needs[0]) {
        to[0] = part(ctx, g, node->src[0], 0);
    }
    if (needs[1]) {
        to[1] = part(ctx, g, node->src[1], node->src[0]->ne[dim]*g->nb[dim]);
    }
}

static struct ggml_tensor * pad_rule(struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g) {
    size_t offset = 0;
    for (int d = 0; d < GGML_MAX_DIMS; ++d) {
        offset += ggml_get_op_params_i32(node, 2*d)*g->nb[d];
    }
    return part(ctx, g, node->src[0], offset);
}

// The rows of dst that were overwritten give nothing to it.
static void set_rule(
        struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    const int32_t * p = node->op_params;
    struct ggml_tensor * b = node->src[1];
    if (needs[0]) {
        to[0] = ggml_set(ctx, g, ggml_backward_zeros(ctx, b, g), p[0], p[1], p[2], p[3]);
    }
    if (needs[1]) {
        to[1] = ggml_cont(ctx, ggml_view_4d(ctx, g, b->ne[0], b->ne[1], b->ne[2], b->ne[3], p[0], p[1], p[2], p[3]));
    }
}

// y*(g - dot(y, g))*scale, with a mask and slopes as without. A sink's share of the sum is 1 - sum(y): minus that times dot(y, g).
static void soft_max_rule(
        struct ggml_context * ctx, struct ggml_tensor * node, struct ggml_tensor * g,
        const bool needs[GGML_BACKWARD_SOURCES], struct ggml_tensor * to[GGML_BACKWARD_SOURCES]) {
    struct ggml_tensor * y   = C(node);
    struct ggml_tensor * dot = dot_rows(ctx, y, g);
    if (needs[0]) {
        to[0] = ggml_scale(ctx, ggml_mul(ctx, y, ggml_sub(ctx, g, dot)), ggml_get_op_params_f32(node, 0));
    }
    if (needs[2]) {
        struct ggml_tensor * share = ggml_neg(ctx, ggml_mul(ctx, dot, rest(ctx, ggml_sum_rows(ctx, y))));
        const int64_t heads = y->ne[2];
        struct ggml_tensor * sum = sum_middle(ctx, share, 1, y->ne[1], heads*y->ne[3]);
        to[2] = ggml_reshape(ctx, sum_middle(ctx, sum, heads, y->ne[3], 1), node->src[2]);
    }
}

// The opposite turn; every function of the family is a case of rope_multi.
static struct ggml_tensor * rope_rule(struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * g) {
    int sections[GGML_MROPE_SECTIONS];
    memcpy(sections, node->op_params + 11, sizeof(sections));
    struct ggml_tensor * d = ggml_rope_multi_back(ctx, g, node->src[1], node->src[2],
        ggml_get_op_params_i32(node, 1), sections, ggml_get_op_params_i32(node, 2), ggml_get_op_params_i32(node, 4),
        ggml_get_op_params_f32(node, 5), ggml_get_op_params_f32(node, 6), ggml_get_op_params_f32(node, 7),
        ggml_get_op_params_f32(node, 8), ggml_get_op_params_f32(node, 9), ggml_get_op_params_f32(node, 10));
    const int offset = ggml_get_op_params_i32(node, 15);
    if (offset != 0) {
        ggml_rope_set_offset(d, offset);
    }
    return d;
}

static struct ggml_tensor * one_source_rule(struct ggml_context * ctx, struct ggml_tensor * node, struct ggml_tensor * g) {
    struct ggml_tensor * x = node->src[0];
    switch (node->op) {
        case GGML_OP_SQR:
            return ggml_scale(ctx, ggml_mul(ctx, g, C(x)), 2.0f);
        case GGML_OP_LOG:
            return ggml_div(ctx, g, C(x));
        case GGML_OP_SIN:
            return ggml_mul(ctx, g, ggml_cos(ctx, C(x)));
        case GGML_OP_COS:
            return ggml_neg(ctx, ggml_mul(ctx, g, ggml_sin(ctx, C(x))));
        case GGML_OP_SUM:
        case GGML_OP_SUM_ROWS:
            return ggml_repeat(ctx, g, x);
        case GGML_OP_MEAN:
            return ggml_repeat(ctx, ggml_scale(ctx, g, 1.0f/(float) x->ne[0]), x);
        case GGML_OP_REPEAT:
            return sum_copies(ctx, g, x);
        case GGML_OP_DUP:
        case GGML_OP_CPY:
        case GGML_OP_CONT:
            return ggml_reshape_4d(ctx, g, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
        case GGML_OP_CLAMP:
            return ggml_mul(ctx, g, unclamped(ctx, C(x), ggml_get_op_params_f32(node, 0), ggml_get_op_params_f32(node, 1)));
        case GGML_OP_LEAKY_RELU: {
            const float slope = ggml_get_op_params_f32(node, 0);
            return ggml_mul(ctx, g, line(ctx, ggml_step(ctx, C(x)), 1.0f - slope, slope));
        }
        case GGML_OP_PAD:
            return pad_rule(ctx, node, g);
        case GGML_OP_NORM:
        case GGML_OP_RMS_NORM:
            return norm_rule(ctx, C(x), C(node), g, ggml_get_op_params_f32(node, 0), node->op == GGML_OP_RMS_NORM);
        case GGML_OP_GROUP_NORM:
            return group_norm_rule(ctx, node, g);
        case GGML_OP_L2_NORM:
            return l2_norm_rule(ctx, node, g);
        case GGML_OP_ROPE:
            return rope_rule(ctx, node, g);
        case GGML_OP_UNARY: {
            if (ggml_get_unary_op(node) == GGML_UNARY_OP_NEG) {
                return ggml_neg(ctx, g);
            }
            if (ggml_get_unary_op(node) == GGML_UNARY_OP_SILU) {
                return ggml_silu_back(ctx, g, C(x));
            }
            struct ggml_tensor * slope = unary_slope(ctx, node);
            return slope ? ggml_mul(ctx, g, slope) : NULL;
        }
        default:
            return NULL;
    }
}

bool ggml_backward_rule(
        struct ggml_context * ctx,
        struct ggml_tensor  * node,
        struct ggml_tensor  * g,
        const bool            needs[GGML_BACKWARD_SOURCES],
        struct ggml_tensor  * to[GGML_BACKWARD_SOURCES]) {
    switch (node->op) {
        case GGML_OP_ADD:
        case GGML_OP_ADD1:
        case GGML_OP_SUB:
        case GGML_OP_MUL:
        case GGML_OP_DIV:
            arithmetic_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_SOFT_MAX:
            soft_max_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_SET:
            set_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_CONCAT:
            concat_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_MUL_MAT:
            mul_mat_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_OUT_PROD:
            out_prod_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_MUL_MAT_ID:
            mul_mat_id_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_ADD_ID:
            if (needs[0]) {
                to[0] = g;
            }
            if (needs[1]) {
                struct ggml_tensor * b = node->src[1];
                to[1] = scatter(ctx, ggml_reshape_2d(ctx, g, g->ne[0], g->ne[1]*g->ne[2]), node->src[2], b->ne[1]);
            }
            return true;
        case GGML_OP_GET_ROWS:
            if (needs[0]) {
                struct ggml_tensor * x = node->src[0];
                // One matrix of many rows, an embedding: ggml's op, which needs no memory of ids times rows.
                to[0] = x->ne[2]*x->ne[3] == 1 ?
                    ggml_get_rows_back(ctx, g, C(node->src[1]), x) : scatter(ctx, g, node->src[1], x->ne[1]);
            }
            return true;
        case GGML_OP_SET_ROWS:
            set_rows_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_GLU:
            glu_rule(ctx, node, g, needs, to);
            return true;
        case GGML_OP_IM2COL:
            // The kernel gives its shape alone. It may be trained all the same, through the product that follows.
            if (needs[1]) {
                const int32_t * p = node->op_params; // s0, s1, p0, p1, d0, d1, is_2D
                to[1] = ggml_im2col_back(ctx, g, node->src[0], node->src[1]->ne, p[0], p[1], p[2], p[3], p[4], p[5], p[6] == 1);
            }
            return true;
        case GGML_OP_CROSS_ENTROPY_LOSS:
            if (needs[0]) {
                cross_entropy_rule(ctx, node, g, to);
            }
            return true;
        default:
            break;
    }
    if (!needs[0]) {
        return false;
    }
    to[0] = one_source_rule(ctx, node, g);
    return to[0] != NULL;
}
