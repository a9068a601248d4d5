/* The SIMCUDA_* variables, read once at the first driver call.
 *
 * A bad value costs one line on stderr (the variable, the value, what is accepted) and keeps the
 * default. Lists are read item by item: a bad item is named and left out. */
#define _GNU_SOURCE
#include "tests/simcuda/driver/settings.h"

#include "tests/simcuda/driver/engine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SIM_DEFAULT_MEMORY (UINT64_C(16) << 30)
#define SIM_DEFAULT_VERSION 13000
#define SIM_OLDEST_VERSION 2000
#define SIM_MAX_WORK_US 60000000u
#define SIM_MAX_RULES 256
#define SIM_DEFAULT_PAGEABLE 50

atomic_int sim_calls_are_watched = SIM_WATCH_SETTINGS | SIM_WATCH_START;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sim_settings settings;
static struct sim_private_settings private_settings;
static struct sim_latency latencies[SIM_MAX_RULES];
static struct sim_failure failures[SIM_MAX_RULES];
static struct sim_attribute attributes[SIM_MAX_RULES];
static struct sim_kernel kernels[SIM_MAX_RULES];

static const struct sim_latency profile_h200[] = {
#define SIM_LATENCY(name, microseconds) {#name, (uint64_t)((microseconds)*1000.0)},
#define SIM_PIN(microseconds)
#include "tests/simcuda/driver/latency_h200.def"
#undef SIM_PIN
#undef SIM_LATENCY
};

static const uint64_t profile_h200_pin_ns =
#define SIM_LATENCY(name, microseconds)
#define SIM_PIN(microseconds) (uint64_t)((microseconds)*1000.0)
#include "tests/simcuda/driver/latency_h200.def"
#undef SIM_PIN
#undef SIM_LATENCY
    ;

static void complain(const char *name, const char *value, size_t length, const char *accepted)
{
    fprintf(stderr, "simcuda: %s=%.*s: expected %s\n", name, (int)length, value, accepted);
}

/* Base ten digits to the end of [text, end); false on anything else or on overflow. */
static bool parse_integer(const char *text, const char *end, uint64_t *value)
{
    uint64_t result = 0;
    if (text == end)
        return false;
    for (; text < end; text++) {
        if (!isdigit((unsigned char)*text) || result > (UINT64_MAX - 9) / 10)
            return false;
        result = result * 10 + (uint64_t)(*text - '0');
    }
    *value = result;
    return true;
}

/* `16GiB`, `1.5G`, `4096`: binary units, but KB, MB, GB, TB are decimal. */
static bool parse_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    char *rest;
    double scale = 1;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    double number = strtod(text, &rest);
    if (errno)
        return false;
    const char *unit = *rest ? strchr(units, toupper((unsigned char)*rest)) : NULL;
    if (unit) {
        bool is_decimal = strcasecmp(rest + 1, "b") == 0;
        if (!is_decimal && rest[1] && strcasecmp(rest + 1, "i") && strcasecmp(rest + 1, "ib"))
            return false;
        for (const char *step = units; step <= unit; step++)
            scale *= is_decimal ? 1000 : 1024;
    } else if (*rest) {
        return false;
    }
    if (number * scale < 1 || number * scale >= (double)(UINT64_C(1) << 62))
        return false;
    *bytes = (uint64_t)(number * scale);
    return true;
}

static uint64_t read_integer(const char *name, uint64_t fallback, uint64_t minimum,
                             uint64_t maximum)
{
    const char *text = getenv(name);
    char accepted[80];
    uint64_t value;

    if (!text || !*text)
        return fallback;
    if (parse_integer(text, text + strlen(text), &value) && value >= minimum && value <= maximum)
        return value;
    snprintf(accepted, sizeof accepted, "an integer from %llu to %llu", (unsigned long long)minimum,
             (unsigned long long)maximum);
    complain(name, text, strlen(text), accepted);
    return fallback;
}

