/*
 * join_line.c - the line between two psd_run that became one job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/join_line.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/fail.h"
#include "launch/link/link.h"
#include "launch/system/close_fd.h"

static const char magic[8] = "psdjoin1";

enum {
    AT_KIND = 8,
    AT_NUMBER = 12,
    AT_BYTES = 16,
    TELL_BYTES = JOIN_WINDOW / 4, /* taken before the other side hears of it */
};

/* ---------------------------------------------------------------------------------- frames --- */

static uint32_t
get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void
put_u32(uint8_t *at, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

psd_status
join_frame_size(const uint8_t *prefix, struct psi_frame_size *size_p, struct psd_error *err)
{
    const uint32_t bytes = get_u32(prefix + AT_BYTES);

    if (memcmp(prefix, magic, sizeof(magic)) != 0 || bytes > JOIN_CHUNK) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "this is no psd_run that joins a job");
    }
    *size_p = (struct psi_frame_size){.meta_bytes = bytes};
    return PSD_OK;
}

psd_status
join_frame_read(const uint8_t *head, size_t head_bytes, struct join_frame *frame_p,
                struct psd_error *err)
{
    *frame_p = (struct join_frame){.kind = get_u32(head + AT_KIND),
                                   .number = (int32_t)get_u32(head + AT_NUMBER),
                                   .data = (const char *)head + PSI_PREFIX_BYTES,
                                   .bytes = head_bytes - PSI_PREFIX_BYTES};
    if (frame_p->kind == 0 || frame_p->kind >= JOIN_KINDS) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "unknown word %u of a psd_run", frame_p->kind);
    }
    return PSD_OK;
}

void
join_send(struct psi_conn *conn, enum join_kind kind, int32_t number, const void *data,
          size_t bytes)
{
    uint8_t head[PSI_PREFIX_BYTES + JOIN_CHUNK] = {0};
    const size_t kept = bytes < JOIN_CHUNK ? bytes : JOIN_CHUNK;

    memcpy(head, magic, sizeof(magic));
    put_u32(head + AT_KIND, kind);
    put_u32(head + AT_NUMBER, (uint32_t)number);
    put_u32(head + AT_BYTES, (uint32_t)kept);
    if (kept > 0) {
        memcpy(head + PSI_PREFIX_BYTES, data, kept);
    }
    conn->ops->send(conn,
                    &(struct psi_outgoing){.head = head, .head_bytes = PSI_PREFIX_BYTES + kept});
}

void
join_send_words(struct psi_conn *conn, enum join_kind kind, int32_t number,
                const struct words *words)
{
    char text[JOIN_CHUNK];
    size_t used = 0;

    for (size_t i = 0; i < words->count; i++) {
        const size_t bytes = strlen(words->list[i]) + 1;

        if (used + bytes <= sizeof(text)) {
            memcpy(text + used, words->list[i], bytes);
            used += bytes;
        }
    }
    join_send(conn, kind, number, text, used);
}

psd_status
join_frame_words(const struct join_frame *frame, struct words *words_p, struct psd_error *err)
{
    const struct link_message message = {.bytes = (uint32_t)frame->bytes, .data = frame->data};

    return link_words(&message, words_p, err);
}

/* ------------------------------------------------------------------------------------ line --- */

psd_status
join_line_adopt(struct join_line *line, struct psi_conn *conn, int fd, struct psd_error *err)
{
    *line = (struct join_line){.conn = conn, .fd = fd, .unread = malloc(JOIN_WINDOW)};
    if (line->unread == NULL) {
        join_line_close(line);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a line");
    }
    return PSD_OK;
}

int
join_line_open(struct join_line *line, struct psi_conn *conn, struct psd_error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        psi_fail_errno(err, PSD_ERR_IO, "a line: socketpair");
        return -1;
    }
    if (join_line_adopt(line, conn, pair[0], err) != PSD_OK) {
        line->conn = NULL;
        close(pair[1]);
        return -1;
    }
    return pair[1];
}

void
join_line_close(struct join_line *line)
{
    close_fd(&line->fd);
    free(line->unread);
    line->unread = NULL;
    line->unread_bytes = 0;
}

/* Hands on what waits. Nobody there any more: it is dropped. */
static void
hand_on(struct join_line *line)
{
    while (line->unread_bytes > 0) {
        const ssize_t count = send(line->fd, line->unread + line->unread_first, line->unread_bytes,
                                   MSG_NOSIGNAL | MSG_DONTWAIT);

        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        }
        if (count < 0) {
            line->unread_bytes = 0;
            return;
        }
        line->unread_first += (size_t)count;
        line->unread_bytes -= (size_t)count;
        line->taken += (size_t)count;
    }
    if (line->taken >= TELL_BYTES && line->conn != NULL) {
        join_send(line->conn, JOIN_TAKEN, (int32_t)line->taken, NULL, 0);
        line->taken = 0;
    }
}

psd_status
join_line_take(struct join_line *line, const struct join_frame *frame, struct psd_error *err)
{
    if (frame->kind == JOIN_TAKEN) {
        const size_t bytes = frame->number < 0 ? 0 : (size_t)frame->number;

        line->on_the_way -= bytes < line->on_the_way ? bytes : line->on_the_way;
        return PSD_OK;
    }
    if (line->fd < 0) {
        return PSD_OK; /* what it was for is over */
    }
    if (line->unread_bytes + frame->bytes > JOIN_WINDOW) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "more than was asked for");
    }
    if (line->unread_first + line->unread_bytes + frame->bytes > JOIN_WINDOW) {
        memmove(line->unread, line->unread + line->unread_first, line->unread_bytes);
        line->unread_first = 0;
    }
    memcpy(line->unread + line->unread_first + line->unread_bytes, frame->data, frame->bytes);
    line->unread_bytes += frame->bytes;
    hand_on(line);
    return PSD_OK;
}

bool
join_line_move(struct join_line *line)
{
    char bytes[JOIN_CHUNK];

    if (line->fd < 0) {
        return false;
    }
    hand_on(line);
    if (line->conn == NULL) {
        return line->unread_bytes > 0;
    }
    while (line->on_the_way + sizeof(bytes) <= JOIN_WINDOW) {
        const ssize_t count = recv(line->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK;
        }
        if (count == 0) {
            return false;
        }
        join_send(line->conn, JOIN_BYTES, 0, bytes, (size_t)count);
        line->on_the_way += (size_t)count;
    }
    return true;
}

short
join_line_wants(const struct join_line *line)
{
    const bool room = line->on_the_way + JOIN_CHUNK <= JOIN_WINDOW;

    return line->fd < 0 ? 0 : (short)((room ? POLLIN : 0) | (line->unread_bytes > 0 ? POLLOUT : 0));
}
