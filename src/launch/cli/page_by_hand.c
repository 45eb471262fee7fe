/*
 * page_by_hand.c - a page for a job that no psd_run started: all it knows is what the master tells, so
 * there are no logs, and nobody writes a report.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/page_by_hand.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/page/feed.h"
#include "launch/page/page.h"
#include "launch/rules/watch.h"
#include "launch/run/status.h"
#include "launch/system/signal_fd.h"
#include "launch/system/wall_clock.h"

enum {
    NODES_MAX = 4096,
    ANSWER_MS = 3000,
    TELL_MS = 500,
    GONE_MS = 5000, /* no word for so long: the job is over */
};

/* Thread: owned by the main thread of psd_run. */
struct watched {
    struct feed *feed;
    struct feed_since since; /* what open pages have */
    struct status status;
    struct psd_node *nodes;
    size_t count;
    uint32_t servers;
    uint32_t workers;
};

/* ---------------------------------------------------------------------------------- telling --- */

static void
count_nodes(struct watched *watched)
{
    for (size_t i = 0; i < watched->count; i++) {
        const struct psd_node *node = &watched->nodes[i];

        if (node->role == PSD_ROLE_SERVER && node->rank >= watched->servers) {
            watched->servers = node->rank + 1;
        } else if (node->role == PSD_ROLE_WORKER && node->rank >= watched->workers) {
            watched->workers = node->rank + 1;
        }
    }
}

static enum feed_state
state_of(const struct psd_node *node)
{
    switch (node->state) {
    case PSD_NODE_MISSING:
    case PSD_NODE_JOINED:
        return FEED_STARTING;
    case PSD_NODE_DONE:
        return FEED_ENDED;
    case PSD_NODE_LOST:
        return FEED_LOST;
    case PSD_NODE_RUNNING:
        break;
    }
    return FEED_RUNNING;
}

/* "10.0.0.7" of "tcp://10.0.0.7:5555" */
static void
host_of(const struct psd_node *node, char *host_p, size_t size)
{
    const char *start = strstr(node->address, "://");
    const char *end;

    start = start != NULL ? start + 3 : node->address;
    end = strrchr(start, ':');
    snprintf(host_p, size, "%.*s", (int)(end != NULL ? end - start : (long)strlen(start)), start);
}

/* A number for the address: who is at the same one has the same clock. */
static uint32_t
machine_of(const struct psd_node *node, const char *host)
{
    uint32_t number = 2166136261;

    if (host[0] == '\0') {
        return UINT32_MAX - node->rank; /* it has not said: one of its own */
    }
    for (const char *at = host; *at != '\0'; at++) {
        number = (number ^ (uint8_t)*at) * 16777619;
    }
    return number;
}

static void
tell_node(struct watched *watched, const struct psd_node *node)
{
    static const char *const words[] = {
        [PSD_ROLE_MASTER] = "master", [PSD_ROLE_SERVER] = "server", [PSD_ROLE_WORKER] = "worker"};
    const uint32_t count = node->role == PSD_ROLE_SERVER ? watched->servers : watched->workers;
    const uint32_t slot = node->role == PSD_ROLE_MASTER   ? 0
                          : node->role == PSD_ROLE_SERVER ? 1 + node->rank
                                                          : 1 + watched->servers + node->rank;
    char host[96];
    char name[32];

    if (node->role != PSD_ROLE_MASTER && node->rank >= count) {
        return; /* it came later, and the feed has no place for it */
    }
    host_of(node, host, sizeof(host));
    snprintf(name, sizeof(name), node->role == PSD_ROLE_MASTER ? "%s" : "%s %u", words[node->role],
             node->rank);
    feed_process(watched->feed, slot,
                 &(struct feed_process){.name = name,
                                        .role = node->role,
                                        .index = node->rank,
                                        .host = host,
                                        .machine = machine_of(node, host),
                                        .state = state_of(node)});
}

static void
tell(struct watched *watched)
{
    bool running = false;

    for (size_t i = 0; i < watched->count; i++) {
        tell_node(watched, &watched->nodes[i]);
        running = running || (watched->nodes[i].role == PSD_ROLE_WORKER &&
                              watched->nodes[i].state == PSD_NODE_RUNNING);
    }
    feed_phase(watched->feed, running ? FEED_PHASE_RUNNING : FEED_PHASE_STARTING);
}

static char *
snapshot(void *context, bool whole)
{
    struct watched *watched = context;
    struct feed_since nothing = {0};

    return feed_json(watched->feed, whole ? &nothing : &watched->since);
}

static char *
metrics(void *context)
{
    return feed_metrics(((struct watched *)context)->feed);
}

/* ------------------------------------------------------------------------------------ serve --- */

static bool
is_over(struct watched *watched)
{
    bool over;

    pthread_mutex_lock(&watched->status.mutex);
    over = watched->status.trouble[0] != '\0';
    pthread_mutex_unlock(&watched->status.mutex);
    return over || status_silence_ms(&watched->status) > GONE_MS;
}

