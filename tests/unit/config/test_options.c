/* The options: every variable with good and bad values, the exact line and what follows from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/config/options.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct gc_options *options;
static struct gc_log log_to;
static char *lines; /* of the last read */

static void read_source(const struct gc_options_source *source)
{
    free(lines);
    scratch_reset(log_to.fd);
    log_to.level = GC_LOG_WARN;
    gc_options_read(source, &log_to, options);
    lines = scratch_read(log_to.fd, NULL);
}

static void read_environment(char *const *environment)
{
    const struct gc_options_source source = {.environment = environment};
    read_source(&source);
}

static void read_one(const char *name, const char *value)
{
    char entry[GC_OPTION_LIST_BYTES + 128];
    char *environment[] = {entry, NULL};
    snprintf(entry, sizeof(entry), "%s=%s", name, value);
    read_environment(environment);
}

static unsigned line_count(void)
{
    unsigned count = 0;
    for (const char *p = lines; *p != '\0'; p++)
        count += *p == '\n';
    return count;
}

static int setup(void **state)
{
    (void)state;
    options = malloc(sizeof(*options));
    log_to.fd = scratch_fd();
    return options != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(options);
    free(lines);
    lines = NULL;
    close(log_to.fd);
    return 0;
}

/* ---- the table ---- */

static const struct sample {
    const char *name;
    const char *good[8];
    const char *bad[16];
} samples[] = {
    {"MODE", {"cache", "track", "off"}, {"Cache", "cach", "cache ", " cache", "cache,track", "1"}},
    {"LIMIT",
     {"4GiB", "1.5g", "80%", "0=8GiB,1=50%", "GPU-01234567-89ab-cdef-0123-456789ABCDEF=8GiB",
      "100%", "1"},
     {"0m", "-1", "4Gib4", "lots", "4GiB,2GiB", "0=1g,0=2g", "NaN", "0%", "101%", "20000000TiB",
      "x=1g", "1,5g", "0x10", "1e3", "=1g", "1g,"}},
    {"BACKEND", {"auto", "driver"}, {"VMM", "none"}},
    {"REUSE", {"fence", "sync"}, {"never"}},
    {"TRIM", {"0%", "50%", "99.5%", "100%"}, {"50", "101%", "-1%", "%", "1g", "nan%"}},
    {"LEAVE",
     {"1GiB", "5%", "1", "0=1g,1=2%", "0MiB", "0%", "0=0,1=0%"},
     {"much", "101%", "-0", "0x", "0=", "00%%"}},
    {"GROUP", {"team-a", "A_1.x"}, {"../x", "a/b", ".hidden", "a b", "\xc3\xa4"}},
    {"GROUP_LIMIT", {"4GiB", "0=1g"}, {"0", "much"}},
    {"TENANT", {"worker"}, {"a=b"}},
    {"LEDGER", {"/run/user/1000/gpucache", "folder"}, {NULL}},
    {"LEDGER_REQUIRED", {"0", "1"}, {"yes", "2", "-1"}},
    {"NODE", {"/run/gpucache"}, {NULL}},
    {"REPORT", {"stderr", "none", "/tmp/r-%p.json"}, {NULL}},
    {"TRACE", {"/tmp/t"}, {NULL}},
    {"STACKS", {"off", "leaks", "all"}, {"yes"}},
    {"LOG", {"error", "warn", "info", "debug"}, {"WARN", "2", "verbose"}},
    {"MODEL", {"/models/a"}, {NULL}},
    {"BUDGET", {"4GiB", "80%", "0=4GiB,1=50%"}, {"0=4GiB,", "4GiB,5GiB", "0", "x"}},
    {"GATE",
     {"off", "warn", "deny", "exit", "strict", "strict-exit"},
     {"no", "Deny", "strict-deny"}},
    {"ENGINE", {"transformers", "vllm", "llama.cpp", "sglang", "tensorrt-llm"}, {"tgi", "vLLM"}},
    {"UTILISATION", {"0.9", "1"}, {"1.1", "90%", "-0.1"}},
    {"GPU_LAYERS", {"0", "33"}, {"all", "1026"}},
    {"BATCH", {"1", "32"}, {"0", "-1", "1.5", "1000000001", "99999999999999999999"}},
    {"SEQ_LEN", {"0", "4096"}, {"4k", "-1"}},
    {"DTYPE", {"f16", "bfloat16", "Q4_K_M", "awq"}, {"F16", "half"}},
    {"KV_DTYPE", {"f8", "f8_e4m3", "q8_0", "q4_0"}, {"f9", "q8"}},
    {"DIMS",
     {"batch=1", "batch=1,seq=2"},
     {"batch", "batch=", "=1", "batch=0", "batch=1,", "batch=x"}},
    {"OVERHEAD", {"1.1", "1", "100"}, {"0.9", "101", "1.1x", "1,1", "inf", "1e1"}},
    {"CONTEXT_MEMORY", {"400MiB", "1%", "0=300MiB"}, {"0", "measured"}},
    {"DEVICES", {"1", "8", "64"}, {"0", "65", "two"}},
    {"SPLIT", {"layers", "tensor"}, {"rows", "Layers"}},
    {"CHUNK", {"0", "512"}, {"-1", "1k"}},
    {"ATTENTION", {"flash", "full"}, {"none"}},
    {"RESIDENT_EXPERTS", {"0", "8"}, {"all", "65537"}},
    {"TRAIN", {"adamw", "adafactor"}, {"adam", "AdamW"}},
    {"MIXED_PRECISION", {"0", "1"}, {"2", "bf16"}},
    {"CHECKPOINTING", {"0", "1"}, {"2", "on"}},
    {"ZERO", {"0", "3"}, {"4", "-1"}},
    {"LORA", {"0", "16"}, {"65537", "r"}},
    {"TENANTS",
     {"a=liba.so:1GiB", "a=liba.so:1g,b=/x/lib:b.so:2g"},
     {"a", "a=b", "a=:1g", "a=b:", "a=b:0", "=b:1g"}},
    {"WAIT", {"0", "100"}, {"100ms", "-1", "86400001"}},
    {"OVERCOMMIT", {"off", "swap", "swap,spill"}, {"swap,", "on", "swap spill"}},
    {"PRIORITY", {"0", "1000000"}, {"-1", "1000001", "high"}},
    {"QUANTUM", {"1", "86400000"}, {"0", "1s", "-1"}},
    {"GUARANTEE", {"8GiB", "50%", "0=1g"}, {"0", "much", "1g,"}},
    {"HOST_LIMIT", {"8GiB", "50%"}, {"0", "-1", "all"}},
    {"MANAGED", {"count", "limit", "deny"}, {"COUNT", "2", "off"}},
    {"DEBUG", {"poison", "poison,guard,uaf"}, {"poison,", "all", "poison guard"}},
    {"PLAN", {"/tmp/plan"}, {NULL}},
    {"CONFIG", {NULL}, {"/nonexistent/gpucache.conf", "/dev/zero", "/"}},
};

