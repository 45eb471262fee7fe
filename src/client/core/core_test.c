/*
 * core_test.c - a worker, or an observer, and its master: what is said again after a cut, and when
 * the master is given up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "client/core/client_bed.h"

enum { HEARTBEAT_MS = 100, DEAD_MS = 1000 };

/* ---- observers ----------------------------------------------------------------------------- */

struct observer_bed {
    struct world world; /* first */
    struct psi_client *client;
    struct psd_op *op;
};

static void
tick(void *core)
{
    psi_client_tick(((struct observer_bed *)core)->client);
}

static uint64_t
next_ns(const void *core)
{
    return psi_client_next_ns(((const struct observer_bed *)core)->client);
}

static const struct world_core core = {.tick = tick, .next_ns = next_ns};

static struct world_conn *
master_of(struct observer_bed *bed)
{
    return world_to(&bed->world, "test://master");
}

/* It has connected (again): it is welcome. */
static void
welcome(struct observer_bed *bed)
{
    const struct psi_welcome message = {.incarnation = bed->client->config.observer ? 0 : 1,
                                        .workers = 2,
                                        .servers = 1,
                                        .heartbeat_ms = HEARTBEAT_MS,
                                        .dead_ms = DEAD_MS,
                                        .job = 7};

    for (unsigned i = 0; i < 3; i++) {
        world_settle(&bed->world);
    }
    assert_non_null(master_of(bed));
    assert_non_null(world_hear(master_of(bed), PSI_FRAME_HELLO));
    WORLD_SAY(&bed->world, master_of(bed), &(struct psi_frame){.type = PSI_FRAME_WELCOME}, welcome,
              &message);
}

/* What it has subscribed to, since the last look; 0: nothing. */
static uint32_t
subscribed_ms(struct observer_bed *bed)
{
    const struct world_heard *heard = world_hear(master_of(bed), PSI_FRAME_SUBSCRIBE);
    struct psi_subscribe subscribe = {0};

    if (heard != NULL) {
        assert_int_equal(heard->frame.request, bed->op->control.request);
        assert_int_equal(
            psi_subscribe_decode(heard->body, heard->frame.payload_bytes, &subscribe, NULL),
            PSD_OK);
    }
    return subscribe.every_ms;
}

static void
tell(struct observer_bed *bed, uint64_t step)
{
    struct psd_node node = {.role = PSD_ROLE_WORKER, .step = step};
    const struct psi_nodes nodes = {.count = 1, .node = &node};
    const struct psi_frame frame = {.type = PSI_FRAME_NODES_INFO,
                                    .request = bed->op->control.request};

    WORLD_SAY(&bed->world, master_of(bed), &frame, nodes, &nodes);
}

static struct observer_bed *
begin(bool observer)
{
    const struct psi_client_config config = {.master_address = "test://master",
                                             .open_timeout_ms = 5000,
                                             .op_timeout_ms = 500,
                                             .observer = observer};
    struct observer_bed *bed = calloc(1, sizeof(*bed));

    assert_non_null(bed);
    world_init(&bed->world, &core);
    bed->world.records = true;
    assert_int_equal(psi_client_create(&bed->world.env, &config, &bed->client, NULL), PSD_OK);
    bed->world.object = bed;
    return bed;
}

static struct observer_bed *
observe(uint32_t every_ms)
{
    struct observer_bed *bed = begin(true);

    assert_int_equal(psi_client_subscribe(bed->client, every_ms, &bed->op, NULL), PSD_OK);
    welcome(bed);
    return bed;
}

static void
observer_bed_stop(struct observer_bed *bed)
{
    psi_client_destroy(bed->client); /* frees what nobody has taken, too */
    world_fini(&bed->world);
    free(bed);
}

/* If this fails, an observer hears nothing more after a cut, or hears old news as new. */
static void
test_subscription_outlives_a_cut(void **state)
{
    struct observer_bed *bed = observe(200);

    (void)state;
    assert_int_equal(subscribed_ms(bed), 200);
    assert_int_equal(psi_op_value(bed->op), 0);
    tell(bed, 4);
    tell(bed, 5);
    assert_int_equal(psi_op_value(bed->op), 2);
    assert_int_equal(psi_op_nodes(bed->op)->node[0].step, 5);
    psi_subscribe_pace(bed->op, 300);
    assert_int_equal(subscribed_ms(bed), 300);

    world_hang_up(master_of(bed), "cut");
    world_wait(&bed->world, 50);
    welcome(bed);
    assert_int_equal(subscribed_ms(bed), 300);
    tell(bed, 6);
    assert_int_equal(psi_op_value(bed->op), 3);
    assert_false(psi_op_ended(bed->op));
    observer_bed_stop(bed);
}

/* If this fails, somebody who has not looked yet finds half of a broken table in the place of the last
 * one that came. */
static void
test_a_broken_table_leaves_the_last_one(void **state)
{
    struct observer_bed *bed = observe(200);
    const struct psi_frame frame = {.type = PSI_FRAME_NODES_INFO,
                                    .request = bed->op->control.request};
    struct psd_node nodes[2] = {{.role = PSD_ROLE_WORKER, .step = 9}, {.role = PSD_ROLE_WORKER}};
    const struct psi_nodes message = {.count = 2, .node = nodes};
    uint8_t bytes[1024];
    struct psi_pack pack;

    (void)state;
    tell(bed, 4);
    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_nodes_encode(&pack, &message);
    pack.used -= 1; /* the second node is not whole */
    world_say(&bed->world, master_of(bed), &frame, &pack);
    assert_int_equal(psi_op_value(bed->op), 1);
    assert_int_equal(psi_op_nodes(bed->op)->count, 1);
    assert_int_equal(psi_op_nodes(bed->op)->node[0].step, 4);
    observer_bed_stop(bed);
}

