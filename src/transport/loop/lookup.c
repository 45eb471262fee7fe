/*
 * lookup.c - the number of a host by its name, without making the loop's owner wait.
 *
 * Loop and thread share the question, and whoever leaves last frees it: a thread may outlive the
 * loop. A question that was left is taken up by the next attempt to connect to the same host, so a
 * slow resolver is not asked over and over, and has answered some day. A hardened server looks
 * names up, too: harden_calls.c lists the system calls of this file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/loop/lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/loop/loop_state.h"

struct psi_lookup {
    struct psi_lookup *next; /* loop->lookups; the loop's, as is ... */
    bool taken;              /* ... whether a stream waits for it */

    struct psi_address address; /* constant */
    int fd;                     /* likewise; readable when the answer is there */
    atomic_uint owners;         /* the loop, the thread */
    atomic_bool answered;       /* what follows is the thread's before, the loop's after that */
    psd_status status;
    struct psi_address numeric;
    struct psd_error reason;
};

static void
let_go(struct psi_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->owners, 1) == 1) {
        close(lookup->fd);
        free(lookup);
    }
}

static void *
ask(void *argument)
{
    struct psi_lookup *lookup = argument;
    const uint64_t once = 1;
    ssize_t written;

    lookup->status = psi_address_resolve(&lookup->address, &lookup->numeric, &lookup->reason);
    atomic_store(&lookup->answered, true);
    written = write(lookup->fd, &once, sizeof(once));
    psi_assert(written == sizeof(once)); /* there is always room for the first */
    let_go(lookup);
    return NULL;
}

/* Signals are the program's business: the thread takes none. */
static psd_status
start_thread(struct psi_lookup *lookup, struct psd_error *err)
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
        code = pthread_create(&thread, &detached, ask, lookup);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&detached);
    }
    if (code != 0) {
        errno = code;
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "look up host %s: start a thread",
                              lookup->address.host);
    }
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
forget(struct psi_loop *loop, struct psi_lookup *lookup)
{
    struct psi_lookup **link = &loop->lookups;

    while (*link != lookup) {
        link = &(*link)->next;
    }
    *link = lookup->next;
    let_go(lookup);
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
    lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->fd < 0) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "look up host %s", address->host);
        goto err_free;
    }
    atomic_init(&lookup->owners, 2);
    status = start_thread(lookup, err);
    if (status != PSD_OK) {
        goto err_close;
    }
    lookup->next = loop->lookups;
    loop->lookups = lookup;
    *lookup_p = lookup;
    return PSD_OK;

err_close:
    close(lookup->fd);
err_free:
    free(lookup);
    return status;
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
    psd_status status;

    psi_assert(atomic_load(&lookup->answered));
    status = lookup->status;
    if (status == PSD_OK) {
        *numeric_p = lookup->numeric;
    } else {
        *err = lookup->reason;
    }
    forget(loop, lookup);
    return status;
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
        forget(loop, loop->lookups);
    }
}
