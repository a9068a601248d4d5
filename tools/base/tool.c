#define _GNU_SOURCE
#include "tools/base/tool.h"

#include "core/io/text.h"
#include "core/observe/trace_format.h"
#include "core/plan/plan.h"
#include "core/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COLUMNS_MAX 79

/* The message is one line: control characters of file names and words are replaced. */
static void print_error(const struct tool_command *command, const char *format, va_list arguments,
                        bool usage)
{
    char text[2048];
    struct gc_writer out;
    gc_writer_init(&out, STDERR_FILENO);
    gc_writer_text(&out, "gpucache ");
    gc_writer_text(&out, command->name);
    gc_writer_text(&out, ": ");
    if (vsnprintf(text, sizeof(text), format, arguments) < 0)
        text[0] = '\0';
    for (const char *p = text; *p != '\0'; p++)
        gc_writer_char(&out, (unsigned char)*p < ' ' || *p == 0x7f ? '?' : *p);
    if (usage) {
        gc_writer_text(&out, "; see gpucache ");
        gc_writer_text(&out, command->name);
        gc_writer_text(&out, " --help");
    }
    gc_writer_char(&out, '\n');
    (void)!gc_writer_flush(&out);
}

int tool_fail(const struct tool_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_error(command, format, arguments, false);
    va_end(arguments);
    return TOOL_FAILED;
}

int tool_usage(const struct tool_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_error(command, format, arguments, true);
    va_end(arguments);
    return TOOL_USAGE;
}

int tool_refuse(const struct tool_command *command, const char *option, const char *value,
                const char *accepted)
{
    char shown[64];
    return tool_usage(command, "%s %s is not valid; accepted: %s", option,
                      gc_text_printable(value, strlen(value), shown, sizeof(shown)), accepted);
}

void tool_nearest_add(struct tool_nearest *nearest, const char *name)
{
    const size_t length = strlen(nearest->word);
    const unsigned distance = gc_text_distance(nearest->word, length, name, strlen(name));
    if (distance > 1 + length / 3 || (nearest->name != NULL && distance >= nearest->distance))
        return;
    nearest->name = name;
    nearest->distance = distance;
}

int tool_finish(const struct tool_command *command, struct gc_writer *out)
{
    return tool_output_close(command, "-", out);
}

void tool_print_wrapped(struct gc_writer *out, size_t column, const char *text)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, " ");
        if (out->column > column && out->column + 1 + length > COLUMNS_MAX)
            gc_writer_char(out, '\n');
        if (out->column > column)
            gc_writer_char(out, ' ');
        else
            gc_writer_pad(out, column);
        gc_writer_bytes(out, text, length);
        text += length;
        text += strspn(text, " ");
    }
    gc_writer_char(out, '\n');
}

void tool_print_help(struct gc_writer *out, const struct tool_command *command)
{
    gc_writer_text(out, "usage: gpucache ");
    gc_writer_text(out, command->name);
    gc_writer_char(out, ' ');
    gc_writer_text(out, command->synopsis);
    gc_writer_text(out, "\n\n");
    gc_writer_text(out, command->summary);
    gc_writer_char(out, '\n');
    if (command->help != NULL) {
        gc_writer_char(out, '\n');
        gc_writer_text(out, command->help);
    }
}

/* ---- options ---- */

static const struct tool_option *find_option(const struct tool_option *options, size_t count,
                                             const char *text, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(options[i].name) == length && memcmp(options[i].name, text, length) == 0)
            return &options[i];
    }
    return NULL;
}

static int refuse_option(const struct tool_command *command, const struct tool_option *options,
                         size_t count, const char *text, size_t length)
{
    char word[GC_TEXT_DISTANCE_MAX];
    struct tool_nearest nearest = {.word = word};
    if (length == 1)
        return tool_usage(command, "- is not accepted: name a file; standard input is not read");
    gc_text_printable(text, length, word, sizeof(word));
    tool_nearest_add(&nearest, "--help");
    for (size_t i = 0; i < count; i++)
        tool_nearest_add(&nearest, options[i].name);
    if (nearest.name == NULL)
        return tool_usage(command, "unknown option %s", word);
    return tool_usage(command, "unknown option %s; nearest: %s", word, nearest.name);
}

