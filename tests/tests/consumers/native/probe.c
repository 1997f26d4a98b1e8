// Adds two numbers with ggml, called by its plain names.
#include <string.h>

#include "ggml-cpu.h"
#include "ggml.h"

float probe_add(float a, float b) {
    struct ggml_init_params params = { 1024 * 1024, NULL, false };
    struct ggml_context * ctx = ggml_init(params);
    struct ggml_tensor * x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    struct ggml_tensor * y = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    memcpy(x->data, &a, sizeof(a));
    memcpy(y->data, &b, sizeof(b));

    struct ggml_tensor * sum = ggml_add(ctx, x, y);
    struct ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, sum);
    ggml_graph_compute_with_ctx(ctx, graph, 1);

    float result;
    memcpy(&result, sum->data, sizeof(result));
    ggml_free(ctx);
    return result;
}

int probe_version_is_right(void) {
    return strcmp(ggml_version(), EXPECTED_VERSION) == 0;
}
