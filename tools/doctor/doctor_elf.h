/* How a program starts and gets to CUDA, from its ELF file. Read with libelf; nothing of the
 * file runs. */
#ifndef GC_DOCTOR_ELF_H
#define GC_DOCTOR_ELF_H

#include <stdbool.h>
#include <stddef.h>

struct doctor_elf {
    bool is_64;
    bool is_of_this_machine;
    bool is_executable;    /* or a shared object */
    bool is_dynamic;       /* has an interpreter or a dynamic section */
    bool is_pie;           /* flagged as a position-independent program */
    bool is_library;       /* a shared object and not a program */
    char interpreter[256]; /* "": none */
    char runtime[64];      /* name of the shared CUDA runtime that it needs; "": none */
    bool needs_driver;     /* libcuda.so.1 is linked */
    bool has_device_code;  /* nvcc built it */
    /* has the text "libcuda.so": it, or its static runtime, opens the driver */
    bool names_driver;
    bool names_resolver; /* has the text "cuGetProcAddress" */
    bool names_encoder;  /* has the text "libnvidia-encode", or is linked with it */
    bool imports_dlopen;
    bool imports_dlmopen;
    bool defines_allocation; /* exports cuMemAlloc_v2 or cudaMalloc */
};

/* False with `error` if the file is not readable ELF. */
bool doctor_elf_read(const char *path, struct doctor_elf *elf, char *error, size_t error_bytes);

/* True if the object gets to CUDA by a static runtime. */
bool doctor_elf_has_static_runtime(const struct doctor_elf *elf);

#endif
