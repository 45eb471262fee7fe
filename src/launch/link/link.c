/*
 * link.c - the line between psd_run and an agent.
 *
 * A greeting, then messages: a header of five numbers as this kind of machine writes them, and
 * bytes. What comes before the greeting is skipped, because login scripts print.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "launch/system/close_fd.h"

enum { READ_BYTES = 64 << 10, READS_MAX = 8 };

static const char greeting[] = "\nPSD-LINK-1\n";

struct header {
    uint32_t kind;
    uint32_t slot;
    int32_t number;
    uint32_t bytes;
};

/* Room for `more` behind what is there. False without memory. */
static bool
make_room(struct link_buffer *buffer, size_t more)
{
    if (buffer->first > 0 && buffer->first + buffer->count + more > buffer->capacity) {
        memmove(buffer->bytes, buffer->bytes + buffer->first, buffer->count);
        buffer->first = 0;
    }
    if (buffer->count + more > buffer->capacity) {
        const size_t capacity = (buffer->count + more) * 2;
        char *bytes = malloc(capacity);

        if (bytes == NULL) {
            return false;
        }
        if (buffer->count > 0) {
            memcpy(bytes, buffer->bytes, buffer->count);
        }
        if (buffer->bytes != NULL) {
            explicit_bzero(buffer->bytes, buffer->capacity); /* secrets pass through here */
        }
        free(buffer->bytes);
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    return true;
}

static bool
append(struct link_buffer *buffer, const void *data, size_t bytes)
{
    if (!make_room(buffer, bytes)) {
        return false;
    }
    if (bytes > 0) {
        memcpy(buffer->bytes + buffer->first + buffer->count, data, bytes);
    }
    buffer->count += bytes;
    return true;
}

static void
drop(struct link_buffer *buffer, size_t bytes)
{
    explicit_bzero(buffer->bytes + buffer->first, bytes);
    buffer->first += bytes;
    buffer->count -= bytes;
    buffer->first = buffer->count == 0 ? 0 : buffer->first;
}

static void
release(struct link_buffer *buffer)
{
    if (buffer->bytes != NULL) {
        explicit_bzero(buffer->bytes, buffer->capacity);
    }
    free(buffer->bytes);
    *buffer = (struct link_buffer){0};
}

void
link_init(struct link *link, int in, int out)
{
    *link = (struct link){.in = in, .out = out};
    fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
    fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
    link->failed = !append(&link->unsent, greeting, sizeof(greeting) - 1);
    link_flush(link);
}

void
link_fini(struct link *link)
{
    if (link->out != link->in) {
        close_fd(&link->out);
    }
    close_fd(&link->in);
    link->out = -1;
    release(&link->received);
    release(&link->unsent);
    link->failed = true;
}

void
link_flush(struct link *link)
{
    while (!link->failed && link->unsent.count > 0) {
        const ssize_t written =
            write(link->out, link->unsent.bytes + link->unsent.first, link->unsent.count);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            link->failed = errno != EAGAIN;
            return;
        }
        drop(&link->unsent, (size_t)written);
    }
}

size_t
link_pending(const struct link *link)
{
    return link->failed ? 0 : link->unsent.count;
}

void
link_send(struct link *link, enum link_kind kind, uint32_t slot, int32_t number, const void *data,
          size_t bytes)
{
    const struct header header = {
        .kind = (uint32_t)kind, .slot = slot, .number = number, .bytes = (uint32_t)bytes};

    if (link->failed) {
        return;
    }
    if (!append(&link->unsent, &header, sizeof(header)) || !append(&link->unsent, data, bytes)) {
        link->failed = true; /* half a message must not go out */
        return;
    }
    link_flush(link);
}

void
link_send_words(struct link *link, enum link_kind kind, uint32_t slot, int32_t number,
                const struct words *words)
{
    struct link_buffer strings = {0};
    bool fits = true;

    for (size_t i = 0; i < words->count && fits; i++) {
        fits = append(&strings, words->list[i], strlen(words->list[i]) + 1);
    }
    if (!fits || strings.count > LINK_BYTES_MAX) {
        link->failed = true;
    } else {
        link_send(link, kind, slot, number, strings.bytes, strings.count);
    }
    release(&strings);
}

int
link_read(struct link *link)
{
    bool any = false;

    for (int i = 0; i < READS_MAX && link->in >= 0; i++) {
        ssize_t count;

        if (!make_room(&link->received, READ_BYTES)) {
            return -1;
        }
        count = read(link->in, link->received.bytes + link->received.first + link->received.count,
                     READ_BYTES);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return any || (count < 0 && errno == EAGAIN) ? any : -1;
        }
        any = true;
        link->received.count += (size_t)count;
    }
    return any ? 1 : -1;
}

/* Skips to behind the greeting. 1: found; 0: not yet; -1: too much came without one. */
static int
find_greeting(struct link *link)
{
    const size_t length = sizeof(greeting) - 1;
    struct link_buffer *received = &link->received;
    const char *start;
    const char *found;

    if (received->count < length) {
        return 0; /* there may not even be memory yet */
    }
    start = received->bytes + received->first;
    found = memmem(start, received->count, greeting, length);
    if (found == NULL) {
        return received->count > LINK_NOISE_MAX ? -1 : 0;
    }
    drop(received, (size_t)(found - start) + length);
    link->greeted = true;
    return 1;
}

int
link_next(struct link *link, struct link_message *message_p)
{
    struct link_buffer *received = &link->received;
    struct header header;

    if (!link->greeted) {
        const int found = find_greeting(link);

        if (found != 1) {
            return found;
        }
    }
    if (received->count < sizeof(header)) {
        return 0;
    }
    memcpy(&header, received->bytes + received->first, sizeof(header));
    if (header.bytes > LINK_BYTES_MAX) {
        return -1;
    }
    if (received->count < sizeof(header) + header.bytes) {
        return 0;
    }
    *message_p = (struct link_message){.kind = header.kind,
                                       .slot = header.slot,
                                       .number = header.number,
                                       .bytes = header.bytes,
                                       .data = received->bytes + received->first + sizeof(header)};
    /* Only stepped over: the caller still reads it. */
    received->first += sizeof(header) + header.bytes;
    received->count -= sizeof(header) + header.bytes;
    return 1;
}

void
link_forget(struct link *link, const struct link_message *message)
{
    explicit_bzero(link->received.bytes + (message->data - link->received.bytes), message->bytes);
}

psd_status
link_words(const struct link_message *message, struct words *words_p, struct psd_error *err)
{
    const char *const end = message->data + message->bytes;
    struct words words = {0};

    for (const char *at = message->data; at < end; at += strlen(at) + 1) {
        if (memchr(at, '\0', (size_t)(end - at)) == NULL) {
            words_fini(&words);
            return psi_fail(err, PSD_ERR_INVALID, "a message of %u bytes is cut off",
                            message->bytes);
        }
        words_add(&words, at);
    }
    *words_p = words;
    return PSD_OK;
}

size_t
link_noise(const struct link *link, char *text_p, size_t size)
{
    const size_t count = link->greeted ? 0 : link->received.count;
    const size_t bytes = count < size - 1 ? count : size - 1;

    if (bytes > 0) {
        memcpy(text_p, link->received.bytes + link->received.first, bytes);
    }
    text_p[bytes] = '\0';
    return bytes;
}
