/*
 * outlet_test.c - a reader that is slow, that stops, that goes on, that goes away.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "launch/tell/outlet.h"

enum { LINES = 3 * OUTLET_KEPT_BYTES / 100, LINE_BYTES = 100 };

struct scene {
    int ends[2]; /* the reader's, ours */
    struct outlet outlet;
    struct outlet_waiter waiter;
    unsigned waits;
    char *seen; /* owned */
    size_t count;
};

static void
read_all(struct scene *scene)
{
    ssize_t bytes;

    do {
        scene->seen = realloc(scene->seen, scene->count + 65537);
        assert_non_null(scene->seen);
        bytes = read(scene->ends[0], scene->seen + scene->count, 65536);
        scene->count += bytes > 0 ? (size_t)bytes : 0;
        scene->seen[scene->count] = '\0';
    } while (bytes > 0);
}

/* A reader that reads only when it is waited for. */
static void
read_late(void *context)
{
    struct scene *scene = context;

    scene->waits++;
    read_all(scene);
}

static void
open_scene(struct scene *scene, bool socket)
{
    *scene = (struct scene){.waiter = {.wake_fd = -1}};
    assert_int_equal(socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, scene->ends) : pipe(scene->ends),
                     0);
    fcntl(scene->ends[0], F_SETFL, O_NONBLOCK);
    outlet_init(&scene->outlet, scene->ends[1]);
}

static void
close_scene(struct scene *scene)
{
    outlet_fini(&scene->outlet);
    close(scene->ends[0]);
    close(scene->ends[1]);
    free(scene->seen);
}

static void
put_lines(struct scene *scene, unsigned first, unsigned count)
{
    char line[LINE_BYTES + 1];

    for (unsigned i = first; i < first + count; i++) {
        snprintf(line, sizeof(line), "%098u.\n", i);
        outlet_put(&scene->outlet, line, LINE_BYTES, false, &scene->waiter);
    }
}

/* Reads on as long as something is left. */
static void
read_to_the_end(struct scene *scene)
{
    while (!outlet_flush(&scene->outlet)) {
        read_all(scene);
    }
    read_all(scene);
}

static void
expect_slow_reader_gets_all(bool socket)
{
    struct scene scene;

    open_scene(&scene, socket);
    scene.waiter.meanwhile = read_late;
    scene.waiter.context = &scene;
    put_lines(&scene, 0, LINES);
    read_to_the_end(&scene);
    assert_true(scene.waits > 0);
    assert_int_equal(scene.count, LINES * LINE_BYTES);
    for (unsigned i = 0; i < LINES; i++) {
        assert_int_equal(strtoul(scene.seen + (ptrdiff_t)i * LINE_BYTES, NULL, 10), i);
    }
    close_scene(&scene);
}

/* If this fails, `psd_run ... | sort` misses lines, or a pipe that others share does not wait. */
static void
test_slow_reader_gets_all(void **state)
{
    struct scene scene;

    (void)state;
    expect_slow_reader_gets_all(false);
    expect_slow_reader_gets_all(true);
    open_scene(&scene, false);
    assert_int_equal(fcntl(scene.ends[1], F_GETFL) & O_NONBLOCK, 0);
    close_scene(&scene);
}

/* If this fails, a pager that waits stops the job, or lines are missing in silence. */
static void
test_stuck_reader_is_told_what_is_missing(void **state)
{
    struct scene scene;
    unsigned long long missing = 0;
    const char *note;
    size_t lines = 0;

    (void)state;
    open_scene(&scene, false);
    put_lines(&scene, 0, LINES); /* returns, though nobody reads */
    assert_true(scene.outlet.missing > 0);
    assert_true(scene.outlet.count <= OUTLET_KEPT_BYTES);
    outlet_put(&scene.outlet, "news\n", 5, true, &scene.waiter);
    read_to_the_end(&scene);
    put_lines(&scene, LINES, 1);
    read_to_the_end(&scene);
    note = strstr(scene.seen, "psd_run: ");
    assert_non_null(note);
    assert_int_equal(sscanf(note, "psd_run: %llu lines are missing", &missing), 1);
    assert_null(strstr(note + 1, "psd_run: "));
    assert_non_null(strstr(note, "\nnews\n"));
    assert_int_equal(strtoul(scene.seen + scene.count - LINE_BYTES, NULL, 10), LINES);
    for (const char *at = scene.seen; at != NULL && (at = strstr(at, ".\n")) != NULL; at++) {
        lines++;
    }
    assert_int_equal(lines + missing, LINES + 1);
    close_scene(&scene);
}

/* If this fails, Ctrl-C waits for a reader that does not read. */
static void
test_attention_ends_the_wait(void **state)
{
    struct scene scene;

    (void)state;
    open_scene(&scene, false);
    scene.waiter.wake_fd = eventfd(1, EFD_CLOEXEC);
    put_lines(&scene, 0, LINES);
    assert_true(scene.outlet.missing > 0);
    outlet_finish(&scene.outlet, &scene.waiter); /* returns */
    assert_true(scene.outlet.count > 0);
    close(scene.waiter.wake_fd);
    close_scene(&scene);
}

/* If this fails, `psd_run ... | head -1` ends a job, or fills the memory. */
static void
test_reader_that_goes_away(void **state)
{
    struct scene scene;

    (void)state;
    signal(SIGPIPE, SIG_IGN); /* as psd_run does */
    open_scene(&scene, false);
    put_lines(&scene, 0, 1);
    close(scene.ends[0]);
    put_lines(&scene, 1, LINES);
    assert_true(scene.outlet.closed);
    assert_int_equal(scene.outlet.count, 0);
    outlet_finish(&scene.outlet, &scene.waiter);
    scene.ends[0] = -1;
    close_scene(&scene);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_reader_gets_all),
        cmocka_unit_test(test_stuck_reader_is_told_what_is_missing),
        cmocka_unit_test(test_attention_ends_the_wait),
        cmocka_unit_test(test_reader_that_goes_away),
    };

    return cmocka_run_group_tests_name("outlet", tests, NULL, NULL);
}
