/* Modules, libraries and functions: what engine_module.c and engine_library.c share. */
#ifndef SIM_ENGINE_MODULE_H
#define SIM_ENGINE_MODULE_H

#include "tests/simcuda/driver/engine_image.h"

#define SIM_FUNCTION_ATTRIBUTES 20

/* A function is its kernel too: a library's kernel launches in any context. */
struct sim_function {
    uint32_t magic;
    struct sim_function *next;
    struct sim_module *module;   /* NULL for a library's kernel */
    struct sim_library *library; /* NULL for a module's function */
    char *name;
    int attributes[SIM_FUNCTION_ATTRIBUTES];
    struct old_launch { /* for launches that give no shape (engine_launch_old.c) */
        unsigned block[3];
        unsigned shared_bytes;
    } old_launch;
};

struct sim_variable {
    struct sim_variable *next;
    char *name;
    uint64_t address, bytes;
};

struct sim_module {
    uint32_t magic;
    struct sim_module *next; /* in its context */
    struct sim_context *context;
    struct sim_library *library; /* the library it is an instance of, or NULL */
    struct sim_image image;      /* a library's is borrowed */
    uint64_t device_bytes;
    bool is_loaded; /* with SIMCUDA_LAZY not before a launch: engine_lazy.c */
    struct sim_function *functions;
    struct sim_variable *variables;
};

CUresult module_check(CUmodule handle, struct sim_module **module);
/* A module of the current context. Takes the image in every case, unless it is a library's. */
CUresult module_create(struct sim_image image, struct sim_library *library,
                       struct sim_module **module);
void module_destroy(struct sim_module *module);
CUresult module_find_variable(struct sim_module *module, const char *name, CUdeviceptr *address,
                              size_t *bytes);
/* Finds or makes the function in a list. */
CUresult function_get(struct sim_function **list, const struct sim_image *image, const char *name,
                      struct sim_function **function);
/* Loads the function into the current context, as its launch does. */
CUresult function_load(struct sim_function *function);
void function_free_list(struct sim_function *list);
CUresult function_check(const void *handle, struct sim_function **function);
/* The library's instance in the current context, made at need. */
CUresult library_instance(struct sim_library *library, struct sim_module **module);
void library_forget_context(struct sim_context *context);
/* cuLaunchKernel, whose parameters take no part. */
CUresult launch_in_stream(CUfunction handle, const unsigned grid[3], const unsigned block[3],
                          unsigned shared_bytes, CUstream stream_handle, bool per_thread);

#endif
