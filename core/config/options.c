/* Options: the table of options.def, filled from the environment and the configuration file.
 *
 * First every source records the text of each option (struct reading). Then the texts are parsed in
 * the table's order, the log level before all others. So the environment wins without a second
 * parse, and an option that the environment sets is never validated from the configuration file. */
#include "core/config/options.h"

#include "core/base/assert.h"
#include "core/base/host_mem.h"
#include "core/config/file.h"
#include "core/config/hami.h"
#include "core/config/parse.h"
#include "core/io/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define PREFIX "GPUCACHE_"
#define DEFAULT_CONFIG "/etc/gpucache.conf"
#define SHOWN_BYTES 80

enum bad { KEEP, CLOSED, GATED };

#define TYPE_ENUM GC_OPTION_ENUM
#define TYPE_SIZES GC_OPTION_SIZES
#define TYPE_PERCENT GC_OPTION_PERCENT
#define TYPE_FACTOR GC_OPTION_FACTOR
#define TYPE_INTEGER GC_OPTION_INTEGER
#define TYPE_NAME GC_OPTION_TEXT_NAME
#define TYPE_PATH GC_OPTION_PATH
#define TYPE_WORD GC_OPTION_WORD
#define TYPE_FLAGS GC_OPTION_FLAGS
#define TYPE_DIMS GC_OPTION_LIST_DIMS
#define TYPE_TENANTS GC_OPTION_LIST_TENANTS

static const struct gc_option_row rows[GC_OPTION_COUNT] = {
#define GC_OPTION(field, name, type, argument, default_value, minimum, maximum, bad, accepts,      \
                  help)                                                                            \
    {PREFIX #name, default_value, accepts, help, (bad) == CLOSED, (bad) == GATED},
#include "core/config/options.def"
#undef GC_OPTION
};

static const struct gc_option_rule rules[GC_OPTION_COUNT] = {
#define GC_OPTION(field, name, type, argument, default_value, minimum, maximum, bad, accepts,      \
                  help)                                                                            \
    {TYPE_##type, minimum, maximum, accepts, sizeof(((struct gc_options *)NULL)->field)},
#include "core/config/options.def"
#undef GC_OPTION
};

static const size_t offsets[GC_OPTION_COUNT] = {
#define GC_OPTION(field, ...) offsetof(struct gc_options, field),
#include "core/config/options.def"
#undef GC_OPTION
};

_Static_assert(GC_OPTION_COUNT <= 64, "set_mask has a bit for each option");

/* The source of each option's text; everything borrowed. */
struct reading {
    const struct gc_options_source *source;
    struct gc_options *options;
    const struct gc_log *log;
    const char *config_path; /* set while the file is visited; afterwards if it was read */
    const char *texts[GC_OPTION_COUNT]; /* NULL: not set */
    bool from_config[GC_OPTION_COUNT];
    /* a row that the admission check needs and that kept its default */
    const struct gc_option_row *invalid_gated;
    struct gc_hami hami;
};

const struct gc_option_row *gc_options_get_row(enum gc_option option)
{
    return &rows[option];
}

static void log_line(struct reading *reading, enum gc_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Logs a line and keeps it for the report. */
static void log_line(struct reading *reading, enum gc_log_level level, const char *format, ...)
{
    struct gc_options *options = reading->options;
    char line[768];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    gc_log_write(reading->log, level, "%s", line);
    if (options->warning_count < GC_OPTIONS_WARNING_MAX)
        gc_text_printable(line, strlen(line), options->warnings[options->warning_count++],
                          GC_OPTIONS_WARNING_BYTES);
}

static int find_option(const char *name, size_t length)
{
    if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0)
        return -1; /* most of the environment */
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return i;
    }
    return -1;
}

static const struct gc_option_row *nearest_option(const char *name, size_t length)
{
    const struct gc_option_row *nearest = NULL;
    unsigned best = UINT32_MAX;
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        const unsigned distance =
            gc_text_distance(name, length, rows[i].name, strlen(rows[i].name));
        if (distance < best) {
            best = distance;
            nearest = &rows[i];
        }
    }
    return nearest;
}

