/*
 * ceiling_ping.c - what a round trip costs: one worker, and an echo that sends everything back.
 *
 * The two are bound to a core each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "ceiling_worker.h"
#include "mailbox.h"
#include "process.h"
#include "stream.h"
#include "tensor.h"

struct link {
    enum ceiling_ping kind;
    enum ceiling_wait wait;
    uint64_t bytes;
    int pair[2];               /* worker's and echo's end */
    struct mailbox *mailboxes; /* to the echo, and back */
};

/* ---- The two processes ---- */

static int
run_echo(const struct link *link)
{
    char *data = tensor_alloc(link->bytes);
    bool alive = data != NULL;

    process_bind(1);
    for (unsigned letter = 1; alive; letter++) {
        if (link->kind == CEILING_PING_MEMORY) {
            mailbox_fetch(&link->mailboxes[0], letter, data, link->bytes, link->wait);
            mailbox_post(&link->mailboxes[1], data, link->bytes, link->wait == CEILING_BLOCK);
        } else {
            alive = stream_receive(link->pair[1], data, link->bytes, link->wait) &&
                    stream_send(link->pair[1], data, link->bytes, link->wait);
        }
    }
    return 0;
}

/* Thread: owned by the worker's process. */
struct worker {
    struct ceiling_worker base;
    const struct link *link;
    struct mailbox_pair mailboxes;
};

static psd_status
exchange(void *owner, struct psd_error *err)
{
    struct worker *worker = owner;
    const struct link *link = worker->link;

    if (link->kind == CEILING_PING_MEMORY) {
        mailbox_exchange(&worker->mailboxes, &worker->base, link->wait);
        return PSD_OK;
    }
    if (!stream_send(link->pair[0], worker->base.gradient, link->bytes, link->wait) ||
        !stream_receive(link->pair[0], worker->base.values, link->bytes, link->wait)) {
        return psi_fail(err, PSD_ERR_PEER_LOST, "ping: the echo has gone");
    }
    return PSD_OK;
}

static int
run_worker(const struct link *link, int control)
{
    struct worker worker = {
        .base = {.bytes = link->bytes, .exchange = exchange, .owner = &worker, .wakes = true},
        .link = link,
    };

    if (link->kind == CEILING_PING_MEMORY) {
        worker.mailboxes =
            (struct mailbox_pair){.out = &link->mailboxes[0], .in = &link->mailboxes[1]};
    }
    process_bind(0);
    return ceiling_worker_init(&worker.base, TENSOR_SUM, 1)
               ? ceiling_worker_run(&worker.base, control)
               : 1;
}

/* ---- Start ---- */

static bool
make_link(struct link *link)
{
    switch (link->kind) {
    case CEILING_PING_TCP:
        return ceiling_connect(link->pair);
    case CEILING_PING_UNIX:
        return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link->pair) == 0;
    case CEILING_PING_MEMORY:
        break;
    }
    link->mailboxes = mailboxes_create(2);
    return link->mailboxes != NULL;
}

static void
drop(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static bool
start_both(const struct link *link, struct ceiling *ceiling)
{
    int control;
    pid_t pid = ceiling_fork_server(ceiling);

    if (pid == 0) {
        drop(link->pair[0]);
        _exit(run_echo(link));
    }
    if (pid < 0) {
        return false;
    }
    pid = ceiling_fork_worker(ceiling, &control);
    if (pid == 0) {
        drop(link->pair[1]);
        _exit(run_worker(link, control));
    }
    return pid > 0;
}

psd_status
ceiling_ping_start(enum ceiling_ping kind, enum ceiling_wait wait, uint64_t bytes,
                   struct ceiling *ceiling_p, struct psd_error *err)
{
    struct link link = {.kind = kind, .wait = wait, .bytes = bytes, .pair = {-1, -1}};
    psd_status status = PSD_OK;

    psi_assert(bytes <= CEILING_PING_BYTES_MAX);
    memset(ceiling_p, 0, sizeof(*ceiling_p));
    if (!make_link(&link) || !start_both(&link, ceiling_p)) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start a ping");
    }
    drop(link.pair[0]);
    drop(link.pair[1]);
    mailboxes_destroy(link.mailboxes, 2);
    if (status != PSD_OK) {
        ceiling_stop(ceiling_p);
    }
    return status;
}
