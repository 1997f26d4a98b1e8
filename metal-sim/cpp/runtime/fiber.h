// Stacks for suspended lanes.
#pragma once

#include "guarded_memory.h"
#include "lane.h"

#include <array>
#include <vector>

namespace metal_sim {

struct fiber {
    void *         stack_pointer = nullptr;  // while suspended
    guarded_memory stack;
};

// The stacks of one core. A fiber that is taken for the first time runs `body(argument)`, which must never return.
class fiber_pool {
  public:
    using body = void (*)(void * argument);

    fiber_pool(body run, void * argument);

    // An idle fiber, or null when the system has no memory for another stack.
    fiber * take();

    void give_back(fiber & idle) { idle_.push_back(&idle); }

    // Makes every fiber idle at the start of its body. What suspended lanes had on their stacks is abandoned, not
    // unwound: kernels own nothing that needs a destructor.
    void reset();

  private:
    bool map_stack(fiber & f);
    void rewind(fiber & f);

    body                                           run_;
    void *                                         argument_;
    std::array<fiber, max_threads_per_threadgroup> fibers_;
    size_t                                         mapped_ = 0;  // fibers_[0, mapped_) have a stack
    std::vector<fiber *>                           idle_;        // never grows beyond its reserve: no allocation
};

}  // namespace metal_sim
