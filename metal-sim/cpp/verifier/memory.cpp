#ifdef METAL_SIM_VERIFIER

#    include "memory.h"

#    include "hooks.h"

#    include <cstring>
#    include <map>
#    include <memory>
#    include <mutex>

namespace metal_sim {
namespace verifier {

namespace {

struct registry {
    std::mutex                                                            lock;
    std::map<const unsigned char *, std::unique_ptr<device_memory_shadow>> all;  // by where it is readable
};

registry & memories() {
    static registry & r = *new registry;  // buffers may be freed while the process exits
    return r;
}

device_memory_shadow * find(registry & r, const unsigned char * address) {
    auto after = r.all.upper_bound(address);
    if (after == r.all.begin()) {
        return nullptr;
    }
    device_memory_shadow & m = *std::prev(after)->second;
    return address < m.readable_end ? &m : nullptr;
}

void set_written(const unsigned char * data, size_t size, int value) {
    device_memory_shadow * const m = size > 0 ? memory_around(data) : nullptr;
    if (m != nullptr && data >= m->data && size <= m->size - static_cast<size_t>(data - m->data)) {
        std::memset(m->bytes.written + (data - m->data), value, size);
    }
}

}  // namespace

void add_memory(unsigned char * data, size_t size, unsigned char * readable, unsigned char * readable_end,
                const void * base, bool initialised) {
    auto m          = std::make_unique<device_memory_shadow>();
    m->data         = data;
    m->size         = size;
    m->readable     = readable;
    m->readable_end = readable_end;
    m->base         = reinterpret_cast<uintptr_t>(base);
    if (!m->bytes.map(size)) {
        return;  // its accesses will be said to lie nowhere
    }
    if (initialised) {
        std::memset(m->bytes.written, 1, size);
    }
    registry &                        r = memories();
    const std::lock_guard<std::mutex> guard(r.lock);
    r.all[readable] = std::move(m);
}

void remove_memory(unsigned char * data) {
    registry &                        r = memories();
    const std::lock_guard<std::mutex> guard(r.lock);
    for (auto i = r.all.begin(); i != r.all.end(); ++i) {
        if (i->second->data == data) {
            r.all.erase(i);
            return;
        }
    }
}

device_memory_shadow * memory_around(const unsigned char * address) {
    registry &                        r = memories();
    const std::lock_guard<std::mutex> guard(r.lock);
    return find(r, address);
}

device_memory_shadow * memory_at_host_address(uintptr_t address) {
    registry &                        r = memories();
    const std::lock_guard<std::mutex> guard(r.lock);
    for (const auto & entry : r.all) {
        device_memory_shadow & m = *entry.second;
        if (address - m.base < m.size) {
            return &m;
        }
    }
    return nullptr;
}

void for_each_memory(const std::function<void(device_memory_shadow &)> & f) {
    registry &                        r = memories();
    const std::lock_guard<std::mutex> guard(r.lock);
    for (const auto & entry : r.all) {
        f(*entry.second);
    }
}

void initialise(const unsigned char * data, size_t size) {
    set_written(data, size, 1);
}

void poison(const unsigned char * data, size_t size) {
    set_written(data, size, 0);
}

void initialise_as(const unsigned char * to, const unsigned char * from, size_t size) {
    const device_memory_shadow * const source = size > 0 ? memory_around(from) : nullptr;
    device_memory_shadow * const       target = size > 0 ? memory_around(to) : nullptr;
    if (source != nullptr && target != nullptr) {
        std::memmove(target->bytes.written + (to - target->data), source->bytes.written + (from - source->data), size);
    }
}

}  // namespace verifier
}  // namespace metal_sim

#endif