static enum gc_option option_of(const char *name)
{
    char full[64];
    snprintf(full, sizeof(full), "GPUCACHE_%s", name);
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        if (strcmp(gc_options_get_row((enum gc_option)i)->name, full) == 0)
            return (enum gc_option)i;
    }
    fail_msg("no option %s", full);
    return GC_OPTION_COUNT;
}

static void every_option_has_samples(void **state)
{
    (void)state;
    assert_int_equal(sizeof(samples) / sizeof(samples[0]), GC_OPTION_COUNT);
    for (int i = 0; i < GC_OPTION_COUNT; i++)
        assert_int_equal(option_of(samples[i].name), i);
}

/* A budget, or a gate that closes, without a model: reported in one line. */
static bool guards_nothing(enum gc_option option)
{
    const bool is_closing = gc_admission_is_closed(options->gate);
    if (option != GC_OPTION_BUDGET && !(option == GC_OPTION_GATE && is_closing))
        return false;
    assert_non_null(strstr(lines, " is set and no GPUCACHE_MODEL is named: no model is checked"));
    assert_int_equal(options->warning_count, 1);
    assert_false(options->refused);
    return true;
}

static void good_values_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < GC_OPTION_COUNT; i++) {
        const enum gc_option option = option_of(samples[i].name);
        for (const char *const *value = samples[i].good; *value != NULL; value++) {
            read_one(gc_options_get_row(option)->name, *value);
            if (!gc_options_is_set(options, option))
                fail_msg("%s=%s was refused: %s", samples[i].name, *value, lines);
            if (strstr(lines, "not valid") != NULL)
                fail_msg("%s=%s: %s", samples[i].name, *value, lines);
            if (!guards_nothing(option))
                assert_string_equal(lines, "");
        }
    }
}