/* If this fails, the master lets go of an observer that lives, or the observer keeps a connection
 * to a master that has been gone for long. */
static void
test_observer_beats_and_tries_again(void **state)
{
    struct observer_bed *bed = observe(200);
    struct world_conn *first = master_of(bed);
    unsigned pings = 0;

    (void)state;
    world_wait(&bed->world, DEAD_MS / 2);
    while (world_hear(first, PSI_FRAME_PING) != NULL) {
        pings++;
    }
    assert_int_equal(pings, 1 + DEAD_MS / 2 / HEARTBEAT_MS);
    assert_false(world_is_closed(first));
    world_wait(&bed->world, DEAD_MS);
    assert_true(world_is_closed(first));
    welcome(bed);
    assert_int_equal(subscribed_ms(bed), 200);
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING);
    observer_bed_stop(bed);
}

/* If this fails, an observer waits for a master that has refused it. */
static void
test_refusal_ends_the_subscription(void **state)
{
    struct observer_bed *bed = observe(200);
    const struct psi_verdict verdict = {.status = PSD_ERR_REFUSED, .text = "another job"};
    const struct psi_frame frame = {.type = PSI_FRAME_REFUSE};

    (void)state;
    WORLD_SAY(&bed->world, master_of(bed), &frame, verdict, &verdict);
    assert_true(psi_op_ended(bed->op));
    assert_int_equal(psi_op_status(bed->op), PSD_ERR_REFUSED);
    assert_non_null(strstr(bed->op->error.text, "watch the job: "));
    assert_non_null(strstr(bed->op->error.text, "another job"));
    observer_bed_stop(bed);
}

/* ---- workers ------------------------------------------------------------------------------- */

/* If this fails, a worker that was stopped while its connection was cut wakes up and calls the
 * master lost, before it has tried to reach it again. */
static void
test_a_stop_while_cut_is_not_the_masters_silence(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);

    (void)state;
    world_hang_up(bed_master(bed), "cut");
    bed->world.now_ns += bed->welcome.dead_ms * WORLD_MS_NS;
    world_settle(&bed->world);
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING);
    assert_non_null(bed_master(bed)); /* it connects again */
    client_bed_stop(bed);
}

/* If this fails, a worker waits for ever for a master that says nothing more. */
static void
test_a_silent_master_ends_it(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);

    (void)state;
    for (unsigned i = 0; i < 70; i++) {
        world_wait(&bed->world, 1000);
    }
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_OVER);
    assert_int_equal(psi_client_error(bed->client)->status, PSD_ERR_PEER_LOST);
    assert_string_equal(psi_client_error(bed->client)->text,
                        "master test://master lost: silent for 60000 ms");
    client_bed_stop(bed);
}

/* If this fails, a worker that cannot take the lanes of its view runs with some of them, or waits
 * for a view that does not come again, until its time is over. */
static void
test_a_view_that_it_cannot_take_ends_it(void **state)
{
    struct observer_bed *bed = begin(false);
    struct psi_view_worker workers[2] = {{.incarnation = 1, .member = true},
                                         {.incarnation = 1, .member = true}};
    struct psi_view_place places[2] = {{.address = "test://one"}, {.address = "test://two"}};
    const struct psi_view view = {
        .id = 1, .workers = 2, .worker = workers, .places = 2, .place = places};

    (void)state;
    welcome(bed);
    WORLD_SAY(&bed->world, master_of(bed), &(struct psi_frame){.type = PSI_FRAME_VIEW_COMMIT}, view,
              &view);
    world_settle(&bed->world);
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_OVER);
    assert_int_equal(psi_client_error(bed->client)->status, PSD_ERR_PROTOCOL);
    assert_string_equal(psi_client_error(bed->client)->text,
                        "join the job at test://master: view 1: one lane of a server in two "
                        "places");
    assert_null(world_to(&bed->world, "test://one"));
    observer_bed_stop(bed);
}

/* If this fails, a job ends because a worker looked for a place where it was a moment ago, and calls the secret
 * wrong. */
static void
test_a_place_that_has_moved_is_looked_for_again(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, BED_CHUNK_BYTES);

    (void)state;
    world_hang_up(bed_lane(bed, 0), "cut");
    for (unsigned i = 0; i < 8; i++) {
        world_wait(&bed->world, 1000);
        assert_non_null(bed_lane(bed, 0));
        world_refuse_proof(bed_lane(bed, 0), "authentication refused: this is not server:0.0");
        assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING);
    }
    bed_come_back(bed, 0);
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING);
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subscription_outlives_a_cut),
        cmocka_unit_test(test_a_broken_table_leaves_the_last_one),
        cmocka_unit_test(test_observer_beats_and_tries_again),
        cmocka_unit_test(test_refusal_ends_the_subscription),
        cmocka_unit_test(test_a_stop_while_cut_is_not_the_masters_silence),
        cmocka_unit_test(test_a_silent_master_ends_it),
        cmocka_unit_test(test_a_view_that_it_cannot_take_ends_it),
        cmocka_unit_test(test_a_place_that_has_moved_is_looked_for_again),
    };

    return cmocka_run_group_tests_name("client_core", tests, NULL, NULL);
}
