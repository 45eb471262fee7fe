/*
 * crew.c - the workers of one measurement, and the orders they follow.
 *
 * Both ends are this program on this machine, so structs travel as they are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "crew.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "timer.h"

enum { ANSWER_MS_MAX = 120000 };

struct answer {
    struct crew_times times;
    struct psd_error error;
};

static psd_status
send_message(int fd, const void *message, size_t bytes, struct psd_error *err)
{
    if (send(fd, message, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
        return psi_fail_errno(err, PSD_ERR_PEER_LOST, "send to the other end of a measurement");
    }
    return PSD_OK;
}

static psd_status
receive_answer(int fd, struct answer *answer_p, struct psd_error *err)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int count;

    do {
        count = poll(&ready, 1, ANSWER_MS_MAX);
    } while (count < 0 && errno == EINTR);
    if (count == 0) {
        return psi_fail(err, PSD_ERR_TIMEOUT, "no answer from a worker in %d s",
                        ANSWER_MS_MAX / 1000);
    }
    if (recv(fd, answer_p, sizeof(*answer_p), 0) != (ssize_t)sizeof(*answer_p)) {
        return psi_fail(err, PSD_ERR_PEER_LOST, "a worker has gone");
    }
    return PSD_OK;
}

psd_status
crew_command(const struct crew *crew, const struct crew_order *order, struct crew_times *times_p,
             struct psd_error *err)
{
    struct crew_times times = {0};
    psd_status status = PSD_OK;

    for (uint32_t i = 0; i < crew->count && status == PSD_OK; i++) {
        status = send_message(crew->fds[i], order, sizeof(*order), err);
    }
    for (uint32_t i = 0; i < crew->count && status == PSD_OK; i++) {
        struct answer answer;

        status = receive_answer(crew->fds[i], &answer, err);
        if (status == PSD_OK && answer.error.status != PSD_OK) {
            status = psi_fail(err, answer.error.status, "%.500s", answer.error.text);
        }
        if (status == PSD_OK) {
            if (answer.times.elapsed_ns > times.elapsed_ns) {
                times.elapsed_ns = answer.times.elapsed_ns;
            }
            times.idle_ns += answer.times.idle_ns;
            times.idle_cpu_ns += answer.times.idle_cpu_ns;
        }
    }
    if (status == PSD_OK) {
        *times_p = times;
    }
    return status;
}

void
crew_dismiss(struct crew *crew)
{
    for (uint32_t i = 0; i < crew->count; i++) {
        close(crew->fds[i]);
    }
    crew->count = 0;
}

psd_status
crew_follow(int fd, crew_handler handle, void *owner, struct psd_error *err)
{
    uint64_t idle_ns = timer_now_ns();
    uint64_t idle_cpu_ns = timer_cpu_ns();
    struct crew_order order;
    ssize_t got;

    while ((got = recv(fd, &order, sizeof(order), 0)) == (ssize_t)sizeof(order)) {
        struct answer answer = {.times = {.idle_ns = timer_now_ns() - idle_ns,
                                          .idle_cpu_ns = timer_cpu_ns() - idle_cpu_ns}};
        psd_status status;

        if (handle(owner, &order, &answer.times.elapsed_ns, &answer.error) != PSD_OK) {
            *err = answer.error;
            (void)send_message(fd, &answer, sizeof(answer), NULL);
            return err->status;
        }
        status = send_message(fd, &answer, sizeof(answer), err);
        if (status != PSD_OK) {
            return status;
        }
        idle_ns = timer_now_ns();
        idle_cpu_ns = timer_cpu_ns();
    }
    return got == 0 ? PSD_OK : psi_fail_errno(err, PSD_ERR_PEER_LOST, "receive an order");
}
