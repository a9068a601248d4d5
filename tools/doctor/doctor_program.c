/* A program's path to CUDA, found without running the program: only the loader runs, to list the
 * objects it would load. */
#define _GNU_SOURCE
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_elf.h"

#include "core/io/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TOPIC "program"
#define SCRIPTS_MAX 4 /* interpreters that are scripts themselves */

/* Ways to CUDA over all objects of the program. */
struct ways {
    unsigned runtime;
    unsigned static_runtime;
    unsigned driver;
    unsigned opens;
    bool opens_anything;
    bool opens_namespaces;
    bool encodes;
};

/* ---- finding it ---- */

static bool is_program(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode) && access(path, X_OK) == 0;
}

static bool find_program(const char *name, char path[PATH_MAX])
{
    const char *folders = getenv("PATH");
    if (strchr(name, '/') != NULL) {
        snprintf(path, PATH_MAX, "%s", name);
        return access(name, F_OK) == 0;
    }
    while (folders != NULL && *folders != '\0') {
        const size_t length = strcspn(folders, ":");
        if (snprintf(path, PATH_MAX, "%.*s/%s", (int)length, folders, name) < PATH_MAX &&
            is_program(path))
            return true;
        folders += length;
        folders += *folders == ':';
    }
    snprintf(path, PATH_MAX, "%s", name);
    return access(name, F_OK) == 0;
}

/* The interpreter: "#!/usr/bin/env python3" gives python3, "#!/bin/sh" /bin/sh. False if the
 * file is not a script. */
static bool script_interpreter(const char *path, char name[PATH_MAX])
{
    char line[512];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t got = fd >= 0 ? read(fd, line, sizeof(line) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (got < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[got] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *rest = line + 2;
    char *word = NULL;
    while ((word = strsep(&rest, " \t")) != NULL) {
        const char *base = strrchr(word, '/') != NULL ? strrchr(word, '/') + 1 : word;
        /* env is followed by its own options, variables, and then the program. */
        if (word[0] != '\0' && strcmp(base, "env") != 0 && word[0] != '-' &&
            strchr(word, '=') == NULL)
            break;
    }
    if (word == NULL)
        return false;
    snprintf(name, PATH_MAX, "%s", word);
    return true;
}

/* ---- the loader ---- */

static void examine_privileges(struct doctor *doctor, const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return;
    const bool is_raised = (facts.st_mode & (S_ISUID | S_ISGID)) != 0;
    if (!is_raised && getxattr(path, "security.capability", NULL, 0) <= 0)
        return;
    doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s has %s: the loader drops LD_PRELOAD", path,
                  is_raised ? "the setuid or setgid bit" : "file capabilities");
    doctor_advise(
        doctor,
        "run a copy without them, or name the library in /etc/ld.so.preload, which loads it into "
        "every program (settings that are paths are then ignored)");
}

static bool examine_kind(struct doctor *doctor, const char *path, const struct doctor_elf *elf)
{
    if (!elf->is_64 || !elf->is_of_this_machine) {
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC,
                      "%s is built for another architecture than the library", path);
        doctor_advise(doctor,
                      "preload a library that was built for it; 32-bit programs have no CUDA");
        return false;
    }
    if (elf->is_library) {
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s is a shared library, not a program", path);
        doctor_advise(doctor, "name the program that loads it: LD_PRELOAD acts on programs");
        return false;
    }
    if (!elf->is_dynamic || elf->interpreter[0] == '\0') {
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC,
                      "%s is statically linked: no loader runs, so nothing can be preloaded", path);
        doctor_advise(doctor,
                      "link it with libc dynamically (leave -static away); the CUDA runtime "
                      "may stay static");
        return false;
    }
    if (strstr(elf->interpreter, "ld-musl") != NULL) {
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s is built with musl", path);
        doctor_advise(
            doctor,
            "the library needs glibc, as NVIDIA's driver does: use an image based on glibc");
        return false;
    }
    return true;
}

static void add_object(struct doctor *doctor, const char *path, struct ways *ways)
{
    struct doctor_elf elf;
    char error[128];
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    if (strncmp(name, "libcuda.so", 10) == 0 || gc_elf_names_library(name, "libcudart") ||
        strncmp(name, "libgpucache.so", 14) == 0)
        return;
    if (!doctor_elf_read(path, &elf, error, sizeof(error)))
        return;
    /* A static runtime opens the driver by dlopen. */
    ways->opens_anything |= elf.imports_dlopen && !doctor_elf_has_static_runtime(&elf);
    if (elf.imports_dlmopen && strncmp(name, "lib", 3) != 0)
        ways->opens_namespaces = true;
    ways->encodes |= elf.names_encoder;
    if (elf.runtime[0] != '\0') {
        ways->runtime++;
        doctor_report(doctor, DOCTOR_OK, TOPIC,
                      "%s uses the shared runtime, %s: intercepted at cudaMalloc", name,
                      elf.runtime);
    }
    if (elf.needs_driver) {
        ways->driver++;
        doctor_report(doctor, DOCTOR_OK, TOPIC,
                      "%s is linked with the driver: intercepted at cuMemAlloc", name);
    }
    if (doctor_elf_has_static_runtime(&elf)) {
        ways->static_runtime++;
        doctor_report(
            doctor, DOCTOR_OK, TOPIC,
            "%s has a static runtime: intercepted at the driver's functions that it looks up",
            name);
    } else if (elf.names_driver && !elf.needs_driver && elf.runtime[0] == '\0') {
        ways->opens++;
        doctor_report(doctor, DOCTOR_OK, TOPIC,
                      "%s opens the driver itself: intercepted at its look-ups", name);
    }
}

