/*
 * lookup.c - the number of a host by its name, without making the loop's owner wait.
 *
 * The thread owns its question and its end of the socket, and touches nothing else: it may outlive
 * the loop. A question that was left is taken up by the next attempt to connect to the same host,
 * so a slow resolver is not asked over and over, and has answered some day.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/loop_state.h"

/* Thread: owned by the loop. */
struct psi_lookup {
    struct psi_lookup *next; /* loop->lookups */
    bool taken;              /* a stream waits for it */
    int fd;
    struct psi_address address;
};

struct question {
    int fd;
    struct psi_address address;
};

struct answer {
    psd_status status;
    struct psi_address numeric;
    struct psd_error reason;
};

static void *
ask(void *argument)
{
    struct question *question = argument;
    struct answer answer;
    ssize_t sent;

    memset(&answer, 0, sizeof(answer));
    answer.status = psi_address_resolve(&question->address, &answer.numeric, &answer.reason);
    sent = send(question->fd, &answer, sizeof(answer), MSG_NOSIGNAL);
    (void)sent; /* nobody waits any more */
    close(question->fd);
    free(question);
    return NULL;
}

/* Takes question. Signals are the program's business: the thread takes none. */
static psd_status
start_thread(struct question *question, struct psd_error *err)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all;
    sigset_t old;
    int code = pthread_attr_init(&detached);

    if (code == 0) {
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        code = pthread_create(&thread, &detached, ask, question);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&detached);
    }
    if (code != 0) {
        close(question->fd);
        free(question);
        errno = code;
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start a thread to look up a host");
    }
    return PSD_OK;
}

static psd_status
start(const struct psi_address *address, int *fd_p, struct psd_error *err)
{
    struct question *question = malloc(sizeof(*question));
    int ends[2];
    psd_status status;

    if (question == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "look up host %s: no memory", address->host);
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        free(question);
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "look up host %s", address->host);
    }
    *question = (struct question){.fd = ends[1], .address = *address};
    status = start_thread(question, err);
    if (status != PSD_OK) {
        close(ends[0]);
        return status;
    }
    *fd_p = ends[0];
    return PSD_OK;
}

static struct psi_lookup *
find_left(const struct psi_loop *loop, const struct psi_address *address)
{
    struct psi_lookup *lookup = loop->lookups;

    while (lookup != NULL && (lookup->taken || lookup->address.port != address->port ||
                              strcmp(lookup->address.host, address->host) != 0)) {
        lookup = lookup->next;
    }
    return lookup;
}

static void
destroy(struct psi_loop *loop, struct psi_lookup *lookup)
{
    struct psi_lookup **link = &loop->lookups;

    while (*link != lookup) {
        link = &(*link)->next;
    }
    *link = lookup->next;
    close(lookup->fd);
    free(lookup);
}

static psd_status
create(struct psi_loop *loop, const struct psi_address *address, struct psi_lookup **lookup_p,
       struct psd_error *err)
{
    struct psi_lookup *lookup = calloc(1, sizeof(*lookup));
    psd_status status;

    if (lookup == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "look up host %s: no memory", address->host);
    }
    lookup->address = *address;
    status = start(address, &lookup->fd, err);
    if (status != PSD_OK) {
        free(lookup);
        return status;
    }
    lookup->next = loop->lookups;
    loop->lookups = lookup;
    *lookup_p = lookup;
    return PSD_OK;
}

psd_status
psi_lookup_begin(struct psi_loop *loop, const struct psi_address *address,
                 struct psi_lookup **lookup_p, int *fd_p, struct psd_error *err)
{
    struct psi_lookup *lookup = find_left(loop, address);
    int fd;

    if (lookup == NULL) {
        const psd_status status = create(loop, address, &lookup, err);

        if (status != PSD_OK) {
            return status;
        }
    }
    fd = fcntl(lookup->fd, F_DUPFD_CLOEXEC, 3); /* so that closing it ends no question */
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "look up host %s", address->host);
    }
    lookup->taken = true;
    *lookup_p = lookup;
    *fd_p = fd;
    return PSD_OK;
}

psd_status
psi_lookup_end(struct psi_loop *loop, struct psi_lookup *lookup, struct psi_address *numeric_p,
               struct psd_error *err)
{
    struct answer answer;
    const ssize_t got = recv(lookup->fd, &answer, sizeof(answer), MSG_DONTWAIT);

    psi_assert(got == sizeof(answer)); /* the thread sends it whole, and is no peer of ours */
    destroy(loop, lookup);
    if (answer.status != PSD_OK) {
        *err = answer.reason;
        return answer.status;
    }
    *numeric_p = answer.numeric;
    return PSD_OK;
}

void
psi_lookup_leave(struct psi_lookup *lookup)
{
    lookup->taken = false;
}

void
psi_lookups_fini(struct psi_loop *loop)
{
    while (loop->lookups != NULL) {
        destroy(loop, loop->lookups);
    }
}
