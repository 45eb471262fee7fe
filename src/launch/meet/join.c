/*
 * join.c - the coordinator's side: those who join, and the lines to them.
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
#include "launch/meet/join_line.h"
#include "launch/system/close_fd.h"
#include "launch/text/memory.h"
#include "rpc/identity.h"
#include "secure/tls.h"
#include "transport/address.h"
#include "transport/loop/loop.h"

enum {
    FAREWELL_MS = 2000, /* for the last word to be heard */
    EVENTS_MAX = 64,
    REFUSAL_BYTES = 512,
};

/* A rank. Thread: owned by the main thread of psd_run. */
struct seat {
    struct join *join;
    struct join_member member; /* of its last life */
    struct join_line line;
    int theirs;          /* the other end of the line until it is taken; -1: taken */
    uint32_t line_wants; /* what the epoll set waits for on the line; 0: not in it */
    bool draining;       /* nothing more comes: the line closes when all was read */
    bool marked;         /* it was there at the last join_mark(), in this life */
    char why_left[96];
};

/* A connection that has not said who it is. */
struct guest {
    struct join *join;
    struct psi_conn *conn;
    struct guest *next;
};

struct join {
    struct join_config config;
    struct psi_secret *secret;
    struct psi_tls *tls;
    struct psi_loop *loop;
    struct psi_listener *listener;
    int epoll;
    struct seat *seats;   /* owned, by rank; that of rank 0 is empty */
    struct guest *guests; /* owned */
    bool has_last_word;   /* from now on, newcomers are told this */
    enum join_kind last_kind;
    int32_t last_number;
    char last_text[160];
    char refusal[REFUSAL_BYTES]; /* of a member; "": none since it was told */
    char stranger[REFUSAL_BYTES];
    uint32_t strangers;
};

/* ----------------------------------------------------------------------------------- lines --- */

static void
close_line(struct seat *seat)
{
    if (seat->line_wants != 0) {
        epoll_ctl(seat->join->epoll, EPOLL_CTL_DEL, seat->line.fd, NULL);
        seat->line_wants = 0;
    }
    join_line_close(&seat->line);
    seat->draining = false;
}

/* Waits for what the line can do now. */
static void
watch_line(struct seat *seat)
{
    const uint32_t wants = (uint32_t)(unsigned short)join_line_wants(&seat->line);
    struct epoll_event event = {.events = wants, .data.ptr = seat};

    if (wants == seat->line_wants || seat->line.fd < 0) {
        return;
    }
    epoll_ctl(seat->join->epoll,
              seat->line_wants == 0 ? EPOLL_CTL_ADD
              : wants == 0          ? EPOLL_CTL_DEL
                                    : EPOLL_CTL_MOD,
              seat->line.fd, &event);
    seat->line_wants = wants;
}

static void
move_line(struct seat *seat)
{
    const bool more = seat->line.fd >= 0 && join_line_move(&seat->line);

    if (seat->line.fd >= 0 && (!more || (seat->draining && seat->line.unread_bytes == 0))) {
        close_line(seat);
    }
    watch_line(seat);
}

/* ------------------------------------------------------------------------------- newcomers --- */

static void
forget_guest(struct guest *guest)
{
    struct guest **at = &guest->join->guests;

    while (*at != guest) {
        at = &(*at)->next;
    }
    *at = guest->next;
    free(guest);
}

static bool
is_word(const char *text, const char *key, const char **value_p)
{
    const size_t bytes = strlen(key);

    *value_p = text + bytes;
    return strncmp(text, key, bytes) == 0;
}

