#include "metal_sim.h"

#include "../runtime/dispatcher.h"
#include "../runtime/fault.h"
#include "../verifier/findings.h"
#include "../verifier/traffic.h"

extern "C" {

void metal_sim_counters_reset(void) {
    metal_sim::reset_counters();
    metal_sim::verifier::reset_traffic();
    metal_sim::verifier::reset_lost_findings();
}

void metal_sim_counters_read(metal_sim_counters * counters) {
    const metal_sim::counters c    = metal_sim::read_counters();
    counters->dispatches           = c.dispatches;
    counters->threadgroups         = c.threadgroups;
    counters->threadgroup_barriers = c.threadgroup_barriers;
    counters->simdgroup_fmas       = c.simdgroup_fmas;
    counters->threadgroup_bytes    = c.threadgroup_bytes;
    counters->lane_switches        = c.lane_switches;
    counters->relaxed_fmas         = c.relaxed_fmas;

    const metal_sim::verifier::traffic t = metal_sim::verifier::device_traffic();
    counters->device_bytes_read          = t.read;
    counters->device_bytes_written       = t.written;
    counters->lost_findings              = metal_sim::verifier::lost_findings();
}

const char * metal_sim_last_fault(void) {
    return metal_sim::last_fault();
}

void metal_sim_fault_clear(void) {
    metal_sim::clear_fault();
}
}
