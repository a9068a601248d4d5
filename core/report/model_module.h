/* The module that reads models, libgpucache-model.so, for the preloaded library and the tool: its
 * path, its build key, its calls.
 *
 * The module has its own copies of the lower rooms' code and shares no variable with the library.
 * Everything that crosses is an argument: the options, the devices, a log, the record for the
 * report. */
#ifndef GC_MODEL_MODULE_H
#define GC_MODEL_MODULE_H

#include "core/config/options.h"
#include "core/io/log.h"
#include "core/report/estimate_record.h"
#include "sources_hash.h"

#include <limits.h>

#define GC_MODEL_MODULE_FILE "libgpucache-model.so"
/* The one symbol that the module exports: its struct gc_model_module. */
#define GC_MODEL_MODULE_SYMBOL "gpucache_model_module"

struct gc_admission_state;

enum gc_admission_verdict {
    GC_ADMISSION_FITS,
    GC_ADMISSION_EXCEEDS,
    GC_ADMISSION_UNREADABLE, /* there is no estimate: the model could not be read */
};

/* One device that the program sees. */
struct gc_admission_device {
    uint64_t budget_bytes;  /* UINT64_MAX: without limit */
    uint64_t context_bytes; /* of one context there, stated or measured; 0: unknown */
};

struct gc_admission_devices {
    uint32_t count; /* fewer than the model is split over: it does not fit */
    struct gc_admission_device items[GC_ESTIMATE_DEVICE_MAX];
};

/* Distinguishes two builds. Its layout never changes: it is compared before anything else is read.
 */
struct gc_model_module_key {
    char version[32];
    char sources[32];       /* a hash of core/, by scripts/rules.mk */
    uint32_t options_bytes; /* sizes of the structs that cross: flags may change them */
    uint32_t devices_bytes;
    uint32_t estimate_bytes;
    uint32_t module_bytes;
};

/* The calls are those of core/estimator/admission.h. */
struct gc_model_module {
    struct gc_model_module_key key;
    enum gc_status (*open)(const struct gc_options *options, struct gc_admission_state **admission);
    uint32_t (*device_count)(const struct gc_admission_state *admission);
    enum gc_admission_verdict (*decide)(struct gc_admission_state *admission,
                                        const struct gc_admission_devices *devices,
                                        const struct gc_log *log);
    bool (*describe)(const struct gc_admission_state *admission,
                     struct gc_report_estimate *estimate);
};

#define GC_MODEL_MODULE_KEY                                                                        \
    {                                                                                              \
        GC_VERSION, GC_SOURCES_HASH, sizeof(struct gc_options),                                    \
            sizeof(struct gc_admission_devices), sizeof(struct gc_report_estimate),                \
            sizeof(struct gc_model_module)                                                         \
    }

/* Whether the module was made by a build that agrees with the caller's. */
bool gc_model_module_matches(const struct gc_model_module *module);

/* Finds the module of the library whose absolute path is `library`: beside it, else in the folder
 * gpucache there. The first file that exists is the module. False if neither is found: errno is
 * ENOENT, or why a folder could not be searched. */
bool gc_model_module_find(const char *library, char path[PATH_MAX]);
/* Whether the file may be passed to dlopen, which would wait for a FIFO's writer, and crash the
 * process on an ELF file that was cut off. Else *why: a constant text. dlopen refuses all other
 * files itself. */
bool gc_model_module_is_whole(const char *path, const char **why);

#endif