/* What a newcomer says of itself. *size_p, *version_p: what it thinks of the job. */
static void
read_member(const struct words *words, struct join_member *member_p, uint32_t *size_p,
            char version_p[32])
{
    *member_p = (struct join_member){.rank = UINT32_MAX};
    *size_p = 0;
    version_p[0] = '\0';
    for (size_t i = 0; i < words->count; i++) {
        const char *word = words->list[i];
        const char *value;

        if (is_word(word, "rank=", &value)) {
            member_p->rank = (uint32_t)strtoul(value, NULL, 10);
        } else if (is_word(word, "size=", &value)) {
            *size_p = (uint32_t)strtoul(value, NULL, 10);
        } else if (is_word(word, "incarnation=", &value)) {
            member_p->incarnation = strtoull(value, NULL, 10);
        } else if (is_word(word, "pid=", &value)) {
            member_p->pid = atoi(value);
        } else if (is_word(word, "version=", &value)) {
            snprintf(version_p, 32, "%.31s", value);
        } else if (is_word(word, "host=", &value)) {
            snprintf(member_p->host, sizeof(member_p->host), "%.255s", value);
        } else if (is_word(word, "address=", &value)) {
            snprintf(member_p->address, sizeof(member_p->address), "%.63s", value);
        } else if (is_word(word, "seen=", &value)) {
            snprintf(member_p->seen, sizeof(member_p->seen), "%.63s", value);
        } else if (is_word(word, "advertised=", &value)) {
            snprintf(member_p->advertised, sizeof(member_p->advertised), "%.63s", value);
        }
    }
}

/* Whether a newcomer may have the place it asks for. */
static psd_status
judge(const struct join *join, const char *identity, const struct join_member *member,
      uint32_t size, const char *version, struct psd_error *err)
{
    char proved[PSI_IDENTITY_BYTES];
    const struct join_member *other;

    snprintf(proved, sizeof(proved), "rank:%u", member->rank);
    if (strcmp(version, PSD_VERSION) != 0) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "%s has psd_run %.31s, the coordinator %s: use the same version everywhere",
                        member->host, version, PSD_VERSION);
    }
    if (size != join->config.size) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "rank %u on %s says --size %u, the coordinator --size %u: give all the "
                        "same number",
                        member->rank, member->host, size, join->config.size);
    }
    if (member->rank == 0 || member->rank >= size || strcmp(identity, proved) != 0) {
        return psi_fail(err, PSD_ERR_REFUSED, "rank %u on %s: ranks that join are 1 to %u",
                        member->rank, member->host, join->config.size - 1);
    }
    other = &join->seats[member->rank].member;
    if (join->seats[member->rank].line.conn != NULL && member->incarnation <= other->incarnation) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "rank %u twice: %s (pid %d) has it, and %s (pid %d) asks for it; every "
                        "psd_run of a job needs a --rank of its own",
                        member->rank, other->host, other->pid, member->host, member->pid);
    }
    return PSD_OK;
}

/* Ends the life of a rank before. */
static void
end_former(struct seat *seat)
{
    static const char why[] = "a psd_run of the same rank that was started later has its place";

    if (seat->line.conn != NULL) {
        join_send(seat->line.conn, JOIN_REFUSED, PSI_EXIT_FENCED, why, strlen(why));
        seat->line.conn->ops->close_after_send(seat->line.conn, FAREWELL_MS);
        seat->line.conn = NULL;
        snprintf(seat->why_left, sizeof(seat->why_left), "it was started anew");
    }
    close_line(seat);
    close_fd(&seat->theirs);
}

static const struct psi_conn_events member_events;

static psd_status
admit(struct guest *guest, const struct join_member *member, struct psd_error *err)
{
    struct seat *seat = &guest->join->seats[member->rank];
    struct psi_conn *conn = guest->conn;

    end_former(seat);
    seat->theirs = join_line_open(&seat->line, conn, err);
    if (seat->theirs < 0) {
        return err->status;
    }
    seat->member = *member;
    seat->draining = false;
    seat->marked = false;
    conn->events = &member_events;
    conn->owner = seat;
    forget_guest(guest);
    join_send(conn, JOIN_WELCOME, 0, NULL, 0);
    watch_line(seat);
    return PSD_OK;
}

/* Tells somebody that it cannot be, and why. */
static void
turn_away(struct guest *guest, enum join_kind kind, int32_t number, const char *text)
{
    struct psi_conn *conn = guest->conn;

    forget_guest(guest);
    join_send(conn, kind, number, text, strlen(text));
    conn->ops->close_after_send(conn, FAREWELL_MS);
}

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    (void)owner;
    (void)conn;
    return join_frame_size(prefix, size_p, err);
}

