/* link: -l:libcudart_static.a -lpthread -lrt */
/* Through the static runtime. */
#include "tests/bench/pairs_runtime.h"
