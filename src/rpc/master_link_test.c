/*
 * master_link_test.c - a member's connection to its master, in virtual time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/master_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world/world.h"

enum { HEARTBEAT_MS = 100, DEAD_MS = 500 };

/* A member; the test is its master. */
struct bed {
    struct world world; /* first */
    struct psi_master_link link;
    bool lost;
    unsigned ups;
    unsigned downs;
    uint32_t term;     /* of the master that the test is */
    uint32_t grace_ms; /* for which it may be away */
};

/* ---- the member ---------------------------------------------------------------------------- */

static void
member_hello(void *owner, struct psi_hello *hello_p)
{
    (void)owner;
    hello_p->role = PSI_ROLE_WORKER;
}

static void
member_up(void *owner, const struct psi_welcome *welcome)
{
    (void)welcome;
    ((struct bed *)owner)->ups++;
}

static void
member_down(void *owner, const struct psd_error *reason)
{
    (void)reason;
    ((struct bed *)owner)->downs++;
}

static void
member_refused(void *owner, const struct psi_verdict *verdict)
{
    (void)owner;
    fail_msg("refused: %s", verdict->text);
}

static psd_status
member_frame(void *owner, const void *payload, size_t bytes, struct psd_error *err)
{
    const struct bed *bed = owner;

    (void)payload;
    (void)bytes;
    (void)err;
    assert_int_not_equal(bed->link.peer.inbox.frame.type, PSI_FRAME_PONG);
    return PSD_OK;
}

static void
member_ping(void *owner, struct psi_ping *ping_p)
{
    (void)owner;
    ping_p->step = 7;
}

static const struct psi_master_events member_events = {
    .hello = member_hello,
    .on_up = member_up,
    .on_down = member_down,
    .on_refused = member_refused,
    .on_frame = member_frame,
    .ping = member_ping,
};

static void
tick(void *core)
{
    struct bed *bed = core;

    bed->lost = psi_master_link_tick(&bed->link, bed->world.now_ns) || bed->lost;
}

static uint64_t
next_ns(const void *core)
{
    const struct bed *bed = core;

    return bed->lost ? UINT64_MAX : psi_master_link_next_ns(&bed->link);
}

static const struct world_core core = {.tick = tick, .next_ns = next_ns};

/* ---- what the test does -------------------------------------------------------------------- */

static struct world_conn *
line(struct bed *bed)
{
    return world_to(&bed->world, "test://master");
}

static void
welcome(struct bed *bed)
{
    const struct psi_welcome message = {
        .workers = 1,
        .servers = 1,
        .heartbeat_ms = HEARTBEAT_MS,
        .dead_ms = DEAD_MS,
        .job = 1,
        .term = bed->term,
        .master_grace_ms = bed->grace_ms,
    };

    world_settle(&bed->world);
    assert_non_null(line(bed));
    assert_non_null(world_hear(line(bed), PSI_FRAME_HELLO));
    WORLD_SAY(&bed->world, line(bed), &(struct psi_frame){.type = PSI_FRAME_WELCOME}, welcome,
              &message);
}

static void
pong(struct bed *bed)
{
    world_say(&bed->world, line(bed), &(struct psi_frame){.type = PSI_FRAME_PONG}, NULL);
}

static void
cut(struct bed *bed)
{
    world_hang_up(line(bed), "cut");
}

/* Looks whenever the member wants to, as its loop would. False: the master was lost meanwhile. */
static bool
pass_ms(struct bed *bed, uint64_t ms)
{
    for (uint64_t i = 0; i < ms && !bed->lost; i++) {
        world_wait(&bed->world, 1);
        world_settle(&bed->world); /* a failed connect is told at once */
    }
    return !bed->lost;
}

/* The process is stopped, or gets no core: it does not look. */
static bool
look_late_by_ms(struct bed *bed, uint64_t ms)
{
    bed->world.now_ns += ms * WORLD_MS_NS;
    world_settle(&bed->world);
    return !bed->lost;
}

static int
set_up(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));

    assert_non_null(bed);
    world_init(&bed->world, &core);
    bed->world.records = true;
    psi_master_link_start(&bed->link, &bed->world.env, "test://master", &member_events, bed);
    bed->world.object = bed;
    world_settle(&bed->world);
    welcome(bed);
    assert_int_equal(bed->ups, 1);
    *state = bed;
    return 0;
}