static psd_status
on_guest_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
               void *payload, size_t payload_bytes, struct psd_error *err)
{
    struct guest *guest = owner;
    struct join *join = guest->join;
    struct join_member member;
    struct join_frame frame;
    struct words words = {0};
    char version[32];
    uint32_t size;
    psd_status status = join_frame_read(head, head_bytes, &frame, err);

    (void)payload;
    (void)payload_bytes;
    if (status == PSD_OK && frame.kind != JOIN_HELLO) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "a psd_run that does not say hello");
    }
    status = status == PSD_OK ? join_frame_words(&frame, &words, err) : status;
    if (status != PSD_OK) {
        words_fini(&words);
        return status; /* on_guest_close follows */
    }
    read_member(&words, &member, &size, version);
    words_fini(&words);
    if (join->has_last_word) {
        turn_away(guest, join->last_kind, join->last_number, join->last_text);
        return PSD_OK;
    }
    status = judge(join, conn->identity, &member, size, version, err);
    if (status == PSD_OK) {
        status = admit(guest, &member, err);
    }
    if (status != PSD_OK) {
        snprintf(join->refusal, sizeof(join->refusal), "%s", err->text);
        turn_away(guest, JOIN_REFUSED, PSI_EXIT_REFUSED, err->text);
    }
    return PSD_OK;
}

static void
on_guest_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    (void)conn;
    (void)reason;
    forget_guest(owner);
}

static const struct psi_conn_events guest_events = {
    .on_prefix = on_prefix, .on_frame = on_guest_frame, .on_close = on_guest_close};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct join *join = owner;
    struct guest *guest = malloc(sizeof(*guest));

    if (guest == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    *guest = (struct guest){.join = join, .conn = conn, .next = join->guests};
    join->guests = guest;
    *events_p = &guest_events;
    *owner_p = guest;
    return PSD_OK;
}

static void
on_refused(void *owner, const char *peer, const struct psd_error *reason)
{
    struct join *join = owner;

    join->strangers++;
    snprintf(join->stranger, sizeof(join->stranger), "%s: %.300s", peer, reason->text);
}

static const struct psi_listener_events listener_events = {.on_accept = on_accept,
                                                           .on_refused = on_refused};

/* --------------------------------------------------------------------------------- members --- */

static psd_status
on_member_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
                void *payload, size_t payload_bytes, struct psd_error *err)
{
    struct seat *seat = owner;
    struct join_frame frame;
    psd_status status = join_frame_read(head, head_bytes, &frame, err);

    (void)conn;
    (void)payload;
    (void)payload_bytes;
    if (status != PSD_OK) {
        return status;
    }
    switch ((enum join_kind)frame.kind) {
    case JOIN_BYTES:
    case JOIN_TAKEN:
        status = join_line_take(&seat->line, &frame, err);
        break;
    case JOIN_CLOSED:
        seat->draining = true;
        break;
    case JOIN_LEAVING:
        snprintf(seat->why_left, sizeof(seat->why_left),
                 "its psd_run was asked to leave (signal %d)", frame.number);
        seat->draining = true; /* what dies there from now on dies of that */
        break;
    default:
        break;
    }
    move_line(seat);
    return status;
}

static void
on_member_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct seat *seat = owner;

    (void)conn;
    if (seat->why_left[0] == '\0') {
        snprintf(seat->why_left, sizeof(seat->why_left), "%.90s", reason->text);
    }
    seat->line.conn = NULL;
    seat->draining = true;
    move_line(seat);
}

static const struct psi_conn_events member_events = {
    .on_prefix = on_prefix, .on_frame = on_member_frame, .on_close = on_member_close};

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
        status = env->ops->listen(env, text, &listener_events, join, &join->listener, bound, err);
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
        status = psi_loop_create(
            &(struct psi_loop_config){.auth = &psi_tls_auth, .credentials = join->tls}, &join->loop,
            err);
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
        forget_guest(join->guests);
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
            move_line(events[i].data.ptr);
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
        seat->line.conn->ops->close_after_send(seat->line.conn, FAREWELL_MS);
        seat->line.conn = NULL;
    }
    close_line(seat);
}

void
join_drop(struct join *join, uint32_t rank)
{
    struct seat *seat = &join->seats[rank];

    if (seat->line.conn != NULL) {
        seat->line.conn->ops->close(seat->line.conn);
        seat->line.conn = NULL;
    }
    close_line(seat);
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
    const uint64_t until_ms = psi_monotonic_ms() + FAREWELL_MS;
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
