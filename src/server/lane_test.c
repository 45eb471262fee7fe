/*
 * lane_test.c - a lane without a master, in virtual time: what it says, and when it gives up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/lane.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/exit_code.h"
#include "world/world.h"

enum { TIMEOUT_MS = 30000 };

/* A lane in a world where nobody answers, and when it logged that it waits. */
struct waiting {
    struct world world; /* first */
    struct lane *lane;
    uint64_t line_ms[8]; /* since it began */
    unsigned lines;
    char text[256];
};

static void
tick(void *core)
{
    lane_tick(((struct waiting *)core)->lane);
}

static uint64_t
next_ns(const void *core)
{
    return lane_next_ns(((const struct waiting *)core)->lane);
}

static const struct world_core core = {.tick = tick, .next_ns = next_ns};

static void
note(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct waiting *waiting = sink;

    (void)level;
    if (strcmp(id, "MASTER-WAITING") == 0) {
        assert_true(waiting->lines < sizeof(waiting->line_ms) / sizeof(waiting->line_ms[0]));
        waiting->line_ms[waiting->lines++] = waiting->world.now_ns / WORLD_MS_NS - WORLD_BEGIN_MS;
        snprintf(waiting->text, sizeof(waiting->text), "%s", text);
    }
}

/* Lets lane `index` wait until it gives up; returns its exit code. */
static int
wait_in_vain(struct waiting *waiting, uint32_t index)
{
    const struct lane_config config = {.lane = index,
                                       .lanes = 2,
                                       .master_address = "tcp://127.0.0.1:5555",
                                       .listen_address = "tcp://127.0.0.1:0",
                                       .start_timeout_ms = TIMEOUT_MS};
    const struct psi_log log = {.write = note, .sink = waiting, .level = PSI_LOG_INFO};
    const char *text = "";
    int exit_code = 0;

    *waiting = (struct waiting){0};
    world_init(&waiting->world, &core);
    waiting->world.unreachable = true;
    assert_int_equal(lane_create(&waiting->world.env, &config, &log, &waiting->lane, NULL), PSD_OK);
    waiting->world.object = waiting;
    for (unsigned ms = 0; !lane_finished(waiting->lane, &exit_code, &text); ms++) {
        assert_true(ms <= TIMEOUT_MS);
        world_wait(&waiting->world, 1);
    }
    assert_non_null(strstr(text, "did not answer in 30000 ms"));
    lane_destroy(waiting->lane);
    world_fini(&waiting->world);
    return exit_code;
}

/* If this fails, a server that waits for its master looks like one that hangs. */
static void
test_lane_says_what_it_waits_for(void **state)
{
    struct waiting waiting;

    (void)state;
    assert_int_equal(wait_in_vain(&waiting, 0), PSI_EXIT_START_TIMEOUT);
    assert_int_equal(waiting.lines, 3);
    assert_int_equal(waiting.line_ms[0], 2000);
    assert_int_equal(waiting.line_ms[1], 12000);
    assert_int_equal(waiting.line_ms[2], 22000);
    assert_string_equal(waiting.text,
                        "waiting for the master at tcp://127.0.0.1:5555 (last attempt: "
                        "tcp://127.0.0.1:5555 is unreachable)");
}

/* If this fails, every lane of a server logs the same line. */
static void
test_other_lanes_are_silent(void **state)
{
    struct waiting waiting;

    (void)state;
    assert_int_equal(wait_in_vain(&waiting, 1), PSI_EXIT_START_TIMEOUT);
    assert_int_equal(waiting.lines, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lane_says_what_it_waits_for),
        cmocka_unit_test(test_other_lanes_are_silent),
    };

    return cmocka_run_group_tests_name("lane", tests, NULL, NULL);
}
