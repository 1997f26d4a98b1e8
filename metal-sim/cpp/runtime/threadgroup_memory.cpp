#include "threadgroup_memory.h"

#include "../verifier/hooks.h"

#include <algorithm>

namespace metal_sim {

namespace {

constexpr size_t block_alignment = 16;
constexpr size_t slack_size      = 16 * 1024;

// NaN as half, bfloat and float, like poison, but another one: poison copied over the slack is seen too.
constexpr uint16_t canary = 0xfffa;

struct canary_pattern {
    uint16_t values[(slack_size + block_alignment) / sizeof(uint16_t)];

    canary_pattern() { std::fill(std::begin(values), std::end(values), canary); }
};

const canary_pattern pattern;

}  // namespace

// Blocks lie at the end of their memory, so that the slack keeps its place when the size changes.
bool threadgroup_memory::block::place(size_t new_size) {
    if (memory.begin() == nullptr && !memory.map(max_threadgroup_memory + slack_size)) {
        return false;
    }
    unsigned char * const slack = memory.end() - slack_size;
    unsigned char * const start = slack - (new_size + block_alignment - 1) / block_alignment * block_alignment;
    if (start != data || new_size != size) {
        data = start;
        size = new_size;
        std::memcpy(data + size, pattern.values, static_cast<size_t>(memory.end() - (data + size)));
    }
    used = true;
    return true;
}

overrun threadgroup_memory::block::find_overrun() {
    overrun                     result;
    unsigned char * const       behind   = data + size;
    const size_t                length   = static_cast<size_t>(memory.end() - behind);
    const unsigned char * const expected = reinterpret_cast<const unsigned char *>(pattern.values);
    if (std::memcmp(behind, expected, length) == 0) {
        return result;
    }
    size_t first = 0;
    while (behind[first] == expected[first]) {
        ++first;
    }
    size_t last = length - 1;
    while (behind[last] == expected[last]) {
        --last;
    }
    std::memcpy(behind, expected, length);
    result.found = true;
    result.begin = size + first;
    result.end   = size + last + 1;
    result.size  = size;
    result.array = name;
    return result;
}

unsigned char * threadgroup_memory::bind(uint32_t index, size_t size) {
    block & b = bound_[index];
    if (!b.place(size)) {
        return nullptr;
    }
    bound_bytes_ += size;
    verifier::place_threadgroup_memory(index, nullptr, b.data, size, b.memory.begin(), b.memory.end());
    return b.data;
}

void threadgroup_memory::unbind_all() {
    for (block & b : bound_) {
        b.used = false;
    }
    bound_bytes_ = 0;
}

void threadgroup_memory::begin_threadgroup() {
    for (block & b : bound_) {
        if (b.used) {
            std::memset(b.data, poison_byte, b.size);
        }
    }
    array_count_    = 0;
    declared_bytes_ = 0;
}

unsigned char * threadgroup_memory::declare(const void * tag, size_t size, const char * name) {
    for (size_t i = 0; i < array_count_; ++i) {
        if (arrays_[i].tag == tag) {
            return arrays_[i].data;
        }
    }
    if (size > max_threadgroup_memory - bytes() || array_count_ == arrays_.size()) {
        return nullptr;
    }
    block & b = arrays_[array_count_];
    if (!b.place(size)) {
        return nullptr;
    }
    b.tag  = tag;
    b.name = name;
    std::memset(b.data, poison_byte, b.size);
    declared_bytes_ += size;
    verifier::place_threadgroup_memory(max_threadgroup_memory_bindings + static_cast<uint32_t>(array_count_), name, b.data,
                                       size, b.memory.begin(), b.memory.end());
    ++array_count_;
    return b.data;
}

overrun threadgroup_memory::find_overrun() {
    overrun first;
    for (uint32_t i = 0; i < bound_.size(); ++i) {
        overrun found = bound_[i].used ? bound_[i].find_overrun() : overrun();
        found.index   = i;
        first         = first.found ? first : found;
    }
    for (size_t i = 0; i < array_count_; ++i) {
        const overrun found = arrays_[i].find_overrun();
        first               = first.found ? first : found;
    }
    return first;
}

}  // namespace metal_sim
