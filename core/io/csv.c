#include "core/io/csv.h"

#include <string.h>

bool gc_csv_next(struct gc_csv *csv, struct gc_csv_field *line)
{
    while (csv->next < csv->end) {
        const char *begin = csv->next;
        const char *end = memchr(begin, '\n', (size_t)(csv->end - begin));
        csv->next = end != NULL ? end + 1 : csv->end;
        if (end == NULL)
            end = csv->end;
        if (end > begin && end[-1] == '\r')
            end--;
        csv->line++;
        if (end > begin) {
            *line = (struct gc_csv_field){begin, (size_t)(end - begin)};
            return true;
        }
    }
    return false;
}

size_t gc_csv_split(const struct gc_csv_field *line, struct gc_csv_field *fields, size_t max)
{
    const char *at = line->text;
    const char *end = line->text + line->length;
    size_t count = 0;
    for (;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        if (count < max)
            fields[count] = (struct gc_csv_field){at, (size_t)(stop - at)};
        count++;
        if (comma == NULL)
            return count;
        at = comma + 1;
    }
}

bool gc_csv_is_quoted(const struct gc_csv_field *line)
{
    const char *quote = line->text;
    const char *end = line->text + line->length;
    while ((quote = memchr(quote, '"', (size_t)(end - quote))) != NULL) {
        if (quote == line->text || quote[-1] == ',')
            return true;
        quote++;
    }
    return false;
}
