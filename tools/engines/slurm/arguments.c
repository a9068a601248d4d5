#include "tools/engines/slurm/arguments.h"

#include "core/config/size.h"
#include "core/io/text.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 80
#define ACCEPTED                                                                                   \
    "default=SIZE, required, shard=SIZE, library=PATH, node=FOLDER, summary=comment, "             \
    "summary=log, set=GPUCACHE_NAME=VALUE"

/* The accepted values as core's table has them. */
#define GC_OPTION(field, name, type, argument, initial, minimum, maximum, bad, accepts, help)      \
    static const char accepted_##field[] __attribute__((unused)) = accepts;
#include "core/config/options.def"
#undef GC_OPTION

static const char *show(const char *value, char text[SHOWN_BYTES])
{
    return gc_text_printable(value, strlen(value), text, SHOWN_BYTES);
}

bool arguments_check_limit(const char *name, const char *value, char reason[ARGUMENTS_REASON_BYTES])
{
    struct gc_size_spec spec;
    char shown[SHOWN_BYTES];
    if (gc_size_spec_parse(value, true, &spec) == GC_OK)
        return true;
    snprintf(reason, ARGUMENTS_REASON_BYTES, "%s=%s: accepted: %s", name, show(value, shown),
             accepted_group_limit);
    return false;
}

/* Whether a valid value is a limit of every device, not of those alone that it names. */
static bool is_for_all(const char *value)
{
    struct gc_size_spec spec;
    if (gc_size_spec_parse(value, true, &spec) != GC_OK)
        return false;
    for (uint32_t i = 0; i < spec.count; i++)
        if (spec.entries[i].ordinal < 0 && spec.entries[i].uuid[0] == '\0')
            return true;
    return false;
}

bool arguments_check_option(const struct arguments *arguments, const char *value,
                            char reason[ARGUMENTS_REASON_BYTES])
{
    char shown[SHOWN_BYTES];
    if (!arguments_check_limit("--gpu-mem", value, reason))
        return false;
    if ((!arguments->is_required && arguments->default_limit == NULL) || is_for_all(value))
        return true;
    snprintf(reason, ARGUMENTS_REASON_BYTES,
             "--gpu-mem=%s: a device that it does not name would have no limit, which is required "
             "here; accepted: a size for all devices, and sizes of some beside it (8G,1=4G)",
             show(value, shown));
    return false;
}

static bool fail(const char *word, const char *accepted, char reason[ARGUMENTS_REASON_BYTES])
{
    char shown[SHOWN_BYTES];
    snprintf(reason, ARGUMENTS_REASON_BYTES, "plugstack.conf: %s: accepted: %s", show(word, shown),
             accepted);
    return false;
}

static bool is_path(const char *value)
{
    /* LD_PRELOAD is a list with blanks and colons between its paths. */
    return value[0] == '/' && strpbrk(value, " :\t") == NULL;
}

static bool is_variable(const char *value)
{
    const size_t length = strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return strncmp(value, "GPUCACHE_", 9) == 0 && length > 9 && value[length] == '=';
}

static bool read_value(const char *word, size_t name_length, struct arguments *arguments,
                       char reason[ARGUMENTS_REASON_BYTES])
{
    const char *value = word + name_length + 1;
    switch (gc_text_find_word("default, shard, library, node, summary, set", word, name_length)) {
    case 0:
        arguments->default_limit = value;
        return arguments_check_limit("plugstack.conf: default", value, reason);
    case 1:
        return gc_size_parse(value, &arguments->shard_bytes) == GC_OK ||
               fail(word, "shard=SIZE (1GiB)", reason);
    case 2:
        arguments->library = value;
        return is_path(value) || fail(word, "library=PATH, without blanks and colons", reason);
    case 3:
        arguments->node = value;
        return is_path(value) || fail(word, "node=FOLDER, without blanks and colons", reason);
    case 4:
        arguments->has_comment = strcmp(value, "comment") == 0;
        return arguments->has_comment || strcmp(value, "log") == 0 ||
               fail(word, "summary=comment, summary=log", reason);
    case 5:
        if (!is_variable(value) || arguments->set_count == ARGUMENTS_SETS_MAX)
            return fail(word, "set=GPUCACHE_NAME=VALUE, 16 at most", reason);
        arguments->sets[arguments->set_count++] = value;
        return true;
    default:
        return fail(word, ACCEPTED, reason);
    }
}

bool arguments_read(int argc, char **argv, struct arguments *arguments,
                    char reason[ARGUMENTS_REASON_BYTES])
{
    *arguments =
        (struct arguments){.library = SLURM_LIBRARY, .node = "/run/gpucache", .has_comment = true};
    for (int i = 0; i < argc; i++) {
        const size_t name_length = strcspn(argv[i], "=");
        if (strcmp(argv[i], "required") == 0)
            arguments->is_required = true;
        else if (argv[i][name_length] != '=')
            return fail(argv[i], ACCEPTED, reason);
        else if (!read_value(argv[i], name_length, arguments, reason))
            return false;
    }
    return true;
}