static void check_bad(enum gc_option option, const char *value)
{
    const struct gc_option_row *row = gc_options_get_row(option);
    char wanted[1024];
    /* Of the file's path the line names the one that is read. */
    const char *words = option == GC_OPTION_CONFIG ? NULL : strstr(row->help, "default: ");
    const char *kept = row->default_text[0] != '\0' ? row->default_text
                       : words != NULL              ? words + strlen("default: ")
                                                    : "none";
    read_one(row->name, value);
    if (row->closed)
        snprintf(wanted, sizeof(wanted), "gpucache: %s=%s: not valid; accepted: %s; cuInit fails\n",
                 row->name, value, row->accepts);
    else
        snprintf(wanted, sizeof(wanted),
                 "gpucache: %s=%s: not valid; accepted: %s; keeping the default: %s\n", row->name,
                 value, row->accepts, kept);
    assert_string_equal(lines, wanted);
    assert_int_equal(options->refused, row->closed);
    assert_false(gc_options_is_set(options, option));
    assert_int_equal(options->warning_count, 1);
}

static void bad_values_give_one_line_and_the_right_consequence(void **state)
{
    (void)state;
    for (size_t i = 0; i < GC_OPTION_COUNT; i++) {
        for (const char *const *value = samples[i].bad; *value != NULL; value++)
            check_bad(option_of(samples[i].name), *value);
        check_bad(option_of(samples[i].name), "");
    }
}

static void only_what_limits_depend_on_closes(void **state)
{
    (void)state;
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        const bool closes = i == GC_OPTION_LIMIT || i == GC_OPTION_GROUP_LIMIT ||
                            i == GC_OPTION_BUDGET || i == GC_OPTION_GATE ||
                            i == GC_OPTION_TENANTS || i == GC_OPTION_GUARANTEE ||
                            i == GC_OPTION_LEDGER_REQUIRED;
        assert_int_equal(gc_options_get_row((enum gc_option)i)->closed, closes);
    }
}

/* The inputs of the estimate: a gate that closes must not use a default in their place. */
static void a_gate_that_closes_takes_no_default(void **state)
{
    static const char *const words[] = {"off", "warn", "deny", "exit", "strict", "strict-exit"};
    char gate[32];
    char bad[64];
    char *environment[] = {bad, gate, NULL};
    unsigned gated = 0;
    (void)state;
    for (int i = 0; i < GC_OPTION_COUNT; i++) {
        const struct gc_option_row *row = gc_options_get_row((enum gc_option)i);
        gated += row->gated;
        for (int word = 0; row->gated && word < 6; word++) {
            snprintf(gate, sizeof(gate), "GPUCACHE_GATE=%s", words[word]);
            snprintf(bad, sizeof(bad), "%s=", row->name);
            read_environment(environment);
            assert_int_equal(options->refused, word >= GC_ADMISSION_DENY);
            assert_int_equal(line_count(), word >= GC_ADMISSION_DENY ? 2 : 1);
            assert_true(word < GC_ADMISSION_DENY || strstr(lines, words[word]) != NULL);
        }
    }
    assert_int_equal(gated, 21);
}

/* A default that is no value: its words, to the line's end. */
static void bad_values_name_the_real_default(void **state)
{
    (void)state;
    read_one("GPUCACHE_LEAVE", "lots");
    assert_non_null(strstr(lines, "keeping the default: 512 MiB or 2% of the device, whichever is "
                                  "more, but at most an eighth of it\n"));
    read_one("GPUCACHE_TENANT", "a/b");
    assert_non_null(strstr(lines, "keeping the default: the process name\n"));
    for (size_t i = 0; i < GC_OPTION_COUNT; i++) {
        const struct gc_option_row *row = gc_options_get_row((enum gc_option)i);
        const char *words = strstr(row->help, "default: ");
        if (words != NULL && (row->default_text[0] != '\0' || strchr(words, ';') != NULL))
            fail_msg("%s: %s", row->name, words);
    }
}

static void no_room_is_left_where_zero_says_so(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        read_one("GPUCACHE_LEAVE", (const char *[]){"0", "0MiB", "0%"}[i]);
        assert_string_equal(lines, "");
        assert_int_equal(gc_size_spec_resolve(&options->leave, 0, "", UINT64_C(1) << 34), 0);
    }
}

static void bad_values_leave_the_defaults(void **state)
{
    (void)state;
    char *environment[] = {
        "GPUCACHE_MODE=x",  "GPUCACHE_TRIM=x",  "GPUCACHE_REPORT=", "GPUCACHE_LOG=x",
        "GPUCACHE_BATCH=x", "GPUCACHE_DEBUG=x", "GPUCACHE_DIMS=x",  NULL};
    read_environment(environment);
    assert_int_equal(line_count(), 7);
    assert_int_equal(options->mode, GC_MODE_CACHE);
    assert_true(options->trim_percent == 100);
    assert_string_equal(options->report, "stderr");
    assert_int_equal(options->log_level, GC_LOG_WARN);
    assert_int_equal(options->batch, 1);
    assert_int_equal(options->debug, 0);
    assert_string_equal(options->dims, "");
    assert_false(options->refused);
}

