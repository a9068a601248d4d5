/* Requests to pause and resume from the ledger, and the texts of their responses. */
#include "core/device/tenant.h"
#include "core/group/group.h"
#include "core/io/text.h"
#include "core/ledger/ledger.h"
#include "core/pause/pause.h"
#include "core/pause/swap.h"

#include <stddef.h>
#include <stdio.h>

/* The deadline for work under way. */
#define WORK_MS 5000

/* `again`: the text for GC_SWAP_AGAIN. */
static enum gc_ledger_result format_refusal(const struct gc_swap_result *result, const char *again,
                                            char *text)
{
    const char *reason =
        result->refusal == GC_SWAP_AGAIN ? again : gc_swap_refusal_text(result->refusal);
    if (result->driver_code != 0)
        snprintf(text, GC_LEDGER_RESPONSE_BYTES, "%s (code %d)", reason, result->driver_code);
    else
        snprintf(text, GC_LEDGER_RESPONSE_BYTES, "%s", reason);
    return GC_RESPONSE_REFUSED;
}

static enum gc_ledger_result respond_pause(struct gc_core *core, struct gc_tenant *tenant,
                                           bool drop, char *text)
{
    const struct gc_pause_request request = {
        .tenant = tenant, .keeps_content = !drop, .timeout_ms = WORK_MS};
    struct gc_swap_result result;
    char moved[GC_TEXT_SIZE_BYTES];
    char stays[GC_TEXT_SIZE_BYTES];
    if (!gc_pause(core, &request, &result))
        return format_refusal(&result, "it is paused already", text);
    snprintf(text, GC_LEDGER_RESPONSE_BYTES, "paused: %s %s, %s stays",
             gc_text_size(result.moved_bytes, moved), drop ? "dropped" : "moved to host memory",
             gc_text_size(result.stays_bytes, stays));
    return GC_RESPONSE_DONE;
}

static enum gc_ledger_result respond_resume(struct gc_core *core, struct gc_tenant *tenant,
                                            char *text)
{
    struct gc_swap_result result;
    char moved[GC_TEXT_SIZE_BYTES];
    if (!gc_pause_resume(core, tenant, &result))
        return format_refusal(&result, "it is not paused", text);
    snprintf(text, GC_LEDGER_RESPONSE_BYTES, "resumed: %s back on the device",
             gc_text_size(result.moved_bytes, moved));
    return GC_RESPONSE_DONE;
}

static enum gc_ledger_result respond(void *argument, enum gc_ledger_request_kind kind,
                                     const char *name, bool drop, char *text)
{
    struct gc_core *core = argument;
    struct gc_tenant *tenant = name[0] == '\0' ? NULL : gc_tenant_find(core, name);
    if (name[0] != '\0' && tenant == NULL) {
        snprintf(text, GC_LEDGER_RESPONSE_BYTES, "the process has no tenant of that name");
        return GC_RESPONSE_REFUSED;
    }
    return kind == GC_REQUEST_PAUSE ? respond_pause(core, tenant, drop, text)
                                    : respond_resume(core, tenant, text);
}

void gc_pause_join(struct gc_core *core)
{
    gc_serve_register(core, GC_REQUEST_PAUSE, respond, core);
    gc_serve_register(core, GC_REQUEST_RESUME, respond, core);
}
