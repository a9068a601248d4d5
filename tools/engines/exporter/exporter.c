/* gpucache-exporter: serves the metrics of the machine's ledgers over HTTP, by libmicrohttpd. One
 * thread serves one request after the other, so a reading needs no lock. */
#define _GNU_SOURCE
#include "tools/run/exporter.h"
#include "core/base/clock.h"
#include "core/io/text.h"
#include "tools/base/tool.h"
#include "tools/live/top_prom.h"
#include "tools/live/top_source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESS_BYTES 256
#define CONNECTIONS_MAX 64
#define CONNECTION_SECONDS 10
/* A scrape waits so long for fresh figures; later ones come while it reads. */
#define REFRESH_MS 5

#define TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define OPENMETRICS "application/openmetrics-text"
#define OPENMETRICS_TYPE OPENMETRICS "; version=1.0.0; charset=utf-8"

static const char start_page[] =
    "<!doctype html><title>gpucache-exporter</title><h1>gpucache-exporter " GC_VERSION "</h1>"
    "<p><a href=/metrics>Metrics</a> of the processes under libgpucache on this machine.</p>\n";

/* ---- answers ---- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status,
                              struct MHD_Response *response, const char *type)
{
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/* `text` is constant. */
static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status,
                                   const char *text, const char *type)
{
    return answer(connection, status,
                  MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                                  MHD_RESPMEM_PERSISTENT),
                  type);
}

static enum MHD_Result fail(struct MHD_Connection *connection, const char *why)
{
    fprintf(stderr, "gpucache exporter: %s\n", why);
    return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "the ledgers cannot be read\n",
                       "text/plain");
}

/* NULL, with *why: there is no reading. */
static struct MHD_Response *read_metrics(struct top_source *source, bool is_openmetrics,
                                         const char **why)
{
    struct top_view view;
    struct gc_writer out;
    struct MHD_Response *response = NULL;
    top_view_init(&view);
    const int fd = memfd_create("gpucache-metrics", MFD_CLOEXEC);
    enum gc_status status = source->reader.read(&source->reader, &view, why);
    if (status == GC_OK && fd >= 0) {
        gc_writer_init(&out, fd);
        status = top_prom_write(&out, &view, &source->node, is_openmetrics);
        *why = gc_status_text(status);
        if (status == GC_OK && gc_writer_flush(&out) == GC_OK)
            response = MHD_create_response_from_fd((uint64_t)lseek(fd, 0, SEEK_END), fd);
    }
    if (response == NULL && fd >= 0)
        close(fd);
    top_view_fini(&view);
    return response;
}

static enum MHD_Result serve(void *argument, struct MHD_Connection *connection, const char *url,
                             const char *method, const char *version, const char *data,
                             size_t *data_bytes, void **state)
{
    const char *why = "no memory";
    (void)version;
    (void)data;
    (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        if (*data_bytes > 0)
            return MHD_NO; /* a body is not read */
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD are served\n",
                           "text/plain");
    }
    if (strcmp(url, "/") == 0)
        return answer_text(connection, MHD_HTTP_OK, start_page, "text/html; charset=utf-8");
    if (strcmp(url, "/metrics") != 0)
        return answer_text(connection, MHD_HTTP_NOT_FOUND, "/metrics is served\n", "text/plain");
    const char *accept =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    const bool is_openmetrics = accept != NULL && strstr(accept, OPENMETRICS) != NULL;
    struct MHD_Response *response = read_metrics(argument, is_openmetrics, &why);
    if (response == NULL)
        return fail(connection, why);
    return answer(connection, MHD_HTTP_OK, response, is_openmetrics ? OPENMETRICS_TYPE : TEXT_TYPE);
}

/* ---- the address ---- */

/* Splits HOST:PORT, [HOST]:PORT or :PORT, in place. False: it is neither. */
static bool split_address(char *text, const char **host, const char **port)
{
    uint64_t number;
    char *colon = strrchr(text, ':');
    if (colon == NULL)
        return false;
    *colon = '\0';
    *port = colon + 1;
    *host = text;
    const size_t length = strlen(text);
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text[length - 1] = '\0';
        *host = text + 1;
    } else if (strchr(text, ':') != NULL) {
        return false; /* an IPv6 address without brackets */
    }
    return gc_text_uint(*port, strlen(*port), &number) && number <= UINT16_MAX;
}

/* A listening socket; -1, with a line. */
static int listen_at(const struct tool_command *command, const char *address)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char text[ADDRESS_BYTES];
    const char *host, *port;
    const int yes = 1;
    if ((size_t)snprintf(text, sizeof(text), "%s", address) >= sizeof(text) ||
        !split_address(text, &host, &port)) {
        (void)tool_refuse(command, "--listen", address, "HOST:PORT, [IPV6]:PORT or :PORT");
        return -1;
    }
    const int code = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &found);
    if (code != 0) {
        (void)tool_fail(command, "%s: %s", address, gai_strerror(code));
        return -1;
    }
    const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
    const bool is_listening =
        fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
        bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, CONNECTIONS_MAX) == 0;
    const int error = errno;
    freeaddrinfo(found);
    if (is_listening)
        return fd;
    if (fd >= 0)
        close(fd);
    (void)tool_fail(command, "%s: %s", address, strerror(error));
    return -1;
}

/* With port 0 the system chooses one. */
static void print_address(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0 ||
        getnameinfo((struct sockaddr *)&address, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    const bool is_ipv6 = address.ss_family == AF_INET6;
    printf("gpucache exporter: http://%s%s%s:%s/metrics\n", is_ipv6 ? "[" : "", host,
           is_ipv6 ? "]" : "", port);
    fflush(stdout);
}

/* ---- the program ---- */

static int run(int argc, char **argv);

static const struct tool_command exporter = {
    .name = "exporter",
    .synopsis = EXPORTER_SYNOPSIS,
    .summary = EXPORTER_SUMMARY,
    .help = EXPORTER_HELP,
    .run = run,
};

static int serve_until_signal(int fd, struct top_source *source)
{
    sigset_t signals;
    int number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL, serve, source,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)CONNECTION_SECONDS, MHD_OPTION_END);
    if (daemon == NULL) {
        close(fd);
        return tool_fail(&exporter, "the server does not start");
    }
    print_address(fd);
    sigwait(&signals, &number);
    MHD_stop_daemon(daemon);
    return TOOL_DONE;
}

static int run(int argc, char **argv)
{
    struct top_source source;
    const char *address = NULL;
    int next;
    const struct tool_option options[] = {{.name = "--listen", .value = &address}};
    int status =
        tool_parse(&exporter, options, sizeof(options) / sizeof(options[0]), argc, argv, &next);
    if (status != TOOL_DONE || next == 0)
        return status;
    if (next < argc)
        return tool_usage(&exporter, "unexpected argument %s", argv[next]);
    const int fd = listen_at(&exporter, address != NULL ? address : EXPORTER_ADDRESS);
    if (fd < 0)
        return TOOL_USAGE;
    top_source_init(&source, geteuid() == 0);
    source.refresh_ms = REFRESH_MS;
    status = serve_until_signal(fd, &source);
    top_source_fini(&source);
    return status;
}

int main(int argc, char **argv)
{
    return run(argc, argv);
}
