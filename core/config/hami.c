#include "core/config/hami.h"

#include "core/io/text.h"

#include <stdio.h>
#include <string.h>

#define LIMIT_NAME "CUDA_DEVICE_MEMORY_LIMIT"
#define SM_LIMIT_NAME "CUDA_DEVICE_SM_LIMIT"
#define SHOWN_NAME_BYTES 40

static const char *const other_names[GC_HAMI_OTHERS] = {
    [GC_HAMI_SHARED_CACHE] = "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    [GC_HAMI_DISABLE_CONTROL] = "CUDA_DISABLE_CONTROL",
    [GC_HAMI_SM_LIMIT] = SM_LIMIT_NAME,
    [GC_HAMI_CORE_POLICY] = "GPU_CORE_UTILIZATION_POLICY",
    [GC_HAMI_OVERSUBSCRIBE] = "CUDA_OVERSUBSCRIBE",
    [GC_HAMI_TASK_PRIORITY] = "CUDA_TASK_PRIORITY",
};

/* ---- names ---- */

static bool is_name(const struct gc_hami_value *value, const char *name)
{
    return value->name_length == strlen(name) && memcmp(value->name, name, value->name_length) == 0;
}

/* The slot of a limit variable; -1: another name. */
static int limit_slot(const char *name, size_t length)
{
    const size_t head = sizeof(LIMIT_NAME) - 1;
    uint64_t ordinal;
    if (length < head || memcmp(name, LIMIT_NAME, head) != 0)
        return -1;
    if (length == head)
        return GC_HAMI_FOR_ALL;
    if (name[head] != '_')
        return -1;
    if (!gc_text_uint(name + head + 1, length - head - 1, &ordinal) || ordinal >= GC_SIZE_SPEC_MAX)
        return GC_HAMI_BAD;
    return (int)ordinal;
}

static bool set_first(struct gc_hami_value *kept, const struct gc_hami_value *value)
{
    if (kept->text == NULL)
        *kept = *value;
    return true;
}

bool gc_hami_set(struct gc_hami *hami, const struct gc_hami_value *value)
{
    const size_t head = sizeof(SM_LIMIT_NAME) - 1;
    const int slot = limit_slot(value->name, value->name_length);
    if (slot >= 0)
        return set_first(&hami->limits[slot], value);
    for (int i = 0; i < GC_HAMI_OTHERS; i++) {
        if (is_name(value, other_names[i]))
            return set_first(&hami->others[i], value);
    }
    if (value->name_length > head && memcmp(value->name, SM_LIMIT_NAME "_", head + 1) == 0)
        return set_first(&hami->others[GC_HAMI_SM_LIMIT], value);
    return false;
}

/* ---- values ---- */

static bool equals(const struct gc_hami *hami, enum gc_hami_other other, const char *word)
{
    const char *text = hami->others[other].text;
    return text != NULL && strlen(text) == strlen(word) &&
           gc_text_equal_nocase(text, word, strlen(word));
}

static bool is_true(const struct gc_hami *hami, enum gc_hami_other other)
{
    return equals(hami, other, "true") || equals(hami, other, "t") || equals(hami, other, "1");
}

static bool has_limit(const struct gc_hami *hami)
{
    for (int slot = 0; slot < GC_HAMI_SLOTS; slot++) {
        if (hami->limits[slot].text != NULL)
            return true;
    }
    return false;
}

static void apply_limits(const struct gc_hami *hami, struct gc_size_spec *limit,
                         const struct gc_hami_visitor *visitor)
{
    for (int slot = 0; slot < GC_HAMI_SLOTS; slot++) {
        const struct gc_hami_value *value = &hami->limits[slot];
        uint64_t bytes;
        if (value->text == NULL)
            continue;
        if (slot == GC_HAMI_BAD || gc_size_parse(value->text, &bytes) != GC_OK ||
            limit->count == GC_SIZE_SPEC_MAX) {
            visitor->refuse(visitor->argument, value);
            continue;
        }
        limit->entries[limit->count++] =
            (struct gc_size_entry){.ordinal = slot == GC_HAMI_FOR_ALL ? -1 : slot, .bytes = bytes};
    }
}

/* A group's name from a path: the file's name, which people recognise, and a hash of the whole
 * path, so that paths with one file name differ. */
static void name_group(const char *path, char *name, size_t size)
{
    const char *file = strrchr(path, '/');
    char shown[SHOWN_NAME_BYTES];
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a */
    size_t length = 0;
    for (const char *c = path; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * UINT32_C(16777619);
    for (file = file == NULL ? path : file + 1; *file != '\0' && length < sizeof(shown) - 1;
         file++) {
        const char c = *file;
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || c == '.' || c == '-';
        shown[length++] = is_plain ? c : '_';
    }
    shown[length] = '\0';
    snprintf(name, size, "hami-%s-%08x", shown, (unsigned)hash);
}

/* ---- variables that are not served ---- */

static bool limits_time(const struct gc_hami *hami)
{
    const char *text = hami->others[GC_HAMI_SM_LIMIT].text;
    uint64_t share;
    return text != NULL && gc_text_uint(text, strlen(text), &share) && share > 0 && share < 100 &&
           !equals(hami, GC_HAMI_CORE_POLICY, "disable");
}

static void log_unserved(const struct gc_hami *hami, const struct gc_hami_visitor *visitor)
{
    void *argument = visitor->argument;
    if (limits_time(hami))
        visitor->ignore(argument, &hami->others[GC_HAMI_SM_LIMIT],
                        "only memory is limited, not the time on the device");
    if (is_true(hami, GC_HAMI_OVERSUBSCRIBE))
        visitor->ignore(argument, &hami->others[GC_HAMI_OVERSUBSCRIBE],
                        "an allocation beyond the limit fails; nothing moves to host memory");
    if (hami->others[GC_HAMI_TASK_PRIORITY].text != NULL)
        visitor->ignore(argument, &hami->others[GC_HAMI_TASK_PRIORITY],
                        "all processes have the same priority");
}

void gc_hami_apply(const struct gc_hami *hami, struct gc_options *options,
                   const struct gc_hami_visitor *visitor)
{
    const char *cache = hami->others[GC_HAMI_SHARED_CACHE].text;
    const bool is_limited = gc_options_is_set(options, GC_OPTION_LIMIT) || options->refused;
    const bool is_group_limited = gc_options_is_set(options, GC_OPTION_GROUP_LIMIT);
    if (is_true(hami, GC_HAMI_DISABLE_CONTROL)) {
        if (!is_limited && !is_group_limited && !gc_options_is_set(options, GC_OPTION_MODE))
            options->mode = GC_MODE_OFF;
        return;
    }
    log_unserved(hami, visitor);
    if (is_limited || !has_limit(hami))
        return;
    apply_limits(hami, &options->limit, visitor);
    if (is_group_limited || cache == NULL || cache[0] == '\0')
        return;
    options->group_limit = options->limit;
    if (options->group[0] == '\0')
        name_group(cache, options->group, sizeof(options->group));
}
