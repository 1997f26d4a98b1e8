#include "settings.h"

#include "../verifier/hooks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace metal_sim {

namespace {

constexpr uint32_t max_threads = 16;

bool parse_order(const char * text, lane_order & order) {
    const struct {
        const char * name;
        lane_order   order;
    } names[] = {
        { "ascending", lane_order::ascending },
        { "reversed", lane_order::reversed },
        { "random", lane_order::random },
    };

    for (const auto & known : names) {
        if (std::strcmp(text, known.name) == 0) {
            order = known.order;
            return true;
        }
    }
    return false;
}

bool parse_number(const char * text, uint64_t & value) {
    char *                   end    = nullptr;
    const unsigned long long parsed = std::strtoull(text, &end, 10);
    value                           = parsed;
    return end != text && *end == '\0' && *text != '-';
}

}  // namespace

settings settings::from_environment() {
    settings s;
    // The verifier sees one threadgroup at a time.
    s.threads = verifier::enabled ? 1 : std::clamp(std::thread::hardware_concurrency(), 1u, max_threads);

    if (const char * text = std::getenv("METAL_SIM_ORDER")) {
        if (!parse_order(text, s.order)) {
            s.error = std::string("METAL_SIM_ORDER=") + text + ": expected ascending, reversed or random";
        }
    }
    if (const char * text = std::getenv("METAL_SIM_SEED")) {
        if (!parse_number(text, s.seed)) {
            s.error = std::string("METAL_SIM_SEED=") + text + ": expected a number";
        }
    }
    if (const char * text = std::getenv("METAL_SIM_THREADS")) {
        uint64_t threads = 0;
        if (!parse_number(text, threads) || threads < 1 || threads > max_threads) {
            s.error = std::string("METAL_SIM_THREADS=") + text + ": expected 1 to 16";
        } else if (verifier::enabled && threads != 1) {
            s.error = std::string("METAL_SIM_THREADS=") + text + ": this simulator has its verifier, which runs on one thread";
        } else {
            s.threads = static_cast<uint32_t>(threads);
        }
    }
    if (const char * text = std::getenv("METAL_SIM_LOCKSTEP")) {
        const bool strict = std::strcmp(text, "strict") == 0;
        if (!strict && std::strcmp(text, "hardware") != 0) {
            s.error = std::string("METAL_SIM_LOCKSTEP=") + text + ": expected hardware or strict";
        } else if (strict && !verifier::enabled) {
            s.error = "METAL_SIM_LOCKSTEP=strict: this simulator was built without its verifier";
        }
    }
    if (const char * text = std::getenv("METAL_SIM_BEHIND")) {
        if (std::strcmp(text, "readable") != 0 && std::strcmp(text, "guard") != 0) {
            s.error = std::string("METAL_SIM_BEHIND=") + text + ": expected readable or guard";
        }
    }
    return s;
}

}  // namespace metal_sim
