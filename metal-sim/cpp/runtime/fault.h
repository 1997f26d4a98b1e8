// What went wrong in a kernel, as data. Nothing here throws, and no fault ever unwinds through a lane's stack.
#pragma once

#include <cstdio>

namespace metal_sim {

// A message of bounded length, so that reporting needs no memory.
struct fault {
    char message[1024] = "";

    template <class... Values> fault & set(const char * format, Values... values) {
        std::snprintf(message, sizeof(message), format, values...);
        return *this;
    }
};

// Makes `f` the last fault of the process.
void report(const fault & f);

// The last fault's message, "" when there is none. Valid until the next report.
const char * last_fault();
void         clear_fault();

}  // namespace metal_sim
