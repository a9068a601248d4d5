/* The model types whose caches were measured, by tests/model/caches.py, against these estimates. */
#ifndef GC_ARCH_MEASURED_H
#define GC_ARCH_MEASURED_H

enum gc_arch_measured {
    GC_ARCH_MEASURED_NOT,   /* not a type of the transformers that was measured */
    GC_ARCH_MEASURED_EXACT, /* the estimate is the measured cache */
    GC_ARCH_MEASURED_BOUND, /* it differs in some configurations */
};

/* Of a "model_type". Pure. */
enum gc_arch_measured gc_arch_measured(const char *type);

#endif
