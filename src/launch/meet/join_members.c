/*
 * join_members.c - newcomers, who become members or are turned away, and the lines of members.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/epoll.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "launch/meet/join_hello.h"
#include "launch/meet/join_state.h"
#include "launch/system/close_fd.h"
#include "rpc/identity.h"

/* ----------------------------------------------------------------------------------- lines --- */

void
join_close_line(struct seat *seat)
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

void
join_move_line(struct seat *seat)
{
    const bool more = seat->line.fd >= 0 && join_line_move(&seat->line);

    if (seat->line.fd >= 0 && (!more || (seat->draining && seat->line.unread_bytes == 0))) {
        join_close_line(seat);
    }
    watch_line(seat);
}

/* ------------------------------------------------------------------------------- newcomers --- */

void
join_forget_guest(struct guest *guest)
{
    struct guest **at = &guest->join->guests;

    while (*at != guest) {
        at = &(*at)->next;
    }
    *at = guest->next;
    free(guest);
}

/* Whether a newcomer may have the place it asks for. */
static psd_status
judge(const struct join *join, const char *identity, const struct join_hello *hello,
      struct psd_error *err)
{
    const struct join_member *member = &hello->member;
    const struct join_member *other;
    char proved[PSI_IDENTITY_BYTES];

    snprintf(proved, sizeof(proved), "rank:%u", member->rank);
    if (strcmp(hello->version, PSD_VERSION) != 0) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "%s has psd_run %.31s, the coordinator %s: use the same version everywhere",
                        member->host, hello->version, PSD_VERSION);
    }
    if (hello->size != join->config.size) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "rank %u on %s says --size %u, the coordinator --size %u: give all the "
                        "same number",
                        member->rank, member->host, hello->size, join->config.size);
    }
    if (member->rank == 0 || member->rank >= hello->size || strcmp(identity, proved) != 0) {
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
        seat->line.conn->ops->close_after_send(seat->line.conn, JOIN_FAREWELL_MS);
        seat->line.conn = NULL;
        snprintf(seat->why_left, sizeof(seat->why_left), "it was started anew");
    }
    join_close_line(seat);
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
    seat->asked = false;
    conn->events = &member_events;
    conn->owner = seat;
    join_forget_guest(guest);
    join_send(conn, JOIN_WELCOME, 0, NULL, 0);
    watch_line(seat);
    return PSD_OK;
}

/* Tells somebody that it cannot be, and why. */
static void
turn_away(struct guest *guest, enum join_kind kind, int32_t number, const char *text)
{
    struct psi_conn *conn = guest->conn;

    join_forget_guest(guest);
    join_send(conn, kind, number, text, strlen(text));
    conn->ops->close_after_send(conn, JOIN_FAREWELL_MS);
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
    struct join_hello hello;
    struct join_frame frame;
    struct words words = {0};
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
    hello = join_hello_read(&words);
    words_fini(&words);
    if (join->has_last_word) {
        turn_away(guest, join->last_kind, join->last_number, join->last_text);
        return PSD_OK;
    }
    status = judge(join, conn->identity, &hello, err);
    if (status == PSD_OK) {
        status = admit(guest, &hello.member, err);
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
    join_forget_guest(owner);
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

const struct psi_listener_events join_listener_events = {.on_accept = on_accept,
                                                         .on_refused = on_refused};

/* --------------------------------------------------------------------------------- members --- */

static psd_status
on_member_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
                void *payload, size_t payload_bytes, struct psd_error *err)
{
    static const char not_begun[] = "the job has not begun";
    struct seat *seat = owner;
    struct join_frame frame;
    psd_status status = join_frame_read(head, head_bytes, &frame, err);

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
    case JOIN_ASKED:
        if (!seat->join->begun) {
            join_send(conn, JOIN_AGAIN, 0, not_begun, strlen(not_begun));
        }
        seat->asked = seat->join->begun;
        snprintf(seat->why_left, sizeof(seat->why_left),
                 "its psd_run was asked to leave (signal %d)", frame.number);
        break;
    case JOIN_LEAVING:
        snprintf(seat->why_left, sizeof(seat->why_left),
                 "its psd_run was asked to leave (signal %d)", frame.number);
        seat->draining = true; /* what dies there from now on dies of that */
        break;
    default:
        break;
    }
    join_move_line(seat);
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
    join_move_line(seat);
}

static const struct psi_conn_events member_events = {
    .on_prefix = on_prefix, .on_frame = on_member_frame, .on_close = on_member_close};
