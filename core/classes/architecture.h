/* The tensors of a model by its configuration alone, from the table of architectures.
 *
 * core/classes/architectures.txt, generated from transformers itself (scripts/architectures), has
 * for each class of models its tensors: name, number and dimensions as expressions of the
 * configuration's values, and the class's own values for absent ones. architectures_more.txt has,
 * by hand, families that transformers lacks. A class is found by the configuration's
 * "architectures", else by its "model_type".
 *
 * Whatever the rows do not cover is a note, and the result is not exact: a value that they were
 * not measured with, an object of another type, a head of another class. Thread-safe. */
#ifndef GC_ARCHITECTURE_H
#define GC_ARCHITECTURE_H

#include "core/arch/notes.h"
#include "core/classes/expression.h"
#include "core/model/model.h"

#define GC_ARCHITECTURE_KEY_BYTES 160

/* ---- tables: sections of lines, each below its head "@CLASS TYPE KIND" ---- */

/* The generated tables, each closed by NUL (tables.S): architectures_more.txt with
 * architectures.txt, frames.txt, training.txt. */
extern const char gc_classes_architectures[];
extern const char gc_classes_frames[];
extern const char gc_classes_training[];

/* How well a head fits a configuration; 0: not at all. Heads of kind "head" go by their class
 * alone, those of kind "base" are of the type's model without a head. */
enum gc_architecture_rank {
    GC_ARCHITECTURE_RANK_BASE = 1,
    GC_ARCHITECTURE_RANK_TYPE,
    GC_ARCHITECTURE_RANK_WHOLE, /* the type, with its encoder where it has one */
    GC_ARCHITECTURE_RANK_CLASS,
    GC_ARCHITECTURE_RANK_NAMELESS, /* type and class, where the head has no name of its own */
    GC_ARCHITECTURE_RANK_BOTH,
};
/* Bits of ranks: those of a configuration's own class; NULL: it names none. */
unsigned gc_architecture_ranks(const char *class);

/* The lines of one section of the table, shared blocks included. */
struct gc_architecture_lines {
    const char *at;
    const char *end;
    const char *back_at; /* the section, while a shared block is read; else NULL */
    const char *back_end;
};

struct gc_architecture_line {
    const char *text; /* ends at a line break */
    size_t length;
};

/* The section of the highest of these ranks, the first of equals; false: there is none. */
bool gc_architecture_section(const char *table, const char *class, const char *type, unsigned ranks,
                             struct gc_architecture_lines *lines, enum gc_architecture_rank *rank);

/* False at the section's end. */
bool gc_architecture_next(struct gc_architecture_lines *lines, struct gc_architecture_line *line);

/* The n-th blank-separated part of a line. */
bool gc_architecture_part(const struct gc_architecture_line *line, unsigned number,
                          const char **text, size_t *length);

/* The values of a configuration, completed by the class: for expressions of its section. Copy it to
 * evaluate with further names: look these up first, then call names.find. */
struct gc_architecture_scope {
    struct gc_expression_names names; /* first: names point to the scope */
    const struct gc_model *model;
    struct gc_architecture_lines lines;     /* of its section, from the first */
    char prefix[GC_ARCHITECTURE_KEY_BYTES]; /* before each key: "text_config." */
    unsigned depth;
    bool is_other_type;    /* the class is another type's, whose own values do not count */
    bool is_base_alone;    /* of the base's rows, those that every class with a head has */
    bool is_encoder_alone; /* and of these, not a decoder's */
};

enum gc_architecture_match {
    GC_ARCHITECTURE_NONE,
    GC_ARCHITECTURE_TYPE,  /* of the same type, without this class's head */
    GC_ARCHITECTURE_CLASS, /* the class itself */
};

/* The class and the type that a configuration names; NULL: none. */
const char *gc_architecture_class_name(const struct gc_model *model);
const char *gc_architecture_type_name(const struct gc_model *model);
/* Whether a class's name ends with one of these, up to NULL, and is longer; NULL: false. */
bool gc_architecture_has_ending(const char *class, const char *const *endings);
/* Adds a note with the name of the class, else of the type, between two texts. */
void gc_architecture_note(const struct gc_model *model, struct gc_notes *notes, const char *before,
                          const char *after);

