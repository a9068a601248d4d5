/* link: -l:libcuda.so.1 */
/* Watches what all processes hold of the shared device, without the library, until its input ends:
 * group_observer. Prints the most it saw and how often it looked: `most N samples N`. Its own
 * context's memory is not counted. */
#include "tests/preload/progs/program.h"

#include <poll.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
    size_t available, total, own;
    uint64_t most = 0, samples = 0;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    program_start();
    CHECK(cuMemGetInfo(&available, &total));
    own = total - available;
    printf("ready\n");
    fflush(stdout);
    while (poll(&input, 1, 0) == 0) {
        const struct timespec pause = {0, 300000};
        CHECK(cuMemGetInfo(&available, &total));
        const uint64_t used = total - available - own;
        most = used > most ? used : most;
        samples++;
        nanosleep(&pause, NULL);
    }
    CHECK(cuMemGetInfo(&available, &total));
    printf("most %llu samples %llu last %llu\n", (unsigned long long)most,
           (unsigned long long)samples, (unsigned long long)(total - available - own));
    return EXIT_SUCCESS;
}
