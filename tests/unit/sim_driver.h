/* A simulated platform under core: struct gc_driver over a plain address space. No device, no
 * memory behind the addresses; what it keeps is what tests must know:
 *
 *  - capacity: it runs out, and says so with SIM_OUT_OF_MEMORY; addresses are reused lowest first;
 *  - work: sim_driver_submit says that work queued in a context uses a range; synchronize completes
 * it. Memory that is given back, or handed to the program again, while such work is queued is a
 * violation;
 *  - rules: a call under one of core's locks, a synchronize while the context captures, a free of
 * what is no allocation or by another context are violations;
 *  - failures: the N-th call, once or for good.
 *
 * Violations are counted and the first one is kept in words; tests end with sim_driver_check.
 * Thread-safe. */
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

#include "core/driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_OUT_OF_MEMORY 2
#define SIM_BROKEN 999 /* the code of an injected failure */
#define SIM_CONTEXTS 16

enum sim_call { SIM_MEM_ALLOC, SIM_MEM_FREE, SIM_MEM_INFO, SIM_SYNCHRONIZE, SIM_CALL_COUNT };

struct sim_allocation {
    uint64_t address;
    uint64_t bytes;
    uint64_t context;
};

struct sim_use {
    uint64_t address;
    uint64_t bytes;
    uint64_t context;
};

struct sim_driver {
    struct gc_driver table;
    pthread_mutex_t lock;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t peak_bytes;
    struct sim_allocation *allocations; /* by address */
    uint64_t allocation_count;
    uint64_t allocation_room;
    struct sim_use *uses; /* queued work */
    uint64_t use_count;
    uint64_t use_room;
    bool is_capturing[SIM_CONTEXTS]; /* by handle */
    bool free_waits;                 /* mem_free completes the work first, as a driver's does */
    uint64_t calls[SIM_CALL_COUNT];
    uint64_t total_calls;
    uint64_t fail_from; /* call number, from 1; 0: never */
    bool fail_for_good;
    int fail_code;
    uint64_t failed_count; /* injected failures that fired */
    /* Runs at the start of mem_alloc, mem_free and synchronize, without the lock. */
    void (*hook)(void *argument, enum sim_call call, uint64_t context);
    void *hook_argument;
    uint64_t violation_count;
    char violation[160];
};

void sim_driver_init(struct sim_driver *sim, uint64_t capacity_bytes);
void sim_driver_fini(struct sim_driver *sim);
/* Work that uses the range is queued in the context. */
void sim_driver_submit(struct sim_driver *sim, uint64_t context, uint64_t address, uint64_t bytes);
/* The range was handed to the program: nothing queued may use it. */
void sim_driver_expect_idle(struct sim_driver *sim, uint64_t address, uint64_t bytes);
void sim_driver_set_capturing(struct sim_driver *sim, uint64_t context, bool capturing);
/* The program synchronises by itself, not through core. */
void sim_driver_complete(struct sim_driver *sim, uint64_t context);
/* The context goes, and with it its allocations and work. */
void sim_driver_drop_context(struct sim_driver *sim, uint64_t context);
/* From the n-th call from now on (1: the next). */
void sim_driver_fail(struct sim_driver *sim, uint64_t n, bool for_good, int code);
/* Fails the cmocka test if there was a violation. */
void sim_driver_check(const struct sim_driver *sim);

#endif