static void defaults_log_nothing(void **state)
{
    (void)state;
    char *environment[] = {"PATH=/bin", "GPUCACHE", "XGPUCACHE_MODE=off", "gpucache_mode=off",
                           NULL};
    read_environment(environment);
    assert_string_equal(lines, "");
    assert_int_equal(options->mode, GC_MODE_CACHE);
    assert_int_equal(options->limit.count, 0);
    assert_int_equal(options->set_mask, 0);
    assert_true(options->overhead == 0);
    assert_int_equal(options->gate, GC_ADMISSION_WARN);
    assert_string_equal(options->trace, "");
    read_environment(NULL);
    assert_string_equal(lines, "");
}

/* ---- unknown names ---- */

static void unknown_names_give_one_line_with_the_nearest(void **state)
{
    (void)state;
    read_one("GPUCACHE_LIMT", "4GiB");
    assert_string_equal(
        lines, "gpucache: GPUCACHE_LIMT=4GiB: unknown name, ignored; nearest: GPUCACHE_LIMIT (a "
               "size (8GiB, 500MB) or percentage (80%), or per device: 0=8GiB,GPU-...=50%)\n");
    assert_int_equal(options->limit.count, 0);
    read_one("GPUCACHE_MDOE", "off");
    assert_string_equal(
        lines, "gpucache: GPUCACHE_MDOE=off: unknown name, ignored; nearest: GPUCACHE_MODE "
               "(cache, track, off)\n");
    read_one("GPUCACHE_limit", "1g");
    assert_non_null(strstr(lines, "unknown name"));
    read_one("GPUCACHE_", "x");
    assert_int_equal(line_count(), 1);
    read_one("GPUCACHE_LIMIT_", "1g");
    assert_int_equal(line_count(), 1);
    assert_false(options->refused);
}

static void lines_stay_one_line_whatever_the_value(void **state)
{
    char long_value[3000];
    (void)state;
    memset(long_value, 'x', sizeof(long_value) - 1);
    long_value[sizeof(long_value) - 1] = '\0';
    read_one("GPUCACHE_MODE", long_value);
    assert_int_equal(line_count(), 1);
    assert_non_null(strstr(lines, "xxx...: not valid; accepted: cache, track, off"));
    read_one("GPUCACHE_MODE", "a\nb\033[31m%s%n");
    assert_int_equal(line_count(), 1);
    assert_non_null(strstr(lines, "GPUCACHE_MODE=a?b?[31m%s%n: not valid"));
    assert_null(strchr(lines, '\033'));
}

static void values_that_are_too_long_are_reported(void **state)
{
    static char text[GC_OPTION_LIST_BYTES + 2];
    (void)state;
    /* As long as it may be, then one more. */
    memset(text, 'x', GC_OPTION_LIST_BYTES - 1);
    text[1] = '=';
    snprintf(text + GC_OPTION_LIST_BYTES - 5, 6, "%s", ":1Gi");
    read_one("GPUCACHE_TENANTS", text);
    assert_null(strstr(lines, "longer than"));
    snprintf(text + GC_OPTION_LIST_BYTES - 5, 6, "%s", "x:1Gi");
    read_one("GPUCACHE_TENANTS", text);
    assert_int_equal(line_count(), 1);
    assert_non_null(strstr(lines, "...: longer than 8191 bytes; accepted: name=object:size,"));
    assert_true(options->refused);
}

/* ---- gates ---- */

static void gates_are_served(void **state)
{
    static const char *const gates[] = {"GPUCACHE_GATE=warn", "GPUCACHE_GATE=deny",
                                        "GPUCACHE_GATE=exit"};
    (void)state;
    for (size_t i = 0; i < sizeof(gates) / sizeof(gates[0]); i++) {
        char gate[32];
        char *environment[] = {"GPUCACHE_MODEL=/m", "GPUCACHE_BUDGET=50%", gate, NULL};
        strcpy(gate, gates[i]);
        read_environment(environment);
        assert_string_equal(lines, "");
        assert_false(options->refused);
    }
}

/* ---- HAMi's variables ---- */

static uint64_t limit_of(int ordinal)
{
    return gc_size_spec_resolve(&options->limit, ordinal, "GPU-x", UINT64_C(16) << 30);
}

