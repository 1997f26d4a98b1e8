// Continuing on another stack: the only code of the simulator that is written for one processor.
#pragma once

namespace metal_sim {

// Saves the callee-saved registers and the stack pointer of the caller in `*save`, and continues where `load` was
// saved.
void switch_stack(void ** save, void * load);

// What to load so that `body(argument)` begins on the unused stack that ends at `top`, which is 16-byte aligned. `body`
// must never return.
void * new_stack(unsigned char * top, void (*body)(void *), void * argument);

}  // namespace metal_sim
