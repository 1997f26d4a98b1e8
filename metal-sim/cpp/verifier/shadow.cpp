#ifdef METAL_SIM_VERIFIER

#    include "shadow.h"

#    include <sys/mman.h>

namespace metal_sim {
namespace verifier {

namespace {

void * map_zeros(size_t size) {
    void * const p =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void unmap(void * p, size_t size) {
    if (p != nullptr) {
        munmap(p, size);
    }
}

}  // namespace

shadow::~shadow() {
    unmap(written, size);
    unmap(last_write, size * sizeof(cell));
    unmap(last_read, size * sizeof(cell));
}

bool shadow::map(size_t bytes) {
    size       = bytes > 0 ? bytes : 1;
    written    = static_cast<uint8_t *>(map_zeros(size));
    last_write = static_cast<cell *>(map_zeros(size * sizeof(cell)));
    last_read  = static_cast<cell *>(map_zeros(size * sizeof(cell)));
    return written != nullptr && last_write != nullptr && last_read != nullptr;
}

// Gives the pages back: they are zero when they are touched again.
void shadow::forget_accesses() {
    madvise(last_write, size * sizeof(cell), MADV_DONTNEED);
    madvise(last_read, size * sizeof(cell), MADV_DONTNEED);
}

}  // namespace verifier
}  // namespace metal_sim

#endif