/* "	libm.so.6 => /lib/libm.so.6 (0x…)", "	/lib64/ld.so (0x…)", "	libx.so => not found" */
static void add_line(struct doctor *doctor, char *line, struct ways *ways)
{
    char *arrow = strstr(line, " => ");
    char *path = arrow != NULL ? arrow + 4 : line + strspn(line, " \t");
    if (arrow != NULL && strncmp(path, "not found", 9) == 0) {
        *arrow = '\0';
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s is not found", line + strspn(line, " \t"));
        doctor_advise(doctor, "install it, or name its folder in LD_LIBRARY_PATH; the program does "
                              "not start without it");
        return;
    }
    path[strcspn(path, " \t")] = '\0';
    if (path[0] == '/')
        add_object(doctor, path, ways);
}

static void examine_objects(struct doctor *doctor, const char *path, const struct doctor_elf *elf,
                            struct ways *ways)
{
    static char output[64 << 10];
    const char *const arguments[] = {elf->interpreter, path, NULL};
    add_object(doctor, path, ways);
    /* Any other loader would be a program chosen by the file. */
    if (strncmp(elf->interpreter, "/lib", 4) != 0 &&
        strncmp(elf->interpreter, "/usr/lib", 8) != 0) {
        doctor_report(doctor, DOCTOR_WARNING, TOPIC,
                      "its loader, %s, is not the system's and was not run", elf->interpreter);
        return;
    }
    if (doctor_run(arguments, "LD_TRACE_LOADED_OBJECTS", "1", output, sizeof(output)) < 0) {
        doctor_report(doctor, DOCTOR_WARNING, TOPIC, "%s did not list the objects it would load",
                      elf->interpreter);
        return;
    }
    char *rest = output;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        add_line(doctor, line, ways);
}

static bool is_python(const char *path)
{
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    return strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0;
}

static void conclude(struct doctor *doctor, const char *path, const struct ways *ways)
{
    if (ways->runtime + ways->static_runtime + ways->driver + ways->opens == 0) {
        doctor_report(doctor, DOCTOR_INFO, TOPIC,
                      "none of the objects that %s loads at its start uses CUDA", path);
        doctor_advise(
            doctor, "%s",
            is_python(path)
                ? "modules that it imports later are intercepted too: python -c 'import torch' "
                  "under gpucache run with GPUCACHE_LOG=info shows them"
            : ways->opens_anything
                ? "if it opens CUDA later, that is intercepted too: run it once with gpucache run "
                  "--report FILE and check the entry points"
                : "without CUDA the library does nothing in it");
    }
    if (ways->encodes) {
        doctor_report(doctor, DOCTOR_INFO, TOPIC,
                      "it can use NVENC, which may refuse mapped memory as an encoder's input");
        doctor_advise(
            doctor,
            "once it loads NVENC each allocation is one of the driver's own; if frames that it "
            "allocated before are refused: GPUCACHE_BACKEND=whole from the start");
    }
    if (ways->opens_namespaces) {
        doctor_report(
            doctor, DOCTOR_WARNING, TOPIC,
            "it can open libraries in separate namespaces (dlmopen), which a preload does not "
            "reach");
        doctor_advise(
            doctor,
            "compare the report with nvidia-smi; libraries loaded that way are not intercepted");
    }
    if (ways->opens_anything) {
        doctor_report(doctor, DOCTOR_INFO, TOPIC,
                      "libraries that it opens with RTLD_DEEPBIND bypass a preload");
        doctor_advise(
            doctor,
            "if the report shows less memory than nvidia-smi: LD_DEBUG=files,bindings lists those "
            "libraries");
    }
}

void doctor_program(struct doctor *doctor, const char *program)
{
    char path[PATH_MAX];
    char name[PATH_MAX];
    char error[128];
    struct doctor_elf elf;
    struct ways ways = {0};
    snprintf(name, sizeof(name), "%s", program);
    for (unsigned scripts = 0;; scripts++) {
        if (!find_program(name, path)) {
            doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s: %s", name, strerror(ENOENT));
            doctor_advise(doctor, "%s",
                          scripts > 0
                              ? "install the script's interpreter, or correct its first line"
                              : "name a program that is in PATH, or its path");
            return;
        }
        if (scripts == SCRIPTS_MAX || !script_interpreter(path, name))
            break;
        doctor_report(doctor, DOCTOR_OK, TOPIC, "%s is a script for %s", path, name);
    }
    examine_privileges(doctor, path);
    if (!doctor_elf_read(path, &elf, error, sizeof(error))) {
        doctor_report(doctor, DOCTOR_FAILURE, TOPIC, "%s: %s", path, error);
        doctor_advise(doctor, "name an executable or a script");
        return;
    }
    if (access(path, X_OK) != 0)
        doctor_report(doctor, DOCTOR_WARNING, TOPIC, "%s cannot be executed: %s", path,
                      strerror(errno));
    if (!examine_kind(doctor, path, &elf))
        return;
    examine_objects(doctor, path, &elf, &ways);
    conclude(doctor, path, &ways);
}
