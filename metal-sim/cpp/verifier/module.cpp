#ifdef METAL_SIM_VERIFIER

#    include "module.h"

#    include <string>

#    include <link.h>

namespace metal_sim {
namespace verifier {

namespace {

struct module {
    uintptr_t                   base = 0;
    std::string                 name;
    std::vector<module_segment> segments;
};

int look_at(dl_phdr_info * info, size_t, void * out) {
    const uintptr_t here = reinterpret_cast<uintptr_t>(&look_at);
    module          m;
    bool            mine = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto & header = info->dlpi_phdr[i];
        if (header.p_type == PT_LOAD) {
            const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
            m.segments.push_back({ reinterpret_cast<const unsigned char *>(begin), header.p_memsz });
            mine = mine || here - begin < header.p_memsz;
        }
    }
    if (mine) {
        m.base                      = info->dlpi_addr;
        m.name                      = info->dlpi_name;
        *static_cast<module *>(out) = m;
    }
    return mine ? 1 : 0;
}

module find() {
    module m;
    dl_iterate_phdr(&look_at, &m);
    return m;
}

const module & this_module() {
    static const module & m = *new module(find());
    return m;
}

}  // namespace

const std::vector<module_segment> & module_segments() {
    return this_module().segments;
}

uint32_t module_offset(const void * code) {
    static const uintptr_t base = this_module().base;
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(code) - base);
}

const char * module_name() {
    return this_module().name.c_str();
}

}  // namespace verifier
}  // namespace metal_sim

#endif
