// Rules of the backward pass that ggml.c lacks or has wrong. Not part of ggml: see patches/series.toml.
#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sources of a node that a rule may give a gradient.
#define GGML_BACKWARD_SOURCES 3

// The gradients that `grad`, the contiguous gradient of `node`, gives to the sources that need one, in `to` (NULL: none).
// Every op is one that all devices run. False: there is no rule here, and ggml.c's applies.
bool ggml_backward_rule(
        struct ggml_context *       ctx,
        struct ggml_tensor  *       node,
        struct ggml_tensor  *       grad,
        const bool                  needs[GGML_BACKWARD_SOURCES],
        struct ggml_tensor  *       to[GGML_BACKWARD_SOURCES]);

// Whether the gradient of source `i` is zero whatever the gradient of `node` is.
bool ggml_backward_is_flat(const struct ggml_tensor * node, int i);

// The gradient as the node's rule reads it: contiguous, but for rules that take any layout.
struct ggml_tensor * ggml_backward_gradient(struct ggml_context * ctx, const struct ggml_tensor * node, struct ggml_tensor * grad);

// A tensor with the strides of a new one, by a copy where `a` is not contiguous.
struct ggml_tensor * ggml_backward_cont(struct ggml_context * ctx, struct ggml_tensor * a);

// Zeros of F32 in the shape of `like`, which is not read. `any` is a tensor of F32 that is contiguous.
struct ggml_tensor * ggml_backward_zeros(struct ggml_context * ctx, const struct ggml_tensor * like, struct ggml_tensor * any);

#ifdef __cplusplus
}
#endif
