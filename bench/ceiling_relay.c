/*
 * ceiling_relay.c - what a round trip of several workers costs: a third process adds what they give.
 *
 * Every worker posts its gradient to the relay and waits for the sum. Whoever waits spins while a run
 * lasts. Each process is bound to a core, the relay to the first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "ceiling.h"
#include "mailbox.h"
#include "process.h"
#include "rounds.h"
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
    const struct relay *relay;
    uint32_t rank;
    float *gradient;
    float *values;
    struct tensor_model model;
    unsigned letters; /* sent, and as many received */
    bool wake;
};

static psd_status
exchange(void *owner, struct psd_error *err)
{
    struct worker *worker = owner;
    struct mailbox *mailboxes = &worker->relay->mailboxes[2 * worker->rank];
    const size_t bytes = worker->relay->bytes;

    (void)err;
    mailbox_post(&mailboxes[0], worker->gradient, bytes, worker->wake);
    worker->letters++;
    mailbox_fetch(&mailboxes[1], worker->letters, worker->values, bytes, CEILING_SPIN);
    return PSD_OK;
}

/* The relay has fallen asleep meanwhile: one exchange outside the time. */
static psd_status
wake(void *owner, struct psd_error *err)
{
    struct worker *worker = owner;
    psd_status status;

    worker->wake = true;
    status = exchange(owner, err);
    worker->wake = false;
    return status;
}

static psd_status
follow(void *owner, const struct team_order *order, struct team_times *times, struct psd_error *err)
{
    struct worker *worker = owner;
    const struct rounds rounds = {
        .rank = worker->rank,
        .gradient = worker->gradient,
        .values = worker->values,
        .model = &worker->model,
        .exchange = exchange,
        .gather = wake,
        .owner = worker,
    };

    tensor_spoil(worker->values, worker->relay->bytes);
    return rounds_run(&rounds, order, times, err);
}

static int
run_worker(const struct relay *relay, uint32_t rank, int control)
{
    struct worker worker = {.relay = relay,
                            .rank = rank,
                            .gradient = tensor_alloc(relay->bytes),
                            .values = tensor_alloc(relay->bytes)};
    struct psd_error err = {0};

    process_bind(rank + 1);
    if (worker.gradient == NULL || worker.values == NULL) {
        return 1;
    }
    tensor_model_init(&worker.model, TENSOR_SUM, relay->workers, relay->bytes / sizeof(float));
    return team_follow(control, follow, &worker, &err) == PSD_OK ? 0 : 1;
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
