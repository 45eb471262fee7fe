/*
 * cache_client.c - rows in Redis or memcached.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cache_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "timer.h"

enum { BUFFER_BYTES = 1 << 20, KEY_MAX = 11, CONNECT_MS = 20000, ANSWER_S = 60, LINE_BYTES = 128 };

/* Thread: owned by its user. */
struct cache_client {
    int fd;
    bool memcached;
    char *out; /* grows */
    size_t out_bytes;
    size_t out_capacity;
    char *in; /* BUFFER_BYTES */
    size_t in_first;
    size_t in_end;
};

/* ---- The connection ---- */

static int
try_connect(const char *address)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in host = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const bool is_path = address[0] == '/';
    const int fd = socket(is_path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    int code;

    if (fd < 0) {
        return -1;
    }
    if (is_path) {
        snprintf(path.sun_path, sizeof(path.sun_path), "%s", address);
        code = connect(fd, (const struct sockaddr *)&path, sizeof(path));
    } else {
        host.sin_port = htons((uint16_t)strtoul(address, NULL, 10));
        code = connect(fd, (const struct sockaddr *)&host, sizeof(host));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
    if (code != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

psd_status
cache_connect(const char *address, bool memcached, struct cache_client **client_p,
              struct psd_error *err)
{
    const uint64_t until_ns = timer_now_ns() + CONNECT_MS * UINT64_C(1000000);
    const struct timespec pause = {.tv_nsec = 20000000};
    const struct timeval patience = {.tv_sec = ANSWER_S};
    struct cache_client *client = calloc(1, sizeof(*client));

    if (client == NULL || (client->in = malloc(BUFFER_BYTES)) == NULL) {
        free(client);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a connection");
    }
    client->memcached = memcached;
    while ((client->fd = try_connect(address)) < 0) {
        if (timer_now_ns() > until_ns) {
            psi_fail_errno(err, PSD_ERR_PEER_LOST, "connect to %s for %d s", address,
                           CONNECT_MS / 1000);
            free(client->in);
            free(client);
            return err->status;
        }
        nanosleep(&pause, NULL);
    }
    (void)setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    *client_p = client;
    return PSD_OK;
}

void
cache_close(struct cache_client *client)
{
    close(client->fd);
    free(client->out);
    free(client->in);
    free(client);
}

/* ---- Requests ---- */

static bool
add(struct cache_client *client, const void *bytes, size_t count)
{
    if (client->out_bytes + count > client->out_capacity) {
        const size_t capacity = 2 * (client->out_bytes + count);
        char *grown = realloc(client->out, capacity);

        if (grown == NULL) {
            return false;
        }
        client->out = grown;
        client->out_capacity = capacity;
    }
    memcpy(client->out + client->out_bytes, bytes, count);
    client->out_bytes += count;
    return true;
}

static bool
add_text(struct cache_client *client, const char *text)
{
    return add(client, text, strlen(text));
}

/* Six bits a character. */
static void
write_key(uint64_t id, char key[KEY_MAX])
{
    for (int i = 0; i < KEY_MAX; i++) {
        key[i] = (char)('0' + (id & 63)); /* '0' .. 'o' */
        id >>= 6;
    }
}

static bool
add_key(struct cache_client *client, uint64_t id)
{
    char key[KEY_MAX];

    if (!client->memcached) {
        return add_text(client, "$8\r\n") && add(client, &id, sizeof(id)) &&
               add_text(client, "\r\n");
    }
    write_key(id, key);
    return add_text(client, " ") && add(client, key, sizeof(key));
}

static bool
add_get(struct cache_client *client, const uint64_t *ids, size_t count)
{
    char head[64];
    bool done;

    if (client->memcached) {
        done = add_text(client, "get");
    } else {
        snprintf(head, sizeof(head), "*%zu\r\n$4\r\nMGET\r\n", count + 1);
        done = add_text(client, head);
    }
    for (size_t i = 0; i < count && done; i++) {
        done = add_key(client, ids[i]);
    }
    return done && (!client->memcached || add_text(client, "\r\n"));
}

static bool
add_set(struct cache_client *client, uint64_t id, const void *row, size_t row_bytes)
{
    char head[64];

    if (client->memcached) {
        snprintf(head, sizeof(head), " 0 0 %zu noreply\r\n", row_bytes);
        return add_text(client, "set") && add_key(client, id) && add_text(client, head) &&
               add(client, row, row_bytes) && add_text(client, "\r\n");
    }
    snprintf(head, sizeof(head), "$%zu\r\n", row_bytes);
    return add_text(client, "*3\r\n$3\r\nSET\r\n") && add_key(client, id) &&
           add_text(client, head) && add(client, row, row_bytes) && add_text(client, "\r\n");
}

static psd_status
send_all(struct cache_client *client, struct psd_error *err)
{
    size_t sent = 0;

    while (sent < client->out_bytes) {
        const ssize_t count =
            send(client->fd, client->out + sent, client->out_bytes - sent, MSG_NOSIGNAL);

        if (count < 0 && errno != EINTR) {
            return psi_fail_errno(err, PSD_ERR_PEER_LOST, "send %zu bytes to the cache",
                                  client->out_bytes - sent);
        }
        sent += count > 0 ? (size_t)count : 0;
    }
    client->out_bytes = 0;
    return PSD_OK;
}

void
cache_shut_down(struct cache_client *client)
{
    if (add_text(client, client->memcached ? "shutdown\r\n" : "SHUTDOWN NOSAVE\r\n")) {
        (void)send_all(client, NULL); /* it answers by closing the connection */
    }
}

/* ---- Answers ---- */

/* At least so many bytes lie from in_first on. */
static psd_status
await(struct cache_client *client, size_t bytes, struct psd_error *err)
{
    psi_assert(bytes <= BUFFER_BYTES);
    if (client->in_first + bytes > BUFFER_BYTES) {
        client->in_end -= client->in_first;
        memmove(client->in, client->in + client->in_first, client->in_end);
        client->in_first = 0;
    }
    while (client->in_end - client->in_first < bytes) {
        const ssize_t count =
            recv(client->fd, client->in + client->in_end, BUFFER_BYTES - client->in_end, 0);

        if (count == 0) {
            return psi_fail(err, PSD_ERR_PEER_LOST, "the cache has closed the connection");
        }
        if (count < 0 && errno != EINTR) {
            return psi_fail_errno(err, PSD_ERR_PEER_LOST, "receive from the cache");
        }
        client->in_end += count > 0 ? (size_t)count : 0;
    }
    return PSD_OK;
}

/* The next line, without its end; ended by a 0. */
static psd_status
read_line(struct cache_client *client, char line[LINE_BYTES], struct psd_error *err)
{
    for (size_t bytes = 2;; bytes++) {
        const psd_status status = await(client, bytes, err);
        const char *text = client->in + client->in_first;

        if (status != PSD_OK) {
            return status;
        }
        if (text[bytes - 2] == '\r' && text[bytes - 1] == '\n') {
            memcpy(line, text, bytes - 2);
            line[bytes - 2] = '\0';
            client->in_first += bytes;
            return PSD_OK;
        }
        if (bytes == LINE_BYTES) {
            return psi_fail(err, PSD_ERR_CORRUPT, "the cache sends a line without an end");
        }
    }
}

static psd_status
read_row(struct cache_client *client, char *row, size_t row_bytes, struct psd_error *err)
{
    char line[LINE_BYTES];
    const char *number;
    psd_status status = read_line(client, line, err);

    if (status != PSD_OK) {
        return status;
    }
    number = client->memcached ? strrchr(line, ' ') : line;
    if (number == NULL || strtoul(number + 1, NULL, 10) != row_bytes) {
        return psi_fail(err, PSD_ERR_CORRUPT, "a row is not in the cache: \"%.80s\"", line);
    }
    status = await(client, row_bytes + 2, err);
    if (status == PSD_OK) {
        memcpy(row, client->in + client->in_first, row_bytes);
        client->in_first += row_bytes + 2;
    }
    return status;
}

static psd_status
expect(struct cache_client *client, const char *text, struct psd_error *err)
{
    char line[LINE_BYTES];
    const psd_status status = read_line(client, line, err);

    return status != PSD_OK || strcmp(line, text) == 0
               ? status
               : psi_fail(err, PSD_ERR_CORRUPT, "the cache says \"%.80s\", not \"%s\"", line, text);
}

static psd_status
read_answer(struct cache_client *client, size_t count, char *rows, size_t row_bytes,
            struct psd_error *err)
{
    char head[32];
    psd_status status = PSD_OK;

    if (!client->memcached) {
        snprintf(head, sizeof(head), "*%zu", count);
        status = expect(client, head, err);
    }
    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        status = read_row(client, rows + i * row_bytes, row_bytes, err);
    }
    return status == PSD_OK && client->memcached ? expect(client, "END", err) : status;
}

/* ---- Both ---- */

static psd_status
no_memory(struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a request to the cache");
}

psd_status
cache_store(struct cache_client *client, const uint64_t *ids, size_t count, const void *rows,
            size_t row_bytes, struct psd_error *err)
{
    psd_status status;

    for (size_t i = 0; i < count; i++) {
        if (!add_set(client, ids[i], (const char *)rows + i * row_bytes, row_bytes)) {
            return no_memory(err);
        }
    }
    if (client->memcached && !add_text(client, "version\r\n")) { /* it is behind all of them */
        return no_memory(err);
    }
    status = send_all(client, err);
    if (client->memcached) {
        char line[LINE_BYTES];

        return status == PSD_OK ? read_line(client, line, err) : status;
    }
    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        status = expect(client, "+OK", err);
    }
    return status;
}

psd_status
cache_get(struct cache_client *client, const uint64_t *ids, size_t count, size_t keys, void *rows,
          size_t row_bytes, struct psd_error *err)
{
    psd_status status;

    for (size_t first = 0; first < count; first += keys) {
        if (!add_get(client, ids + first, count - first < keys ? count - first : keys)) {
            return no_memory(err);
        }
    }
    status = send_all(client, err);
    for (size_t first = 0; first < count && status == PSD_OK; first += keys) {
        status = read_answer(client, count - first < keys ? count - first : keys,
                             (char *)rows + first * row_bytes, row_bytes, err);
    }
    return status;
}
