#include "guarded_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace metal_sim {

namespace {

// A file of poison, mapped privately again and again: a page of it is copied when it is first written.
class poison_file {
  public:
    static constexpr size_t size = 4 * 1024 * 1024;

    poison_file() {
        const int fd = memfd_create("metal-sim-poison", MFD_CLOEXEC);
        if (fd < 0) {
            return;
        }
        void * content = MAP_FAILED;
        if (ftruncate(fd, size) == 0) {
            content = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        }
        if (content == MAP_FAILED) {
            close(fd);
            return;
        }
        std::memset(content, poison_byte, size);
        munmap(content, size);
        descriptor_ = fd;
    }

    bool cover(unsigned char * begin, size_t length) const {
        for (size_t done = 0; done < length; done += size) {
            const size_t part = std::min(size, length - done);
            if (mmap(begin + done, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, descriptor_,
                     0) == MAP_FAILED) {
                return false;
            }
        }
        return true;
    }

    bool valid() const { return descriptor_ >= 0; }

    // Opened once and left to the end of the process: buffers may be created at any time, also during exit.
    static const poison_file & instance() {
        static const poison_file file;
        return file;
    }

  private:
    int descriptor_ = -1;
};

}  // namespace

size_t page_size() {
    static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

guarded_memory::~guarded_memory() {
    if (begin_ != nullptr) {
        munmap(begin_ - page_size(), size_ + 2 * page_size());
    }
}

bool guarded_memory::map(size_t size) {
    const size_t page = page_size();
    if (begin_ != nullptr || size > SIZE_MAX / 2) {
        return false;
    }
    const size_t rounded = (size + page - 1) / page * page;
    void * const mapping = mmap(nullptr, rounded + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                                -1, 0);
    if (mapping == MAP_FAILED) {
        return false;
    }
    unsigned char * const data = static_cast<unsigned char *>(mapping) + page;
    if (rounded > 0 && mprotect(data, rounded, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapping, rounded + 2 * page);
        return false;
    }
    begin_ = data;
    size_  = rounded;
    return true;
}

bool guarded_memory::map_poisoned(size_t size) {
    if (!map(size)) {
        return false;
    }
    const poison_file & poison = poison_file::instance();
    // Without the file, or for less than its overhead is worth, write the poison out.
    constexpr size_t small = 256 * 1024;
    if (size_ <= small || !poison.valid() || !poison.cover(begin_, size_)) {
        std::memset(begin_, poison_byte, size_);
    }
    return true;
}

unsigned char * guarded_memory::last(size_t size, size_t alignment) const {
    const uintptr_t start = reinterpret_cast<uintptr_t>(end()) - size;
    return reinterpret_cast<unsigned char *>(start / alignment * alignment);
}

}  // namespace metal_sim