static int refuse_bare(const struct tool_command *command, const struct tool_option *option)
{
    const bool is_listed = option->accepted != NULL;
    return tool_usage(command, "%s needs a value%s%s", option->name,
                      is_listed ? "; accepted: " : "", is_listed ? option->accepted : "");
}

static int parse_one(const struct tool_command *command, const struct tool_option *options,
                     size_t count, int argc, char **argv, int *at)
{
    const char *text = argv[*at];
    const char *equals = strchr(text, '=');
    const size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
    const struct tool_option *option = find_option(options, count, text, length);
    if (option == NULL)
        return refuse_option(command, options, count, text, length);
    (*at)++;
    if (option->flag != NULL) {
        if (equals != NULL)
            return tool_usage(command, "%s takes no value", option->name);
        *option->flag = true;
        return TOOL_DONE;
    }
    const char **value = option->value;
    if (option->list != NULL) {
        if (option->list->count == TOOL_LIST_MAX)
            return tool_usage(command, "%s is given more than %d times", option->name,
                              TOOL_LIST_MAX);
        value = &option->list->values[option->list->count++];
        *value = NULL;
    }
    if (*value != NULL)
        return tool_usage(command, "%s is given twice", option->name);
    const bool is_bare = equals == NULL && (*at == argc || strncmp(argv[*at], "--", 2) == 0);
    if (is_bare && option->bare != NULL) {
        *value = option->bare;
        return TOOL_DONE;
    }
    if (is_bare)
        return refuse_bare(command, option);
    *value = equals != NULL ? equals + 1 : argv[(*at)++];
    return **value == '\0' ? refuse_bare(command, option) : TOOL_DONE;
}

static bool is_help(const char *text)
{
    return strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0;
}

static int print_help(const struct tool_command *command)
{
    struct gc_writer out;
    gc_writer_init(&out, STDOUT_FILENO);
    tool_print_help(&out, command);
    return tool_finish(command, &out);
}

int tool_parse(const struct tool_command *command, const struct tool_option *options, size_t count,
               int argc, char **argv, int *next)
{
    int at = 1;
    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (is_help(argv[at])) {
            *next = 0;
            return print_help(command);
        }
        const int status = parse_one(command, options, count, argc, argv, &at);
        if (status != TOOL_DONE)
            return status;
    }
    *next = at;
    return TOOL_DONE;
}

int tool_parse_words(const struct tool_command *command, const struct tool_option *options,
                     size_t count, int argc, char **argv, struct tool_words *words)
{
    bool only_words = false;
    words->count = 0;
    words->helped = false;
    for (int at = 1; at < argc;) {
        if (!only_words && strcmp(argv[at], "--") == 0) {
            only_words = true;
            at++;
        } else if (!only_words && is_help(argv[at])) {
            words->helped = true;
            return print_help(command);
        } else if (!only_words && argv[at][0] == '-') {
            const int status = parse_one(command, options, count, argc, argv, &at);
            if (status != TOOL_DONE)
                return status;
        } else if (words->count == words->most && words->one_is_enough) {
            return tool_usage(command, "at most %zu %ss, not also %s", words->most,
                              words->names[0] + 2, argv[at]);
        } else if (words->count == words->most) {
            return tool_usage(command, "one %s, not also %s", words->names[words->most - 1] + 2,
                              argv[at]);
        } else if (argv[at][0] == '\0') {
            return tool_usage(command, "an empty word is not a %s",
                              words->names[words->one_is_enough ? 0 : words->count] + 2);
        } else {
            words->words[words->count++] = argv[at++];
        }
    }
    if (words->count < (words->one_is_enough ? 1 : words->most))
        return tool_usage(command, "%s is missing", words->names[words->count]);
    return TOOL_DONE;
}

