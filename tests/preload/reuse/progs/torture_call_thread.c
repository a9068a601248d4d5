/* The calls of torture_call.c with the per-thread default stream. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#define CALLS thread_calls
#include "torture_call.c"
