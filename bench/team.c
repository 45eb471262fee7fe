/*
 * team.c - the workers of one subject, and the orders they follow.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "team.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "process.h"
#include "timer.h"

enum { ANSWER_MS_MAX = 120000 };

static psd_status
send_message(int fd, const void *message, size_t bytes, struct psd_error *err)
{
    if (send(fd, message, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
        return psi_fail_errno(err, PSD_ERR_PEER_LOST, "send to the other end of a measurement");
    }
    return PSD_OK;
}

static psd_status
receive_answer(int fd, struct team_answer *answer_p, struct psd_error *err)
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
    answer_p->error.text[sizeof(answer_p->error.text) - 1] = '\0';
    return answer_p->error.status == PSD_OK
               ? PSD_OK
               : psi_fail(err, answer_p->error.status, "%.500s", answer_p->error.text);
}

static void
keep_larger(uint64_t *largest, uint64_t value)
{
    *largest = value > *largest ? value : *largest;
}

/* The slowest worker gives the time; what they used is added up. */
static void
add_times(struct team_times *all, const struct team_times *one)
{
    keep_larger(&all->elapsed_ns, one->elapsed_ns);
    keep_larger(&all->median_ns, one->median_ns);
    keep_larger(&all->p90_ns, one->p90_ns);
    keep_larger(&all->p99_ns, one->p99_ns);
    keep_larger(&all->worst_ns, one->worst_ns);
    all->cpu_ns += one->cpu_ns;
    keep_larger(&all->idle_ns, one->idle_ns);
    all->idle_cpu_ns += one->idle_cpu_ns;
    all->shared += one->shared;
}

static uint64_t
helpers_cpu_ns(const struct team *team)
{
    uint64_t used_ns = 0;

    for (uint32_t i = 0; i < team->helper_count; i++) {
        used_ns += process_cpu_ns(team->helpers[i]);
    }
    return used_ns;
}

static void
signal_restless(const struct team *team, int number)
{
    for (uint32_t i = 0; i < team->restless_count; i++) {
        (void)kill(team->restless[i], number);
    }
}

void
team_rest(const struct team *team)
{
    signal_restless(team, SIGSTOP);
}

psd_status
team_command(struct team *team, const struct team_order *order, struct team_times *times_p,
             struct psd_error *err)
{
    const uint64_t before_ns = helpers_cpu_ns(team);
    struct team_times times = {0};
    psd_status status = PSD_OK;

    if (team->idle_since_ns != 0) {
        times.idle_ns = timer_now_ns() - team->idle_since_ns;
        times.idle_cpu_ns = before_ns - team->helpers_cpu_ns;
    }

    signal_restless(team, SIGCONT);
    for (uint32_t i = 0; i < team->count && status == PSD_OK; i++) {
        status = send_message(team->fds[i], order, sizeof(*order), err);
    }
    for (uint32_t i = 0; i < team->count && status == PSD_OK; i++) {
        struct team_answer answer;

        status = receive_answer(team->fds[i], &answer, err);
        if (status == PSD_OK) {
            add_times(&times, &answer.times);
        }
    }
    team_rest(team);
    team->idle_since_ns = timer_now_ns();
    team->helpers_cpu_ns = helpers_cpu_ns(team);
    if (status == PSD_OK) {
        times.cpu_ns += team->helpers_cpu_ns - before_ns;
        *times_p = times;
    }
    return status;
}

void
team_dismiss(struct team *team)
{
    signal_restless(team, SIGCONT);
    team->restless_count = 0;
    for (uint32_t i = 0; i < team->count; i++) {
        close(team->fds[i]);
    }
    team->count = 0;
}

psd_status
team_follow(int fd, team_handler handle, void *owner, struct psd_error *err)
{
    uint64_t idle_ns = timer_now_ns();
    uint64_t idle_cpu_ns = timer_cpu_ns();
    struct team_order order;
    ssize_t got;

    while ((got = recv(fd, &order, sizeof(order), 0)) == (ssize_t)sizeof(order)) {
        struct team_answer answer = {0};
        psd_status status;

        answer.times.idle_ns = timer_now_ns() - idle_ns;
        answer.times.idle_cpu_ns = timer_cpu_ns() - idle_cpu_ns;
        if (handle(owner, &order, &answer.times, &answer.error) != PSD_OK) {
            *err = answer.error;
            (void)send_message(fd, &answer, sizeof(answer), NULL);
            return err->status;
        }
        answer.error.status = PSD_OK;
        status = send_message(fd, &answer, sizeof(answer), err);
        if (status != PSD_OK) {
            return status;
        }
        idle_ns = timer_now_ns();
        idle_cpu_ns = timer_cpu_ns();
    }
    return got == 0 ? PSD_OK : psi_fail_errno(err, PSD_ERR_PEER_LOST, "receive an order");
}
