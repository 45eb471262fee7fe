/*
 * slurm_meet.c - how the tasks of a Slurm step find the first of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/slurm_meet.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/link/munge.h"
#include "launch/link/secret.h"
#include "launch/system/close_fd.h"
#include "launch/system/ports.h"
#include "launch/system/reach.h"
#include "launch/text/memory.h"

enum {
    CANDIDATES = 16, /* ports that are tried where none is given */
    STRIDE = 101,    /* between two of them */
    STEP_BYTES = 64,
    LINE_BYTES = 2048,
    BACKLOG = 1024,
    KNOCK_MS = 2000, /* for the door to open, and for its line to come */
    RETRY_MS = 200,  /* between two rounds of knocking */
    FRESH_S = 60,    /* how long a credential is given away: well below what munged allows */
};

#define NO_CREDENTIAL "-"

struct slurm_meet {
    struct slurm_meet_config config;
    char step[STEP_BYTES];
    int door; /* listens; -1: none */
    pid_t porter;
    bool met;               /* task 0 has answered before */
    _Atomic uint32_t *port; /* shared with the porter */
};

/* The ports that everybody comes to by himself. */
static uint16_t
candidate(const struct slurm_meet *meet, unsigned index)
{
    uint32_t mixed = 2166136261u; /* FNV-1a */

    if (meet->config.port != 0) {
        return meet->config.port;
    }
    for (const char *at = meet->step; *at != '\0'; at++) {
        mixed = (mixed ^ (uint8_t)*at) * 16777619u;
    }
    return (uint16_t)(PORTS_FIRST +
                      (mixed % 65521u + index * STRIDE) % (PORTS_LAST - PORTS_FIRST + 1));
}

static unsigned
candidates(const struct slurm_meet *meet)
{
    return meet->config.port != 0 ? 1 : CANDIDATES;
}

/* ------------------------------------------------------------------------------------- task 0 ---
 */

/* Returns the listener, or -1 with errno. */
static int
listen_on(uint16_t port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int on = 1;
    const int off = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        if (bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(fd, BACKLOG) == 0) {
            return fd;
        }
    } else if ((fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0) { /* no IPv6 here */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, (struct sockaddr *)&any4, sizeof(any4)) == 0 && listen(fd, BACKLOG) == 0) {
            return fd;
        }
    }
    close_fd(&fd);
    return -1;
}

static psd_status
open_door(struct slurm_meet *meet, struct psd_error *err)
{
    for (unsigned i = 0; i < candidates(meet) && meet->door < 0; i++) {
        meet->door = listen_on(candidate(meet, i));
    }
    return meet->door >= 0
               ? PSD_OK
               : psi_fail_errno(
                     err, PSD_ERR_IO,
                     "task 0 cannot listen for the others of step %s on port %u or the %u after it",
                     meet->step, candidate(meet, 0), candidates(meet) - 1);
}

/* What is said at the door, in the porter. */
struct line {
    char text[LINE_BYTES];
    char *credential; /* NULL: none yet */
    time_t made;
    uint8_t secret[PSI_SECRET_BYTES];
};

static const char *
describe(const struct slurm_meet *meet, struct line *line)
{
    const time_t now = time(NULL);

    if (meet->config.munge && (line->credential == NULL || now - line->made > FRESH_S)) {
        free(line->credential);
        line->credential = NULL;
        if (munge_seal(NULL, line->secret, &line->credential, NULL) != PSD_OK) {
            return NULL; /* munged is restarted: who knocks comes again */
        }
        line->made = now;
    }
    snprintf(line->text, sizeof(line->text), "psd-meet %s %u %s\n", meet->step,
             atomic_load(meet->port), meet->config.munge ? line->credential : NO_CREDENTIAL);
    return line->text;
}

/* When the porter ends is for psd_run to say; a batch system signals every process of a step. */
static void
ignore_signals(void)
{
    static const int ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                  SIGUSR1, SIGUSR2, SIGTSTP, SIGPIPE};

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        signal(ignored[i], SIG_IGN);
    }
}