/* `what`: the consequence. */
static void log_unknown(struct reading *reading, const char *name, size_t length, const char *value,
                        bool from_config, const char *what)
{
    char shown_name[SHOWN_BYTES];
    char shown_value[SHOWN_BYTES];
    const struct gc_option_row *nearest = nearest_option(name, length);
    gc_text_printable(name, length, shown_name, sizeof(shown_name));
    gc_text_printable(value, strlen(value), shown_value, sizeof(shown_value));
    log_line(reading, GC_LOG_ERROR, "%s=%s%s%s: unknown name, %s; nearest: %s (%s)", shown_name,
             shown_value, from_config ? " in " : "", from_config ? reading->config_path : "", what,
             nearest->name, nearest->accepts);
}

/* ---- the text of each option ---- */

/* True if the name is one of the library's or HAMi's. The first text of an option stays. */
static bool set_text(struct reading *reading, const char *name, size_t length, const char *value,
                     bool from_config)
{
    const struct gc_hami_value hami = {name, length, value, from_config};
    if (gc_hami_set(&reading->hami, &hami))
        return true;
    const int option = find_option(name, length);
    if (option < 0 || (from_config && option == GC_OPTION_CONFIG))
        return false;
    if (reading->texts[option] == NULL) {
        reading->texts[option] = value;
        reading->from_config[option] = from_config;
    }
    return true;
}

static void read_environment(struct reading *reading)
{
    if (reading->source->environment == NULL || reading->source->secure)
        return;
    for (char *const *entry = reading->source->environment; *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        if (equals != NULL)
            (void)set_text(reading, *entry, (size_t)(equals - *entry), equals + 1, false);
    }
}

/* Call once the log level is known. */
static void log_unknown_environment(struct reading *reading)
{
    const size_t head = sizeof(PREFIX) - 1;
    if (reading->source->environment == NULL || reading->source->secure)
        return;
    for (char *const *entry = reading->source->environment; *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        if (equals == NULL || strncmp(*entry, PREFIX, head) != 0)
            continue;
        const size_t length = (size_t)(equals - *entry);
        if (find_option(*entry, length) < 0)
            log_unknown(reading, *entry, length, equals + 1, false, "ignored");
    }
}

static void config_entry(void *argument, const char *key, const char *value)
{
    struct reading *reading = argument;
    if (set_text(reading, key, strlen(key), value, true))
        return;
    /* Most likely a misspelled limit: running without it is not intended. */
    const bool is_refused = strstr(key, "LIMIT") != NULL || strstr(key, "BUDGET") != NULL ||
                            strstr(key, "GATE") != NULL;
    log_unknown(reading, key, strlen(key), value, true,
                is_refused ? "it may be a limit, so cuInit fails" : "ignored");
    reading->options->refused |= is_refused;
}

static void config_bad_line(void *argument, unsigned line)
{
    struct reading *reading = argument;
    log_line(reading, GC_LOG_ERROR, "%s: line %u is not KEY=value; ignored", reading->config_path,
             line);
}

static void read_config(struct reading *reading, struct gc_config *config)
{
    const struct gc_config_visitor visitor = {reading, config_entry, config_bad_line};
    const char *named = reading->texts[GC_OPTION_CONFIG];
    if (named != NULL && named[0] != '\0') {
        reading->config_path = named;
        if (gc_config_read(named, &visitor, config) == GC_OK)
            return;
    }
    reading->config_path = reading->source->default_config;
    if (reading->config_path != NULL &&
        gc_config_read(reading->config_path, &visitor, config) != GC_OK) {
        if (!config->is_missing)
            log_line(reading, GC_LOG_ERROR,
                     "%s: not a readable file of KEY=value lines below 64 KiB; its options are not "
                     "applied",
                     reading->config_path);
        reading->config_path = NULL;
    }
    if (named == NULL)
        return;
    char shown[SHOWN_BYTES];
    log_line(reading, GC_LOG_ERROR, "%s=%s: not valid; accepted: %s; keeping the default: %s",
             rows[GC_OPTION_CONFIG].name,
             gc_text_printable(named, strlen(named), shown, sizeof(shown)),
             rows[GC_OPTION_CONFIG].accepts,
             reading->config_path != NULL ? reading->config_path : "none");
    reading->texts[GC_OPTION_CONFIG] = NULL;
}

