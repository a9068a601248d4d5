#include "tools/live/top_prompt.h"

#include "core/io/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define BYTE_ESCAPE 27
#define BYTE_DELETE 127
#define BYTE_KILL ('U' & 0x1f)

/* ---- the line ---- */

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

enum top_prompt_state top_prompt_press(struct top_prompt *prompt, int byte)
{
    if (byte == '\r' || byte == '\n')
        return TOP_PROMPT_DONE;
    if (byte == BYTE_ESCAPE)
        return TOP_PROMPT_LEFT;
    if (byte == BYTE_KILL) {
        prompt->used = 0;
    } else if (byte == '\b' || byte == BYTE_DELETE) {
        while (prompt->used > 0 && is_continuation(prompt->text[prompt->used - 1]))
            prompt->used--;
        prompt->used -= prompt->used > 0;
    } else if (byte >= ' ' && byte <= 255 && prompt->used + 1 < sizeof(prompt->text)) {
        prompt->text[prompt->used++] = (char)byte;
    }
    prompt->text[prompt->used] = '\0';
    return TOP_PROMPT_OPEN;
}

/* ---- the filter ---- */

static bool has_text(const char *name, const char *text)
{
    const size_t length = strlen(text);
    const size_t all = strlen(name);
    for (size_t at = 0; at + length <= all; at++)
        if (gc_text_equal_nocase(name + at, text, length))
            return true;
    return false;
}

static bool matches(const struct top_subject *subject, const char *text)
{
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", subject->host.pid != 0 ? subject->host.pid : subject->pid);
    return has_text(subject->user, text) || has_text(subject->labels.pod, text) ||
           has_text(subject->labels.container, text) || has_text(subject->labels.job, text) ||
           has_text(subject->name, text) || has_text(subject->program, text) ||
           has_text(subject->group, text) ||
           (subject->kind == TOP_PROCESS && strncmp(pid, text, strlen(text)) == 0);
}

size_t top_prompt_filter(const struct top_view *view, const char *text, size_t *rows, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct top_subject *subject = &view->subjects[view->accounts[rows[i]].subject];
        if (subject->kind == TOP_DEVICE || matches(subject, text) ||
            (subject->kind == TOP_TENANT && matches(&view->subjects[subject->parent], text)))
            rows[kept++] = rows[i];
    }
    return kept;
}
