/* The entry point of libgpucache-model.so: see core/report/model_module.h. */
#include "core/estimator/admission.h"
#include "core/report/model_module.h"

__attribute__((visibility("default"))) gc_model_module_entry gpucache_model_module;

const struct gc_model_module *gpucache_model_module(void)
{
    static const struct gc_model_module module = {
        .key = GC_MODEL_MODULE_KEY,
        .open = gc_admission_open,
        .device_count = gc_admission_device_count,
        .decide = gc_admission_decide,
        .describe = gc_admission_describe,
    };
    return &module;
}
