/* What an ELF file says of how it starts and how it gets to CUDA. Read with libelf; nothing of the
 * file is run. */
#ifndef GC_DOCTOR_ELF_H
#define GC_DOCTOR_ELF_H

#include <stdbool.h>
#include <stddef.h>

struct doctor_elf {
    bool is_64;
    bool is_of_this_machine;
    bool is_executable;    /* or a shared object */
    bool is_dynamic;       /* asks for a loader, or has a dynamic section */
    bool is_pie;           /* says that it is a program that may lie anywhere */
    bool is_library;       /* a shared object that is no program */
    char interpreter[256]; /* "": none */
    char runtime[64];      /* the shared CUDA runtime that is needed; "": none */
    bool needs_driver;     /* libcuda.so.1 is linked */
    bool has_device_code;  /* nvcc built it */
    bool names_driver;     /* has the text "libcuda.so": it, or a static runtime in it, opens it */
    bool names_resolver;   /* has the text "cuGetProcAddress" */
    bool imports_dlopen;
    bool imports_dlmopen;
    bool defines_allocation; /* exports cuMemAlloc_v2 or cudaMalloc */
};

/* False with `error` if it is no ELF file that can be read. */
bool doctor_elf_read(const char *path, struct doctor_elf *elf, char *error, size_t error_bytes);

/* Is it by a static runtime that the object gets to CUDA? */
bool doctor_elf_has_static_runtime(const struct doctor_elf *elf);

#endif
