#include "core/training/rows.h"

#include "core/base/bits.h"
#include "core/classes/architecture.h"
#include "core/model/checked.h"

#include <string.h>

struct row_reader {
    struct gc_frame_visitor visitor;
    struct gc_training_rows *rows;
    bool is_full;
};

static void copy_text(char *to, const char *text, size_t length)
{
    memcpy(to, text, length);
    to[length] = '\0';
}

static void add_condition(struct row_reader *reader, const char *key, size_t length,
                          const char *text)
{
    struct gc_training_rows *rows = reader->rows;
    struct gc_training_condition *condition = &rows->conditions[rows->condition_count];
    if (rows->condition_count == GC_TRAINING_CONDITION_MAX || length == 0 ||
        length >= sizeof(condition->key) || strlen(text) >= sizeof(condition->text)) {
        reader->is_full = true;
        return;
    }
    condition->is_approximate = key[length - 1] == '~';
    copy_text(condition->key, key, length - condition->is_approximate);
    copy_text(condition->text, text, strlen(text));
    rows->condition_count++;
}

static void add_row(struct gc_frame_visitor *visitor, char mark, const char *flags,
                    size_t flags_length, const char *text)
{
    struct row_reader *reader = (void *)visitor;
    struct gc_training_rows *rows = reader->rows;
    struct gc_training_row *row = &rows->items[rows->count];
    if (mark == ':') {
        add_condition(reader, flags, flags_length, text);
        return;
    }
    if (rows->count == GC_TRAINING_ROW_MAX || flags_length >= sizeof(row->flags) ||
        strlen(text) >= sizeof(row->text)) {
        reader->is_full = true;
        return;
    }
    copy_text(row->flags, flags, flags_length);
    copy_text(row->text, text, strlen(text));
    rows->count++;
}

void gc_training_rows_read(const struct gc_model *model, struct gc_training_rows *rows)
{
    static const struct gc_frame_table table = {gc_classes_training, ">:"};
    struct row_reader reader = {.visitor = {add_row}, .rows = rows};
    struct gc_frame_section section;
    rows->count = rows->condition_count = 0;
    gc_frames_visit(model, &table, &reader.visitor, &section);
    rows->is_exact = section.is_exact && !reader.is_full;
}

static bool holds(const struct gc_training_row *row, const struct gc_training_kind *kind)
{
    return strchr(row->flags, kind->precision) != NULL &&
           strchr(row->flags, kind->attention) != NULL &&
           strchr(row->flags, kind->checkpointing) != NULL &&
           strchr(row->flags, kind->parameters) != NULL;
}

bool gc_training_rows_have(const struct gc_training_rows *rows, const struct gc_training_kind *kind)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        if (holds(&rows->items[i], kind))
            return true;
    }
    return false;
}

bool gc_training_rows_approximate(const struct gc_training_rows *rows,
                                  const struct gc_training_kind *kind)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        if (holds(&rows->items[i], kind) && strchr(rows->items[i].flags, '~') != NULL)
            return true;
    }
    return false;
}

const struct gc_training_condition *gc_training_rows_unmet(const struct gc_training_rows *rows,
                                                           const struct gc_frame_load *load,
                                                           uint32_t *next)
{
    while (*next < rows->condition_count) {
        const struct gc_training_condition *condition = &rows->conditions[(*next)++];
        if (!gc_frames_hold(condition->text, load))
            return condition;
    }
    return NULL;
}

/* The parts of a row, in order. */
enum { PART_SAVED, PART_LOSS, PART_WORK, PART_GRADIENTS, PART_COUNT };

static enum gc_status read_parts(const char *text, const struct gc_frame_load *load,
                                 uint64_t gradients, uint64_t parts[PART_COUNT])
{
    for (unsigned i = 0; i < PART_COUNT; i++) {
        const size_t length = strcspn(text, "|");
        const bool is_last = text[length] == '\0';
        if (is_last != (i == PART_COUNT - 1))
            return GC_FORMAT;
        if (i == PART_GRADIENTS && strcmp(text, "*") == 0) {
            parts[i] = gradients;
            return GC_OK;
        }
        const enum gc_status status = gc_frames_value(text, length, load, &parts[i]);
        if (status != GC_OK)
            return status;
        text += length + !is_last;
    }
    return GC_OK;
}

enum gc_status gc_training_rows_largest(const struct gc_training_rows *rows,
                                        const struct gc_training_kind *kind,
                                        const struct gc_frame_load *load, uint64_t gradients,
                                        uint32_t gradient_parts, struct gc_training_place *place)
{
    struct gc_sum sum = {false};
    uint64_t most = 0;
    bool is_partial = false;
    *place = (struct gc_training_place){0};
    for (uint32_t i = 0; i < rows->count; i++) {
        uint64_t parts[PART_COUNT];
        if (!holds(&rows->items[i], kind))
            continue;
        const uint64_t all = gc_sum_mul(&sum, gradients, gradient_parts);
        const enum gc_status status = read_parts(rows->items[i].text, load, all, parts);
        if (status == GC_NOT_SUPPORTED) {
            is_partial = true;
            continue;
        }
        if (status != GC_OK)
            return status;
        const uint64_t alive =
            gc_divide_up_u64(gc_min_u64(parts[PART_GRADIENTS], all), gradient_parts);
        uint64_t bytes = gc_sum_add(&sum, parts[PART_SAVED], parts[PART_LOSS]);
        bytes = gc_sum_add(&sum, gc_sum_add(&sum, bytes, parts[PART_WORK]), alive);
        if (bytes < most)
            continue;
        most = bytes;
        *place = (struct gc_training_place){parts[PART_SAVED], parts[PART_LOSS], parts[PART_WORK],
                                            alive, false};
    }
    place->is_partial = is_partial || most == 0;
    return gc_sum_status(&sum);
}