static bool copy_entry(char *entry, const char *text, const char *end)
{
    size_t length = (size_t)(end - text);
    if (length == 0 || length >= SIM_MAX_ENTRY ||
        (strncmp(text, "cu", 2) != 0 && (length > 1 || *text != '*')))
        return false;
    memcpy(entry, text, length);
    entry[length] = '\0';
    return true;
}

/* The error of a failing entry when the rule names no code: the most likely one of a GPU. */
static CUresult usual_failure(const char *entry)
{
    if (strstr(entry, "Alloc") || strstr(entry, "MemCreate") || strstr(entry, "CtxCreate") ||
        strstr(entry, "PrimaryCtxRetain") || strstr(entry, "ArrayCreate") ||
        strstr(entry, "MemMap") || strstr(entry, "AddressReserve") || strstr(entry, "ModuleLoad") ||
        strstr(entry, "LibraryLoad"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_ERROR_UNKNOWN;
}

/* entry@N, entry@N+, either with =code. */
static bool parse_failure(const char *text, const char *end)
{
    struct sim_failure *rule = &failures[private_settings.failure_count];
    const char *at = memchr(text, '@', (size_t)(end - text));
    const char *code = memchr(text, '=', (size_t)(end - text));
    const char *number_end = code ? code : end;

    if (!at || (code && code < at) || private_settings.failure_count == SIM_MAX_RULES)
        return false;
    if (!copy_entry(rule->entry, text, at))
        return false;
    rule->goes_on = number_end > at + 1 && number_end[-1] == '+';
    if (rule->goes_on)
        number_end--;
    if (!parse_integer(at + 1, number_end, &rule->first) || rule->first == 0)
        return false;
    rule->result = usual_failure(rule->entry);
    if (code && !sim_error_by_name(code + 1, (size_t)(end - code - 1), &rule->result))
        return false;
    private_settings.failure_count++;
    return true;
}

/* entry=microseconds, decimals allowed. */
static bool parse_latency(const char *text, const char *end)
{
    struct sim_latency *rule = &latencies[private_settings.latency_count];
    const char *equals = memchr(text, '=', (size_t)(end - text));
    char *rest;

    if (!equals || private_settings.latency_count == SIM_MAX_RULES ||
        !isdigit((unsigned char)equals[1]))
        return false;
    double microseconds = strtod(equals + 1, &rest);
    if (rest != end || microseconds > SIM_MAX_WORK_US || !copy_entry(rule->entry, text, equals))
        return false;
    rule->duration_ns = (uint64_t)(microseconds * 1000);
    private_settings.latency_count++;
    return true;
}

/* name=microseconds */
static bool parse_kernel(const char *text, const char *end)
{
    struct sim_kernel *kernel = &kernels[private_settings.kernel_count];
    const char *equals = memrchr(text, '=', (size_t)(end - text));

    if (!equals || equals == text || private_settings.kernel_count == SIM_MAX_RULES ||
        (size_t)(equals - text) >= sizeof kernel->name ||
        !parse_integer(equals + 1, end, &kernel->work_us) || kernel->work_us > SIM_MAX_WORK_US)
        return false;
    memcpy(kernel->name, text, (size_t)(equals - text));
    kernel->name[equals - text] = '\0';
    private_settings.kernel_count++;
    return true;
}

/* number=value */
static bool parse_attribute(const char *text, const char *end)
{
    struct sim_attribute *attribute = &attributes[private_settings.attribute_count];
    const char *equals = memchr(text, '=', (size_t)(end - text));
    uint64_t number, value;

    if (!equals || private_settings.attribute_count == SIM_MAX_RULES ||
        !parse_integer(text, equals, &number) || !parse_integer(equals + 1, end, &value) ||
        number == 0 || number > INT_MAX || value > INT_MAX)
        return false;
    *attribute = (struct sim_attribute){(int)number, (int)value};
    private_settings.attribute_count++;
    if (number == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
        settings.has_mapping = value != 0;
    return true;
}

/* One of the words, the first of which is the default; its index. */
static int read_choice(const char *name, const char *const words[])
{
    const char *text = getenv(name);
    char accepted[80] = "";

    for (int i = 0; words[i] != NULL; i++) {
        if (!text || !*text || strcmp(text, words[i]) == 0)
            return i;
        strcat(strcat(accepted, i == 0 ? "" : words[i + 1] ? ", " : " or "), words[i]);
    }
    complain(name, text, strlen(text), accepted);
    return 0;
}

/* What a device that has GPUDirect RDMA says about it, where SIMCUDA_ATTRIBUTES does not. */
static void add_rdma_attributes(void)
{
    static const struct sim_attribute rdma[] = {
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
         CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
         CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER},
    };

    for (size_t i = 0; i < sizeof rdma / sizeof rdma[0]; i++)
        if (private_settings.attribute_count < SIM_MAX_RULES)
            attributes[private_settings.attribute_count++] = rdma[i];
}

/* A size for both directions, or `out=size`, `in=size`. */
static bool parse_link(const char *text, const char *end)
{
    static const char *const names[SIM_DIRECTIONS] = {[SIM_OUT] = "out=", [SIM_IN] = "in="};
    char size[SIM_MAX_ENTRY];
    uint64_t bytes;

    for (int i = 0; i <= SIM_DIRECTIONS; i++) {
        const size_t skipped = i < SIM_DIRECTIONS ? strlen(names[i]) : 0;

        if ((skipped != 0 && strncmp(text, names[i], skipped) != 0) ||
            (size_t)(end - text) - skipped >= sizeof size)
            continue;
        memcpy(size, text + skipped, (size_t)(end - text) - skipped);
        size[(size_t)(end - text) - skipped] = '\0';
        if (!parse_size(size, &bytes))
            return false;
        for (int j = 0; j < SIM_DIRECTIONS; j++)
            if (j == i || i == SIM_DIRECTIONS)
                settings.link[j] = bytes;
        return true;
    }
    return false;
}

static void read_list(const char *name, bool (*parse)(const char *, const char *),
                      const char *accepted)
{
    const char *text = getenv(name);
    while (text && *text) {
        const char *end = strchrnul(text, ',');
        if (end > text && !parse(text, end))
            complain(name, text, (size_t)(end - text), accepted);
        text = *end ? end + 1 : end;
    }
}

static void read_link(void)
{
    const char *text = getenv("SIMCUDA_LINK");

    if (text && strcmp(text, "none") != 0)
        read_list("SIMCUDA_LINK", parse_link, "none, or 25GB or out=25GB,in=25GB");
    settings.pageable_percent = read_integer("SIMCUDA_PAGEABLE", SIM_DEFAULT_PAGEABLE, 1, 100);
}

/* Microseconds, decimals allowed. */
static void read_pin(void)
{
    const char *text = getenv("SIMCUDA_PIN_US");
    char *rest = NULL;

    if (!text || !*text)
        return;
    const double microseconds = isdigit((unsigned char)*text) ? strtod(text, &rest) : -1;
    if (!rest || *rest || microseconds > SIM_MAX_WORK_US)
        complain("SIMCUDA_PIN_US", text, strlen(text), "microseconds for each MiB");
    else
        settings.pin_ns = (uint64_t)(microseconds * 1000);
}

static void read_latency(void)
{
    const char *text = getenv("SIMCUDA_LATENCY");

    private_settings.latencies = latencies;
    if (!text || strcmp(text, "none") == 0)
        return;
    if (strcmp(text, "h200") == 0) {
        memcpy(latencies, profile_h200, sizeof profile_h200);
        private_settings.latency_count = sizeof profile_h200 / sizeof profile_h200[0];
        settings.pin_ns = profile_h200_pin_ns;
        return;
    }
    read_list("SIMCUDA_LATENCY", parse_latency, "none, h200 or entry=microseconds,...");
}

static void open_journal(void)
{
    const char *path = getenv("SIMCUDA_JOURNAL");

    private_settings.journal_fd = -1;
    if (!path || !*path)
        return;
    private_settings.journal_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (private_settings.journal_fd < 0)
        complain("SIMCUDA_JOURNAL", path, strlen(path), "a file that can be written");
}

static void read_settings(void)
{
    const char *memory = getenv("SIMCUDA_MEMORY");
    const char *shared = getenv("SIMCUDA_SHARED");
    const char *lazy = getenv("SIMCUDA_LAZY");

    settings.device_count = (int)read_integer("SIMCUDA_DEVICES", 1, 0, SIM_MAX_DEVICES);
    settings.memory_bytes = SIM_DEFAULT_MEMORY;
    if (memory && *memory && !parse_size(memory, &settings.memory_bytes)) {
        complain("SIMCUDA_MEMORY", memory, strlen(memory), "a size such as 16GiB");
        settings.memory_bytes = SIM_DEFAULT_MEMORY;
    }
    if (shared && *shared) {
        if (strchr(shared, '/') || strlen(shared) > NAME_MAX / 2)
            complain("SIMCUDA_SHARED", shared, strlen(shared), "a short name without '/'");
        else
            settings.shared = strdup(shared);
    }
    settings.is_lazy = lazy && *lazy && strcmp(lazy, "none") != 0;
    if (settings.is_lazy && !parse_size(lazy, &settings.lazy_bytes)) {
        complain("SIMCUDA_LAZY", lazy, strlen(lazy), "none or a size such as 2MiB");
        settings.is_lazy = false;
    }
    settings.has_peers =
        read_choice("SIMCUDA_PEERS", (const char *const[]){"all", "none", NULL}) == 0;
    settings.rdma = (enum sim_rdma)read_choice(
        "SIMCUDA_RDMA", (const char *const[]){"none", "yes", "once", "refused", NULL});
    settings.looks_up_apart =
        read_choice("SIMCUDA_LOOKUPS", (const char *const[]){"exported", "apart", NULL}) != 0;
    settings.wait_us = read_integer("SIMCUDA_WAIT_US", 0, 0, SIM_MAX_WORK_US);
    settings.reuses_contexts = read_integer("SIMCUDA_REUSE_CONTEXTS", 0, 0, 1) != 0;
    settings.work_us = read_integer("SIMCUDA_WORK_US", 0, 0, SIM_MAX_WORK_US);
    settings.driver_version =
        (int)read_integer("SIMCUDA_DRIVER_VERSION", SIM_DEFAULT_VERSION, SIM_OLDEST_VERSION, 99990);
    private_settings.failures = failures;
    read_list("SIMCUDA_FAIL", parse_failure, "entry@N or entry@N+, with =CODE if wanted");
    settings.has_mapping = true;
    private_settings.attributes = attributes;
    read_list("SIMCUDA_ATTRIBUTES", parse_attribute, "number=value,...");
    if (settings.rdma != SIM_RDMA_NONE)
        add_rdma_attributes();
    private_settings.kernels = kernels;
    read_list("SIMCUDA_KERNEL_US", parse_kernel, "name=us,...");
    read_latency();
    read_link();
    read_pin();
    open_journal();
    if (private_settings.latency_count == 0 && private_settings.failure_count == 0 &&
        private_settings.journal_fd < 0 && settings.wait_us == 0)
        atomic_fetch_and_explicit(&sim_calls_are_watched, ~SIM_WATCH_SETTINGS,
                                  memory_order_relaxed);
}

const struct sim_settings *sim_settings(void)
{
    pthread_once(&once, read_settings);
    return &settings;
}

const struct sim_private_settings *sim_private_settings(void)
{
    pthread_once(&once, read_settings);
    return &private_settings;
}
