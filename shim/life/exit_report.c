/* The report at exit: the shim's facts about the process and its settings, passed to core. */
#include "shim/life/exit_report.h"

#include "core/base/clock.h"
#include "core/report/report.h"
#include "shim/life/life.h"
#include "shim/real/bypass.h"
#include "shim/real/unknown.h"

#define ORDINALS 256 /* more than any driver has */

static const char *mode_name(void)
{
    return gc_shim.options->mode == GC_MODE_TRACK ? "track" : "cache";
}

static const char *backend_name(void)
{
    bool is_mapped = false;

    for (int i = 0; i < ORDINALS && !is_mapped; i++) {
        const struct gc_device *device = gc_device_find(gc_shim.core, i);
        is_mapped = device != NULL && gc_device_is_mapped(device);
    }
    return is_mapped ? "vmm" : "driver";
}

#define WARNING_MAX (GC_OPTIONS_WARNING_MAX + 1 + GC_UNSEEN_MAX)

static uint32_t list_settings(struct gc_report_setting settings[GC_OPTION_COUNT])
{
    const struct gc_options *options = gc_shim.options;
    uint32_t count = 0;

    for (int i = 0; i < GC_OPTION_COUNT; i++)
        if (gc_options_is_set(options, (enum gc_option)i))
            settings[count++] = (struct gc_report_setting){
                gc_options_get_row((enum gc_option)i)->name, options->set_texts[i]};
    return count;
}

/* Lists the warnings about the options, the plan and the driver. Returns their number. */
static uint32_t list_warnings(const struct gc_exit_report *report,
                              const char *warnings[WARNING_MAX])
{
    const char *trouble = report->is_plan_refused
                              ? "GPUCACHE_PLAN is not followed: its file was refused"
                              : gc_snapshot_plan_problem(gc_shim.core);
    uint32_t count = 0;

    for (; count < gc_shim.options->warning_count; count++)
        warnings[count] = gc_shim.options->warnings[count];
    if (trouble != NULL)
        warnings[count++] = trouble;
    for (uint32_t i = 0; i < GC_UNSEEN_MAX; i++)
        if (gc_unseen_text(i) != NULL)
            warnings[count++] = gc_unseen_text(i);
    return count;
}

void gc_exit_report_write(void *argument)
{
    const struct gc_exit_report *report = argument;
    struct gc_report_setting settings[GC_OPTION_COUNT];
    const char *warnings[WARNING_MAX];
    struct gc_report_estimate estimate;
    struct gc_report_facts facts = {
        .process = &report->process,
        .version = GC_VERSION,
        .mode = mode_name(),
        .backend = backend_name(),
        .reuse = gc_shim.options->reuse == GC_REUSE_SYNC ? "sync" : "fence",
        .start_unix = report->start_unix,
        .driver_version = gc_shim.driver_version,
        .settings = settings,
        .setting_count = list_settings(settings),
        .warnings = warnings,
    };

    gc_bypass_check_all();
    facts.warning_count = list_warnings(report, warnings);
    if (gc_admission_report(&estimate))
        facts.estimate = &estimate;
    facts.duration_ns = gc_clock_ns() - report->start_ns;
    if (gc_report_emit(gc_shim.core, &facts, gc_shim_api_names, gc_shim.options->report,
                       &gc_shim.log) != GC_OK)
        gc_log_write(&gc_shim.log, GC_LOG_INFO, "no report was written");
}