static void foreign_limits_are_the_limit(void **state)
{
    (void)state;
    char *environment[] = {"CUDA_DEVICE_MEMORY_LIMIT_1=3000m", "CUDA_DEVICE_MEMORY_LIMIT=2g", NULL};
    read_environment(environment);
    assert_string_equal(lines, "");
    assert_int_equal(limit_of(0), UINT64_C(2) << 30);
    assert_int_equal(limit_of(1), UINT64_C(3000) << 20);
    char *only_one[] = {"CUDA_DEVICE_MEMORY_LIMIT_0=1024", NULL};
    read_environment(only_one);
    assert_int_equal(limit_of(0), 1024);
    assert_true(limit_of(1) == UINT64_MAX);
}

static void foreign_limits_yield_to_ours(void **state)
{
    (void)state;
    char *environment[] = {"CUDA_DEVICE_MEMORY_LIMIT=0m", "CUDA_DEVICE_MEMORY_LIMIT_x=1",
                           "GPUCACHE_LIMIT=1g", NULL};
    read_environment(environment);
    assert_string_equal(lines, "");
    assert_false(options->refused);
    assert_int_equal(limit_of(0), UINT64_C(1) << 30);
    char *bad_ours[] = {"CUDA_DEVICE_MEMORY_LIMIT=1g", "GPUCACHE_LIMIT=0m", NULL};
    read_environment(bad_ours);
    assert_true(options->refused);
    assert_int_equal(options->limit.count, 0);
}

static void bad_foreign_limits_close(void **state)
{
    static const char *const names[] = {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0"};
    static const char *const values[] = {"0m", "", "-1", "lots", "50%", "0=1g"};
    char wanted[512];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < sizeof(values) / sizeof(values[0]); j++) {
            read_one(names[i], values[j]);
            snprintf(
                wanted, sizeof(wanted),
                "gpucache: %s=%s: not valid; accepted: a size, for all devices, or for one with its number "
                "behind the name; cuInit fails\n",
                names[i], values[j]);
            assert_string_equal(lines, wanted);
            assert_true(options->refused);
        }
    }
    read_one("CUDA_DEVICE_MEMORY_LIMIT_x", "1g");
    assert_int_equal(line_count(), 1);
    assert_true(options->refused);
    read_one("CUDA_DEVICE_MEMORY_LIMITS", "x");
    assert_string_equal(lines, "");
}

static void a_shared_cache_makes_a_group(void **state)
{
    char first[GC_OPTION_NAME_BYTES];
    (void)state;
    char *environment[] = {"CUDA_DEVICE_MEMORY_LIMIT_0=3000m",
                           "CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/5f/a b.cache", NULL};
    read_environment(environment);
    assert_string_equal(lines, "");
    assert_int_equal(limit_of(0), UINT64_C(3000) << 20);
    assert_int_equal(gc_size_spec_resolve(&options->group_limit, 0, "GPU-x", 1), UINT64_C(3000)
                                                                                     << 20);
    assert_true(strncmp(options->group, "hami-a_b.cache-", 15) == 0);
    strcpy(first, options->group);
    char *elsewhere[] = {"CUDA_DEVICE_MEMORY_LIMIT=1g",
                         "CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/60/a b.cache", NULL};
    read_environment(elsewhere);
    assert_string_not_equal(options->group, first);
    /* A name of ours stays, so do limits. */
    char *named[] = {"CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DEVICE_MEMORY_SHARED_CACHE=/x",
                     "GPUCACHE_GROUP=team", NULL};
    read_environment(named);
    assert_string_equal(options->group, "team");
    assert_int_equal(options->group_limit.count, 1);
    char *limited[] = {"CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DEVICE_MEMORY_SHARED_CACHE=/x",
                       "GPUCACHE_LIMIT=2g", NULL};
    read_environment(limited);
    assert_int_equal(limit_of(0), UINT64_C(2) << 30);
    assert_int_equal(options->group_limit.count, 0);
    assert_string_equal(options->group, "");
    read_one("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/x");
    assert_string_equal(options->group, "");
}

static void disabled_control_is_mode_off(void **state)
{
    (void)state;
    char *environment[] = {"CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DISABLE_CONTROL=true",
                           "CUDA_DEVICE_SM_LIMIT=50", NULL};
    read_environment(environment);
    assert_string_equal(lines, "");
    assert_int_equal(options->mode, GC_MODE_OFF);
    assert_int_equal(options->limit.count, 0);
    char *ours[] = {"GPUCACHE_LIMIT=1g", "CUDA_DISABLE_CONTROL=1", NULL};
    read_environment(ours);
    assert_int_equal(options->mode, GC_MODE_CACHE);
    assert_int_equal(limit_of(0), UINT64_C(1) << 30);
    char *not_so[] = {"CUDA_DEVICE_MEMORY_LIMIT=1g", "CUDA_DISABLE_CONTROL=false", NULL};
    read_environment(not_so);
    assert_int_equal(options->mode, GC_MODE_CACHE);
    assert_int_equal(limit_of(0), UINT64_C(1) << 30);
}

