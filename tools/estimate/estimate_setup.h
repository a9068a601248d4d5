/* The command line of gpucache estimate. */
#ifndef GC_ESTIMATE_SETUP_H
#define GC_ESTIMATE_SETUP_H

#include "core/config/options.h"
#include "core/estimator/fit.h"
#include "tools/base/tool.h"

struct estimate_setup {
    struct tool_words models;
    struct gc_estimate_request request;
    enum gc_dtype weight_dtype; /* type assumed for floating-point weights; GC_DTYPE_NONE */
    bool has_budget;
    struct gc_estimate_budget budget;
    uint64_t memory_bytes[GC_ESTIMATE_DEVICE_MAX]; /* for the engine: --memory, else the budget */
    bool json;
    bool table;
    const char *report; /* --calibrate; NULL */
    const char *output; /* --output; NULL */
    char dims[GC_OPTION_LIST_BYTES];
};

/* TOOL_USAGE or TOOL_FAILED, with a line. After --help setup->models.helped is set. The setup holds
 * pointers into itself: do not move it. */
int estimate_setup_parse(const struct tool_command *command, int argc, char **argv,
                         struct estimate_setup *setup) GC_CHECKED;

/* TOOL_FAILED, with the line of a model that could not be opened. */
int estimate_refuse_model(const struct tool_command *command, const char *path,
                          const struct gc_model_error *error) GC_CHECKED;

#endif
