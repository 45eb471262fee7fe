/*
 * streams.c - open pages.
 *
 * A stream that has nothing to send is suspended, so that the daemon does not ask for more in vain,
 * and resumed with the next message.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/page/mhd.h"

enum { BLOCK_BYTES = 64 << 10, DROP_S = 1 };

struct message {
    unsigned references;
    size_t bytes;
    char text[];
};

struct stream {
    struct streams *streams;
    struct MHD_Connection *connection;
    bool suspended;
    bool begun;   /* the whole state is sent */
    bool ending;  /* after the queue */
    bool dropped; /* now */
    struct message *queue[STREAMS_QUEUE];
    unsigned first;
    unsigned count;
    size_t sent; /* of the first message */
};

/* JSON has line ends between its members only, and an event has none: they become blanks. */
static struct message *
message_create(const char *event, const char *json)
{
    const size_t bytes = strlen(event) + strlen(json) + 32;
    struct message *message = malloc(sizeof(*message) + bytes);

    if (message == NULL) {
        return NULL;
    }
    message->references = 1;
    message->bytes = (size_t)snprintf(message->text, bytes, "event: %s\ndata: ", event);
    for (; *json != '\0'; json++) {
        message->text[message->bytes++] = *json == '\n' || *json == '\r' ? ' ' : *json;
    }
    message->text[message->bytes++] = '\n';
    message->text[message->bytes++] = '\n';
    return message;
}

static void
message_release(struct message *message)
{
    if (--message->references == 0) {
        free(message);
    }
}

static void
forget_whole(struct streams *streams)
{
    if (streams->whole != NULL) {
        message_release(streams->whole);
        streams->whole = NULL;
    }
}

static void
forget_first(struct stream *stream)
{
    message_release(stream->queue[stream->first]);
    stream->first = (stream->first + 1) % STREAMS_QUEUE;
    stream->count--;
    stream->sent = 0;
    stream->begun = true;
}

/* The news, which come after the first message, are more than anybody waits for. */
static void
forget_news(struct stream *stream)
{
    while (stream->count > 1) {
        message_release(stream->queue[(stream->first + --stream->count) % STREAMS_QUEUE]);
    }
}

static void
resume(struct stream *stream)
{
    if (stream->suspended) {
        stream->suspended = false;
        mhd.resume_connection(stream->connection);
    }
}

static void
append(struct stream *stream, struct message *message)
{
    if (stream->ending) {
        return;
    }
    if (stream->count == STREAMS_QUEUE && !stream->begun) {
        forget_news(stream);
        stream->ending = true; /* it comes again for them */
    } else if (stream->count == STREAMS_QUEUE) {
        stream->dropped = true;
        mhd.set_connection_option(stream->connection, MHD_CONNECTION_OPTION_TIMEOUT, DROP_S);
    } else {
        message->references++;
        stream->queue[(stream->first + stream->count++) % STREAMS_QUEUE] = message;
    }
    resume(stream);
}

/* The daemon asks for more to send. */
static ssize_t
give(void *context, uint64_t position, char *bytes, size_t max)
{
    struct stream *stream = context;
    const struct message *message;
    size_t count;

    (void)position;
    if (stream->dropped) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (stream->count == 0 && stream->ending) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (stream->count == 0) {
        stream->suspended = true;
        mhd.suspend_connection(stream->connection);
        return 0;
    }
    message = stream->queue[stream->first];
    count = message->bytes - stream->sent < max ? message->bytes - stream->sent : max;
    memcpy(bytes, message->text + stream->sent, count);
    stream->sent += count;
    if (stream->sent == message->bytes) {
        forget_first(stream);
    }
    return (ssize_t)count;
}

/* The connection is gone. */
static void
stream_free(void *context)
{
    struct stream *stream = context;

    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        if (stream->streams->list[i] == stream) {
            stream->streams->list[i] = NULL;
            stream->streams->count--;
        }
    }
    if (stream->streams->count == 0) {
        forget_whole(stream->streams);
    }
    while (stream->count > 0) {
        forget_first(stream);
    }
    free(stream);
}

bool
streams_have_room(const struct streams *streams)
{
    return streams->count < STREAMS_MAX;
}

void
streams_keep_whole(struct streams *streams, const char *json)
{
    forget_whole(streams);
    streams->whole = message_create("snapshot", json);
}

struct MHD_Response *
streams_open(struct streams *streams, struct MHD_Connection *connection)
{
    struct stream *stream = streams_have_room(streams) ? calloc(1, sizeof(*stream)) : NULL;
    struct MHD_Response *response = NULL;
    unsigned place = 0;

    if (stream != NULL && streams->whole != NULL) {
        response = mhd.create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, give, stream,
                                                     stream_free);
    }
    if (response == NULL) {
        free(stream);
        return NULL;
    }
    stream->streams = streams;
    stream->connection = connection;
    stream->queue[stream->count++] = streams->whole;
    streams->whole->references++;
    while (streams->list[place] != NULL) {
        place++;
    }
    streams->list[place] = stream;
    streams->count++;
    return response;
}

void
streams_send(struct streams *streams, const char *event, const char *json)
{
    struct message *message = message_create(event, json);

    forget_whole(streams);
    for (unsigned i = 0; message != NULL && i < STREAMS_MAX; i++) {
        if (streams->list[i] != NULL) {
            append(streams->list[i], message);
        }
    }
    if (message != NULL) {
        message_release(message);
    }
}

void
streams_end(struct streams *streams)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        if (streams->list[i] != NULL) {
            streams->list[i]->ending = true;
            resume(streams->list[i]);
        }
    }
}

void
streams_drop(struct streams *streams)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        if (streams->list[i] != NULL) {
            streams->list[i]->dropped = true;
            resume(streams->list[i]);
        }
    }
}
