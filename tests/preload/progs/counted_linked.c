/* link: -l:libcuda.so.1 */
/* The counted program, linked with the driver. */
#define D(name) name
#include "counted.h"

int main(void)
{
    return counted_run();
}
