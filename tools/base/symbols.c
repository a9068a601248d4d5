/* Symbolizes with elfutils' libdwfl, which finds separate debug files too. Each object is opened
 * once. */
#include "tools/base/symbols.h"

#include <elfutils/libdwfl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct object {
    char *path;
    Dwfl_Module *module; /* NULL: not readable */
};

struct symbols {
    Dwfl *session;
    struct object *objects;
    size_t count;
};

struct symbols *symbols_open(void)
{
    static char *debug_path; /* NULL: the default folders of debug files */
    static const Dwfl_Callbacks callbacks = {
        .find_elf = dwfl_build_id_find_elf,
        .find_debuginfo = dwfl_standard_find_debuginfo,
        .section_address = dwfl_offline_section_address,
        .debuginfo_path = &debug_path,
    };
    struct symbols *symbols = calloc(1, sizeof(*symbols));
    if (symbols == NULL)
        return NULL;
    symbols->session = dwfl_begin(&callbacks);
    if (symbols->session == NULL) {
        free(symbols);
        return NULL;
    }
    return symbols;
}

void symbols_close(struct symbols *symbols)
{
    if (symbols == NULL)
        return;
    for (size_t i = 0; i < symbols->count; i++)
        free(symbols->objects[i].path);
    free(symbols->objects);
    dwfl_end(symbols->session);
    free(symbols);
}

static struct object *find_object(struct symbols *symbols, const char *path)
{
    for (size_t i = 0; i < symbols->count; i++) {
        if (strcmp(symbols->objects[i].path, path) == 0)
            return &symbols->objects[i];
    }
    struct object *more = realloc(symbols->objects, (symbols->count + 1) * sizeof(*more));
    if (more == NULL)
        return NULL;
    symbols->objects = more;
    struct object *object = &more[symbols->count];
    object->path = strdup(path);
    if (object->path == NULL)
        return NULL;
    symbols->count++;
    dwfl_report_begin_add(symbols->session);
    object->module = dwfl_report_offline(symbols->session, path, path, -1);
    (void)dwfl_report_end(symbols->session, NULL, NULL);
    return object;
}

/* Splits "…(/path+0x12)" or "/path+0x12" into the path and the offset in the object. */
static bool split(const char *frame, char path[PATH_MAX], unsigned long long *offset)
{
    const char *open = strrchr(frame, '(');
    const char *start = open != NULL ? open + 1 : frame;
    const char *plus = strrchr(start, '+');
    char *end;
    if (start[0] != '/' || plus == NULL || strncmp(plus, "+0x", 3) != 0 ||
        (size_t)(plus - start) >= PATH_MAX)
        return false;
    *offset = strtoull(plus + 1, &end, 16);
    memcpy(path, start, (size_t)(plus - start));
    path[plus - start] = '\0';
    return open != NULL ? end[0] == ')' && end[1] == '\0' : end[0] == '\0';
}

bool symbols_name(struct symbols *symbols, const char *frame, char *text, size_t size)
{
    char path[PATH_MAX];
    unsigned long long offset;
    Dwarf_Addr start;
    int line = 0;
    if (!split(frame, path, &offset))
        return false;
    const struct object *object = find_object(symbols, path);
    if (object == NULL || object->module == NULL ||
        dwfl_module_info(object->module, NULL, &start, NULL, NULL, NULL, NULL, NULL) == NULL)
        return false;
    const Dwarf_Addr address = start + offset - 1; /* the call itself, not the return address */
    const char *function = dwfl_module_addrname(object->module, address);
    Dwfl_Line *source = dwfl_module_getsrc(object->module, address);
    const char *file = source != NULL ? dwfl_lineinfo(source, NULL, &line, NULL, NULL, NULL) : NULL;
    if (function == NULL)
        return false;
    if (file != NULL)
        snprintf(text, size, "%s (%s:%d)", function, file, line);
    else
        snprintf(text, size, "%s (%s+0x%llx)", function, path, offset);
    return true;
}