static void
serve(struct watched *watched, struct page *page, int signals)
{
    struct pollfd fds[] = {{.fd = page_fd(page), .events = POLLIN},
                           {.fd = signals, .events = POLLIN}};

    while (!is_over(watched)) {
        const size_t count = status_nodes(&watched->status, watched->nodes, NODES_MAX);

        watched->count = count > 0 ? count : watched->count;
        tell(watched);
        poll(fds, 2, TELL_MS);
        if (fds[1].revents != 0) {
            break;
        }
        page_turn(page);
    }
    feed_phase(watched->feed, FEED_PHASE_ENDED);
    page_end(page);
}

/* Where nobody has logged in, as under sudo or in a batch job, it may be somebody else's, or not there. */
static const char *
private_directory(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat info;

    return runtime != NULL && runtime[0] == '/' && stat(runtime, &info) == 0 &&
                   S_ISDIR(info.st_mode) && info.st_uid == geteuid()
               ? runtime
               : "/tmp";
}

/* Elsewhere than on a terminal others may read it: then it is in a file, and that is named. path_p: of
 * the file, which goes with the page; "": there is none. */
static psd_status
invite(const struct page *page, char path_p[PATH_MAX], struct psd_error *err)
{
    char address[PAGE_ADDRESS_BYTES];
    int fd;

    path_p[0] = '\0';
    page_address(page, address);
    if (isatty(STDOUT_FILENO)) {
        printf("%s\n", address);
        fflush(stdout);
        return PSD_OK;
    }
    snprintf(path_p, PATH_MAX, "%.4000s/psd_page_address.XXXXXX", private_directory());
    fd = mkostemp(path_p, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) {
        const psd_status status =
            psi_fail_errno(err, PSD_ERR_IO, "make %.400s for the address of the page", path_p);

        path_p[0] = '\0';
        return status;
    }
    if (dprintf(fd, "%s\n", address) < 0) {
        close(fd);
        return psi_fail_errno(err, PSD_ERR_IO, "write %.400s", path_p);
    }
    close(fd);
    printf("watch the job at the address in %s\n", path_p);
    fflush(stdout);
    return PSD_OK;
}

static int
open_and_serve(struct watched *watched, const char *master_address)
{
    const struct page_source source = {
        .snapshot = snapshot, .metrics = metrics, .context = watched};
    static const int wanted[] = {SIGINT, SIGTERM, SIGHUP};
    const int signals = signal_fd_open(wanted, 3); /* before there are threads */
    const struct page_args args = {0};
    char path[PATH_MAX];
    struct psd_error err = {0};
    struct page *page = NULL;
    psd_status status;

    if (page_open(&args, &page, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: page: %s\n", err.text);
        return WATCH_CODE_CANNOT_START;
    }
    if (!status_start(&watched->status, master_address, TELL_MS, watched->feed)) {
        fprintf(stderr, "psd_run: page of %s: %s\n", master_address, watched->status.trouble);
        page_close(page);
        return WATCH_CODE_CANNOT_START;
    }
    page_show(page, &source);
    status = invite(page, path, &err);
    if (status == PSD_OK) {
        serve(watched, page, signals);
    } else {
        fprintf(stderr, "psd_run: page of %s: %s\n", master_address, err.text);
    }
    if (path[0] != '\0') {
        unlink(path);
    }
    status_stop(&watched->status);
    page_close(page);
    close(signals);
    return status == PSD_OK ? 0 : WATCH_CODE_CANNOT_START;
}

int
page_by_hand(const char *master_address)
{
    struct watched watched = {.nodes = calloc(NODES_MAX, sizeof(*watched.nodes))};
    struct feed_job job = {.name = master_address,
                           .id = master_address,
                           .command = "",
                           .log_directory = "",
                           .started_unix_ms = wall_clock_ms()};
    int code = WATCH_CODE_CANNOT_START;

    if (watched.nodes != NULL &&
        psd_nodes_at(master_address, ANSWER_MS, watched.nodes, sizeof(*watched.nodes), NODES_MAX,
                     &watched.count) != PSD_OK) {
        fprintf(stderr, "psd_run: page of %s: %s\n", master_address, psd_last_error()->text);
    } else if (watched.nodes != NULL) {
        watched.count = watched.count < NODES_MAX ? watched.count : NODES_MAX;
        count_nodes(&watched);
        job.workers = watched.workers;
        job.servers = watched.servers;
        watched.feed = feed_create(&job);
    }
    if (watched.feed != NULL) {
        signal(SIGPIPE, SIG_IGN);
        code = open_and_serve(&watched, master_address);
    }
    feed_destroy(watched.feed);
    free(watched.status.nodes);
    free(watched.nodes);
    return code;
}
