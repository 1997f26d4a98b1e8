// Functions that the Metal registry hands out by name (ggml_backend_reg_get_proc_address) beyond upstream's. A caller
// needs the copy that belongs to the device it has: a backend loaded as a library has its own.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// name must be a literal; a name that is there already keeps its function
void   ggml_metal_procs_add(const char * name, void * function);

// NULL when there is none
void * ggml_metal_procs_get(const char * name);

#ifdef __cplusplus
}
#endif
