/* A plan for programs: JSON, and the problem's CSV with offsets. */
#include "core/base/strmap.h"
#include "tools/plan/plan.h"

#include <string.h>

/* ---- JSON ---- */

static void write_reused(struct gc_json *json, const struct plan_view *view, uint32_t index)
{
    const struct plan_reuse *reuse = &view->reuse;
    gc_json_open_array(json, "reuses", GC_JSON_LINE);
    for (uint32_t i = reuse->first[index]; i < reuse->first[index + 1]; i++)
        gc_json_uint(json, reuse->before[i]);
    gc_json_end_array(json);
}

static void write_buffer(struct gc_json *json, const struct plan_view *view, uint32_t index)
{
    const struct plan_subject *subject = view->subject;
    const struct gc_placement_buffer *buffer = &subject->buffers[index];
    gc_json_begin_object(json, GC_JSON_LINE);
    gc_json_write_string(json, "id", subject->labels[index].name);
    if (subject->labels[index].kind != NULL)
        gc_json_write_string(json, "kind", subject->labels[index].kind);
    gc_json_write_uint(json, "lower", buffer->lower);
    gc_json_write_uint(json, "upper", buffer->upper);
    gc_json_write_uint(json, "bytes", buffer->bytes);
    gc_json_write_uint(json, "offset", view->result->offsets[index]);
    write_reused(json, view, index);
    gc_json_end_object(json);
}

static void write_figures(struct gc_json *json, const struct plan_view *view)
{
    const struct plan_subject *subject = view->subject;
    const struct plan_result *result = view->result;
    gc_json_write_string(json, "file", view->request->path);
    gc_json_write_string(json, "what", subject->source->what);
    gc_json_write_uint(json, "buffers", subject->count);
    gc_json_write_uint(json, "lower_bound_bytes", result->lower_bound_bytes);
    gc_json_write_uint(json, "peak_bytes", result->peak_bytes);
    gc_json_write_uint(json, "total_bytes", subject->total_bytes);
    gc_json_write_fixed(json, "ratio", plan_ratio(result), 4);
    gc_json_write_bool(json, "optimal", result->optimal);
    gc_json_write_fixed(json, "seconds", result->solve_ns / 1000, 6);
    gc_json_write_fixed(json, "coverage", subject->coverage_thousandths, 3);
    gc_json_write_uint(json, "nodes", result->nodes);
    if (view->request->capacity_bytes != GC_PLACEMENT_UNLIMITED) {
        gc_json_write_uint(json, "capacity_bytes", view->request->capacity_bytes);
        gc_json_write_bool(json, "fits", result->fits);
    }
    gc_json_open_array(json, "warnings", GC_JSON_LINES);
    for (uint32_t i = 0; i < subject->notes.count; i++)
        gc_json_string(json, subject->notes.texts[i]);
    gc_json_end_array(json);
}

void plan_write_json(struct gc_writer *out, const struct plan_view *view)
{
    struct gc_json json;
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    write_figures(&json, view);
    if (view->subject->source->write_json != NULL)
        view->subject->source->write_json(&json, view->subject, view->result);
    gc_json_open_array(&json, "placements", GC_JSON_LINES);
    for (uint32_t i = 0; i < view->subject->count; i++)
        write_buffer(&json, view, i);
    gc_json_end_array(&json);
    gc_json_end_object(&json);
}

/* ---- CSV ---- */

/* Names in graphs may hold any characters and repeat; an id is not empty and has no comma, quote
 * or control character. */
static const char *make_id(struct gc_region *region, const char *name, uint32_t index,
                           unsigned marks)
{
    char number[GC_NOTE_NUMBER_BYTES];
    const size_t length = strlen(name);
    char *id = gc_region_alloc(region, (uint64_t)length + marks + sizeof(number));
    if (id == NULL)
        return NULL;
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)name[i];
        id[i] = c < ' ' || c == ',' || c == '"' || c == 0x7f ? '_' : name[i];
    }
    if (marks > 0) {
        memset(id + length, '#', marks);
        strcpy(id + length + marks, gc_note_number(index, number));
    }
    return id;
}

/* Writes the name, followed by the buffer's number if the name is empty or another buffer's id. */
static bool write_id(struct gc_writer *out, struct gc_region *region, struct gc_strmap *names,
                     const char *name, uint32_t index)
{
    bool is_new = false;
    for (unsigned marks = name[0] == '\0'; !is_new; marks++) {
        const char *id = make_id(region, name, index, marks);
        struct gc_strmap_entry *entry =
            id != NULL ? gc_strmap_find_or_add(names, region, id, strlen(id), &is_new) : NULL;
        if (entry == NULL)
            return false;
        if (!is_new)
            continue;
        entry->text = id;
        gc_writer_text(out, id);
    }
    return true;
}

bool plan_write_csv(struct gc_writer *out, const struct plan_view *view)
{
    const struct plan_subject *subject = view->subject;
    struct gc_region region;
    struct gc_strmap names;
    bool is_done = true;
    bool has_alignment = false;
    gc_region_init(&region, UINT64_MAX);
    gc_strmap_init(&names);
    for (uint32_t i = 0; i < subject->count; i++)
        has_alignment = has_alignment || subject->buffers[i].alignment > 1;
    gc_writer_text(out, has_alignment ? "id,lower,upper,size,alignment,offset\n"
                                      : "id,lower,upper,size,offset\n");
    for (uint32_t i = 0; i < subject->count && is_done; i++) {
        const struct gc_placement_buffer *buffer = &subject->buffers[i];
        is_done = write_id(out, &region, &names, subject->labels[i].name, i);
        gc_writer_print(out, ",%lu,%lu,%lu,", (uint64_t)buffer->lower, (uint64_t)buffer->upper,
                        buffer->bytes);
        if (has_alignment && buffer->alignment > 0)
            gc_writer_print(out, "%lu", (uint64_t)buffer->alignment);
        if (has_alignment)
            gc_writer_text(out, ",");
        gc_writer_print(out, "%lu\n", view->result->offsets[i]);
    }
    gc_region_fini(&region);
    return is_done;
}
