// The device itself, in place of the Objective-C half of ggml-metal-device.m.
#include "device.h"

#include "ggml-metal-procs.h"
#include "metal_sim.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

namespace {

// Which GPU's tuning tables ggml takes. It decides which kernels run, and nothing else: no figure of that GPU is
// modelled.
const char * gpu_name() {
    const char * name = std::getenv("METAL_SIM_GPU");
    return name != nullptr ? name : "Apple M2 Pro";
}

// Upstream's rule: on by default on these chips only, and where GGML_METAL_TENSOR_ENABLE is set.
bool has_tensor(const std::string & gpu) {
    if (std::getenv("GGML_METAL_TENSOR_DISABLE") != nullptr) {
        return false;
    }
    if (std::getenv("GGML_METAL_TENSOR_ENABLE") != nullptr) {
        return true;
    }
    for (const char * chip : { "M5", "M6", "A19", "A20" }) {
        if (gpu.find(chip) != std::string::npos) {
            return true;
        }
    }
    return false;
}

size_t host_memory() {
    return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

ggml_metal_device_props make_props(int device, int n_devices) {
    const std::string       gpu = gpu_name();
    ggml_metal_device_props p   = {};

    p.device      = device;
    p.device_phys = 0;
    p.device_virt = device;

    p.has_simdgroup_reduction = true;
    p.has_simdgroup_mm        = true;
    p.has_unified_memory      = true;
    p.has_bfloat              = std::getenv("GGML_METAL_BF16_DISABLE") == nullptr;
    p.has_tensor              = has_tensor(gpu);
    p.use_residency_sets      = false;
    p.use_shared_buffers      = std::getenv("GGML_METAL_SHARED_BUFFERS_DISABLE") == nullptr ||
                           std::getenv("GGML_METAL_SHARED_BUFFERS_ENABLE") != nullptr;

    p.device_id  = metal_sim_device_id_parse(gpu.c_str());
    p.gpu_family = 8;  // Apple8: simdgroup matrices and bfloat

    const char * batch          = std::getenv("GGML_OP_OFFLOAD_MIN_BATCH");
    p.op_offload_min_batch_size = batch != nullptr ? std::atoi(batch) : 32;

    p.max_buffer_size            = host_memory();
    p.max_working_set_size       = host_memory() / 4 * 3;
    p.max_theadgroup_memory_size = 32 * 1024;

    std::snprintf(p.name, sizeof(p.name), "MTL%d", device);
    // said first, so that no table or log that cuts the description makes it look like a GPU
    if (n_devices > 1) {
        std::snprintf(p.desc, sizeof(p.desc), "simulated Metal device %d (tuned as %s)", p.device_virt, gpu.c_str());
    } else {
        std::snprintf(p.desc, sizeof(p.desc), "simulated Metal device (tuned as %s)", gpu.c_str());
    }
    return p;
}

// What ggml_backend_reg_get_proc_address hands out for this device beyond the real one's functions.
void add_procs() {
    ggml_metal_procs_add("metal_sim_counters_reset", reinterpret_cast<void *>(metal_sim_counters_reset));
    ggml_metal_procs_add("metal_sim_counters_read", reinterpret_cast<void *>(metal_sim_counters_read));
    ggml_metal_procs_add("metal_sim_last_fault", reinterpret_cast<void *>(metal_sim_last_fault));
    ggml_metal_procs_add("metal_sim_fault_clear", reinterpret_cast<void *>(metal_sim_fault_clear));
#ifdef METAL_SIM_VERIFIER
    ggml_metal_procs_add("metal_sim_verifier_take", reinterpret_cast<void *>(metal_sim_verifier_take));
    ggml_metal_procs_add("metal_sim_verifier_module", reinterpret_cast<void *>(metal_sim_verifier_module));
    ggml_metal_procs_add("metal_sim_verifier_set_strict", reinterpret_cast<void *>(metal_sim_verifier_set_strict));
    ggml_metal_procs_add("metal_sim_verifier_set_order", reinterpret_cast<void *>(metal_sim_verifier_set_order));
    ggml_metal_procs_add("metal_sim_verifier_barriers", reinterpret_cast<void *>(metal_sim_verifier_barriers));
    ggml_metal_procs_add("metal_sim_verifier_barriers_reset",
                         reinterpret_cast<void *>(metal_sim_verifier_barriers_reset));
    ggml_metal_procs_add("metal_sim_verifier_remove_barrier",
                         reinterpret_cast<void *>(metal_sim_verifier_remove_barrier));
    ggml_metal_procs_add("metal_sim_verifier_restore_barriers",
                         reinterpret_cast<void *>(metal_sim_verifier_restore_barriers));
    ggml_metal_procs_add("metal_sim_verifier_last_writer", reinterpret_cast<void *>(metal_sim_verifier_last_writer));
#endif
}

}  // namespace

// All commands have run when the call that encodes them returns: there is nothing left to wait for.
struct ggml_metal_event {};

extern "C" {

ggml_metal_device_t ggml_metal_device_init(int device, int n_devices) {
    ggml_metal_device * const dev = new ggml_metal_device;
    dev->props                    = make_props(device, n_devices);
    add_procs();

    const char * debug = std::getenv("GGML_METAL_FUSION_DEBUG");
    dev->finfo         = ggml_metal_fusion_info_init(std::getenv("GGML_METAL_FUSION_DISABLE") == nullptr,
                                             debug != nullptr ? std::atoi(debug) : 0);
    dev->library       = ggml_metal_library_init(dev);

    GGML_LOG_INFO("%s: GPU name:   %s (%s)\n", __func__, dev->props.name, dev->props.desc);
    GGML_LOG_INFO("%s: has tensor            = %s\n", __func__, dev->props.has_tensor ? "true" : "false");
    return dev;
}

// Nobody calls it: devices live as long as the process. Buffers that are alive keep what they need of the device.
void ggml_metal_device_free(ggml_metal_device_t dev) {
    ggml_metal_fusion_info_free(dev->finfo);
    ggml_metal_library_free(dev->library);
    delete dev;
}

void * ggml_metal_device_get_obj(ggml_metal_device_t dev) {
    return dev;
}

void * ggml_metal_device_get_queue(ggml_metal_device_t dev) {
    return dev;
}

ggml_metal_library_t ggml_metal_device_get_library(ggml_metal_device_t dev) {
    return dev->library;
}

void ggml_metal_device_get_memory(ggml_metal_device_t dev, size_t * free, size_t * total) {
    const size_t used = *dev->allocated;
    *total            = dev->props.max_working_set_size;
    *free             = *total > used ? *total - used : 0;
}

const ggml_metal_device_props * ggml_metal_device_get_props(ggml_metal_device_t dev) {
    return &dev->props;
}

ggml_metal_fusion_info * ggml_metal_device_get_fusion_info(ggml_metal_device_t dev) {
    return dev->finfo;
}

// ---- residency sets: none, see use_residency_sets

ggml_metal_rsets_t ggml_metal_rsets_init(ggml_metal_device_t dev) {
    GGML_UNUSED(dev);
    return nullptr;
}

void ggml_metal_rsets_free(ggml_metal_rsets_t rsets) {
    GGML_UNUSED(rsets);
}

void ggml_metal_device_rsets_add(ggml_metal_device_t dev, ggml_metal_rset_t rset) {
    GGML_UNUSED(dev);
    GGML_UNUSED(rset);
}

void ggml_metal_device_rsets_rm(ggml_metal_device_t dev, ggml_metal_rset_t rset) {
    GGML_UNUSED(dev);
    GGML_UNUSED(rset);
}

void ggml_metal_device_rsets_keep_alive(ggml_metal_device_t dev) {
    GGML_UNUSED(dev);
}

// ---- events

ggml_metal_event_t ggml_metal_device_event_init(ggml_metal_device_t dev) {
    GGML_UNUSED(dev);
    return new ggml_metal_event;
}

void ggml_metal_device_event_free(ggml_metal_device_t dev, ggml_metal_event_t ev) {
    GGML_UNUSED(dev);
    delete ev;
}

void ggml_metal_device_event_synchronize(ggml_metal_device_t dev, ggml_metal_event_t ev) {
    GGML_UNUSED(dev);
    GGML_UNUSED(ev);
}

void ggml_metal_event_encode_signal(ggml_metal_event_t ev, ggml_metal_cmd_buf_t cmd_buf) {
    GGML_UNUSED(ev);
    GGML_UNUSED(cmd_buf);
}

void ggml_metal_event_encode_wait(ggml_metal_event_t ev, ggml_metal_cmd_buf_t cmd_buf) {
    GGML_UNUSED(ev);
    GGML_UNUSED(cmd_buf);
}
}
