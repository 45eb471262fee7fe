/*
 * cache_client_test.c - the client of Redis and memcached, against a server that says what a test
 * wants.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "cache_client.h"

enum { ROW_BYTES = 4, KEYS = 2 };

/* Hears one request, gives one answer, and leaves. Thread: its own. */
struct server {
    char directory[32];
    char path[48];
    int listener;
    const char *request; /* that it expects */
    size_t request_bytes;
    const char *answer;
    bool heard;
    pthread_t thread;
};

static void *
serve(void *context)
{
    struct server *server = context;
    const int fd = accept(server->listener, NULL, NULL);
    const size_t half = strlen(server->answer) / 2;
    char got[256];
    size_t bytes = 0;

    while (bytes < server->request_bytes) {
        const ssize_t count = recv(fd, got + bytes, server->request_bytes - bytes, 0);

        if (count <= 0) {
            break;
        }
        bytes += (size_t)count;
    }
    server->heard =
        bytes == server->request_bytes && memcmp(got, server->request, server->request_bytes) == 0;
    (void)send(fd, server->answer, half, MSG_NOSIGNAL); /* an answer comes in pieces */
    (void)send(fd, server->answer + half, strlen(server->answer) - half, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void
start(struct server *server, const char *request, size_t request_bytes, const char *answer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    *server = (struct server){.directory = "/tmp/cache_client.XXXXXX",
                              .request = request,
                              .request_bytes = request_bytes,
                              .answer = answer};
    assert_non_null(mkdtemp(server->directory));
    snprintf(server->path, sizeof(server->path), "%s/socket", server->directory);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", server->path);
    server->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(server->listener, 1), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

/* Asks for rows 1 and 2. *heard_p: the server has understood it. */
static psd_status
get(bool memcached, const char *request, size_t request_bytes, const char *answer, char *rows,
    bool *heard_p)
{
    const uint64_t ids[KEYS] = {1, 2};
    struct cache_client *client;
    struct psd_error err = {0};
    struct server server;
    psd_status status;

    start(&server, request, request_bytes, answer);
    assert_int_equal(cache_connect(server.path, memcached, &client, &err), PSD_OK);
    status = cache_get(client, ids, KEYS, KEYS, rows, ROW_BYTES, &err);
    cache_close(client);
    pthread_join(server.thread, NULL);
    close(server.listener);
    unlink(server.path);
    rmdir(server.directory);
    *heard_p = server.heard;
    return status;
}

static const char redis_request[] =
    "*3\r\n$4\r\nMGET\r\n$8\r\n\1\0\0\0\0\0\0\0\r\n$8\r\n\2\0\0\0\0\0\0\0\r\n";
static const char memcached_request[] = "get 10000000000 20000000000\r\n";

/* If this fails, psd_bench cannot ask Redis for rows, or takes something else for them. */
static void
test_redis(void **state)
{
    static const struct {
        const char *answer;
        psd_status status;
    } cases[] = {
        {"*2\r\n$4\r\nabcd\r\n$4\r\nef\r\n\r\n", PSD_OK}, /* a row may hold what ends lines */
        {"*2\r\n$4\r\nabcd\r\n$-1\r\n", PSD_ERR_CORRUPT},
        {"*1\r\n$4\r\nabcd\r\n", PSD_ERR_CORRUPT},
        {"*2\r\n$5\r\nabcde\r\n$4\r\nefgh\r\n", PSD_ERR_CORRUPT},
        {"-ERR unknown command\r\n", PSD_ERR_CORRUPT},
        {"*2\r\n$4\r\nab", PSD_ERR_PEER_LOST},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char rows[KEYS * ROW_BYTES];
        bool heard;

        assert_int_equal(
            get(false, redis_request, sizeof(redis_request) - 1, cases[i].answer, rows, &heard),
            cases[i].status);
        assert_true(heard);
        if (cases[i].status == PSD_OK) {
            assert_memory_equal(rows, "abcdef\r\n", sizeof(rows));
        }
    }
}

/* If this fails, psd_bench cannot ask memcached for rows, or takes something else for them. */
static void
test_memcached(void **state)
{
    static const struct {
        const char *answer;
        psd_status status;
    } cases[] = {
        {"VALUE 10000000000 0 4\r\nabcd\r\nVALUE 20000000000 0 4\r\nefgh\r\nEND\r\n", PSD_OK},
        {"VALUE 10000000000 0 4\r\nabcd\r\nEND\r\n", PSD_ERR_CORRUPT},
        {"VALUE 10000000000 0 4\r\nabcd\r\nVALUE 20000000000 0 4\r\nefgh\r\nVALUE",
         PSD_ERR_PEER_LOST},
        {"ERROR\r\n", PSD_ERR_CORRUPT},
        {"", PSD_ERR_PEER_LOST},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char rows[KEYS * ROW_BYTES];
        bool heard;

        assert_int_equal(get(true, memcached_request, sizeof(memcached_request) - 1,
                             cases[i].answer, rows, &heard),
                         cases[i].status);
        assert_true(heard);
        if (cases[i].status == PSD_OK) {
            assert_memory_equal(rows, "abcdefgh", sizeof(rows));
        }
    }
}

/* If this fails, a cache that sends a line without an end is read for ever, or beyond memory. */
static void
test_a_line_without_an_end(void **state)
{
    char answer[4096];
    char rows[KEYS * ROW_BYTES];
    bool heard;

    (void)state;
    memset(answer, 'x', sizeof(answer) - 1);
    answer[sizeof(answer) - 1] = '\0';
    assert_int_equal(get(false, redis_request, sizeof(redis_request) - 1, answer, rows, &heard),
                     PSD_ERR_CORRUPT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redis),
        cmocka_unit_test(test_memcached),
        cmocka_unit_test(test_a_line_without_an_end),
    };

    return cmocka_run_group_tests_name("bench_cache_client", tests, NULL, NULL);
}