int tool_parse_file(const struct tool_command *command, const struct tool_option *options,
                    size_t count, int argc, char **argv, const char **file)
{
    struct tool_words words = {.most = 1, .names = {"a file"}};
    const int status = tool_parse_words(command, options, count, argc, argv, &words);
    *file = status == TOOL_DONE && !words.helped ? words.words[0] : NULL;
    return status;
}

/* ---- dimensions ---- */

static bool is_dims(const char *text)
{
    for (;;) {
        const size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        uint64_t value;
        if (equals == NULL || equals == text ||
            !gc_text_uint(equals + 1, length - (size_t)(equals + 1 - text), &value) || value == 0)
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

int tool_parse_counts(const struct tool_command *command, const struct tool_count *counts,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct tool_count *rule = &counts[i];
        uint64_t number;
        if (rule->text == NULL)
            continue;
        if (!gc_text_uint(rule->text, strlen(rule->text), &number) || number < rule->minimum ||
            number > rule->maximum)
            return tool_refuse(command, rule->option, rule->text, rule->accepted);
        *rule->value = number;
    }
    return TOOL_DONE;
}

const char *tool_join_dims(const struct tool_list *list, char *dims, size_t size)
{
    size_t used = 0;
    dims[0] = '\0';
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->values[i];
        const size_t length = strlen(text);
        if (!is_dims(text) || used + length + 2 > size)
            return text;
        if (used > 0)
            dims[used++] = ',';
        memcpy(dims + used, text, length + 1);
        used += length;
    }
    return NULL;
}

/* ---- files ---- */

/* Spreadsheets write it before a table. */
static void skip_mark(struct tool_file *file)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t length = sizeof(mark) - 1;
    if (file->bytes <= length || memcmp(file->data, mark, length) != 0)
        return;
    file->mark_bytes = length;
    file->data = (char *)file->data + length;
    file->bytes -= length;
}

int tool_map(const struct tool_command *command, const char *path, struct tool_file *file)
{
    struct stat info;
    int status = TOOL_FAILED;
    *file = (struct tool_file){.path = path};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return tool_fail(command, "%s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        tool_fail(command, "%s: %s", path, strerror(errno));
        goto close_file;
    }
    if (!S_ISREG(info.st_mode)) {
        tool_fail(command, "%s: not a regular file", path);
        goto close_file;
    }
    file->bytes = (size_t)info.st_size;
    file->device = (unsigned long long)info.st_dev;
    file->inode = (unsigned long long)info.st_ino;
    if (file->bytes > 0) {
        void *const data = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            tool_fail(command, "%s: %s", path, strerror(errno));
            goto close_file;
        }
        file->data = data;
        skip_mark(file);
    }
    status = TOOL_DONE;
close_file:
    close(fd);
    return status;
}

void tool_unmap(struct tool_file *file)
{
    if (file->data != NULL)
        munmap((char *)file->data - file->mark_bytes, file->bytes + file->mark_bytes);
    file->data = NULL;
}

static bool begins_with(const struct tool_file *file, const char *text)
{
    const size_t length = strlen(text);
    return file->bytes >= length && memcmp(file->data, text, length) == 0;
}

#define MODEL_HEAD_BYTES 65536

/* A configuration, a safetensors file or index, a GGUF file. */
static bool is_model(const struct tool_file *file)
{
    static const char *const keys[] = {"\"model_type\"", "\"architectures\"", "\"weight_map\"",
                                       "\"data_offsets\""};
    const size_t head = file->bytes < MODEL_HEAD_BYTES ? file->bytes : MODEL_HEAD_BYTES;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (memmem(file->data, head, keys[i], strlen(keys[i])) != NULL)
            return true;
    }
    return begins_with(file, "GGUF");
}