static int
tear_down(void **state)
{
    struct bed *bed = *state;

    psi_peer_close(&bed->link.peer);
    world_fini(&bed->world);
    free(bed);
    return 0;
}

/* ---- tests --------------------------------------------------------------------------------- */

/* Since the last look. */
static unsigned
pings(struct bed *bed)
{
    unsigned count = 0;

    while (world_hear(line(bed), PSI_FRAME_PING) != NULL) {
        count++;
    }
    return count;
}

/* If this fails, the master takes a member for dead that is only idle. */
static void
test_beats_at_the_masters_pace(void **state)
{
    struct bed *bed = *state;

    for (unsigned i = 0; i < 20; i++) {
        assert_true(pass_ms(bed, HEARTBEAT_MS / 2));
        pong(bed);
    }
    assert_int_equal(pings(bed), 11); /* one at once */
    psi_master_link_ping(&bed->link);
    assert_int_equal(pings(bed), 1);
}

/* If this fails, a member waits for a master that is gone for ever, or gives up one that is slow. */
static void
test_silence_ends_it(void **state)
{
    struct bed *bed = *state;
    char text[128];

    assert_true(pass_ms(bed, DEAD_MS - 1));
    assert_true(pass_ms(bed, PSI_DOUBT_MS)); /* what waits in the sockets is read first */
    assert_false(pass_ms(bed, 1));
    psi_master_link_lost_text(&bed->link, text, sizeof(text));
    assert_string_equal(text, "master test://master lost: silent for 500 ms");
}

/* If this fails, a member that woke up gives up a master whose words wait in its sockets. */
static void
test_a_word_in_the_last_moment_saves_it(void **state)
{
    struct bed *bed = *state;

    assert_true(pass_ms(bed, DEAD_MS));
    pong(bed);
    assert_true(pass_ms(bed, DEAD_MS));
    pong(bed);
    assert_true(pass_ms(bed, DEAD_MS));
    assert_false(pass_ms(bed, PSI_DOUBT_MS));
}

/* If this fails, a process that was stopped for a while wakes up and calls its master lost. */
static void
test_time_that_we_missed_is_forgiven(void **state)
{
    struct bed *bed = *state;

    assert_true(pass_ms(bed, HEARTBEAT_MS));
    pong(bed);
    assert_true(look_late_by_ms(bed, 60000));
    assert_true(pass_ms(bed, DEAD_MS - HEARTBEAT_MS)); /* it missed all but one heartbeat */
    pong(bed);
    assert_true(look_late_by_ms(bed, 60000));
    assert_false(pass_ms(bed, DEAD_MS + PSI_DOUBT_MS));
}

/* If this fails, a stop while the connection was cut is the master's fault. */
static void
test_time_that_we_missed_while_cut_is_forgiven(void **state)
{
    struct bed *bed = *state;

    cut(bed);
    assert_int_equal(bed->downs, 1);
    bed->world.unreachable = true;
    assert_true(look_late_by_ms(bed, 60000));
    assert_true(pass_ms(bed, DEAD_MS / 2)); /* longer than a moment of doubt */
    bed->world.unreachable = false;
    assert_true(pass_ms(bed, DEAD_MS / 2 - HEARTBEAT_MS));
    welcome(bed);
    assert_int_equal(bed->ups, 2);
    assert_true(pass_ms(bed, DEAD_MS));
}

/* If this fails, a member that is starved never sees that its master is gone. */
static void
test_who_is_often_late_sees_it_in_the_end(void **state)
{
    struct bed *bed = *state;
    unsigned looks = 0;

    while (looks < 100 && look_late_by_ms(bed, 2 * HEARTBEAT_MS)) {
        looks++;
    }
    assert_in_range(looks, DEAD_MS / HEARTBEAT_MS - 1, 20);
}

/* If this fails, a master that cannot be reached is waited for longer than a silent one, or one
 * that is back in time is given up. */
static void
test_patience_goes_on_while_it_is_cut(void **state)
{
    struct bed *bed = *state;
    char text[128];

    cut(bed);
    bed->world.unreachable = true;
    assert_true(pass_ms(bed, DEAD_MS / 2));
    assert_in_range(bed->link.peer.failures, 4, 10);
    bed->world.unreachable = false;
    assert_true(pass_ms(bed, DEAD_MS / 2 - 1));
    welcome(bed);
    assert_true(pass_ms(bed, DEAD_MS));
    cut(bed);
    bed->world.unreachable = true;
    assert_false(pass_ms(bed, DEAD_MS + PSI_DOUBT_MS));
    psi_master_link_lost_text(&bed->link, text, sizeof(text));
    assert_non_null(strstr(text, "master test://master lost: silent for 500 ms: test://"));
    assert_non_null(strstr(text, "is unreachable"));
}

