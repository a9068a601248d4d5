#include "core/estimator/fits.h"
#include "core/base/bits.h"

void gc_budget_set_all(struct gc_budget *budget, uint64_t bytes)
{
    for (unsigned i = 0; i < GC_ESTIMATE_DEVICE_MAX; i++)
        budget->device_bytes[i] = bytes;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return gc_add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

static enum gc_estimate_part largest_part(const struct gc_estimate_sizes *sizes)
{
    unsigned largest = 0;
    for (unsigned part = 1; part < GC_ESTIMATE_PART_COUNT; part++) {
        if (sizes->parts[part] > sizes->parts[largest])
            largest = part;
    }
    return (enum gc_estimate_part)largest;
}

void gc_fits(const struct gc_estimate *estimate, const struct gc_budget *budget, struct gc_fit *fit)
{
    *fit = (struct gc_fit){.fits = true, .lower_bound = estimate->unknown_parts != 0};
    for (uint32_t i = 0; i < estimate->device_count; i++) {
        const uint64_t bytes = budget->device_bytes[i];
        const uint64_t deficit = gc_sub_or_zero_u64(estimate->devices[i].peak_bytes, bytes);
        fit->budget_bytes = add_saturated(fit->budget_bytes, bytes);
        fit->deficit_bytes = add_saturated(fit->deficit_bytes, deficit);
        if (deficit > fit->device_deficit_bytes) {
            fit->device_deficit_bytes = deficit;
            fit->device = i;
        }
    }
    fit->fits = fit->deficit_bytes == 0;
    fit->largest = largest_part(&estimate->devices[fit->device]);
}
