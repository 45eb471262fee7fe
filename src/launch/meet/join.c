/*
 * join.c - the coordinator's side: opens the door, and knows who is there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/epoll.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/meet/join_state.h"
#include "launch/system/close_fd.h"
#include "launch/text/memory.h"
#include "transport/address.h"

enum { EVENTS_MAX = 64 };

/* --------------------------------------------------------------------------- open and close --- */

static psd_status
listen_on(struct join *join, uint16_t port, uint16_t *port_p, struct psd_error *err)
{
    struct psi_env *env = psi_loop_env(join->loop);
    struct psi_address address = {.scheme = PSI_SCHEME_TCP, .port = port};
    char text[PSI_ADDRESS_BYTES];
    char bound[PSI_ADDRESS_BYTES];
    psd_status status;

    snprintf(address.host, sizeof(address.host), "%s",
             join->config.address != NULL ? join->config.address : "0.0.0.0");
    status = psi_address_format(&address, text, err);
    if (status == PSD_OK) {
        status =
            env->ops->listen(env, text, &join_listener_events, join, &join->listener, bound, err);
    }
    if (status == PSD_OK) {
        status = psi_address_parse(bound, &address, err);
        *port_p = address.port;
    }
    return status;
}

/* The first port of the range that is free. */
static psd_status
listen_somewhere(struct join *join, uint16_t *port_p, struct psd_error *err)
{
    psd_status status = PSD_ERR_IO;

    for (uint32_t port = join->config.first_port; port <= join->config.last_port; port++) {
        status = listen_on(join, (uint16_t)port, port_p, err);
        if (status == PSD_OK) {
            return PSD_OK;
        }
    }
    if (join->config.first_port != join->config.last_port) {
        return psi_fail(err, status, "none of the ports %u to %u is free", join->config.first_port,
                        join->config.last_port);
    }
    return status;
}

static psd_status
open_loop(struct join *join, struct psd_error *err)
{
    psd_status status = psi_secret_from_fd(join->config.secret_fd, &join->secret, err);
    struct epoll_event event = {.events = EPOLLIN};

    if (status == PSD_OK) {
        status = psi_tls_create(join->secret, JOIN_COORDINATOR, &join->tls, err);
    }
    if (status == PSD_OK) {
        status = psi_loop_create(&(struct psi_loop_config){.auth = &psi_tls_auth,
                                                           .credentials = join->tls,
                                                           .give_up_ms = JOIN_GIVE_UP_MS},
                                 &join->loop, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    join->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (join->epoll < 0 ||
        epoll_ctl(join->epoll, EPOLL_CTL_ADD, psi_loop_fd(join->loop), &event) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "wait for those who join");
    }
    return PSD_OK;
}

psd_status
join_open(const struct join_config *config, struct join **join_p, uint16_t *port_p,
          struct psd_error *err)
{
    struct join *join = memory_need(calloc(1, sizeof(*join)));
    psd_status status;

    psi_assert(config->size >= 1 && config->size <= JOIN_SIZE_MAX);
    join->seats = memory_need(calloc(config->size, sizeof(*join->seats)));
    join->config = *config;
    join->epoll = -1;
    for (uint32_t rank = 0; rank < config->size; rank++) {
        join->seats[rank] = (struct seat){.join = join, .theirs = -1, .line = {.fd = -1}};
    }
    status = open_loop(join, err);
    if (status == PSD_OK) {
        status = listen_somewhere(join, port_p, err);
    }
    if (status != PSD_OK) {
        join_close(join);
        return status;
    }
    *join_p = join;
    return PSD_OK;
}

void
join_close(struct join *join)
{
    if (join == NULL) {
        return;
    }
    for (uint32_t rank = 0; rank < join->config.size; rank++) {
        struct seat *seat = &join->seats[rank];

        join_line_close(&seat->line);
        close_fd(&seat->theirs);
    }
    psi_loop_destroy(join->loop);
    psi_tls_destroy(join->tls);
    psi_secret_destroy(join->secret);
    while (join->guests != NULL) {
        join_forget_guest(join->guests);
    }
    close_fd(&join->epoll);
    free(join->seats);
    free(join);
}

/* ----------------------------------------------------------------------------------- turns --- */

int
join_fd(const struct join *join)
{
    return join->epoll;
}

uint64_t
join_deadline_ms(const struct join *join)
{
    const uint64_t next_ns = psi_loop_next_ns(join->loop);

    return next_ns == UINT64_MAX ? UINT64_MAX : next_ns / 1000000 + 1;
}

void
join_turn(struct join *join)
{
    struct epoll_event events[EVENTS_MAX];
    int count;

    psi_loop_run_once(join->loop, 0, NULL);
    count = epoll_wait(join->epoll, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr != NULL) { /* NULL: the loop */
            join_move_line(events[i].data.ptr);
        }
    }
}

