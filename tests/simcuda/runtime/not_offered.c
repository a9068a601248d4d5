/* Entry points that the real runtime exports and this one does not offer: each is there, so that
 * nothing fails to link, and returns the error. No toolkit header here: the parameters do not
 * matter. */
typedef enum { RUNTIME_NOT_SUPPORTED = 801 } runtime_error;

#ifdef RT_STATIC
#define NOT_OFFERED_EXPORT __attribute__((visibility("hidden")))
#else
#define NOT_OFFERED_EXPORT __attribute__((visibility("default")))
#endif

runtime_error rt_end(runtime_error error);

#define RT_NOT_OFFERED(name)                                                                       \
    NOT_OFFERED_EXPORT runtime_error name(void);                                                   \
    NOT_OFFERED_EXPORT runtime_error name(void)                                                    \
    {                                                                                              \
        return rt_end(RUNTIME_NOT_SUPPORTED);                                                      \
    }
#include "not_offered.def"
#undef RT_NOT_OFFERED