/* If this fails, an observer never gets over a master that fell silent. */
static void
test_again_is_a_new_connection(void **state)
{
    struct bed *bed = *state;

    assert_false(pass_ms(bed, DEAD_MS + PSI_DOUBT_MS));
    psi_master_link_again(&bed->link);
    assert_null(line(bed));
    bed->lost = false;
    assert_true(pass_ms(bed, 100));
    welcome(bed);
    assert_int_equal(bed->ups, 2);
    assert_true(pass_ms(bed, DEAD_MS));
}

static int
set_up_patient(void **state)
{
    struct bed *bed;

    set_up(state);
    bed = *state;
    bed->term = 2;
    bed->grace_ms = 4 * DEAD_MS;
    cut(bed);
    assert_true(pass_ms(bed, 100));
    welcome(bed);
    return 0;
}

/* If this fails, a member gives up while its master is started again, or waits for ever. */
static void
test_it_may_be_away_for_its_grace(void **state)
{
    struct bed *bed = *state;
    char text[128];

    cut(bed);
    bed->world.unreachable = true;
    assert_true(pass_ms(bed, bed->grace_ms / 2));
    bed->world.unreachable = false;
    assert_true(pass_ms(bed, bed->grace_ms / 2 - 1));
    welcome(bed);
    assert_int_equal(bed->ups, 3);
    cut(bed);
    bed->world.unreachable = true;
    assert_false(pass_ms(bed, bed->grace_ms + PSI_DOUBT_MS));
    psi_master_link_lost_text(&bed->link, text, sizeof(text));
    assert_non_null(strstr(text, "master test://master lost: silent for 2000 ms: test://"));
}

/* If this fails, a member stays with a connection behind which nobody is, and does not find the
 * next life of its master. */
static void
test_a_silent_connection_is_made_anew(void **state)
{
    struct bed *bed = *state;

    assert_true(pass_ms(bed, DEAD_MS + PSI_DOUBT_MS));
    assert_int_equal(bed->downs, 2);
    assert_true(pass_ms(bed, 100));
    welcome(bed);
    assert_int_equal(bed->ups, 3);
    assert_true(pass_ms(bed, DEAD_MS));
}

/* If this fails, a member obeys a master that another has taken the place of. */
static void
test_an_earlier_life_is_turned_away(void **state)
{
    struct bed *bed = *state;
    const struct world_heard *heard;
    struct psi_hello hello;

    cut(bed);
    bed->term = 1;
    assert_true(pass_ms(bed, 100));
    heard = world_hear(line(bed), PSI_FRAME_HELLO);
    assert_int_equal(psi_hello_decode(heard->body, heard->frame.payload_bytes, &hello, NULL),
                     PSD_OK);
    assert_int_equal(hello.term, 2); /* from which the master learns it */
    line(bed)->heard_read = 0;
    welcome(bed);
    assert_int_equal(bed->ups, 2);
    assert_null(line(bed));
    bed->term = 3;
    assert_true(pass_ms(bed, 100));
    welcome(bed);
    assert_int_equal(bed->ups, 3);
    assert_int_equal(bed->link.term, 3);
}

static void
say_where(struct bed *bed, uint32_t term, const char *address)
{
    bed->world.told.term = term;
    snprintf(bed->world.told.address, sizeof(bed->world.told.address), "%s", address);
}

/* The connections since the last look are all to this address. */
static struct world_conn *
only_to(struct bed *bed, const char *address)
{
    struct world_conn *conn = world_to(&bed->world, address);

    assert_non_null(conn);
    for (unsigned i = 0; i < bed->world.conns_max; i++) {
        const struct world_conn *other = bed->world.conn[i];

        assert_true(other == NULL || other == conn || world_is_closed(other));
    }
    return conn;
}

