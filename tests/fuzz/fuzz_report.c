/* A report file of anyone's making: refused with a reason, or written again in both forms. */
#include "tools/report/report_load.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int null = -1;
    struct report_loaded loaded;
    char why[256] = "";
    if (null < 0)
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (report_load((const char *)data, bytes, &loaded, why, sizeof(why)) != GC_OK) {
        if (why[0] == '\0')
            abort();
        return 0;
    }
    if (gc_report_write_json(&loaded.report, null) != GC_OK ||
        gc_report_write_text(&loaded.report, null) != GC_OK)
        abort();
    report_unload(&loaded);
    return 0;
}
