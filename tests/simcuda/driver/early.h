/* Calls before the driver is initialised. */
#ifndef SIM_EARLY_H
#define SIM_EARLY_H

#include "tests/simcuda/sim.h"

/* NEW: cuInit was not called yet; TRIED: it failed; STARTED: since it succeeded. */
enum sim_start { SIM_START_NEW, SIM_START_TRIED, SIM_START_DONE };
enum sim_start sim_start(void);

/* True if the entry's body answers at this stage; else its result is in *result. */
bool sim_early_goes_on(const char *entry, enum sim_start start,
                       const struct sim_argument *arguments, CUresult *result);

#endif
