/* link: -l:libcudart.so.13 */
/* Through the shared runtime. */
#include "tests/bench/pairs_runtime.h"
