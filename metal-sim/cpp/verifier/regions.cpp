#ifdef METAL_SIM_VERIFIER

#    include "regions.h"

#    include <algorithm>
#    include <cstring>

namespace metal_sim {
namespace verifier {

void regions::begin_dispatch(const compute_dispatch & d, const std::vector<region> & internals) {
    of_dispatch_.clear();
    order_.clear();
    for (uint32_t i = 0; i < max_buffer_bindings; ++i) {
        if (d.constant_bytes[i] > 0) {
            region r;
            r.begin = static_cast<const unsigned char *>(d.buffers[i]);
            r.end   = r.begin + d.constant_bytes[i];
            add(r);
        }
    }
    for (const region & r : internals) {
        add(r);
    }
    add_tensors(d);
    for (threadgroup_block & b : blocks_) {
        order_.push_back(&b.where);
    }
}

void regions::add(const region & r) {
    of_dispatch_.push_back(r);
    order_.push_back(&of_dispatch_.back());
}

// Tensors that overlap, as views do, are one region.
void regions::add_tensors(const compute_dispatch & d) {
    std::vector<region> all;
    for (const memory_extent & e : d.extents) {
        device_memory_shadow * const m = memory_around(e.begin);
        if (m == nullptr || e.begin < m->data) {
            continue;
        }
        region r;
        r.begin  = e.begin;
        r.end    = e.begin + std::min(e.size, static_cast<size_t>(m->data + m->size - e.begin));
        r.bytes  = &m->bytes;
        r.offset = static_cast<size_t>(e.begin - m->data);
        all.push_back(r);
    }
    std::sort(all.begin(), all.end(), [](const region & a, const region & b) { return a.begin < b.begin; });
    size_t last = 0;
    for (size_t i = 1; i < all.size(); ++i) {
        if (all[i].bytes == all[last].bytes && all[i].begin < all[last].end) {
            all[last].end = std::max(all[last].end, all[i].end);
        } else {
            all[++last] = all[i];
        }
    }
    for (size_t i = 0; i < all.size() && i <= last; ++i) {
        add(all[i]);
    }
}

bool regions::place(uint32_t slot, const char * name, unsigned char * data, size_t size,
                    const unsigned char * readable, const unsigned char * readable_end) {
    threadgroup_block & b = blocks_[slot];
    if (b.bytes == nullptr) {
        b.bytes = std::make_unique<shadow>();
        if (!b.bytes->map(max_threadgroup_memory)) {
            return false;
        }
    }
    b.name         = name;
    b.readable     = readable;
    b.readable_end = readable_end;
    b.where.begin  = data;
    b.where.end    = data + size;
    b.where.bytes  = b.bytes.get();
    b.where.shared = true;
    std::memset(b.bytes->written, 0, size);
    return true;
}

void regions::forget_threadgroup_memory() {
    for (threadgroup_block & b : blocks_) {
        b.where = region();
    }
}

void regions::forget_shared_accesses() {
    for (threadgroup_block & b : blocks_) {
        if (b.bytes != nullptr) {
            b.bytes->forget_accesses();
        }
    }
}

void regions::begin_threadgroup() {
    for (uint32_t i = 0; i < max_slots; ++i) {
        threadgroup_block & b = blocks_[i];
        if (i >= max_threadgroup_memory_bindings) {
            b.where = region();
        } else if (b.where.bytes != nullptr) {
            std::memset(b.bytes->written, 0, static_cast<size_t>(b.where.end - b.where.begin));
        }
    }
}

void regions::add_stack(const unsigned char * begin, const unsigned char * end) {
    region r;
    r.begin = begin;
    r.end   = end;
    stacks_.insert(std::upper_bound(stacks_.begin(), stacks_.end(), r,
                                    [](const region & a, const region & b) { return a.begin < b.begin; }),
                   r);
}

bool regions::in_a_stack(const unsigned char * address, size_t size) const {
    auto after = std::upper_bound(stacks_.begin(), stacks_.end(), address,
                                  [](const unsigned char * a, const region & r) { return a < r.begin; });
    return after != stacks_.begin() && std::prev(after)->contains(address, size);
}

const threadgroup_block * regions::block_around(const unsigned char * address, uint32_t & slot) const {
    for (slot = 0; slot < max_slots; ++slot) {
        const threadgroup_block & b = blocks_[slot];
        if (b.where.begin != nullptr && address >= b.readable && address < b.readable_end) {
            return &b;
        }
    }
    return nullptr;
}

}  // namespace verifier
}  // namespace metal_sim

#endif
