// What is known about each byte of some memory: whether it was written, and who wrote and read it last.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metal_sim {
namespace verifier {

// How many have read a byte since somebody ordered before the next access did. Each includes those above it.
enum class readers : uint32_t { one, lanes, simdgroups, threadgroups, dispatches };

// Who accessed a byte, packed: a context (0: nobody), where in the code, and what else.
struct cell {
    uint64_t bits = 0;

    static constexpr int      pc_bits   = 28;
    static constexpr uint64_t pc_mask   = (uint64_t(1) << pc_bits) - 1;
    static constexpr uint64_t is_atomic = uint64_t(1) << 31;

    static cell of(uint32_t context, uint32_t pc, readers r, bool atomic) {
        return { uint64_t(context) << 32 | (atomic ? is_atomic : 0) | uint64_t(r) << pc_bits | (pc & pc_mask) };
    }

    uint32_t context() const { return static_cast<uint32_t>(bits >> 32); }

    uint32_t pc() const { return static_cast<uint32_t>(bits & pc_mask); }

    readers who() const { return static_cast<readers>(bits >> pc_bits & 7); }

    bool atomic() const { return (bits & is_atomic) != 0; }
};

// Seventeen bytes for each, mapped and therefore zero; a page of it costs memory when it is first written.
class shadow {
  public:
    shadow() = default;
    ~shadow();
    shadow(const shadow &)             = delete;
    shadow & operator=(const shadow &) = delete;

    // At most once. False when the system refuses.
    bool map(size_t size);

    // Nobody has accessed anything.
    void forget_accesses();

    uint8_t * written    = nullptr;
    cell *    last_write = nullptr;
    cell *    last_read  = nullptr;
    size_t    size       = 0;
};

}  // namespace verifier
}  // namespace metal_sim