/* The section of a configuration. The model must outlive the scope. */
enum gc_architecture_match gc_architecture_find(const struct gc_model *model,
                                                struct gc_architecture_scope *scope);
/* Whether the class is one type's and the configuration names another that is known: programs that
 * go by the type run another model than those that go by the class. */
bool gc_architecture_has_two_types(const struct gc_model *model,
                                   const struct gc_architecture_scope *scope);
/* The section of a type's model without a head, for the object `key` of the configuration. */
bool gc_architecture_find_base(const struct gc_architecture_scope *outer, const char *type,
                               size_t type_length, const char *key, size_t key_length,
                               struct gc_architecture_scope *scope);

/* The configuration's value of a key of the section; NULL: it is absent. */
const struct gc_meta_value *gc_architecture_find_key(const struct gc_architecture_scope *scope,
                                                     const char *key, size_t length);

/* The same, under this or another name. */
const struct gc_meta_value *gc_architecture_find_name(const struct gc_architecture_scope *scope,
                                                      const char *key, size_t length);

/* How many labels the whole configuration names, if the key is their number; else 0. */
uint32_t gc_architecture_count_labels(const struct gc_architecture_scope *scope, const char *key,
                                      size_t length);

/* Whether the configuration has a value for it, not null, under this or another name. */
bool gc_architecture_is_given(const struct gc_architecture_scope *scope, const char *key,
                              size_t length);

/* How many keys begin with `start`; whether there are any. */
uint32_t gc_architecture_count_members(const struct gc_model *model, const char *start);
bool gc_architecture_has_object(const struct gc_model *model, const char *start);

/* The type of an object by the configuration; NULL: the usual, where it is not told or is that of
 * the whole, as files of Qwen and Idefics have it. */
const char *gc_architecture_type_of(const struct gc_architecture_scope *scope, const char *key,
                                    size_t length);

/* ---- tensors ---- */

/* How far the rows' sum is known. */
enum gc_architecture_known {
    GC_ARCHITECTURE_EXACT,
    GC_ARCHITECTURE_AT_LEAST, /* parts are not counted */
    GC_ARCHITECTURE_ABOUT,    /* a value that the rows were not measured with may make it less */
};

struct gc_architecture {
    struct gc_model model; /* the configuration's, with the tensors and totals of the rows */
    enum gc_architecture_known shapes; /* the tensors, their number and shapes */
    enum gc_architecture_known bytes;  /* and their types */
    bool is_shaped;                    /* each tensor has its own shape */
};

/* Makes the tensors, in the type that the configuration names, else f32. Adds a note for each
 * reason why they are not exact. GC_NOT_SUPPORTED, with a note: no rows for this architecture, or
 * no configuration; GC_OVERFLOW: beyond 64 bits, or too many tensors; GC_NO_HOST_MEMORY. `model`
 * must outlive the result. */
enum gc_status gc_architecture_open(const struct gc_model *model, struct gc_notes *notes,
                                    struct gc_architecture **architecture) GC_CHECKED;
void gc_architecture_close(struct gc_architecture *architecture); /* NULL: nothing */

/* The most bytes that an index may name beyond those described: of layers that predict further
 * tokens, each at most as large as two of the model's. */
uint64_t gc_architecture_prediction_bytes(const struct gc_model *model, uint64_t described);

enum gc_architecture_files {
    GC_ARCHITECTURE_FILES_UNKNOWN, /* nothing to compare, or no host memory for it */
    GC_ARCHITECTURE_FILES_SAME,
    GC_ARCHITECTURE_FILES_OTHER, /* not those of the configuration */
};

/* Holds a model's stored tensors against its configuration, with a note of what differs. Files are
 * the same, with a note, if all further tensors are left by programs: outside of layers for one.
 * Packed weights are compared by the names and sizes of tensors that are not packed. */
enum gc_architecture_files gc_architecture_compare(const struct gc_model *model,
                                                   struct gc_notes *notes);

#endif
