/*
 * guest_test.c - connections that we accepted: strangers, HELLO, refusals, and those who are cut.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/guest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/post.h"
#include "world/world.h"

enum { UNWANTED = 9, WAITING = 8, BUSY = 7 }; /* ranks, and what becomes of them */

/* Somebody who is called; the test is everybody who calls. */
struct bed {
    struct world world; /* first */
    struct psi_guests guests;
    struct psi_listener *listener;
    unsigned hellos;
    unsigned frames;
    unsigned gone;
    char refused[512];
    char reason[512]; /* of the last that is gone; "-": refused */
    char peer[PSI_ADDRESS_BYTES];
};

struct visitor {
    struct psi_guest guest; /* first */
    struct bed *bed;
    uint32_t rank;
};

static psd_status
on_hello(struct psi_guest *guest, const struct psi_hello *hello, struct psd_error *err)
{
    struct visitor *visitor = (struct visitor *)guest;
    const struct psi_frame frame = {.type = PSI_FRAME_WELCOME};
    const struct psi_welcome welcome = {.rank = hello->rank, .workers = 1, .servers = 1};

    visitor->bed->hellos++;
    visitor->rank = hello->rank;
    if (hello->rank == UNWANTED) {
        psi_guest_refuse(guest, PSD_ERR_REFUSED, "not you");
    } else if (hello->rank == BUSY) {
        return psi_fail(err, PSD_ERR_BUSY, "not yet");
    } else if (hello->rank != WAITING) {
        (void)psi_post_welcome(guest->conn, &frame, &welcome);
    }
    return PSD_OK;
}

static psd_status
on_frame(struct psi_guest *guest, void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_view_worker workers[4] = {{0}};
    const struct psi_view view = {.id = 1, .workers = 4, .worker = workers};
    struct visitor *visitor = (struct visitor *)guest;

    (void)payload;
    (void)bytes;
    visitor->bed->frames++;
    assert_true(visitor->rank < 4);
    workers[visitor->rank].incarnation = 1;
    return psi_guest_speaks_as(guest, visitor->rank, &view, 0, err);
}

static void
on_refused(struct psi_guest *guest, const char *text)
{
    struct bed *bed = ((struct visitor *)guest)->bed;

    assert_non_null(guest->conn);
    snprintf(bed->refused, sizeof(bed->refused), "%s", text);
}

static void
on_gone(struct psi_guest *guest, const char *peer, const struct psd_error *reason)
{
    struct bed *bed = ((struct visitor *)guest)->bed;

    assert_null(guest->conn);
    bed->gone++;
    snprintf(bed->peer, sizeof(bed->peer), "%s", peer);
    snprintf(bed->reason, sizeof(bed->reason), "%s", reason != NULL ? reason->text : "-");
    psi_guest_end(guest);
    free(guest);
}

static const struct psi_guest_events events = {
    .payload_max = PSI_FRAME_CONTROL_MAX,
    .on_hello = on_hello,
    .on_frame = on_frame,
    .on_refused = on_refused,
    .on_gone = on_gone,
};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct bed *bed = owner;
    struct visitor *visitor = calloc(1, sizeof(*visitor));

    assert_non_null(visitor);
    visitor->bed = bed;
    psi_guest_begin(&visitor->guest, &bed->guests, conn, events_p, owner_p);
    return PSD_OK;
}

static const struct psi_listener_events listener_events = {.on_accept = on_accept};

static void
tick(void *core)
{
    psi_guests_cut_doomed(&((struct bed *)core)->guests);
}

static const struct world_core core = {.tick = tick};

/* ---- what the test does -------------------------------------------------------------------- */

static void
hello_as(struct bed *bed, struct world_conn *line, uint32_t rank)
{
    const struct psi_hello hello = {.role = PSI_ROLE_WORKER, .rank = rank, .life = 1};

    WORLD_SAY(&bed->world, line, &(struct psi_frame){.type = PSI_FRAME_HELLO}, hello, &hello);
}

static void
say(struct bed *bed, struct world_conn *line, uint8_t type, uint16_t rank, uint16_t incarnation)
{
    const struct psi_frame frame = {.type = type, .rank = rank, .incarnation = incarnation};

    world_say(&bed->world, line, &frame, NULL);
}

