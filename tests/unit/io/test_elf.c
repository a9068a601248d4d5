/* Symbol tables read by hand, held against the dynamic linker: dlsym and dladdr. */
#define _GNU_SOURCE
#include "core/io/elf.h"
#include "core/io/elf_object.h"

#include "tests/unit/cmocka_all.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define OBJECTS_MAX 64
#define STEP 977 /* bytes between the addresses that are asked about */

static struct object {
    char path[512];
    uintptr_t code, end;
} objects[OBJECTS_MAX];
static int object_count;
static sem_t looked[2];

static int note(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    for (int i = 0; i < info->dlpi_phnum && object_count < OBJECTS_MAX; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];

        if (header->p_type != PT_LOAD || (header->p_flags & PF_X) == 0 ||
            strncmp(info->dlpi_name, "linux-", 6) == 0)
            continue;
        struct object *object = &objects[object_count++];
        snprintf(object->path, sizeof(object->path), "%s", info->dlpi_name);
        object->code = info->dlpi_addr + header->p_vaddr;
        object->end = object->code + header->p_memsz;
        break;
    }
    return 0;
}

static int find_objects(void **unused)
{
    (void)unused;
    (void)dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    (void)dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
    dl_iterate_phdr(note, NULL);
    return object_count > 2 ? 0 : -1;
}

/* Some of these have several versions, and libc alone has most. */
static const char *const names[] = {"malloc",   "pthread_create", "cbrt",     "dlsym", "fopen",
                                    "realpath", "ns_parserr",     "lgamma_r", "nosuch"};

static void scopes_are_the_linkers(void **unused)
{
    int found_count = 0;

    (void)unused;
    for (int i = 0; i < object_count; i++) {
        void *handle =
            objects[i].path[0] != '\0' ? dlopen(objects[i].path, RTLD_NOW | RTLD_NOLOAD) : NULL;

        for (size_t j = 0; j < sizeof(names) / sizeof(names[0]); j++) {
            void *want = handle == NULL ? NULL : dlsym(handle, names[j]);
            void *got = gc_elf_find_in_scope((const void *)objects[i].code, names[j]);

            /* Any of several versions may come; only the object counts. */
            if (got != want && (got == NULL || want == NULL || !gc_elf_is_same_object(got, want)))
                fail_msg("%s in %s: %p, not %p", names[j], objects[i].path, got, want);
            found_count += got != NULL;
        }
        if (handle != NULL)
            dlclose(handle);
    }
    assert_true(found_count > 10);
}

static void functions_are_found_beside_others(void **unused)
{
    void *in_libm = gc_elf_find_function("libm", "cbrt");

    (void)unused;
    assert_non_null(in_libm);
    assert_ptr_equal(gc_elf_find_function("", "cbrt"), in_libm);
    assert_ptr_equal(gc_elf_find_in_object(in_libm, "cbrt"), in_libm);
    assert_null(gc_elf_find_in_object(in_libm, "fopen"));
    assert_null(gc_elf_find_function("libc", "cbrt"));
    assert_null(gc_elf_find_function("", "nosuch"));
    assert_false(gc_elf_is_same_object(in_libm, gc_elf_find_function("libc", "fopen")));
    assert_null(gc_elf_find_in_scope(&object_count, "fopen")); /* the program itself */
}

static void libraries_are_known_by_name(void **unused)
{
    const void *in_libm = gc_elf_find_function("libm", "cbrt");

    (void)unused;
    assert_true(gc_elf_is_library(in_libm, "libm"));
    assert_false(gc_elf_is_library(in_libm, "lib"));
    assert_false(gc_elf_is_library(in_libm, "libc"));
    assert_false(gc_elf_is_library(&object_count, "libm"));
    assert_false(gc_elf_is_library((const void *)1, "libm"));
    assert_true(gc_elf_names_library("libcudart.so.13", "libcudart"));
    assert_true(gc_elf_names_library("libcudart-0123abcd.so.11.0", "libcudart"));
    assert_false(gc_elf_names_library("libcudart_static.a", "libcudart"));
    assert_false(gc_elf_names_library("libcudart-0123abcd.a", "libcudart"));
    assert_false(gc_elf_names_library("libcuda.so.1", "libcudart"));
}

static void keep_path(void *kept, const char *path)
{
    *(bool *)kept = path != NULL;
}

static void *look_up(void *is_found)
{
    const void *in_libm =
        gc_elf_find_function("libm", "cbrt"); /* takes the lock, before it is held */

    gc_elf_visit_path(in_libm, keep_path, is_found);
    sem_post(&looked[0]);
    sem_wait(&looked[1]);
    *(bool *)is_found = false;
    gc_elf_visit_path(in_libm, keep_path, is_found);
    *(bool *)is_found = *(bool *)is_found && gc_elf_is_library(in_libm, "libm");
    sem_post(&looked[0]);
    return NULL;
}

static int wait_for_look_up(struct dl_phdr_info *info, size_t size, void *result)
{
    struct timespec until;

    (void)info;
    (void)size;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    sem_post(&looked[1]);
    *(int *)result = sem_timedwait(&looked[0], &until);
    return 1;
}