static void
welcome_at(struct bed *bed, const char *address)
{
    const struct psi_welcome message = {.workers = 1,
                                        .servers = 1,
                                        .heartbeat_ms = HEARTBEAT_MS,
                                        .dead_ms = DEAD_MS,
                                        .job = 1,
                                        .term = bed->term,
                                        .master_grace_ms = bed->grace_ms};

    world_settle(&bed->world);
    assert_non_null(world_hear(only_to(bed, address), PSI_FRAME_HELLO));
    WORLD_SAY(&bed->world, world_to(&bed->world, address),
              &(struct psi_frame){.type = PSI_FRAME_WELCOME}, welcome, &message);
}

/* If this fails, a member looks for its master where that was, until it gives up, or waits there for an
 * answer while the next life is elsewhere. */
static void
test_it_is_looked_for_where_it_is_said_to_be(void **state)
{
    struct bed *bed = *state;

    cut(bed);
    assert_true(pass_ms(bed, 200));
    assert_non_null(line(bed)); /* it connects, and nobody says anything */
    say_where(bed, 3, "test://elsewhere");
    assert_true(pass_ms(bed, PSI_FIND_MS));
    bed->term = 3;
    welcome_at(bed, "test://elsewhere");
    assert_int_equal(bed->ups, 3);
    assert_int_equal(bed->link.term, 3);
    world_hang_up(world_to(&bed->world, "test://elsewhere"), "cut");
    say_where(bed, 4, "test://master"); /* and back */
    assert_true(pass_ms(bed, PSI_FIND_MS));
    bed->term = 4;
    welcome_at(bed, "test://master");
    assert_int_equal(bed->ups, 4);
}

/* If this fails, a member leaves its master for one that is dead, because somebody told it late. */
static void
test_an_earlier_life_is_not_looked_for(void **state)
{
    struct bed *bed = *state;

    say_where(bed, 3, "test://elsewhere");
    assert_true(pass_ms(bed, 2 * PSI_FIND_MS));
    assert_non_null(line(bed)); /* who has a master looks for none */
    pong(bed);
    bed->world.told.term = 0;
    say_where(bed, 2, "test://elsewhere"); /* the term that it has met, where it was not */
    cut(bed);
    assert_true(pass_ms(bed, 2 * PSI_FIND_MS));
    assert_null(world_to(&bed->world, "test://elsewhere"));
    say_where(bed, 1, "test://elsewhere");
    assert_true(pass_ms(bed, 2 * PSI_FIND_MS));
    assert_null(world_to(&bed->world, "test://elsewhere"));
    say_where(bed, 4, "test://fourth");
    assert_true(pass_ms(bed, PSI_FIND_MS));
    say_where(bed, 3, "test://third");
    assert_true(pass_ms(bed, 2 * PSI_FIND_MS));
    bed->term = 3; /* it is not the one that it was sent to */
    welcome_at(bed, "test://fourth");
    assert_int_equal(bed->ups, 2);
    bed->term = 4;
    assert_true(pass_ms(bed, PSI_FIND_MS));
    welcome_at(bed, "test://fourth");
    assert_int_equal(bed->ups, 3);
}

/* If this fails, nobody learns why a member did not follow its master. */
static void
test_what_is_not_believed_is_said(void **state)
{
    struct bed *bed = *state;
    char text[256];

    bed->world.untrue = "/tmp/x (PSD_MASTER_FILE): it is a link";
    cut(bed);
    bed->world.unreachable = true;
    assert_false(pass_ms(bed, bed->grace_ms + PSI_DOUBT_MS));
    psi_master_link_lost_text(&bed->link, text, sizeof(text));
    assert_non_null(strstr(text, "master test://master lost: silent for 2000 ms: test://"));
    assert_non_null(
        strstr(text, "it may be elsewhere, but /tmp/x (PSD_MASTER_FILE): it is a link"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_beats_at_the_masters_pace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_silence_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_word_in_the_last_moment_saves_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_time_that_we_missed_is_forgiven, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_time_that_we_missed_while_cut_is_forgiven, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_who_is_often_late_sees_it_in_the_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_patience_goes_on_while_it_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_again_is_a_new_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_may_be_away_for_its_grace, set_up_patient,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_silent_connection_is_made_anew, set_up_patient,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_earlier_life_is_turned_away, set_up_patient,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_looked_for_where_it_is_said_to_be,
                                        set_up_patient, tear_down),
        cmocka_unit_test_setup_teardown(test_an_earlier_life_is_not_looked_for, set_up_patient,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_believed_is_said, set_up_patient,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