static void hami_variables_without_effect_are_logged_once(void **state)
{
    (void)state;
    char *all[] = {"CUDA_DEVICE_SM_LIMIT_0=30",
                   "CUDA_DEVICE_SM_LIMIT_1=30",
                   "CUDA_OVERSUBSCRIBE=true",
                   "CUDA_TASK_PRIORITY=1",
                   "ACTIVE_OOM_KILLER=true",
                   "LIBCUDA_LOG_LEVEL=3",
                   NULL};
    read_environment(all);
    assert_string_equal(lines,
                        "gpucache: CUDA_DEVICE_SM_LIMIT_0=30: not served: only memory is limited, "
                        "not the time on the device\n"
                        "gpucache: CUDA_OVERSUBSCRIBE=true: not served: an allocation beyond the "
                        "limit fails; nothing moves to host memory\n"
                        "gpucache: CUDA_TASK_PRIORITY=1: not served: all processes have the same "
                        "priority\n");
    assert_false(options->refused);
    char *harmless[] = {"CUDA_DEVICE_SM_LIMIT=0", "CUDA_OVERSUBSCRIBE=false", NULL};
    read_environment(harmless);
    assert_string_equal(lines, "");
    char *whole[] = {"CUDA_DEVICE_SM_LIMIT=100", NULL};
    read_environment(whole);
    assert_string_equal(lines, "");
    char *unlimited[] = {"CUDA_DEVICE_SM_LIMIT=30", "GPU_CORE_UTILIZATION_POLICY=disable", NULL};
    read_environment(unlimited);
    assert_string_equal(lines, "");
}

/* ---- the configuration file ---- */

static char folder[64];
static char config_path[128];

static void write_config(const char *text)
{
    scratch_write(config_path, text, strlen(text));
}

static int setup_config(void **state)
{
    setup(state);
    scratch_folder(folder, sizeof(folder));
    scratch_path(config_path, sizeof(config_path), folder, "conf");
    return 0;
}

static int teardown_config(void **state)
{
    scratch_remove(folder);
    return teardown(state);
}

static void config_file_is_read_and_the_environment_wins(void **state)
{
    char *environment[] = {"GPUCACHE_MODE=track", NULL, NULL};
    char named[256];
    (void)state;
    write_config(
        "# limits\n\n  GPUCACHE_LIMIT = 50% \r\nGPUCACHE_MODE=nonsense\nGPUCACHE_TRIM=10%");
    snprintf(named, sizeof(named), "GPUCACHE_CONFIG=%s", config_path);
    environment[1] = named;
    read_environment(environment);
    assert_string_equal(lines, "");
    assert_int_equal(options->mode, GC_MODE_TRACK);
    assert_int_equal(limit_of(0), UINT64_C(8) << 30);
    assert_true(options->trim_percent == 10);
}

static void read_default_config(char *const *environment, bool secure)
{
    const struct gc_options_source source = {
        .environment = environment, .default_config = config_path, .secure = secure};
    read_source(&source);
}

static void default_config_file_is_read_if_there(void **state)
{
    (void)state;
    read_default_config(NULL, false);
    assert_string_equal(lines, "");
    write_config("CUDA_DEVICE_MEMORY_LIMIT=1g\n");
    read_default_config(NULL, false);
    assert_int_equal(limit_of(0), UINT64_C(1) << 30);
}

static void config_file_mistakes_give_one_line_each(void **state)
{
    char wanted[1024];
    (void)state;
    write_config("GPUCACHE_TRIM=7\nnothing\nGPUCACHE_LOGG=1\nGPUCACHE_CONFIG=/x\n=1\n");
    read_default_config(NULL, false);
    snprintf(
        wanted, sizeof(wanted),
        "gpucache: %s: line 2 is not KEY=value; ignored\n"
        "gpucache: GPUCACHE_LOGG=1 in %s: unknown name, ignored; nearest: GPUCACHE_LOG (error, warn, info, "
        "debug)\n",
        config_path, config_path);
    assert_memory_equal(lines, wanted, strlen(wanted));
    assert_int_equal(line_count(), 5);
    assert_non_null(strstr(lines, "line 5 is not KEY=value"));
    assert_non_null(strstr(lines, "GPUCACHE_CONFIG=/x in "));
    snprintf(wanted, sizeof(wanted), "GPUCACHE_TRIM=7 in %s: not valid; accepted: a percentage",
             config_path);
    assert_non_null(strstr(lines, wanted));
    write_config("GPUCACHE_LIMIT=0m\n");
    read_default_config(NULL, false);
    assert_true(options->refused);
}

