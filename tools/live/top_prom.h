/* A reading of the ledgers as metrics: Prometheus' text format (version 0.0.4) or OpenMetrics 1.0.
 */
#ifndef GC_TOP_PROM_H
#define GC_TOP_PROM_H

#include "core/io/writer.h"
#include "tools/live/top_view.h"
#include "tools/node/node.h"

/* `view` was read from `node`. GC_NO_HOST_MEMORY. */
enum gc_status top_prom_write(struct gc_writer *out, const struct top_view *view,
                              const struct node *node, bool is_openmetrics) GC_CHECKED;
/* Writes the file at once: it is filled under another name and renamed. GC_IO, with errno. */
enum gc_status top_prom_save(const char *path, const struct top_view *view,
                             const struct node *node) GC_CHECKED;

#endif
