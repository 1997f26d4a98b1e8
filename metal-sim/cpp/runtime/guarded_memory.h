// Memory between two pages that must not be touched.
#pragma once

#include <cstddef>

namespace metal_sim {

// What memory holds that nobody has written: NaN as float, half and bfloat, -1 as an integer.
constexpr unsigned char poison_byte = 0xff;

size_t page_size();

// Pages between two guard pages. An access beyond either end is a SIGSEGV: this library installs no handler for it.
class guarded_memory {
  public:
    guarded_memory() = default;
    ~guarded_memory();
    guarded_memory(const guarded_memory &)             = delete;
    guarded_memory & operator=(const guarded_memory &) = delete;

    // Maps at least `size` bytes, zeroed. False when the system refuses. At most once.
    bool map(size_t size);

    // The same, with every byte poisoned. Pages that stay untouched cost no memory.
    bool map_poisoned(size_t size);

    unsigned char * begin() const { return begin_; }
    unsigned char * end() const { return begin_ + size_; }
    size_t          size() const { return size_; }

    // The last `size` bytes before the guard page, but aligned: up to `alignment - 1` bytes follow them.
    unsigned char * last(size_t size, size_t alignment) const;

  private:
    unsigned char * begin_ = nullptr;
    size_t          size_  = 0;
};

}  // namespace metal_sim