static void
assert_told(struct world_conn *line, psd_status status, const char *text)
{
    const struct world_heard *heard = world_hear(line, PSI_FRAME_REFUSE);
    struct psi_verdict verdict;

    assert_non_null(heard);
    assert_int_equal(psi_verdict_decode(heard->body, heard->frame.payload_bytes, &verdict, NULL),
                     PSD_OK);
    assert_int_equal(verdict.status, status);
    if (strstr(verdict.text, text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, verdict.text);
    }
}

static int
set_up(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    char bound[PSI_ADDRESS_BYTES];
    struct psd_error err;

    assert_non_null(bed);
    world_init(&bed->world, &core);
    bed->world.records = true;
    bed->world.object = bed;
    bed->guests.events = &events;
    assert_int_equal(bed->world.env.ops->listen(&bed->world.env, "test://here", &listener_events,
                                                bed, &bed->listener, bound, &err),
                     PSD_OK);
    *state = bed;
    return 0;
}

static int
tear_down(void **state)
{
    struct bed *bed = *state;

    while (bed->guests.first != NULL) {
        struct psi_guest *guest = bed->guests.first;

        psi_guest_end(guest);
        free(guest);
    }
    assert_int_equal(bed->guests.count, 0);
    bed->world.env.ops->unlisten(&bed->world.env, bed->listener);
    world_fini(&bed->world);
    free(bed);
    return 0;
}

/* ---- tests --------------------------------------------------------------------------------- */

/* If this fails, nobody gets in, or frames of a guest are not handed on. */
static void
test_hello_then_frames(void **state)
{
    struct bed *bed = *state;
    struct world_conn *line = world_accept(&bed->world);

    hello_as(bed, line, 3);
    assert_non_null(world_hear(line, PSI_FRAME_WELCOME));
    say(bed, line, PSI_FRAME_WHY, 3, 1);
    assert_int_equal(bed->frames, 1);
    assert_int_equal(bed->gone, 0);
    world_hang_up(line, "it left");
    assert_int_equal(bed->gone, 1);
    assert_string_equal(bed->reason, "it left");
    assert_int_equal(bed->guests.count, 0);
}

/* If this fails, a stranger has something handled before it has said who it is. */
static void
test_stranger_may_say_hello_alone(void **state)
{
    struct bed *bed = *state;
    struct world_conn *line = world_accept(&bed->world);

    say(bed, line, PSI_FRAME_PING, 0, 0);
    assert_true(world_is_closed(line));
    assert_string_equal(bed->reason, "PING before HELLO");
    assert_int_equal(bed->hellos + bed->frames, 0);
}

/* If this fails, a stranger makes us reserve as much memory as it likes. */
static void
test_stranger_may_not_say_much(void **state)
{
    static const uint8_t much[PSI_FRAME_HELLO_MAX + 1];
    struct bed *bed = *state;
    struct world_conn *line = world_accept(&bed->world);

    world_say_bytes(&bed->world, line, &(struct psi_frame){.type = PSI_FRAME_HELLO}, NULL, much,
                    sizeof(much));
    assert_true(world_is_closed(line));
    assert_int_equal(bed->hellos, 0);
    assert_int_equal(bed->gone, 1);
}

/* If this fails, who cannot get in is not told why, and tries for ever. */
static void
test_refusals_give_their_reason(void **state)
{
    static const uint8_t nonsense[8] = {UINT8_MAX};
    struct bed *bed = *state;
    struct world_conn *line = world_accept(&bed->world);

    hello_as(bed, line, UNWANTED);
    assert_told(line, PSD_ERR_REFUSED, "not you");
    assert_string_equal(bed->refused, "not you");
    assert_string_equal(bed->reason, "-");
    assert_string_equal(bed->peer, line->conn.peer);

    line = world_accept(&bed->world);
    world_say_bytes(&bed->world, line, &(struct psi_frame){.type = PSI_FRAME_HELLO}, NULL, nonsense,
                    sizeof(nonsense));
    assert_told(line, PSD_ERR_PROTOCOL, "HELLO: role");
    assert_int_equal(bed->gone, 2);
    assert_int_equal(bed->hellos, 1);
}