const char *tool_file_hint(const struct tool_file *file, enum tool_kind wanted)
{
    static const char schema[] = "\"" GC_REPORT_SCHEMA "\"";
    const size_t head = file->bytes < 256 ? file->bytes : 256;
    if (file->bytes == 0)
        return "";
    if (wanted == TOOL_REPORT && begins_with(file, GC_TRACE_MAGIC))
        return "; it is a trace, for gpucache trace, replay and plan";
    if (begins_with(file, GC_PLAN_MAGIC))
        return "; it is a plan of a run, for GPUCACHE_PLAN and gpucache replay --plan";
    if (wanted != TOOL_REPORT && begins_with(file, "{") &&
        memmem(file->data, head, schema, strlen(schema)) != NULL)
        return "; it is a report, for gpucache report";
    if (is_model(file))
        return "; it is a model, for gpucache estimate";
    return "";
}

/* ---- files to write ---- */

#define TOOL_OUTPUTS_MAX 16

static bool is_input(const struct stat *info, const struct tool_file *input)
{
    return input != NULL && input->path != NULL &&
           (unsigned long long)info->st_dev == input->device &&
           (unsigned long long)info->st_ino == input->inode;
}

static int refuse_input(const struct tool_command *command, const char *path)
{
    return tool_fail(command, "%s: is the input file; name another output", path);
}

int tool_output_check(const struct tool_command *command, const char *path,
                      const struct tool_file *input)
{
    struct stat info;
    if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || !is_input(&info, input))
        return TOOL_DONE;
    return refuse_input(command, path);
}

/* Records a file as written; false if it was before: the second content would overwrite the
 * first. */
static bool record_output(const struct stat *info)
{
    static struct {
        dev_t device;
        ino_t inode;
    } written[TOOL_OUTPUTS_MAX];
    static size_t count;
    if (!S_ISREG(info->st_mode))
        return true;
    for (size_t i = 0; i < count; i++) {
        if (written[i].device == info->st_dev && written[i].inode == info->st_ino)
            return false;
    }
    if (count < TOOL_OUTPUTS_MAX) {
        written[count].device = info->st_dev;
        written[count++].inode = info->st_ino;
    }
    return true;
}

static int output_flags(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY;
    return strncmp(path, "/dev/", 5) == 0 ? flags : flags | O_NOFOLLOW;
}

static const char *output_error(int error)
{
    return error == ELOOP ? "is a symbolic link, not followed" : strerror(error);
}

int tool_output_open(const struct tool_command *command, const char *path,
                     const struct tool_file *input, struct gc_writer *out)
{
    struct stat info;
    int fd = STDOUT_FILENO;
    if (strcmp(path, "-") == 0)
        goto opened;
    fd = open(path, output_flags(path), 0666);
    if (fd < 0)
        return tool_fail(command, "%s: %s", path, output_error(errno));
    if (fstat(fd, &info) != 0)
        goto fail;
    if (is_input(&info, input)) {
        close(fd);
        return refuse_input(command, path);
    }
    if (!record_output(&info)) {
        close(fd);
        return tool_fail(command, "%s: was already written by another option; name another file",
                         path);
    }
    if (S_ISREG(info.st_mode) && ftruncate(fd, 0) != 0)
        goto fail;
opened:
    gc_writer_init(out, fd);
    return TOOL_DONE;
fail:;
    const int error = errno;
    close(fd);
    return tool_fail(command, "%s: %s", path, strerror(error));
}

int tool_output_close(const struct tool_command *command, const char *path, struct gc_writer *out)
{
    const bool is_flushed = gc_writer_flush(out) == GC_OK;
    const bool is_ours = out->fd != STDOUT_FILENO;
    int error = errno;
    if (is_ours && close(out->fd) != 0 && is_flushed) {
        error = errno;
        return tool_fail(command, "%s: %s", path, strerror(error));
    }
    if (is_flushed)
        return TOOL_DONE;
    if (error == EPIPE)
        raise(SIGPIPE);
    return tool_fail(command, "%s: %s", is_ours ? path : "standard output", strerror(error));
}
