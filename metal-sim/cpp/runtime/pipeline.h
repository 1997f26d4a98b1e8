// A kernel with values for its function constants.
#pragma once

#include "kernel.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace metal_sim {

struct constant_value {
    int32_t       index;
    constant_type type;
    int32_t       value;  // of a bool, int16 or int32: the types that ggml sets
};

class pipeline {
  public:
    // Null, with a fault reported, if a value has an index or a type that the kernel's unit does not declare.
    static std::unique_ptr<pipeline> create(const kernel_entry & kernel, std::vector<constant_value> values);

    const kernel_entry & kernel() const { return kernel_; }

    // Gives the unit's function constants this pipeline's values: those it does not set are zero, never what another
    // pipeline has left. The caller holds the lock that serialises dispatches.
    void configure() const;

  private:
    pipeline(const kernel_entry & kernel, std::vector<constant_value> values);

    const kernel_entry &        kernel_;
    std::vector<constant_value> values_;
    uint64_t                    id_;  // never reused, unlike an address
};

}  // namespace metal_sim