/* If this fails, a program of another version, or one with a secret in a job without one, waits for
 * an answer that never comes. */
static void
test_other_versions_and_secrets_are_told(void **state)
{
    static const uint8_t client_hello[PSI_FRAME_BYTES] = {22, 3, 1, 2, 0, 1};
    struct bed *bed = *state;
    struct world_conn *line = world_accept(&bed->world);
    uint8_t head[PSI_FRAME_BYTES];

    psi_frame_encode(&(struct psi_frame){.type = PSI_FRAME_HELLO}, head);
    head[4] = PSI_PROTOCOL_VERSION + 1;
    world_feed(line, head, sizeof(head));
    assert_told(line, PSD_ERR_VERSION, "version 2");

    line = world_accept(&bed->world);
    world_feed(line, client_hello, sizeof(client_hello));
    assert_told(line, PSD_ERR_REFUSED, "it has a secret");
    assert_int_equal(bed->gone, 2);
}

/* If this fails, somebody who has proved to be one speaks as another. */
static void
test_hello_must_agree_with_the_proof(void **state)
{
    struct bed *bed = *state;
    struct world_conn *line = world_accept(&bed->world);

    snprintf(line->conn.identity, sizeof(line->conn.identity), "worker:2");
    hello_as(bed, line, 3);
    assert_told(line, PSD_ERR_REFUSED, "HELLO of role 3 rank 3 from worker:2");
    assert_int_equal(bed->hellos, 0);
    line = world_accept(&bed->world);
    snprintf(line->conn.identity, sizeof(line->conn.identity), "worker:3");
    hello_as(bed, line, 3);
    assert_non_null(world_hear(line, PSI_FRAME_WELCOME));
}

/* If this fails, who comes too early is told to go for good, or who waits is cut. */
static void
test_too_early_is_no_refusal(void **state)
{
    struct bed *bed = *state;
    struct world_conn *early = world_accept(&bed->world);
    struct world_conn *waiting = world_accept(&bed->world);

    hello_as(bed, early, BUSY);
    assert_true(world_is_closed(early));
    assert_null(world_hear(early, PSI_FRAME_REFUSE));
    assert_string_equal(bed->reason, "not yet");
    hello_as(bed, waiting, WAITING);
    assert_false(world_is_closed(waiting));
    assert_null(world_hear(waiting, PSI_FRAME_WELCOME));
}

/* If this fails, frames of another rank or of an older life count as a guest's own. */
static void
test_frames_of_others_end_it(void **state)
{
    struct bed *bed = *state;
    struct world_conn *line = world_accept(&bed->world);

    hello_as(bed, line, 3);
    say(bed, line, PSI_FRAME_WHY, 3, 2);
    assert_true(world_is_closed(line));
    assert_string_equal(bed->reason,
                        "WHY as worker 3 incarnation 2, met as worker 3 in view 1; its view is 0");
}

/* If this fails, a guest that cannot be answered waits for ever, or is freed while its own frame is
 * handled. */
static void
test_doomed_are_cut_later(void **state)
{
    struct bed *bed = *state;
    struct world_conn *line[3];

    for (uint32_t i = 0; i < 3; i++) {
        line[i] = world_accept(&bed->world);
        hello_as(bed, line[i], i);
    }
    psi_guest_doom(line[0]->conn.owner);
    psi_guest_doom(line[2]->conn.owner);
    assert_int_equal(bed->gone, 0);
    assert_true(bed->guests.some_doomed);
    world_settle(&bed->world);
    assert_int_equal(bed->gone, 2);
    assert_true(world_is_closed(line[0]) && !world_is_closed(line[1]) && world_is_closed(line[2]));
    assert_false(bed->guests.some_doomed);
    assert_int_equal(bed->guests.count, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hello_then_frames, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stranger_may_say_hello_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stranger_may_not_say_much, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals_give_their_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_versions_and_secrets_are_told, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_hello_must_agree_with_the_proof, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_early_is_no_refusal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_frames_of_others_end_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_doomed_are_cut_later, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
