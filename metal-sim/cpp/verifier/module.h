// The file that this code was loaded from: the program, or a plugin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metal_sim {
namespace verifier {

struct module_segment {
    const unsigned char * begin;
    size_t                size;
};

// Where it is mapped: kernels read constants there and function constants.
const std::vector<module_segment> & module_segments();

// A code address as an offset in the file's own numbering, which debug information uses.
uint32_t module_offset(const void * code);

// Its path; "" for the program.
const char * module_name();

}  // namespace verifier
}  // namespace metal_sim
