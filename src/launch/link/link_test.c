/*
 * link_test.c - messages between psd_run and an agent: noise before them, large ones, broken ones.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include <cmocka.h>

#include "launch/link/link.h"

struct pair {
    struct link left;
    struct link right;
    int raw; /* writes to right what left did not say; -1: none */
};

static void
open_pair(struct pair *pair)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pair->raw = dup(fds[0]);
    link_init(&pair->right, fds[1], fds[1]);
    pair->left = (struct link){.in = fds[0], .out = fds[0]};
}

static void
close_pair(struct pair *pair)
{
    close(pair->raw);
    link_fini(&pair->left);
    link_fini(&pair->right);
}

/* The next message on the right; fails when none comes. */
static void
receive(struct pair *pair, struct link_message *message)
{
    int result;

    while ((result = link_next(&pair->right, message)) == 0) {
        link_flush(&pair->left);
        assert_int_equal(link_read(&pair->right), 1);
    }
    assert_int_equal(result, 1);
}

/* If this fails, what a login script prints breaks every job on that machine. */
static void
test_noise_before_the_greeting(void **state)
{
    static const char noise[] = "Welcome to host7\n\nPSD-LINK-\nlast login today\n";
    struct link_message message;
    struct pair pair;
    char shown[128];

    (void)state;
    open_pair(&pair);
    assert_int_equal(write(pair.raw, noise, sizeof(noise) - 1), sizeof(noise) - 1);
    assert_int_equal(link_read(&pair.right), 1);
    assert_int_equal(link_next(&pair.right, &message), 0);
    assert_int_equal(link_noise(&pair.right, shown, sizeof(shown)), sizeof(noise) - 1);
    assert_string_equal(shown, noise);
    link_init(&pair.left, pair.left.in, pair.left.out);
    link_send(&pair.left, LINK_SIGNAL, 7, 15, NULL, 0);
    receive(&pair, &message);
    assert_int_equal(message.kind, LINK_SIGNAL);
    assert_int_equal(message.slot, 7);
    assert_int_equal(message.number, 15);
    assert_int_equal(message.bytes, 0);
    assert_int_equal(link_noise(&pair.right, shown, sizeof(shown)), 0);
    close_pair(&pair);
}

/* If this fails, arguments or output arrive changed, or a full pipe loses some. */
static void
test_large_messages(void **state)
{
    enum { BYTES = 3 << 20 };
    struct link_message message;
    struct words words = {0};
    struct words got = {0};
    char *large = malloc(BYTES);
    struct pair pair;

    (void)state;
    assert_non_null(large);
    for (size_t i = 0; i < BYTES; i++) {
        large[i] = (char)(i * 2654435761u >> 24);
    }
    open_pair(&pair);
    link_init(&pair.left, pair.left.in, pair.left.out);
    link_send(&pair.left, LINK_OUTPUT, 1, 0, large, BYTES);
    assert_true(link_pending(&pair.left) > 0);
    words_add(&words, "a b");
    words_add(&words, "");
    words_add(&words, "\xff\n");
    link_send_words(&pair.left, LINK_START, 2, 3, &words);
    receive(&pair, &message);
    assert_int_equal(message.bytes, BYTES);
    assert_memory_equal(message.data, large, BYTES);
    receive(&pair, &message);
    assert_int_equal(message.number, 3);
    assert_int_equal(link_words(&message, &got, NULL), PSD_OK);
    assert_int_equal(got.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(got.list[i], words.list[i]);
    }
    words_fini(&words);
    words_fini(&got);
    free(large);
    close_pair(&pair);
}

/* If this fails, a broken peer makes psd_run take memory without end, or read beyond a message. */
static void
test_broken_messages(void **state)
{
    const uint32_t huge[] = {LINK_OUTPUT, 0, 0, LINK_BYTES_MAX + 1};
    struct link_message message;
    struct words words = {0};
    struct pair pair;
    char *noise = calloc(1, LINK_NOISE_MAX + 2);

    (void)state;
    open_pair(&pair);
    link_init(&pair.left, pair.left.in, pair.left.out);
    assert_int_equal(write(pair.raw, huge, sizeof(huge)), sizeof(huge));
    assert_int_equal(link_read(&pair.right), 1);
    assert_int_equal(link_next(&pair.right, &message), -1);
    close_pair(&pair);

    open_pair(&pair);
    assert_non_null(noise);
    assert_int_equal(write(pair.raw, noise, LINK_NOISE_MAX + 1), LINK_NOISE_MAX + 1);
    assert_int_equal(link_read(&pair.right), 1);
    assert_int_equal(link_next(&pair.right, &message), -1);
    free(noise);
    close_pair(&pair);

    message = (struct link_message){.bytes = 3, .data = "abc"};
    assert_int_equal(link_words(&message, &words, NULL), PSD_ERR_INVALID);
}

/* If this fails, the end of one side is not seen by the other. */
static void
test_closed_line(void **state)
{
    struct link_message message;
    struct pair pair;

    (void)state;
    open_pair(&pair);
    link_init(&pair.left, pair.left.in, pair.left.out);
    link_send(&pair.left, LINK_PULSE, 0, 0, NULL, 0);
    close(pair.raw);
    link_fini(&pair.left);
    assert_int_equal(link_read(&pair.right), 1);
    assert_int_equal(link_next(&pair.right, &message), 1);
    assert_int_equal(link_read(&pair.right), -1);
    link_fini(&pair.right);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise_before_the_greeting),
        cmocka_unit_test(test_large_messages),
        cmocka_unit_test(test_broken_messages),
        cmocka_unit_test(test_closed_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
