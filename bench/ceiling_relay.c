/*
 * ceiling_relay.c - what a round trip of several workers costs: a third process adds what they give.
 *
 * Every worker posts its gradient to the relay and waits for the sum. Whoever waits spins while a run
 * lasts. Each process is bound to a core, the relay to the first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "ceiling_worker.h"
#include "mailbox.h"
#include "process.h"
#include "tensor.h"

/* Thread: immutable, but for what is in the mailboxes. */
struct relay {
    uint32_t workers;
    uint64_t bytes;
    struct mailbox *mailboxes; /* of each worker: to the relay, and back */
};

/* ---- The relay ---- */

static int
run_relay(const struct relay *relay)
{
    const size_t count = relay->bytes / sizeof(float);
    float *sum = tensor_alloc(relay->bytes);
    float *gradient = tensor_alloc(relay->bytes);

    process_bind(0);
    if (sum == NULL || gradient == NULL) {
        return 1;
    }
    for (unsigned letter = 1; true; letter++) { /* until it is killed */
        mailbox_fetch(&relay->mailboxes[0], letter, sum, relay->bytes, CEILING_SPIN);
        for (uint32_t rank = 1; rank < relay->workers; rank++) {
            mailbox_fetch(&relay->mailboxes[2 * rank], letter, gradient, relay->bytes,
                          CEILING_SPIN);
            for (size_t i = 0; i < count; i++) {
                sum[i] += gradient[i];
            }
        }
        for (uint32_t rank = 0; rank < relay->workers; rank++) {
            mailbox_post(&relay->mailboxes[2 * rank + 1], sum, relay->bytes, false);
        }
    }
}

/* ---- A worker ---- */

/* Thread: owned by the worker's process. */
struct worker {
    struct ceiling_worker base;
    struct mailbox_pair mailboxes;
};

static psd_status
exchange(void *owner, struct psd_error *err)
{
    struct worker *worker = owner;

    (void)err;
    mailbox_exchange(&worker->mailboxes, &worker->base, CEILING_SPIN);
    return PSD_OK;
}

static int
run_worker(const struct relay *relay, uint32_t rank, int control)
{
    struct worker worker = {
        .base = {.rank = rank,
                 .bytes = relay->bytes,
                 .exchange = exchange,
                 .owner = &worker,
                 .wakes = true},
        .mailboxes = {.out = &relay->mailboxes[2 * rank], .in = &relay->mailboxes[2 * rank + 1]}};

    process_bind(rank + 1);
    return ceiling_worker_init(&worker.base, TENSOR_SUM, relay->workers)
               ? ceiling_worker_run(&worker.base, control)
               : 1;
}

/* ---- Start ---- */

static bool
start_all(const struct relay *relay, struct ceiling *ceiling)
{
    int control;
    pid_t pid = ceiling_fork_server(ceiling);

    if (pid == 0) {
        _exit(run_relay(relay));
    }
    for (uint32_t rank = 0; rank < relay->workers && pid > 0; rank++) {
        pid = ceiling_fork_worker(ceiling, &control);
        if (pid == 0) {
            _exit(run_worker(relay, rank, control));
        }
    }
    return pid > 0;
}

psd_status
ceiling_relay_start(uint32_t workers, uint64_t bytes, struct ceiling *ceiling_p,
                    struct psd_error *err)
{
    const struct relay relay = {
        .workers = workers, .bytes = bytes, .mailboxes = mailboxes_create(2 * (size_t)workers)};
    psd_status status = PSD_OK;

    psi_assert(bytes <= CEILING_PING_BYTES_MAX);
    memset(ceiling_p, 0, sizeof(*ceiling_p));
    if (relay.mailboxes == NULL || !start_all(&relay, ceiling_p)) {
        status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start a relay of %u workers", workers);
        ceiling_stop(ceiling_p);
    }
    mailboxes_destroy(relay.mailboxes, 2 * (size_t)workers);
    return status;
}