/* The porter's life: it ends with psd_run. */
static _Noreturn void
answer(const struct slurm_meet *meet, int secret_fd, pid_t parent)
{
    struct line line = {.credential = NULL};

    prctl(PR_SET_NAME, "psd_door");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ignore_signals();
    if (getppid() != parent ||
        pread(secret_fd, line.secret, sizeof(line.secret), 0) != (ssize_t)sizeof(line.secret)) {
        _exit(1);
    }
    for (;;) {
        int visitor = accept4(meet->door, NULL, NULL, SOCK_CLOEXEC);
        const char *text = visitor >= 0 ? describe(meet, &line) : NULL;

        if (visitor < 0) {
            poll(NULL, 0, RETRY_MS); /* no descriptor, no memory: there may be some again */
        }
        if (text != NULL) { /* shorter than any socket's buffer: nobody can hold us up */
            send(visitor, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        close_fd(&visitor);
    }
}

psd_status
slurm_meet_answer(struct slurm_meet *meet, int secret_fd, struct psd_error *err)
{
    const pid_t parent = getpid();

    if (meet->porter > 0) {
        return PSD_OK;
    }
    if (meet->config.munge) { /* what goes wrong is said here, not behind the door */
        uint8_t nothing[PSI_SECRET_BYTES] = {0};
        char *credential = NULL;
        const psd_status status = munge_seal(NULL, nothing, &credential, err);

        free(credential);
        if (status != PSD_OK) {
            return status;
        }
    }
    meet->porter = fork();
    if (meet->porter == 0) {
        answer(meet, secret_fd, parent);
    }
    return meet->porter > 0 ? PSD_OK : psi_fail_errno(err, PSD_ERR_IO, "fork");
}

void
slurm_meet_tell(struct slurm_meet *meet, uint16_t port)
{
    atomic_store(meet->port, port);
}

/* -------------------------------------------------------------------------------- other tasks ---
 */

/* What a line says. */
struct news {
    uint16_t port;
    char credential[LINE_BYTES];
};

/* Reads what comes until the door closes. Returns false when that takes too long. */
static bool
read_line(int fd, char text_p[LINE_BYTES])
{
    const uint64_t until_ms = psi_monotonic_ms() + KNOCK_MS;
    size_t used = 0;

    for (;;) {
        const uint64_t now_ms = psi_monotonic_ms();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ssize_t count;

        if (now_ms >= until_ms || used == LINE_BYTES - 1 ||
            poll(&wait, 1, (int)(until_ms - now_ms)) <= 0) {
            return false;
        }
        count = read(fd, text_p + used, LINE_BYTES - 1 - used);
        if (count <= 0) {
            text_p[used] = '\0';
            return count == 0 && used > 0;
        }
        used += (size_t)count;
    }
}

/* Whom a knock at one door found. */
enum found { FOUND_NOBODY, FOUND_NOT_YET, FOUND_TASK_0 };

/* Somebody else's door is nobody's. */
static enum found
knock(const struct slurm_meet *meet, const char *address, uint16_t port, struct news *news_p)
{
    char text[LINE_BYTES];
    char step[STEP_BYTES] = "";
    unsigned told = 0;
    const int fd = reach_connect(address, port, KNOCK_MS);
    bool ours;

    if (fd < 0) {
        return FOUND_NOBODY;
    }
    ours = read_line(fd, text) &&
           sscanf(text, "psd-meet %63s %u %2047s", step, &told, news_p->credential) == 3 &&
           strcmp(step, meet->step) == 0 && told <= UINT16_MAX;
    close(fd);
    news_p->port = (uint16_t)told;
    return !ours ? FOUND_NOBODY : told == 0 ? FOUND_NOT_YET : FOUND_TASK_0;
}

/* Once around all doors that might be the one. address_p: of task 0's node. */
static psd_status
look(struct slurm_meet *meet, char address_p[64], struct news *news_p, struct psd_error *err)
{
    const char *node = meet->config.slurm->nodes.names[0];

    reach_resolve(node, address_p);
    if (address_p[0] == '\0') {
        return psi_fail(err, PSD_ERR_IO,
                        "the address of node %.64s, where task 0 of step %s is, is not known here",
                        node, meet->step);
    }
    for (unsigned i = 0; i < candidates(meet); i++) {
        switch (knock(meet, address_p, candidate(meet, i), news_p)) {
        case FOUND_NOBODY:
            break;
        case FOUND_NOT_YET:
            return psi_fail(err, PSD_PENDING, "task 0 of step %s on %.64s is not ready", meet->step,
                            node);
        case FOUND_TASK_0:
            meet->met = true;
            return PSD_OK;
        }
    }
    if (meet->met) { /* Slurm starts no task of a step again */
        return psi_fail(err, PSD_ERR_PEER_LOST, "task 0 of step %s on %.64s is gone", meet->step,
                        node);
    }
    return psi_fail(err, PSD_PENDING,
                    "nobody of step %s answers on %.64s, ports %u and the %u after it", meet->step,
                    node, candidate(meet, 0), candidates(meet) - 1);
}

int
slurm_meet_secret(struct slurm_meet *meet, uint32_t wait_ms, struct psd_error *err)
{
    const uint64_t until_ms = psi_monotonic_ms() + wait_ms;
    uint8_t secret[PSI_SECRET_BYTES];
    char address[64];
    struct news news;
    psd_status status;
    int fd = -1;

    while ((status = look(meet, address, &news, err)) == PSD_PENDING &&
           psi_monotonic_ms() < until_ms) {
        poll(NULL, 0, RETRY_MS);
    }
    if (status == PSD_OK) {
        status = munge_unseal(NULL, news.credential, secret, err);
    } else if (status == PSD_PENDING) {
        err->status = PSD_ERR_IO;
    }
    if (status == PSD_OK) {
        fd = launch_secret_adopt(secret, err);
        explicit_bzero(secret, sizeof(secret));
    }
    return fd;
}

psd_status
slurm_meet_find(struct slurm_meet *meet, char address_p[JOINER_ADDRESS_BYTES],
                struct psd_error *err)
{
    char address[64];
    struct news news;
    const psd_status status = look(meet, address, &news, err);
    const bool v6 = strchr(address, ':') != NULL;

    if (status == PSD_OK) {
        snprintf(address_p, JOINER_ADDRESS_BYTES, "tcp://%s%s%s:%u", v6 ? "[" : "", address,
                 v6 ? "]" : "", news.port);
    }
    return status;
}

/* ------------------------------------------------------------------------------ begin and end ---
 */

psd_status
slurm_meet_open(const struct slurm_meet_config *config, struct slurm_meet **meet_p,
                struct psd_error *err)
{
    struct slurm_meet *meet = memory_need(calloc(1, sizeof(*meet)));
    psd_status status = PSD_OK;

    meet->config = *config;
    meet->door = -1;
    snprintf(meet->step, sizeof(meet->step), "%s", config->step);
    meet->port =
        mmap(NULL, sizeof(*meet->port), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meet->port == MAP_FAILED) {
        meet->port = NULL;
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "memory for the meeting");
    }
    if (status == PSD_OK && config->slurm->node == 0 && config->slurm->local == 0) {
        status = open_door(meet, err);
    }
    if (status != PSD_OK) {
        slurm_meet_close(meet);
        return status;
    }
    *meet_p = meet;
    return PSD_OK;
}

void
slurm_meet_close(struct slurm_meet *meet)
{
    if (meet == NULL) {
        return;
    }
    if (meet->porter > 0) {
        kill(meet->porter, SIGKILL);
        waitpid(meet->porter, NULL, 0);
    }
    close_fd(&meet->door);
    if (meet->port != NULL) {
        munmap(meet->port, sizeof(*meet->port));
    }
    free(meet);
}