/* ---- from text to value ---- */

static void *member(struct gc_options *options, int option)
{
    return (char *)options + offsets[option];
}

/* " in FILE" for a value from the configuration file. */
static const char *origin(const struct reading *reading, bool from_config, char *text, size_t size)
{
    if (!from_config || reading->config_path == NULL)
        return "";
    memcpy(text, " in ", 5);
    gc_text_printable(reading->config_path, strlen(reading->config_path), text + 4, size - 4);
    return text;
}

/* In words where the option's default is no value. */
static const char *default_of(const struct gc_option_row *row)
{
    static const char mark[] = "default: ";
    const char *words = strstr(row->help, mark);
    if (row->default_text[0] != '\0')
        return row->default_text;
    return words != NULL ? words + sizeof(mark) - 1 : "none";
}

static void apply(struct reading *reading, int option)
{
    const struct gc_option_row *row = &rows[option];
    const char *text = reading->texts[option];
    struct gc_options *options = reading->options;
    char shown[SHOWN_BYTES];
    char where[SHOWN_BYTES];
    if (text == NULL || (reading->source->secure && rules[option].type == GC_OPTION_PATH))
        return;
    if (gc_parse_option(&rules[option], text, member(options, option))) {
        options->set_mask |= UINT64_C(1) << option;
        gc_text_printable(text, strlen(text), options->set_texts[option], GC_OPTION_PRINTED_BYTES);
        return;
    }
    gc_text_printable(text, strlen(text), shown, sizeof(shown));
    const char *in_file = origin(reading, reading->from_config[option], where, sizeof(where));
    char why[40] = "not valid";
    if (strlen(text) > gc_parse_length_max(&rules[option]))
        (void)snprintf(why, sizeof(why), "longer than %zu bytes",
                       gc_parse_length_max(&rules[option]));
    if (row->closed) {
        options->refused = true;
        log_line(reading, GC_LOG_ERROR, "%s=%s%s: %s; accepted: %s; cuInit fails", row->name, shown,
                 in_file, why, row->accepts);
    } else {
        log_line(reading, GC_LOG_ERROR, "%s=%s%s: %s; accepted: %s; keeping the default: %s",
                 row->name, shown, in_file, why, row->accepts, default_of(row));
        if (row->gated)
            reading->invalid_gated = row;
    }
}

/* A gate without a model lets everything pass, which is most likely not intended. From a
 * configuration file it is no mistake: programs without a model read that file, too. */
static void log_idle_gate(struct reading *reading)
{
    static const enum gc_option asked[] = {GC_OPTION_GATE, GC_OPTION_BUDGET};
    if (gc_options_is_set(reading->options, GC_OPTION_MODEL) ||
        reading->options->mode == GC_MODE_OFF)
        return;
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        const bool is_open =
            asked[i] == GC_OPTION_GATE && !gc_admission_is_closed(reading->options->gate);
        if (is_open || reading->from_config[asked[i]] ||
            !gc_options_is_set(reading->options, asked[i]))
            continue;
        log_line(reading, GC_LOG_WARN, "%s is set and no %s is named: no model is checked",
                 rows[asked[i]].name, rows[GC_OPTION_MODEL].name);
        return;
    }
}

/* A closed gate must not judge by another estimate than the intended one. */
static void check_gate(struct reading *reading)
{
    struct gc_options *options = reading->options;
    if (reading->invalid_gated == NULL) {
        log_idle_gate(reading);
        return;
    }
    if (!gc_admission_is_closed(options->gate))
        return;
    options->refused = true;
    log_line(reading, GC_LOG_ERROR, "%s is not valid and %s is %s: cuInit fails",
             reading->invalid_gated->name, rows[GC_OPTION_GATE].name,
             reading->texts[GC_OPTION_GATE]);
}