/* Threads look up addresses at each allocation of a tenant; a forked child must not wait. */
static void the_object_of_an_address_takes_no_lock(void **unused)
{
    pthread_t thread;
    bool is_found = false;
    int late = 1;

    (void)unused;
    if (dlsym(RTLD_DEFAULT, "_dl_find_object") == NULL)
        skip(); /* before glibc 2.35 it does */
    for (int i = 0; i < 2; i++)
        assert_int_equal(sem_init(&looked[i], 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, look_up, &is_found), 0);
    assert_int_equal(sem_wait(&looked[0]), 0);
    dl_iterate_phdr(wait_for_look_up, &late); /* holds the dynamic linker's lock meanwhile */
    pthread_join(thread, NULL);
    assert_int_equal(late, 0);
    assert_true(is_found);
}

static void next_definitions_are_the_linkers(void **unused)
{
    const void *here = (const void *)&next_definitions_are_the_linkers;

    (void)unused;
    assert_ptr_equal(gc_elf_find_next(here, "write"), dlsym(RTLD_DEFAULT, "write"));
    assert_null(gc_elf_find_next(gc_elf_find_function("libc", "fopen"), "fopen"));
    assert_null(gc_elf_find_next(here, "ns_parserr")); /* loaded later, in a scope of its own */
    assert_null(gc_elf_find_next(here, "main"));
}

static int ask_inside(struct dl_phdr_info *info, size_t size, void *answer)
{
    (void)info;
    (void)size;
    *(bool *)answer = gc_elf_holds_linker_lock();
    return 1;
}

static void a_thread_knows_that_it_holds_a_lock_of_the_linker(void **unused)
{
    bool inside = false;

    (void)unused;
    assert_false(gc_elf_holds_linker_lock());
    dl_iterate_phdr(ask_inside, &inside);
    assert_true(inside);
    assert_false(gc_elf_holds_linker_lock());
}

static void keep_spot(void *kept, const struct gc_elf_location *spot)
{
    *(struct gc_elf_location *)kept = spot != NULL ? *spot : (struct gc_elf_location){.path = NULL};
}

static void places_are_the_linkers(void **unused)
{
    (void)unused;
    for (int i = 0; i < object_count; i++)
        for (uintptr_t at = objects[i].code; at < objects[i].end; at += STEP) {
            struct gc_elf_location spot = {.path = NULL};
            Dl_info info;

            gc_elf_visit_place((const void *)at, keep_spot, &spot);
            assert_int_not_equal(dladdr((const void *)at, &info), 0);
            assert_non_null(spot.path);
            assert_int_equal(spot.start / 4096, (uintptr_t)info.dli_fbase / 4096);
            if (spot.symbol_start != (uintptr_t)info.dli_saddr)
                fail_msg("%p in %s: %s, not %s", (void *)at, objects[i].path,
                         spot.symbol ? spot.symbol : "-", info.dli_sname ? info.dli_sname : "-");
        }
    struct gc_elf_location nowhere = {.path = ""};
    gc_elf_visit_place((const void *)1, keep_spot, &nowhere);
    assert_null(nowhere.path);
}

static int see_inside(struct dl_phdr_info *info, size_t size, void *seen)
{
    void *frames[2];
    (void)info;
    (void)size;
    assert_true(gc_elf_is_walking());
    (void)gc_elf_backtrace(frames, 2);
    assert_true(gc_elf_is_walking());
    *(bool *)seen = true;
    return 1;
}

static void a_walk_is_marked(void **unused)
{
    bool is_seen = false;
    (void)unused;
    assert_false(gc_elf_is_walking());
    assert_int_equal(gc_elf_walk(see_inside, &is_seen), 1);
    assert_true(is_seen);
    assert_false(gc_elf_is_walking());
}

static int count_one(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)info;
    (void)size;
    ++*(int *)count;
    return 0;
}

static void *end_walks(void *count)
{
    void *frames[4];
    gc_elf_end_walks();
    *(int *)count = 0;
    (void)gc_elf_walk(count_one, count);
    *(int *)count += gc_elf_backtrace(frames, 4);
    return NULL;
}

static void walks_end_on_one_thread(void **unused)
{
    pthread_t thread;
    int count = -1;
    (void)unused;
    assert_int_equal(pthread_create(&thread, NULL, end_walks, &count), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(count, 0);
    (void)gc_elf_walk(count_one, &count);
    assert_true(count > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scopes_are_the_linkers),
        cmocka_unit_test(functions_are_found_beside_others),
        cmocka_unit_test(libraries_are_known_by_name),
        cmocka_unit_test(the_object_of_an_address_takes_no_lock),
        cmocka_unit_test(next_definitions_are_the_linkers),
        cmocka_unit_test(places_are_the_linkers),
        cmocka_unit_test(a_walk_is_marked),
        cmocka_unit_test(walks_end_on_one_thread),
        cmocka_unit_test(a_thread_knows_that_it_holds_a_lock_of_the_linker),
    };

    return cmocka_run_group_tests(tests, find_objects, NULL);
}