static void config_file_that_cannot_be_read_keeps_the_default(void **state)
{
    char *environment[] = {NULL, NULL};
    char named[256];
    (void)state;
    write_config("GPUCACHE_MODE=track\n");
    environment[0] = "GPUCACHE_CONFIG=/nonexistent";
    read_default_config(environment, false);
    assert_int_equal(line_count(), 1);
    assert_int_equal(options->mode, GC_MODE_TRACK);
    environment[0] = NULL;
    assert_int_equal(unlink(config_path), 0);
    read_default_config(environment, false);
    assert_int_equal(line_count(), 0);
    /* The default is there and is no file. */
    assert_int_equal(mkdir(config_path, 0700), 0);
    read_default_config(environment, false);
    assert_int_equal(line_count(), 1);
    assert_non_null(strstr(lines, "its options are not applied"));
    assert_int_equal(rmdir(config_path), 0);
    /* A fifo must neither block nor be read. */
    scratch_path(named, sizeof(named), folder, "fifo");
    assert_int_equal(mkfifo(named, 0600), 0);
    char entry[300];
    snprintf(entry, sizeof(entry), "GPUCACHE_CONFIG=%s", named);
    environment[0] = entry;
    read_environment(environment);
    assert_int_equal(line_count(), 1);
    /* Too large. */
    char *large = calloc(1, 70000);
    memset(large, '#', 70000);
    scratch_write(config_path, large, 70000);
    free(large);
    snprintf(entry, sizeof(entry), "GPUCACHE_CONFIG=%s", config_path);
    read_environment(environment);
    assert_int_equal(line_count(), 1);
}

static void raised_privileges_trust_neither_environment_nor_paths(void **state)
{
    char *environment[] = {"GPUCACHE_LIMIT=1g", "GPUCACHE_BOGUS=1", "CUDA_DEVICE_MEMORY_LIMIT=2g",
                           NULL};
    (void)state;
    write_config("GPUCACHE_MODE=track\nGPUCACHE_REPORT=/tmp/x\nGPUCACHE_TRACE=/tmp/y\n");
    read_default_config(environment, true);
    assert_string_equal(lines, "");
    assert_int_equal(options->limit.count, 0);
    assert_int_equal(options->mode, GC_MODE_TRACK);
    assert_string_equal(options->report, "stderr");
    assert_string_equal(options->trace, "");
}

/* ---- sizes ---- */

static void sizes_are_exact(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"512", 512},
        {"4Gi", UINT64_C(4) << 30},
        {"4GiB", UINT64_C(4) << 30},
        {"4g", UINT64_C(4) << 30},
        {"4 GiB", UINT64_C(4) << 30},
        {"4GB", UINT64_C(4000000000)},
        {"1.5k", 1536},
        {"1tib", UINT64_C(1) << 40},
        {"0.1MB", 100000},
        {"1KB", 1000},
        {"16777215TiB", UINT64_C(16777215) << 40},
        {"18446744073709551615", UINT64_MAX},
        {"0.000000000000000000000000001", 0},
        {"00001k", 1024},
    };
    static const char *const bad[] = {"",
                                      " ",
                                      "k",
                                      "0",
                                      "0m",
                                      "0.0g",
                                      "-1",
                                      "+1",
                                      "1x",
                                      "1gg",
                                      "1 ",
                                      "1  g",
                                      " 1",
                                      "1.g",
                                      ".5g",
                                      "1.5",
                                      "1..5g",
                                      "18446744073709551616",
                                      "16777216TiB",
                                      "nan",
                                      "inf",
                                      "1e9",
                                      "0x10",
                                      "1,5g",
                                      "4Gib4",
                                      "4GiBB",
                                      "1b",
                                      "%",
                                      "50%",
                                      "1ki b"};
    uint64_t bytes = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        const enum gc_status status = gc_size_parse(good[i].text, &bytes);
        if (good[i].bytes == 0)
            assert_int_equal(status, GC_FORMAT);
        else if (status != GC_OK || bytes != good[i].bytes)
            fail_msg("%s: %d, %llu", good[i].text, status, (unsigned long long)bytes);
    }
    bytes = 7;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (gc_size_parse(bad[i], &bytes) != GC_FORMAT)
            fail_msg("\"%s\" was taken", bad[i]);
    }
    assert_int_equal(bytes, 7);
}

