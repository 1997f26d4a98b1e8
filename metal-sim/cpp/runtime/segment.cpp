#include "segment.h"

#include "../verifier/hooks.h"
#include "dispatcher.h"
#include "order.h"

#include <numeric>

namespace metal_sim {

void segment::add(const pipeline & p, const compute_dispatch & d, const bound_bytes & bytes) {
    dispatches_.push_back({ &p, d, bytes });
}

bool segment::run() {
    std::vector<size_t> order(dispatches_.size());
    std::iota(order.begin(), order.end(), 0);
    arrange(order.data(), order.size(), current_settings(), turn_++);

    verifier::begin_segment();
    bool passed = true;
    for (size_t i = 0; i < order.size() && passed; ++i) {
        const recorded & r = dispatches_[order[i]];
        passed             = execute(*r.program, r.dispatch);
    }
    verifier::end_segment();
    clear();
    return passed;
}

}  // namespace metal_sim