/* ---- HAMi's variables ---- */

static void refuse_hami(void *argument, const struct gc_hami_value *value)
{
    struct reading *reading = argument;
    char name[SHOWN_BYTES];
    char shown[SHOWN_BYTES];
    char where[SHOWN_BYTES];
    reading->options->refused = true;
    log_line(
        reading, GC_LOG_ERROR,
        "%s=%s%s: not valid; accepted: a size, for all devices, or for one with its number behind the name; "
        "cuInit fails",
        gc_text_printable(value->name, value->name_length, name, sizeof(name)),
        gc_text_printable(value->text, strlen(value->text), shown, sizeof(shown)),
        origin(reading, value->from_config, where, sizeof(where)));
}

static void ignore_hami(void *argument, const struct gc_hami_value *value, const char *why)
{
    struct reading *reading = argument;
    char name[SHOWN_BYTES];
    char shown[SHOWN_BYTES];
    char where[SHOWN_BYTES];
    log_line(reading, GC_LOG_WARN, "%s=%s%s: not served: %s",
             gc_text_printable(value->name, value->name_length, name, sizeof(name)),
             gc_text_printable(value->text, strlen(value->text), shown, sizeof(shown)),
             origin(reading, value->from_config, where, sizeof(where)), why);
}

/* ---- all of it ---- */

static void set_defaults(struct gc_options *options)
{
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        if (rows[i].default_text[0] != '\0')
            (void)gc_parse_option(&rules[i], rows[i].default_text, member(options, i));
    }
}

/* `options`: zeroed. Most of them are long texts, whose pages are not touched where they are empty.
 */
static void read_all(const struct gc_options_source *source, struct gc_log *log,
                     struct gc_options *options)
{
    const int saved_errno = errno;
    struct gc_log quiet = {.level = GC_LOG_ERROR, .fd = -1};
    struct reading reading = {
        .source = source, .options = options, .log = log != NULL ? log : &quiet};
    struct gc_config config = {.text = NULL};

    set_defaults(options);
    read_environment(&reading);
    read_config(&reading, &config);
    apply(&reading, GC_OPTION_LOG);
    if (log != NULL)
        log->level = options->log_level;
    log_unknown_environment(&reading);
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        if (i != GC_OPTION_LOG)
            apply(&reading, i);
    }
    check_gate(&reading);
    gc_hami_apply(&reading.hami, options,
                  &(const struct gc_hami_visitor){&reading, refuse_hami, ignore_hami});
    if (options->debug != 0)
        options->reuse = GC_REUSE_SYNC; /* freed memory is checked once it is idle */
    gc_config_close(&config);
    errno = saved_errno;
}

void gc_options_read(const struct gc_options_source *source, struct gc_log *log,
                     struct gc_options *options)
{
    memset(options, 0, sizeof(*options));
    read_all(source, log, options);
}

enum gc_status gc_options_load(char *const *environment, struct gc_log *log,
                               struct gc_options **options)
{
    struct gc_host_mem host = {0};
    struct gc_options *loaded = gc_host_mem_map(&host, sizeof(*loaded));
    if (loaded == NULL)
        return GC_NO_HOST_MEMORY;
    const struct gc_options_source source = {
        .environment = environment,
        .default_config = DEFAULT_CONFIG,
        .secure = getauxval(AT_SECURE) != 0,
    };
    read_all(&source, log, loaded);
    *options = loaded;
    return GC_OK;
}

void gc_options_free(struct gc_options *options)
{
    struct gc_host_mem host = {0};
    GC_ASSERT((uintptr_t)options % 4096 == 0); /* pages of gc_options_load */
    if (options != NULL)
        gc_host_mem_unmap(&host, options, sizeof(*options));
}
