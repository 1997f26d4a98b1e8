#include "fiber.h"

#if !defined(__x86_64__)
#    error "metal-sim has a stack switch for x86-64 only; aarch64 is planned"
#endif

namespace metal_sim {

namespace {

constexpr size_t stack_size = 256 * 1024;

// First return address of a new fiber: `rewind` leaves the body in r13 and its argument in r12.
[[gnu::naked, gnu::noinline]] void start_fiber() {
    asm("movq %r12, %rdi\n"
        "callq *%r13\n"
        "ud2\n");
}

// What switch_stack pops, lowest address first.
struct saved_registers {
    void * r15;
    void * r14;
    void * r13;
    void * r12;
    void * rbx;
    void * rbp;
    void * return_address;
};

}  // namespace

// Only the registers that the System V ABI asks a callee to preserve: a call is a point where the compiler keeps
// nothing else. About twenty instructions, against two system calls in swapcontext.
[[gnu::naked, gnu::noinline]] void switch_stack(void ** /* save: rdi */, void * /* load: rsi */) {
    asm("pushq %rbp\n"
        "pushq %rbx\n"
        "pushq %r12\n"
        "pushq %r13\n"
        "pushq %r14\n"
        "pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n"
        "popq %r14\n"
        "popq %r13\n"
        "popq %r12\n"
        "popq %rbx\n"
        "popq %rbp\n"
        "retq\n");
}

fiber_pool::fiber_pool(body run, void * argument) : run_(run), argument_(argument) {
    idle_.reserve(fibers_.size());
}

fiber * fiber_pool::take() {
    if (idle_.empty()) {
        if (mapped_ == fibers_.size() || !map_stack(fibers_[mapped_])) {
            return nullptr;
        }
        return &fibers_[mapped_++];
    }
    fiber * const f = idle_.back();
    idle_.pop_back();
    return f;
}

void fiber_pool::reset() {
    idle_.clear();
    for (size_t i = 0; i < mapped_; ++i) {
        rewind(fibers_[i]);
        idle_.push_back(&fibers_[i]);
    }
}

bool fiber_pool::map_stack(fiber & f) {
    if (!f.stack.map(stack_size)) {
        return false;
    }
    rewind(f);
    return true;
}

void fiber_pool::rewind(fiber & f) {
    // Tops at different offsets within a page, or the same variable of all lanes would compete for one cache set.
    const size_t          index = static_cast<size_t>(&f - fibers_.data());
    unsigned char * const top   = f.stack.end() - 64 * (index % 61 + 1);

    // `top` is 16-byte aligned, as the ABI wants rsp to be right before start_fiber's call.
    saved_registers * const frame = reinterpret_cast<saved_registers *>(top - sizeof(saved_registers));
    *frame                        = {};
    frame->r12                    = argument_;
    frame->r13                    = reinterpret_cast<void *>(run_);
    frame->return_address         = reinterpret_cast<void *>(&start_fiber);
    f.stack_pointer               = frame;
}

}  // namespace metal_sim
