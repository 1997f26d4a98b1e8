#ifdef METAL_SIM_VERIFIER

#    include "findings.h"

#    include <deque>
#    include <map>
#    include <mutex>
#    include <string>
#    include <tuple>

namespace metal_sim {
namespace verifier {

namespace {

constexpr size_t max_findings = 4096;

using key = std::tuple<uint32_t, uint32_t, std::string, uint64_t, uint64_t, uint32_t>;

struct store {
    std::mutex                    lock;
    std::deque<metal_sim_finding> all;
    std::map<key, size_t>         known;  // position in `all`, counted from the first that was ever there
    size_t                        taken = 0;
    uint64_t                      lost  = 0;
};

store & findings() {
    static store & s = *new store;  // outlives static destructors: buffers are freed by some
    return s;
}

}  // namespace

void record(const metal_sim_finding & f) {
    store &                           s = findings();
    const std::lock_guard<std::mutex> guard(s.lock);
    const key                         k(f.detector, f.same_value, f.kernel, f.at.pc, f.other.pc, f.line);
    const auto                        found = s.known.find(k);
    if (found != s.known.end()) {
        if (found->second >= s.taken) {
            ++s.all[found->second - s.taken].count;
        }
        return;
    }
    if (s.all.size() == max_findings) {
        ++s.lost;
        return;
    }
    s.known.emplace(k, s.taken + s.all.size());
    s.all.push_back(f);
    s.all.back().count = 1;
}

uint64_t lost_findings() {
    store &                           s = findings();
    const std::lock_guard<std::mutex> guard(s.lock);
    return s.lost;
}

void reset_lost_findings() {
    store &                           s = findings();
    const std::lock_guard<std::mutex> guard(s.lock);
    s.lost = 0;
}

size_t take_findings(metal_sim_finding * out, size_t capacity) {
    store &                           s = findings();
    const std::lock_guard<std::mutex> guard(s.lock);
    size_t                            n = 0;
    for (; n < capacity && !s.all.empty(); ++n) {
        out[n] = s.all.front();
        s.all.pop_front();
    }
    s.taken += n;
    if (s.all.empty()) {
        s.known.clear();  // what is found again is told again
    }
    return n;
}

}  // namespace verifier
}  // namespace metal_sim

#endif