static void the_most_particular_entry_counts(void **state)
{
    struct gc_size_spec spec;
    const char *uuid = "GPU-00000000-1111-2222-3333-44444444abcd";
    const uint64_t total = UINT64_C(1000);
    (void)state;
    assert_int_equal(
        gc_size_spec_parse("25%,GPU-00000000-1111-2222-3333-44444444ABCD=1k,0=50%", true, &spec),
        GC_OK);
    assert_int_equal(spec.count, 3);
    assert_int_equal(gc_size_spec_resolve(&spec, 0, uuid, total), 1024);
    assert_int_equal(gc_size_spec_resolve(&spec, 0, NULL, total), 500);
    assert_int_equal(gc_size_spec_resolve(&spec, 1, "GPU-other", total), 250);
    assert_int_equal(gc_size_spec_parse("0=1g", true, &spec), GC_OK);
    assert_true(gc_size_spec_resolve(&spec, 1, uuid, total) == UINT64_MAX);
    assert_int_equal(gc_size_spec_parse("100%", true, &spec), GC_OK);
    assert_true(gc_size_spec_resolve(&spec, 0, NULL, UINT64_MAX - 1) == UINT64_MAX - 1);
}

static void too_many_entries_are_refused(void **state)
{
    struct gc_size_spec spec;
    char text[1024] = "";
    (void)state;
    for (int i = 0; i < GC_SIZE_SPEC_MAX; i++)
        sprintf(text + strlen(text), "%s%d=1g", i > 0 ? "," : "", i);
    assert_int_equal(gc_size_spec_parse(text, true, &spec), GC_OK);
    strcat(text, ",99=1g");
    assert_int_equal(gc_size_spec_parse(text, true, &spec), GC_FORMAT);
}

static void errno_is_kept(void **state)
{
    (void)state;
    errno = 77;
    read_one("GPUCACHE_CONFIG", "/nonexistent");
    errno = 77;
    const struct gc_options_source source = {.default_config = "/nonexistent"};
    gc_options_read(&source, &log_to, options);
    assert_int_equal(errno, 77);
}

static void load_sets_the_log_level(void **state)
{
    char *environment[] = {"GPUCACHE_LOG=debug", NULL};
    struct gc_options *loaded = NULL;
    (void)state;
    assert_int_equal(gc_options_load(environment, &log_to, &loaded), GC_OK);
    assert_int_equal(log_to.level, GC_LOG_DEBUG);
    gc_options_free(loaded);
    assert_int_equal(gc_options_load(NULL, NULL, &loaded), GC_OK);
    gc_options_free(loaded);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define CONFIG_TEST(name) cmocka_unit_test_setup_teardown(name, setup_config, teardown_config)
    const struct CMUnitTest tests[] = {
        TEST(every_option_has_samples),
        TEST(good_values_are_taken),
        TEST(bad_values_give_one_line_and_the_right_consequence),
        TEST(only_what_limits_depend_on_closes),
        TEST(a_gate_that_closes_takes_no_default),
        TEST(bad_values_name_the_real_default),
        TEST(no_room_is_left_where_zero_says_so),
        TEST(bad_values_leave_the_defaults),
        TEST(defaults_log_nothing),
        TEST(unknown_names_give_one_line_with_the_nearest),
        TEST(lines_stay_one_line_whatever_the_value),
        TEST(values_that_are_too_long_are_reported),
        TEST(gates_are_served),
        TEST(foreign_limits_are_the_limit),
        TEST(foreign_limits_yield_to_ours),
        TEST(bad_foreign_limits_close),
        TEST(a_shared_cache_makes_a_group),
        TEST(disabled_control_is_mode_off),
        TEST(hami_variables_without_effect_are_logged_once),
        CONFIG_TEST(config_file_is_read_and_the_environment_wins),
        CONFIG_TEST(default_config_file_is_read_if_there),
        CONFIG_TEST(config_file_mistakes_give_one_line_each),
        CONFIG_TEST(config_file_that_cannot_be_read_keeps_the_default),
        CONFIG_TEST(raised_privileges_trust_neither_environment_nor_paths),
        TEST(sizes_are_exact),
        TEST(the_most_particular_entry_counts),
        TEST(too_many_entries_are_refused),
        TEST(errno_is_kept),
        TEST(load_sets_the_log_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
