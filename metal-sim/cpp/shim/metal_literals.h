// MSL's suffix for half literals. Part of metal_scalar.h.
#pragma once
#pragma GCC system_header  // suffixes without a leading underscore are reserved to the implementation, which we stand
                           // for

constexpr half operator""h(long double value) {
    return static_cast<half>(value);
}

constexpr half operator""h(unsigned long long value) {
    return static_cast<half>(value);
}
