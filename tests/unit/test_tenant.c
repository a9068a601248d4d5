/* Tenants: who they are, and that the memory of one serves no other. */
#include "core/instance.h"
#include "core/tenant.h"
#include "tests/unit/cmocka_all.h"
#include "tests/unit/workbench.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define LARGE (24 * MIB)

static struct gc_tenant *add_tenant(struct workbench *bench, const char *name)
{
    const struct gc_tenant_config config = {name, 256 * MIB, GC_BUDGET_UNLIMITED};
    struct gc_tenant *tenant = NULL;
    assert_status(gc_core_add_tenant(bench->core, &config, &tenant), GC_OK);
    return tenant;
}

/* The tenant's record beside a context of the bench. */
static struct gc_context *record_of(struct workbench *bench, struct gc_tenant *tenant,
                                    unsigned context)
{
    struct gc_context *own = NULL;
    assert_status(gc_tenant_context(tenant, bench->contexts[context], &own), GC_OK);
    return own;
}

static enum gc_status try_alloc(struct workbench *bench, struct gc_context *context, uint64_t bytes,
                                uint64_t *address)
{
    const struct gc_request request = {.bytes = bytes, .api = API_MALLOC};
    const enum gc_status status =
        gc_core_alloc(bench->core, context, &request, address, &bench->driver_code);
    if (status == GC_OK)
        sim_driver_expect_idle(&bench->sim, *address, bytes);
    return status;
}

static uint64_t alloc_in(struct workbench *bench, struct gc_context *context, uint64_t bytes)
{
    uint64_t address = 0;
    assert_status(try_alloc(bench, context, bytes, &address), GC_OK);
    return address;
}

static void open_bench(struct workbench *bench, bool has_mapping)
{
    const struct workbench_setup setup = {.mode = GC_MODE_CACHE,
                                          .capacity_bytes = 1024 * MIB,
                                          .trim_percent = 100,
                                          .has_mapping = has_mapping,
                                          .is_fenced = true};
    workbench_open(bench, &setup);
}

/* ---- who they are ---- */

static enum gc_status try_name(struct workbench *bench, const char *name)
{
    const struct gc_tenant_config config = {name, 0, GC_BUDGET_UNLIMITED};
    struct gc_tenant *tenant;
    return gc_core_add_tenant(bench->core, &config, &tenant);
}

static void names_are_unique_and_plain(void **state)
{
    struct workbench bench;
    char longest[GC_OPTION_NAME_BYTES + 1];
    (void)state;
    open_bench(&bench, true);
    memset(longest, 'x', sizeof(longest));
    longest[GC_OPTION_NAME_BYTES] = '\0';
    assert_status(try_name(&bench, "one"), GC_OK);
    assert_status(try_name(&bench, "one"), GC_ALREADY_EXISTS);
    assert_status(try_name(&bench, ""), GC_INVALID_ARGUMENT);
    assert_status(try_name(&bench, ".one"), GC_INVALID_ARGUMENT);
    assert_status(try_name(&bench, "a/b"), GC_INVALID_ARGUMENT);
    assert_status(try_name(&bench, longest), GC_INVALID_ARGUMENT);
    longest[GC_OPTION_NAME_BYTES - 1] = '\0';
    assert_status(try_name(&bench, longest), GC_OK);
    assert_string_equal(gc_tenant_name(gc_core_find_tenant(bench.core, longest)), longest);
    assert_null(gc_core_find_tenant(bench.core, "two"));
    workbench_close(&bench);
}

static void there_are_so_many_at_a_time(void **state)
{
    struct workbench bench;
    char name[16];
    (void)state;
    open_bench(&bench, true);
    for (unsigned i = 0; i < GC_TENANT_MAX; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        assert_status(try_name(&bench, name), GC_OK);
    }
    assert_status(try_name(&bench, "more"), GC_TOO_MANY);
    workbench_close(&bench);
}

/* ---- records ---- */

static void a_record_is_the_tenants_own(void **state)
{
    struct workbench bench;
    (void)state;
    open_bench(&bench, true);
    struct gc_tenant *one = add_tenant(&bench, "one");
    struct gc_tenant *two = add_tenant(&bench, "two");
    struct gc_context *record = record_of(&bench, one, 0);
    assert_ptr_equal(record_of(&bench, one, 0), record);
    assert_ptr_equal(record_of(&bench, NULL, 0), bench.contexts[0]);
    assert_ptr_not_equal(record, bench.contexts[0]);
    assert_ptr_not_equal(record_of(&bench, two, 0), record);
    assert_ptr_not_equal(record_of(&bench, one, 1), record);
    assert_ptr_equal(gc_context_tenant(record), one);
    assert_null(gc_context_tenant(bench.contexts[0]));
    assert_int_equal(gc_context_handle(record), gc_context_handle(bench.contexts[0]));
    assert_ptr_equal(gc_core_find_context(bench.core, 1), bench.contexts[0]);
    workbench_close(&bench);
}

static void freed_memory_serves_its_tenant_only(void **state)
{
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct workbench bench;
        struct gc_block_info info;
        (void)state;
        open_bench(&bench, has_mapping != 0);
        struct gc_context *one = record_of(&bench, add_tenant(&bench, "one"), 0);
        struct gc_context *two = record_of(&bench, add_tenant(&bench, "two"), 0);
        const uint64_t first = alloc_in(&bench, one, LARGE);
        assert_status(gc_core_find_block(bench.core, first, &info), GC_OK);
        assert_ptr_equal(info.owner, one);
        assert_int_equal(info.context, 1);
        workbench_free(&bench, first);
        const uint64_t second = alloc_in(&bench, two, LARGE);
        const uint64_t third = workbench_alloc(&bench, 0, LARGE);
        assert_int_not_equal(second, first);
        assert_int_not_equal(third, first);
        assert_int_equal(alloc_in(&bench, one, LARGE), first);
        workbench_free(&bench, first);
        workbench_free(&bench, second);
        workbench_free(&bench, third);
        workbench_close(&bench);
    }
}

static void a_record_goes_with_its_handle(void **state)
{
    for (unsigned has_mapping = 0; has_mapping < 2; has_mapping++) {
        struct workbench bench;
        struct gc_context *own;
        uint64_t address;
        (void)state;
        open_bench(&bench, has_mapping != 0);
        struct gc_tenant *tenant = add_tenant(&bench, "one");
        struct gc_context *record = record_of(&bench, tenant, 0);
        const uint64_t lost = alloc_in(&bench, record, LARGE);
        workbench_free(&bench, alloc_in(&bench, record, 4 * MIB));
        (void)alloc_in(&bench, record, 512);
        const uint64_t kept = alloc_in(&bench, record_of(&bench, tenant, 1), LARGE);
        workbench_drop(&bench, 0);
        assert_status(workbench_try_free(&bench, lost), GC_NOT_OURS);
        assert_status(try_alloc(&bench, record, LARGE, &address), GC_INVALID_ARGUMENT);
        assert_status(gc_tenant_context(tenant, bench.contexts[0], &own), GC_INVALID_ARGUMENT);
        workbench_check(&bench);
        workbench_free(&bench, kept);
        workbench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_unique_and_plain),
        cmocka_unit_test(there_are_so_many_at_a_time),
        cmocka_unit_test(a_record_is_the_tenants_own),
        cmocka_unit_test(freed_memory_serves_its_tenant_only),
        cmocka_unit_test(a_record_goes_with_its_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
