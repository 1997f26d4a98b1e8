// Memory between pages that must not be touched.
#pragma once

#include <cstddef>

namespace metal_sim {

// What memory holds that nobody has written: NaN as float, half and bfloat, -1 as an integer.
constexpr unsigned char poison_byte = 0xff;

// Pages between two guard pages. An access to a guard page is a SIGSEGV: this library installs no handler for it.
class guarded_memory {
  public:
    guarded_memory() = default;
    ~guarded_memory();
    guarded_memory(const guarded_memory &)             = delete;
    guarded_memory & operator=(const guarded_memory &) = delete;

    // Maps at least `size` bytes of zeros. False when the system refuses. At most once.
    bool map(size_t size);

    // The same, of poison, and behind it 4 MiB of poison that can only be read, as a GPU survives a read behind a buffer;
    // none with METAL_SIM_BEHIND=guard. A write there is a SIGSEGV. Poison costs no memory until it is overwritten.
    bool map_poisoned(size_t size);

    unsigned char * begin() const { return begin_; }

    unsigned char * end() const { return begin_ + size_; }

    size_t size() const { return size_; }

    // Reading up to here does not end the process.
    unsigned char * readable_end() const { return end() + behind_; }

    // The last `size` bytes, but aligned: up to `alignment - 1` bytes follow them.
    unsigned char * last(size_t size, size_t alignment) const;

  private:
    bool reserve(size_t size, size_t behind);
    void release();

    unsigned char * begin_  = nullptr;
    size_t          size_   = 0;
    size_t          behind_ = 0;  // readable bytes behind end()
};

}  // namespace metal_sim
