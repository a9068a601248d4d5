/* Configurations made by hand: "name=value …", lists with commas. */
#ifndef ARCH_SAMPLE_H
#define ARCH_SAMPLE_H

#include "core/arch/arch.h"
#include "core/estimator/estimate.h"

/* Fails the test at a name or value that is not taken. */
void arch_sample(struct gc_arch *arch, enum gc_arch_names names, const char *text);

/* An estimator of the configuration alone, without weights. gc_estimator_close() ends it. */
struct gc_estimator *arch_sample_open(const struct gc_arch *arch);

#endif
