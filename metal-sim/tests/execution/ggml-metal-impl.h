// What ggml's header of this name provides: argument structures and indices shared by host and kernels.
#pragma once

#define FC_TEST 500

typedef struct {
    int zero;
} args_t;
