// Dispatches that no memory barrier separates: a GPU may run them at the same time and in any order, so a result must not
// depend on it. They are recorded, and run when a barrier or the end of the encoder ends the segment.
#pragma once

#include "compute_dispatch.h"
#include "pipeline.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace metal_sim {

// Contents of set_bytes, by index. Shared: most dispatches set one and keep the others.
using bound_bytes = std::array<std::shared_ptr<const std::vector<unsigned char>>, max_buffer_bindings>;

class segment {
  public:
    // Records a dispatch as it is now. `bytes` holds what some of its buffers point to; the pipeline and all other buffers
    // must live until the segment has run.
    void add(const pipeline & p, const compute_dispatch & d, const bound_bytes & bytes);

    // Runs what was recorded, one dispatch after another in the order of METAL_SIM_ORDER, and forgets it. False when one
    // failed; those behind it have not run then.
    bool run();

    void clear() { dispatches_.clear(); }

  private:
    struct recorded {
        const pipeline * program;
        compute_dispatch dispatch;
        bound_bytes      bytes;
    };

    std::vector<recorded> dispatches_;
    uint64_t              turn_ = 0;  // segments run before this one
};

}  // namespace metal_sim
