#include "registry.h"

#include <string>
#include <string_view>
#include <unordered_map>

namespace metal_sim {

namespace {

constexpr std::string_view tensor_suffix = "_tensor";

bool has_suffix(std::string_view name, std::string_view suffix) {
    return name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
}

class library {
  public:
    explicit library(bool tensor) {
        size_t               count = 0;
        unit * const * const units = metal_sim_units(&count);
        for (size_t i = 0; i < count; ++i) {
            if (belongs(*units[i], units, count, tensor)) {
                add(*units[i]);
            }
        }
    }

    const kernel_entry * find(const char * host_name) const {
        const auto found = kernels_.find(host_name);
        return found == kernels_.end() ? nullptr : found->second;
    }

  private:
    static bool belongs(const unit & u, unit * const * units, size_t count, bool tensor) {
        if (has_suffix(u.name(), tensor_suffix)) {
            return tensor;
        }
        const std::string variant = std::string(u.name()) + std::string(tensor_suffix);
        for (size_t i = 0; tensor && i < count; ++i) {
            if (variant == units[i]->name()) {
                return false;
            }
        }
        return true;
    }

    void add(const unit & u) {
        for (const kernel_entry * k = u.kernels(); k != nullptr; k = k->next) {
            kernels_.emplace(k->name, k);
        }
    }

    std::unordered_map<std::string_view, const kernel_entry *> kernels_;
};

}  // namespace

const kernel_entry * find_kernel(const char * host_name, bool tensor) {
    // Never destroyed, since another thread may look one up while the process exits.
    static const library & plain       = *new library(false);
    static const library & with_tensor = *new library(true);
    return (tensor ? with_tensor : plain).find(host_name);
}

}  // namespace metal_sim
