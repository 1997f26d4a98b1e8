#include "fault.h"

#include <mutex>

namespace metal_sim {

namespace {

std::mutex lock;
fault      last;

}  // namespace

void report(const fault & f) {
    const std::lock_guard<std::mutex> guard(lock);
    last = f;
}

const char * last_fault() {
    const std::lock_guard<std::mutex> guard(lock);
    return last.message;
}

void clear_fault() {
    const std::lock_guard<std::mutex> guard(lock);
    last = fault();
}

}  // namespace metal_sim
