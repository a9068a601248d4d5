/* The table behind direct memory: small records by (kind, key), all under one lock.
 *
 * An open-addressing hash with linear probing and backward-shift deletion (Knuth, TAOCP 6.4,
 * algorithm R), and a pool of fixed-size records that several keys share. Memory comes from mmap,
 * never from libc malloc, and only in gc_handles_prepare(), which is called without the lock.
 *
 * The lock guards the table and every record in it. No driver call is made under it. */
#ifndef GC_HANDLES_H
#define GC_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gc_handle_kind {
    GC_HANDLE_NONE,
    GC_HANDLE_CONTEXT, /* context → record */
    GC_HANDLE_PRIMARY, /* device ordinal + 1 → primary context */
    GC_HANDLE_GREEN,   /* green context → device ordinal + 1, the key of its primary context */
    GC_HANDLE_GREEN_STREAM, /* stream of a green context → the context's handle */
    GC_HANDLE_CAPTURE,      /* stream → context */
    GC_HANDLE_POOL,         /* stream-ordered pool → record */
    GC_HANDLE_ASYNC,        /* stream-ordered address → its pool's record */
    GC_HANDLE_PHYSICAL,     /* physical memory handle → record */
    GC_HANDLE_MAPPING,      /* mapped address → record, length */
    GC_HANDLE_SPARSE,       /* hash of a sparse tile → record, array */
    GC_HANDLE_EVENTS,       /* context → idle events of the library */
    GC_HANDLE_STREAM,       /* stream of the program → its context */
    GC_HANDLE_JOIN,         /* context → the library's stream that joins all of its streams */
    GC_HANDLE_IDLE,         /* context → the library's stream that never has work */
    GC_HANDLE_COPY_OUT,     /* context → the library's stream of copies to host memory */
    GC_HANDLE_COPY_IN       /* context → the library's stream of copies to the device */
};

struct gc_handle {
    uint64_t key;
    uint64_t value;
    uint64_t extra;
    enum gc_handle_kind kind;
};

/* The contents of a record belong to its user; a new record is zeroed. */
#define GC_HANDLE_RECORD_BYTES 128

/* Makes sure that two more entries and one more record fit. False: no host memory. Call unlocked.
 */
bool gc_handles_prepare(void);
void gc_handles_lock(void);
void gc_handles_unlock(void);

/* NULL if absent. Valid until the next set or remove. */
struct gc_handle *gc_handles_find_locked(enum gc_handle_kind kind, uint64_t key);
/* Replaces an existing entry. False if the table is full (gc_handles_prepare failed before). */
bool gc_handles_set_locked(enum gc_handle_kind kind, uint64_t key, uint64_t value, uint64_t extra);
/* Copies the entry to `removed` if that is not NULL. False if absent. */
bool gc_handles_remove_locked(enum gc_handle_kind kind, uint64_t key, struct gc_handle *removed);
/* The first entry of a kind that `matches`; NULL if none. Searches the whole table. */
struct gc_handle *gc_handles_search_locked(enum gc_handle_kind kind,
                                           bool (*matches)(const struct gc_handle *, const void *),
                                           const void *argument);

/* Keys of the entries of a kind with this value, at most `max`. Returns how many there are.
 * Searches the whole table. */
size_t gc_handles_collect_locked(enum gc_handle_kind kind, uint64_t value, uint64_t *keys,
                                 size_t max);

/* NULL if there is none left. */
void *gc_handles_alloc_record_locked(void);
void gc_handles_free_record_locked(void *record);

/* The calls above with the lock taken; for single steps. */
bool gc_handles_set(enum gc_handle_kind kind, uint64_t key, uint64_t value, uint64_t extra);
bool gc_handles_get(enum gc_handle_kind kind, uint64_t key, struct gc_handle *found);
bool gc_handles_remove(enum gc_handle_kind kind, uint64_t key, struct gc_handle *removed);

#endif
