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
#include "base/fail.h"

#define MS_NS UINT64_C(1000000)

/* A world where nobody answers, and the times of the lines about it. */
struct world {
    struct psi_env env; /* first */
    uint64_t now_ns;
    uint64_t line_ms[8];
    unsigned lines;
    char text[256];
};

static uint64_t
now_ns(struct psi_env *env)
{
    return ((struct world *)env)->now_ns;
}

static uint64_t
random_number(struct psi_env *env)
{
    (void)env;
    return 4;
}

static psd_status
refuse_connection(struct psi_env *env, const char *address, const char *identity,
                  const struct psi_conn_events *events, void *owner, struct psi_conn **conn_p,
                  struct psd_error *err)
{
    (void)env;
    (void)identity;
    (void)events;
    (void)owner;
    (void)conn_p;
    return psi_fail(err, PSD_ERR_PEER_LOST, "connect %s: Connection refused", address);
}

static psd_status
listen_nowhere(struct psi_env *env, const char *address, const struct psi_listener_events *events,
               void *owner, struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
               struct psd_error *err)
{
    (void)env;
    (void)events;
    (void)owner;
    (void)err;
    *listener_p = NULL;
    snprintf(bound_p, PSI_ADDRESS_BYTES, "%s", address);
    return PSD_OK;
}

static void
unlisten(struct psi_env *env, struct psi_listener *listener)
{
    (void)env;
    (void)listener;
}

static const struct psi_env_ops ops = {.now_ns = now_ns,
                                       .random = random_number,
                                       .connect = refuse_connection,
                                       .listen = listen_nowhere,
                                       .unlisten = unlisten};

static void
note(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct world *world = sink;

    (void)level;
    if (strcmp(id, "MASTER-WAITING") == 0) {
        assert_true(world->lines < sizeof(world->line_ms) / sizeof(world->line_ms[0]));
        world->line_ms[world->lines++] = world->now_ns / MS_NS;
        snprintf(world->text, sizeof(world->text), "%s", text);
    }
}

/* Lets lane `index` wait until it gives up; returns its exit code. */
static int
wait_in_vain(struct world *world, uint32_t index)
{
    const struct lane_config config = {.lane = index,
                                       .lanes = 2,
                                       .master_address = "tcp://127.0.0.1:5555",
                                       .listen_address = "tcp://127.0.0.1:0",
                                       .start_timeout_ms = 30000};
    const struct psi_log log = {.write = note, .sink = world, .level = PSI_LOG_INFO};
    const char *text = "";
    int exit_code = 0;
    struct lane *lane;

    *world = (struct world){.env = {.ops = &ops}, .now_ns = MS_NS};
    assert_int_equal(lane_create(&world->env, &config, &log, &lane, NULL), PSD_OK);
    lane_tick(lane);
    while (!lane_finished(lane, &exit_code, &text)) {
        assert_true(lane_next_ns(lane) > world->now_ns);
        world->now_ns = lane_next_ns(lane);
        lane_tick(lane);
    }
    assert_non_null(strstr(text, "did not answer in 30000 ms"));
    lane_destroy(lane);
    return exit_code;
}

/* If this fails, a server that waits for its master looks like one that hangs. */
static void
test_lane_says_what_it_waits_for(void **state)
{
    struct world world;

    (void)state;
    assert_int_equal(wait_in_vain(&world, 0), PSI_EXIT_START_TIMEOUT);
    assert_int_equal(world.lines, 3);
    assert_int_equal(world.line_ms[0], 2001);
    assert_int_equal(world.line_ms[1], 12001);
    assert_int_equal(world.line_ms[2], 22001);
    assert_string_equal(world.text, "waiting for the master at tcp://127.0.0.1:5555 (last attempt: "
                                    "connect tcp://127.0.0.1:5555: Connection refused)");
}

/* If this fails, every lane of a server says the same. */
static void
test_other_lanes_are_silent(void **state)
{
    struct world world;

    (void)state;
    assert_int_equal(wait_in_vain(&world, 1), PSI_EXIT_START_TIMEOUT);
    assert_int_equal(world.lines, 0);
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
