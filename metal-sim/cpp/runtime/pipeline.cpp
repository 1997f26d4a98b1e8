#include "pipeline.h"

#include "fault.h"

#include <atomic>
#include <cstring>
#include <utility>

namespace metal_sim {

namespace {

const char * name_of(constant_type type) {
    switch (type) {
    case constant_type::boolean: return "bool";
    case constant_type::int16: return "short";
    case constant_type::int32: return "int";
    case constant_type::float32: return "float";
    }
    return "?";
}

size_t size_of(constant_type type) {
    switch (type) {
    case constant_type::boolean: return sizeof(bool);
    case constant_type::int16: return sizeof(int16_t);
    case constant_type::int32: return sizeof(int32_t);
    case constant_type::float32: return sizeof(float);
    }
    return 0;
}

bool check(const kernel_entry & kernel, const constant_value & v) {
    bool declared = false;
    for (const function_constant * c = kernel.owner->constants(); c != nullptr; c = c->next) {
        if (c->index != v.index) {
            continue;
        }
        declared = true;
        if (c->type != v.type) {
            report(fault().set("%s: function constant %d (%s) has type %s, but a %s was set", kernel.name, v.index,
                               c->name, name_of(c->type), name_of(v.type)));
            return false;
        }
    }
    if (!declared) {
        report(fault().set("%s: function constant %d was set, but unit %s declares none with that index", kernel.name,
                           v.index, kernel.owner->name()));
    }
    return declared;
}

}  // namespace

std::unique_ptr<pipeline> pipeline::create(const kernel_entry & kernel, std::vector<constant_value> values) {
    for (const constant_value & v : values) {
        if (!check(kernel, v)) {
            return nullptr;
        }
    }
    return std::unique_ptr<pipeline>(new pipeline(kernel, std::move(values)));
}

pipeline::pipeline(const kernel_entry & kernel, std::vector<constant_value> values) :
    kernel_(kernel), values_(std::move(values)) {
    static std::atomic<uint64_t> last_id{ 0 };
    id_ = ++last_id;
}

void pipeline::configure() const {
    if (kernel_.owner->configured_for == id_) {
        return;
    }
    for (const function_constant * c = kernel_.owner->constants(); c != nullptr; c = c->next) {
        int32_t value = 0;
        for (const constant_value & v : values_) {
            value = v.index == c->index ? v.value : value;
        }
        // Little-endian, so the low bytes are the narrower integer.
        std::memcpy(c->storage, &value, size_of(c->type));
    }
    kernel_.owner->configured_for = id_;
}

}  // namespace metal_sim
