#include "fiber.h"

#include "../verifier/hooks.h"
#include "stack_switch.h"

namespace metal_sim {

namespace {

constexpr size_t stack_size = 256 * 1024;

}  // namespace

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
    verifier::add_stack(f.stack.begin(), f.stack.end());
    rewind(f);
    return true;
}

void fiber_pool::rewind(fiber & f) {
    // Tops at different offsets within a page, or the same variable of all lanes would compete for one cache set.
    const size_t          index = static_cast<size_t>(&f - fibers_.data());
    unsigned char * const top   = f.stack.end() - 64 * (index % 61 + 1);
    f.stack_pointer             = new_stack(top, run_, argument_);
}

}  // namespace metal_sim
