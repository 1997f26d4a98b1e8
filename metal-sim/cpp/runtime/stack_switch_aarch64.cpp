#if defined(__aarch64__)

#    include "stack_switch.h"

// What AAPCS64 asks a callee to preserve: x19 to x30, sp, and the lower halves of v8 to v15. Assembly at file scope, as
// GCC has no naked functions for this processor. The names stay inside this file's object.
//
// stack_switch_start is the first return address of a new stack: `new_stack` leaves the body in x20, its argument in x19.
asm(R"(
    .text
    .balign 16
    .type stack_switch_to, %function
stack_switch_to:
    sub sp, sp, #160
    stp d8,  d9,  [sp, #0]
    stp d10, d11, [sp, #16]
    stp d12, d13, [sp, #32]
    stp d14, d15, [sp, #48]
    stp x19, x20, [sp, #64]
    stp x21, x22, [sp, #80]
    stp x23, x24, [sp, #96]
    stp x25, x26, [sp, #112]
    stp x27, x28, [sp, #128]
    stp x29, x30, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp d8,  d9,  [sp, #0]
    ldp d10, d11, [sp, #16]
    ldp d12, d13, [sp, #32]
    ldp d14, d15, [sp, #48]
    ldp x19, x20, [sp, #64]
    ldp x21, x22, [sp, #80]
    ldp x23, x24, [sp, #96]
    ldp x25, x26, [sp, #112]
    ldp x27, x28, [sp, #128]
    ldp x29, x30, [sp, #144]
    add sp, sp, #160
    ret
    .size stack_switch_to, .-stack_switch_to

    .type stack_switch_start, %function
stack_switch_start:
    mov x0, x19
    blr x20
    brk #0
    .size stack_switch_start, .-stack_switch_start
)");

extern "C" {
[[gnu::visibility("hidden")]] void stack_switch_to(void ** save, void * load);
[[gnu::visibility("hidden")]] void stack_switch_start();
}

namespace metal_sim {

namespace {

// What stack_switch_to loads, lowest address first.
struct saved_registers {
    double d8_to_d15[8];
    void * x19;
    void * x20;
    void * x21_to_x28[8];
    void * x29;
    void * x30;
};

static_assert(sizeof(saved_registers) == 160, "the offsets above");

}  // namespace

void switch_stack(void ** save, void * load) {
    stack_switch_to(save, load);
}

// x29 is zero: the chain of frames ends here.
void * new_stack(unsigned char * top, void (*body)(void *), void * argument) {
    saved_registers * const frame = reinterpret_cast<saved_registers *>(top - sizeof(saved_registers));
    *frame                        = {};
    frame->x19                    = argument;
    frame->x20                    = reinterpret_cast<void *>(body);
    frame->x30                    = reinterpret_cast<void *>(&stack_switch_start);
    return frame;
}

}  // namespace metal_sim

#elif !defined(__x86_64__)
#    error "metal-sim has a stack switch for x86-64 and AArch64 only: add one beside this file"
#endif
