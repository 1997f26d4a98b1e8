// Which tensors an op's dispatches may touch, for the verifier. Without it there is nothing to note.
#pragma once

#include "../runtime/compute_dispatch.h"
#include "device.h"

namespace metal_sim {

#ifdef METAL_SIM_VERIFIER

// The op of `node` is about to be encoded.
void begin_op(const ggml_tensor * node);

// All ops of a graph are encoded.
void end_ops();

// ggml asks where `t` lies: at `data`.
void note_tensor(const ggml_tensor * t, unsigned char * data, size_t available);

// A dispatch of the op is encoded.
void give_extents(compute_dispatch & d);

#else

inline void begin_op(const ggml_tensor *) {}

inline void end_ops() {}

inline void note_tensor(const ggml_tensor *, unsigned char *, size_t) {}

inline void give_extents(compute_dispatch &) {}

#endif

}  // namespace metal_sim