bool
join_is_present(const struct join *join, uint32_t rank)
{
    return rank == 0 || (rank < join->config.size && join->seats[rank].line.conn != NULL);
}

uint32_t
join_present(const struct join *join)
{
    uint32_t count = 0;

    for (uint32_t rank = 1; rank < join->config.size; rank++) {
        count += join_is_present(join, rank);
    }
    return count;
}

void
join_mark(struct join *join)
{
    join->begun = true;
    for (uint32_t rank = 1; rank < join->config.size; rank++) {
        join->seats[rank].marked = join_is_present(join, rank);
    }
}

bool
join_has_stayed(const struct join *join, uint32_t rank)
{
    return rank == 0 || (join_is_present(join, rank) && join->seats[rank].marked);
}

void
join_missing(const struct join *join, char *text_p, size_t size)
{
    size_t used = 0;

    text_p[0] = '\0';
    for (uint32_t rank = 1; rank < join->config.size && used < size; rank++) {
        uint32_t last = rank;

        if (join_is_present(join, rank)) {
            continue;
        }
        while (last + 1 < join->config.size && !join_is_present(join, last + 1)) {
            last++;
        }
        used += (size_t)snprintf(text_p + used, size - used, last > rank ? "%s%u-%u" : "%s%u",
                                 used > 0 ? ", " : "", rank, last);
        rank = last;
    }
}

int
join_take(struct join *join, uint32_t rank, struct join_member *member_p)
{
    struct seat *seat = &join->seats[rank];
    const int line = seat->theirs;

    if (!join_is_present(join, rank) || line < 0) {
        return -1;
    }
    *member_p = seat->member;
    seat->theirs = -1;
    seat->why_left[0] = '\0';
    return line;
}

void
join_refuse(struct join *join, uint32_t rank, const char *why)
{
    struct seat *seat = &join->seats[rank];

    if (seat->line.conn != NULL) {
        join_send(seat->line.conn, JOIN_REFUSED, PSI_EXIT_CANNOT_START, why, strlen(why));
        seat->line.conn->ops->close_after_send(seat->line.conn, JOIN_FAREWELL_MS);
        seat->line.conn = NULL;
    }
    join_close_line(seat);
}

void
join_drop(struct join *join, uint32_t rank)
{
    struct seat *seat = &join->seats[rank];

    if (seat->line.conn != NULL) {
        seat->line.conn->ops->close(seat->line.conn);
        seat->line.conn = NULL;
    }
    join_close_line(seat);
}

uint32_t
join_next_asked(struct join *join)
{
    for (uint32_t rank = 1; rank < join->config.size; rank++) {
        if (join->seats[rank].asked) {
            join->seats[rank].asked = false;
            return rank;
        }
    }
    return 0;
}

const char *
join_why_left(const struct join *join, uint32_t rank)
{
    return rank < join->config.size ? join->seats[rank].why_left : "";
}

bool
join_next_refusal(struct join *join, char *text_p, size_t size)
{
    if (join->refusal[0] == '\0') {
        return false;
    }
    snprintf(text_p, size, "%s", join->refusal);
    join->refusal[0] = '\0';
    return true;
}

uint32_t
join_strangers(const struct join *join, const char **last_p)
{
    *last_p = join->stranger;
    return join->strangers;
}

/* ------------------------------------------------------------------------------- last word --- */

static void
say_last(struct join *join, enum join_kind kind, int32_t number, const char *text)
{
    join->has_last_word = true;
    join->last_kind = kind;
    join->last_number = number;
    snprintf(join->last_text, sizeof(join->last_text), "%s", text);
    for (uint32_t rank = 1; rank < join->config.size; rank++) {
        if (join->seats[rank].line.conn != NULL) {
            join_send(join->seats[rank].line.conn, kind, number, join->last_text,
                      strlen(join->last_text));
        }
    }
}

/* Whoever has heard it closes. */
static void
wait_until_heard(struct join *join)
{
    const uint64_t until_ms = psi_monotonic_ms() + JOIN_FAREWELL_MS;
    uint64_t now_ms;

    while (join_present(join) > 0 && (now_ms = psi_monotonic_ms()) < until_ms) {
        poll(&(struct pollfd){.fd = join->epoll, .events = POLLIN}, 1, (int)(until_ms - now_ms));
        join_turn(join);
    }
}

void
join_over(struct join *join, int code)
{
    say_last(join, JOIN_OVER, code, "");
    wait_until_heard(join);
}

void
join_again(struct join *join, const char *why)
{
    say_last(join, JOIN_AGAIN, 0, why);
    wait_until_heard(join);
}
