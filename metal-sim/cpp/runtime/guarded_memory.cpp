#include "guarded_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace metal_sim {

namespace {

size_t page_size() {
    static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

// Whether a read behind a buffer ends the process, as a write does. Asked once.
bool guards_reads() {
    static const bool guards = [] {
        const char * const text = std::getenv("METAL_SIM_BEHIND");
        return text != nullptr && std::strcmp(text, "guard") == 0;
    }();
    return guards;
}

size_t whole_pages(size_t size) {
    return (size + page_size() - 1) / page_size() * page_size();
}

// A file of poison, mapped privately again and again: a page of it is copied when it is first written.
class poison_file {
  public:
    static constexpr size_t size = 4 * 1024 * 1024;

    // Open until the process ends: buffers may be created at any time, also during exit.
    static const poison_file & instance() {
        static const poison_file file;
        return file;
    }

    // Replaces [begin, begin + length) of an existing mapping.
    bool cover(unsigned char * begin, size_t length, int protection) const {
        for (size_t done = 0; done < length; done += size) {
            const size_t part = std::min(size, length - done);
            if (mmap(begin + done, part, protection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, descriptor_, 0) ==
                MAP_FAILED) {
                return false;  // also when there is no file
            }
        }
        return true;
    }

  private:
    poison_file() : descriptor_(memfd_create("metal-sim-poison", MFD_CLOEXEC)) {
        if (descriptor_ < 0 || ftruncate(descriptor_, size) != 0) {
            return;
        }
        void * const content = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
        if (content != MAP_FAILED) {
            std::memset(content, poison_byte, size);
            munmap(content, size);
        }
    }

    int descriptor_;
};

}  // namespace

guarded_memory::~guarded_memory() {
    release();
}

bool guarded_memory::map(size_t size) {
    if (!reserve(size, 0)) {
        return false;
    }
    if (mprotect(begin_, size_, PROT_READ | PROT_WRITE) != 0) {
        release();
        return false;
    }
    return true;
}

bool guarded_memory::map_poisoned(size_t size) {
    const poison_file & poison = poison_file::instance();
    if (!reserve(size, guards_reads() ? 0 : poison_file::size)) {
        return false;
    }
    if (!poison.cover(begin_, size_, PROT_READ | PROT_WRITE) || !poison.cover(end(), behind_, PROT_READ)) {
        release();
        return false;
    }
    return true;
}

bool guarded_memory::reserve(size_t size, size_t behind) {
    if (begin_ != nullptr || size > SIZE_MAX / 2) {
        return false;
    }
    const size_t length  = whole_pages(size) + behind + 2 * page_size();
    void * const mapping = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        return false;
    }
    begin_  = static_cast<unsigned char *>(mapping) + page_size();
    size_   = whole_pages(size);
    behind_ = behind;
    return true;
}

void guarded_memory::release() {
    if (begin_ != nullptr) {
        munmap(begin_ - page_size(), size_ + behind_ + 2 * page_size());
        begin_ = nullptr;
    }
}

unsigned char * guarded_memory::last(size_t size, size_t alignment) const {
    const uintptr_t start = reinterpret_cast<uintptr_t>(end()) - size;
    return reinterpret_cast<unsigned char *>(start / alignment * alignment);
}

}  // namespace metal_sim
