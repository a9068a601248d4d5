/* The driver API program, linked with the driver. */
/* link: -l:libcuda.so.1 */
#define D(name) name
#include "tests/clients/driver_client.h"

int main(void)
{
    return client_run();
}
