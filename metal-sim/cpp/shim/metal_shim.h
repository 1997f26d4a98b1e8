// metal_stdlib for kernels that run on the CPU: what ggml's .metal files use of it, by the rules of the Metal Shading
// Language specification. C++17, g++ >= 12.
#pragma once

#ifndef __METAL_VERSION__
#    define __METAL_VERSION__ 320
#endif

#include "../runtime/runtime.h"
#include "metal_atomic.h"
#include "metal_math.h"
#include "metal_matrix.h"
#include "metal_scalar.h"
#include "metal_simdgroup.h"
#include "metal_simdgroup_matrix.h"
#include "metal_vector.h"
