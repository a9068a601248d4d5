/* Opening a model: what its caller may rely on. tests/formats/ tests the content of files. */
#include "core/io/text.h"
#include "core/model/model.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];
static char path[128];
static struct gc_model_error error;

static int setup(void **state)
{
    (void)state;
    scratch_folder(folder, sizeof(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(folder);
    return 0;
}

static void put(const char *name, const char *text)
{
    scratch_path(path, sizeof(path), folder, name);
    scratch_write(path, text, strlen(text));
}

static struct gc_model *open_fine(const char *at, const struct gc_model_limits *limits)
{
    struct gc_model *model;
    errno = 4711;
    if (gc_model_open(at, limits, &model, &error) != GC_OK)
        fail_msg("%s", error.text);
    assert_int_equal(errno, 4711);
    assert_string_equal(error.text, "");
    return model;
}

static unsigned open_files(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static const char description[] =
    "{\"tensors\": [{\"name\": \"w\", \"dtype\": \"bf16\", \"shape\": [4, 8]},"
    " {\"name\": \"b\", \"dtype\": \"q8_0\", \"shape\": [64]}],"
    " \"config\": {\"layers\": 3, \"negative\": -2, \"factor\": 2.0, \"half\": 0.5, \"name\": \"x\","
    " \"list\": [1, 2], \"in\": {\"deep\": true}}}";

static void a_description_is_taken(void **state)
{
    (void)state;
    put("model.json", description);
    struct gc_model *model = open_fine(path, NULL);
    uint64_t number = 0;
    assert_int_equal(model->format, GC_MODEL_PLAIN);
    assert_string_equal(model->path, path);
    assert_int_equal(model->totals.weight_bytes, 64 + 68);
    assert_int_equal(model->totals.parameters, 32 + 64);
    assert_string_equal(model->tensors[0].name, "w");
    assert_int_equal(model->tensors[0].dims[1], 8);
    assert_true(model->has_config);
    assert_true(gc_meta_uint(gc_model_find_meta(model, "layers"), &number) && number == 3);
    assert_true(gc_meta_uint(gc_model_find_meta(model, "factor"), &number) && number == 2);
    assert_false(gc_meta_uint(gc_model_find_meta(model, "half"), &number));
    assert_false(gc_meta_uint(gc_model_find_meta(model, "negative"), &number));
    assert_false(gc_meta_uint(gc_model_find_meta(model, "name"), &number));
    assert_int_equal(gc_model_find_meta(model, "list")->items[1].unsigned_value, 2);
    assert_int_equal(gc_model_find_meta(model, "in.deep")->kind, GC_META_BOOL);
    assert_null(gc_model_find_meta(model, "in"));
    gc_model_close(model);
    gc_model_close(NULL);
}

/* A model that was built by hand has no table of names. */
static void names_are_found_without_a_table(void **state)
{
    (void)state;
    const struct gc_meta meta = {.key = "k"};
    const struct gc_model model = {.metas = &meta, .meta_count = 1};
    assert_ptr_equal(gc_model_find_meta(&model, "k"), &meta.value);
    assert_null(gc_model_find_meta(&model, "w"));
}

static void errors_leave_nothing_behind(void **state)
{
    (void)state;
    const unsigned before = open_files();
    struct gc_model *model = (struct gc_model *)&error;
    put("model.json", "{\"tensors\": [1]}");
    errno = 4711;
    assert_int_equal(gc_model_open(path, NULL, &model, &error), GC_FORMAT);
    assert_null(model);
    assert_int_equal(errno, 4711);
    assert_non_null(
        strstr(error.text, "model.json: byte 13: tensors[0]: a number where an object"));
    assert_int_equal(gc_model_open(folder, NULL, &model, &error), GC_FORMAT);
    assert_int_equal(gc_model_open("/nowhere/at/all", NULL, &model, &error), GC_IO);
    assert_int_equal(gc_model_open("/proc/self/fd", NULL, &model, &error), GC_FORMAT);
    gc_model_close(open_fine((put("model.json", description), path), NULL));
    assert_int_equal(open_files(), before);
}

/* Less and less memory until none: refused in words or taken whole, never half. */
static void memory_is_bounded(void **state)
{
    (void)state;
    struct gc_model *model;
    char *text = malloc(1 << 20);
    int used = sprintf(text, "{\"tensors\": [");
    for (int i = 0; i < 3000; i++)
        used += sprintf(text + used,
                        "%s{\"name\": \"layer.%d.weight\", \"dtype\": \"f32\", \"shape\": [1]}",
                        i > 0 ? "," : "", i);
    strcpy(text + used, "]}");
    put("model.json", text);
    free(text);
    unsigned refused = 0;
    uint64_t bytes = 1;
    for (;; bytes += bytes / 2 + 1) {
        const struct gc_model_limits limits = {.memory_bytes = bytes};
        const enum gc_status status = gc_model_open(path, &limits, &model, &error);
        if (status == GC_OK)
            break;
        assert_int_equal(status, GC_OUT_OF_RANGE);
        assert_non_null(strstr(error.text, "bytes of memory"));
        refused++;
    }
    assert_true(refused > 10);
    assert_int_equal(model->totals.weight_bytes, 12000);
    assert_true(model->memory_bytes < bytes + (1 << 20));
    gc_model_close(model);
}

static void counts_are_bounded(void **state)
{
    (void)state;
    struct gc_model *model;
    put("model.json", description);
    const struct gc_model_limits one_tensor = {.tensors = 1};
    assert_int_equal(gc_model_open(path, &one_tensor, &model, &error), GC_OUT_OF_RANGE);
    assert_non_null(strstr(error.text, "more than 1 tensors"));
    const struct gc_model_limits few_bytes = {.header_bytes = 10};
    assert_int_equal(gc_model_open(path, &few_bytes, &model, &error), GC_OUT_OF_RANGE);
    const struct gc_model_limits enough = {.tensors = 2, .files = 1};
    gc_model_close(open_fine(path, &enough));
}

/* The name in the messages is the end of a long path, and the error is always in it. */
static void errors_name_the_file(void **state)
{
    (void)state;
    struct gc_model *model;
    char deep[3000];
    memset(deep, 'd', sizeof(deep) - 1);
    for (size_t i = 0; i < sizeof(deep) - 1; i += 100)
        deep[i] = '/';
    memcpy(deep + sizeof(deep) - 12, "/model.json", 12);
    assert_int_equal(gc_model_open(deep, NULL, &model, &error), GC_IO);
    assert_non_null(strstr(error.text, "/model.json: there is no such file or folder"));
    assert_int_equal(memcmp(error.text, "...", 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_description_is_taken, setup, teardown),
        cmocka_unit_test(names_are_found_without_a_table),
        cmocka_unit_test_setup_teardown(errors_leave_nothing_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(counts_are_bounded, setup, teardown),
        cmocka_unit_test(errors_name_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
