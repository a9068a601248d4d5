/* gpucache doctor: examines the library, the system, the driver and a program. Each problem
 * comes with advice. */
#define _GNU_SOURCE
#include "core/io/json.h"
#include "core/io/text.h"
#include "tools/base/tool.h"
#include "tools/doctor/doctor.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMN_TEXT 20

static const struct {
    const char *word;
    enum gc_writer_style style;
} levels[] = {
    [DOCTOR_OK] = {"ok", GC_STYLE_GOOD},
    [DOCTOR_INFO] = {"note", GC_STYLE_STRONG},
    [DOCTOR_WARNING] = {"warning", GC_STYLE_CAUTION},
    [DOCTOR_FAILURE] = {"FAILURE", GC_STYLE_ALERT},
};

/* ---- for people ---- */

static void print_finding(struct gc_writer *out, const struct doctor_finding *finding)
{
    gc_writer_set_style(out, levels[finding->level].style);
    gc_writer_text(out, levels[finding->level].word);
    gc_writer_set_style(out, GC_STYLE_PLAIN);
    gc_writer_pad(out, 9);
    gc_writer_text(out, finding->topic);
    tool_print_wrapped(out, COLUMN_TEXT, finding->text);
    if (finding->advice != NULL) {
        gc_writer_pad(out, COLUMN_TEXT);
        gc_writer_text(out, "->");
        tool_print_wrapped(out, COLUMN_TEXT, finding->advice);
    }
}

static void print_count(struct gc_writer *out, size_t count, const char *one, const char *many)
{
    gc_writer_uint(out, count);
    gc_writer_text(out, count == 1 ? one : many);
}

static void print_text(struct gc_writer *out, const struct doctor *doctor)
{
    out->is_colored = gc_writer_wants_color(STDOUT_FILENO);
    for (size_t i = 0; i < doctor->count; i++)
        print_finding(out, &doctor->findings[i]);
    print_count(out, doctor_count(doctor, DOCTOR_FAILURE), " failure, ", " failures, ");
    print_count(out, doctor_count(doctor, DOCTOR_WARNING), " warning\n", " warnings\n");
}

/* ---- for programs ---- */

static void print_json(struct gc_writer *out, const struct doctor *doctor, const char *program)
{
    static const char *const words[] = {"ok", "note", "warning", "failure"};
    struct gc_json json;
    gc_json_init(&json, out);
    gc_json_begin_object(&json, GC_JSON_LINES);
    gc_json_write_string(&json, "schema", "gpucache-doctor/1");
    gc_json_write_string(&json, "version", GC_VERSION);
    if (program != NULL)
        gc_json_write_string(&json, "program", program);
    else
        gc_json_write_null(&json, "program");
    gc_json_write_uint(&json, "failures", doctor_count(doctor, DOCTOR_FAILURE));
    gc_json_write_uint(&json, "warnings", doctor_count(doctor, DOCTOR_WARNING));
    gc_json_open_array(&json, "findings", GC_JSON_LINES);
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->findings[i];
        gc_json_begin_object(&json, GC_JSON_LINE);
        gc_json_write_string(&json, "level", words[finding->level]);
        gc_json_write_string(&json, "topic", finding->topic);
        gc_json_write_string(&json, "text", finding->text);
        if (finding->advice != NULL)
            gc_json_write_string(&json, "advice", finding->advice);
        else
            gc_json_write_null(&json, "advice");
        gc_json_end_object(&json);
    }
    gc_json_end_array(&json);
    gc_json_end_object(&json);
    gc_writer_char(out, '\n');
}

/* Prints the version of the library that is preloaded into this process, for doctor_library.c. */
static int answer(void)
{
    const char *(*version)(void);
    struct gc_writer out;
    *(void **)&version = dlsym(RTLD_DEFAULT, "gpucache_version");
    gc_writer_init(&out, STDOUT_FILENO);
    if (version != NULL) {
        gc_writer_text(&out, "answer ");
        gc_writer_text(&out, version());
        gc_writer_char(&out, '\n');
    }
    return tool_finish(&tool_command_doctor, &out);
}

static int doctor(int argc, char **argv)
{
    struct doctor found = {0};
    bool as_json = false;
    struct gc_writer out;
    const struct tool_option options[] = {{.name = "--json", .flag = &as_json}};
    int next;
    if (argc == 2 && strcmp(argv[1], "--answer") == 0)
        return answer();
    int status = tool_parse(&tool_command_doctor, options, 1, argc, argv, &next);
    if (status != TOOL_DONE || next == 0)
        return status;
    if (argc - next > 1)
        return tool_usage(&tool_command_doctor, "one program at a time");
    const char *program = next < argc ? argv[next] : NULL;
    doctor_library(&found);
    doctor_system(&found);
    doctor_driver(&found);
    if (program != NULL)
        doctor_program(&found, program);
    gc_writer_init(&out, STDOUT_FILENO);
    if (as_json)
        print_json(&out, &found, program);
    else
        print_text(&out, &found);
    status = tool_finish(&tool_command_doctor, &out);
    if (status == TOOL_DONE && found.no_memory)
        status = tool_fail(&tool_command_doctor, "out of memory: findings are missing");
    if (status == TOOL_DONE && doctor_count(&found, DOCTOR_FAILURE) > 0)
        status = TOOL_FAILED;
    doctor_fini(&found);
    return status;
}

const struct tool_command tool_command_doctor = {
    .name = "doctor",
    .synopsis = "[--json] [PROGRAM]",
    .summary = "check the library, the driver, the system and PROGRAM",
    .help = "  --json          one JSON object\n"
            "\n"
            "Checks the library, its settings, the system, the driver, the devices and,\n"
            "without running it, PROGRAM: its path to CUDA and if the library intercepts it.\n"
            "Each problem comes with advice. Exit status 1 if one of them is a failure.\n",
    .run = doctor,
};
