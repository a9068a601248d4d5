/* The words of `gpucache exporter`, which the tool and the program share. */
#ifndef GC_EXPORTER_H
#define GC_EXPORTER_H

#define EXPORTER_ADDRESS "127.0.0.1:9944"
#define EXPORTER_SYNOPSIS "[--listen ADDRESS]"
#define EXPORTER_SUMMARY "serve metrics of all processes under the library to Prometheus"
#define EXPORTER_HELP                                                                              \
    "  --listen ADDRESS  HOST:PORT, [IPV6]:PORT or :PORT for all addresses\n"                      \
    "                    (" EXPORTER_ADDRESS "); port 0: any\n"                                    \
    "\n"                                                                                           \
    "Serves /metrics in Prometheus' text format, or OpenMetrics where it is asked for,\n"          \
    "until SIGINT or SIGTERM. For root: of every user, job and container; else of this\n"          \
    "user. There is no TLS and no password: listen where only Prometheus comes.\n"

#endif
