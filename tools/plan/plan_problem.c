/* A placement problem, CSV, as a subject of gpucache plan. */
#include "core/base/bits.h"
#include "core/planner/placement_csv.h"
#include "tools/plan/plan.h"

#include <string.h>
#include <sys/mman.h>

/* Recognises the header: no other input of gpucache plan has `lower` in its first line. */
static bool accepts(const struct tool_file *file)
{
    char line[128];
    const char *text = file->data;
    if (text == NULL)
        return false;
    size_t length = 0;
    while (length < file->bytes && length < sizeof(line) - 1 && text[length] != '\n')
        length++;
    memcpy(line, text, length);
    line[length] = '\0';
    return strstr(line, "lower") != NULL;
}

static int fail_csv(const struct tool_command *command, const char *path, enum gc_status status,
                    const struct gc_placement_csv_error *error)
{
    if (error->line > 0)
        return tool_fail(command, "%s: line %llu: %s", path, (unsigned long long)error->line,
                         error->text);
    return tool_fail(command, "%s: %s", path,
                     error->text[0] != '\0' ? error->text : gc_status_text(status));
}

static int read_buffers(const struct plan_request *request, const struct gc_placement_csv *csv,
                        struct plan_subject *subject)
{
    subject->buffers = csv->buffers;
    subject->count = csv->count;
    subject->labels =
        gc_region_alloc(&subject->region, (uint64_t)csv->count * sizeof(*subject->labels));
    if (subject->labels == NULL)
        return tool_fail(request->command, "%s: %s", request->path,
                         gc_status_text(GC_NO_HOST_MEMORY));
    for (uint32_t i = 0; i < csv->count; i++) {
        struct gc_placement_buffer *buffer = &csv->buffers[i];
        subject->labels[i].name = csv->ids[i];
        if (buffer->alignment == 0)
            buffer->alignment = request->alignment;
        if (!gc_add_u64(subject->total_bytes, buffer->bytes, &subject->total_bytes))
            return tool_fail(request->command, "%s: sum of the buffers: %s", request->path,
                             gc_status_text(GC_OVERFLOW));
    }
    return TOOL_DONE;
}

static int read_problem(const struct plan_request *request, const struct tool_file *file,
                        struct plan_subject *subject)
{
    struct gc_placement_csv csv;
    struct gc_placement_csv_error error;
    const enum gc_status status =
        gc_placement_csv_read(&subject->region, file->data, file->bytes, &csv, &error);
    (void)madvise((void *)file->data, file->bytes, MADV_DONTNEED);
    if (status != GC_OK)
        return fail_csv(request->command, request->path, status, &error);
    const int taken = read_buffers(request, &csv, subject);
    if (taken != TOOL_DONE)
        return taken;
    subject->group[0] = (struct plan_group){"buffer", subject->total_bytes, subject->count};
    subject->group_count = 1;
    subject->coverage_thousandths = 1000;
    subject->time_unit = "time";
    return TOOL_DONE;
}

const struct plan_source plan_source_problem = {
    .what = "a placement problem",
    .accepts = accepts,
    .read = read_problem,
};
