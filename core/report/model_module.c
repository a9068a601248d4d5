#include "core/report/model_module.h"

#include <string.h>
#include <unistd.h>

bool gc_model_module_matches(const struct gc_model_module *module)
{
    static const struct gc_model_module_key own = GC_MODEL_MODULE_KEY;
    return memcmp(&module->key, &own, sizeof(own)) == 0;
}

bool gc_model_module_find(const char *library, char path[PATH_MAX])
{
    static const char *const names[] = {GC_MODEL_MODULE_FILE, "gpucache/" GC_MODEL_MODULE_FILE};
    const char *slash = strrchr(library, '/');
    if (slash == NULL)
        return false;
    const size_t folder = (size_t)(slash + 1 - library);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t length = strlen(names[i]);
        if (folder + length >= PATH_MAX)
            continue;
        memcpy(path, library, folder);
        memcpy(path + folder, names[i], length + 1);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}
