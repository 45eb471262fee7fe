/*
 * saving_test.c - checkpoints that nobody asks for, against scripted lanes, in virtual time. The test
 * stands in for the disk.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "master/disk.h"
#include "master/master.h"
#include "master/master_bed.h"
#include "master/state.h"

enum { SERVERS = 2 };

static struct {
    uint64_t token;
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
    bool refers;           /* what was begun last ... */
    bool committed_refers; /* ... and what was committed last */
    unsigned begun;
    unsigned dropped;
    struct master_generation *committed; /* owned */
    struct master_disk_news news;
} disk;

static void
begin(void *self, uint64_t token, const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES], bool refers)
{
    (void)self;
    disk.token = token;
    disk.refers = refers;
    memcpy(disk.bytes, bytes, sizeof(disk.bytes));
    disk.begun++;
    disk.news = (struct master_disk_news){.state = MASTER_DISK_BUSY};
}

static void
commit(void *self, struct master_generation *generation)
{
    (void)self;
    master_generation_destroy(disk.committed);
    disk.committed = generation;
    disk.committed_refers = disk.refers;
    disk.news.state = MASTER_DISK_BUSY;
}

static void
drop(void *self)
{
    (void)self;
    disk.dropped++;
}

static void
look(void *self, struct master_disk_news *news_p)
{
    (void)self;
    *news_p = disk.news;
}

static const struct master_disk ops = {
    .begin = begin, .commit = commit, .drop = drop, .look = look};

static struct master_bed *
start(uint64_t ms, uint64_t steps)
{
    struct master_bed *bed = start_job(1, SERVERS, PSI_DEATH_FAIL);

    master_generation_destroy(disk.committed);
    memset(&disk, 0, sizeof(disk));
    bed->master->config.disk = &ops;
    bed->master->config.checkpoint_ms = ms;
    bed->master->config.checkpoint_steps = steps;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    return bed;
}

static void
stop(struct master_bed *bed)
{
    master_bed_stop(bed);
    master_generation_destroy(disk.committed);
    disk.committed = NULL;
}

static void
disk_says(struct master_bed *bed, enum master_disk_state state)
{
    disk.news.state = state;
    snprintf(disk.news.text, sizeof(disk.news.text), "No space left on device");
    master_tick(bed->master);
}

/* The order that a lane has heard. */
static struct psi_order
hear_order(struct master_bed *bed, unsigned lane, struct psi_frame *frame_p)
{
    static struct psi_order_table tables[PSI_TABLES_MAX];
    const struct world_heard *heard = hear(bed->lane[lane], PSI_FRAME_CHECKPOINT);
    struct psi_order order = {.table = tables};

    assert_non_null(heard);
    assert_int_equal(psi_order_decode(heard->body, heard->frame.payload_bytes, &order, NULL),
                     PSD_OK);
    *frame_p = heard->frame;
    return order;
}

static void
answer(struct master_bed *bed, unsigned lane, uint64_t number, uint64_t step,
       const struct psi_written *written)
{
    uint8_t body[1024];
    struct psi_pack pack;

    psi_pack_init(&pack, body, sizeof(body));
    psi_written_encode(&pack, written);
    say(bed, bed->lane[lane],
        (struct psi_frame){.type = PSI_FRAME_WRITTEN, .seq = number, .step = step}, &pack);
}

/* The same of each block. */
static void
say_blocks(struct master_bed *bed, unsigned lane, uint64_t number, uint8_t file, uint32_t sum)
{
    const uint32_t count = (uint32_t)psi_manifest_blocks(disk.bytes[file]);
    uint32_t sums[16];
    uint8_t body[128];
    struct psi_pack pack;

    assert_true(count <= 16);
    for (uint32_t i = 0; i < count; i++) {
        sums[i] = sum;
    }
    psi_pack_init(&pack, body, sizeof(body));
    psi_blocks_encode(&pack, &(struct psi_blocks){.file = file, .count = count, .checksum = sums});
    say(bed, bed->lane[lane], (struct psi_frame){.type = PSI_FRAME_BLOCKS, .seq = number}, &pack);
}

/* All lanes are asked how far they are, and answer. */
static void
all_have_reached(struct master_bed *bed, const uint64_t steps[SERVERS])
{
    for (unsigned lane = 0; lane < SERVERS; lane++) {
        struct psi_frame frame;

        assert_int_equal(hear_order(bed, lane, &frame).tables, 0);
        answer(bed, lane, frame.seq, steps[lane],
               &(struct psi_written){.news = PSI_WRITTEN_REACHED});
    }
}

static void
has_written(struct master_bed *bed, unsigned lane, uint64_t number, uint64_t bytes)
{
    struct psi_written_table table = {.id = 0, .updates = 40 + lane};

    say_blocks(bed, lane, number, 0, 1u << lane);
    say_blocks(bed, lane, number, 1, 0);
    answer(bed, lane, number, 0,
           &(struct psi_written){.news = PSI_WRITTEN_ALL,
                                 .bytes = {bytes, 0},
                                 .checksum = {16u << lane, 0},
                                 .tables = 1,
                                 .table = &table});
}

/* Both lanes have written half of what the file has besides its head. */
static uint64_t
half(const struct master_bed *bed)
{
    return (disk.bytes[0] - bed->master->saving.generation->outline.head_bytes[0]) / 2;
}

/* If this fails, a checkpoint is committed that is not whole, or one that is whole never is. */
static void
test_a_checkpoint_is_committed_when_all_have_written(void **state)
{
    struct master_bed *bed = start(1000, 0);
    struct psi_frame frame;
    struct psi_order order;

    (void)state;
    pass_ms(bed, 900, NULL);
    assert_int_equal(disk.begun, 0);
    pass_ms(bed, 200, NULL);
    assert_int_equal(disk.begun, 1);
    assert_null(hear(bed->lane[0], PSI_FRAME_CHECKPOINT)); /* the files come first */
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){39, 40});
    order = hear_order(bed, 0, &frame);
    assert_int_equal(order.tables, 1);
    assert_int_equal(order.token, disk.token);
    assert_int_equal(order.bytes[0], disk.bytes[0]);
    assert_true(frame.step > 40);
    (void)hear_order(bed, 1, &frame);
    has_written(bed, 0, frame.seq, half(bed));
    assert_null(disk.committed);
    has_written(bed, 0, frame.seq, half(bed)); /* said twice: counts once */
    assert_null(disk.committed);
    has_written(bed, 1, frame.seq, half(bed));
    assert_non_null(disk.committed);
    assert_int_equal(disk.committed->step, frame.step);
    assert_int_equal(disk.committed->tables[0].updates, 41);
    assert_int_equal(disk.committed->sums[0].blocks[0], 3);
    assert_int_equal(disk.committed->sums[0].checksum, 48);
    disk_says(bed, MASTER_DISK_COMMITTED);
    assert_true(logged(bed, "is saved"));
    pass_ms(bed, 1100, NULL);
    assert_int_equal(disk.begun, 2);
    stop(bed);
}

/* If this fails, steps that go by faster than orders arrive are never saved. */
static void
test_a_lane_that_is_past_the_step_gets_a_later_one(void **state)
{
    struct master_bed *bed = start(0, 100);
    struct psi_frame first;
    struct psi_frame second;

    (void)state;
    pass_ms(bed, 300, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){10, 90});
    (void)hear_order(bed, 0, &first);
    assert_int_equal(first.step, 100);
    answer(bed, 0, first.seq, 120, &(struct psi_written){.news = PSI_WRITTEN_LATE});
    (void)hear_order(bed, 0, &second);
    assert_int_equal(second.step, 200);
    assert_true(second.seq > first.seq);
    has_written(bed, 1, first.seq, half(bed)); /* of the order before: counts for nothing */
    assert_int_equal(bed->master->saving.left, SERVERS);
    stop(bed);
}

/* Commits one checkpoint, from its beginning on. */
static void
commit_one(struct master_bed *bed)
{
    struct psi_frame frame;

    pass_ms(bed, 1100, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){1, 1});
    for (unsigned lane = 0; lane < SERVERS; lane++) {
        (void)hear_order(bed, lane, &frame);
    }
    for (unsigned lane = 0; lane < SERVERS; lane++) {
        has_written(bed, lane, frame.seq, half(bed));
    }
    disk_says(bed, MASTER_DISK_COMMITTED);
    for (unsigned lane = 0; lane < SERVERS; lane++) {
        assert_int_equal(hear_order(bed, lane, &frame).tables, 0); /* it is over */
    }
}

/* If this fails, all is written each time, or generations refer to more and more of them. */
static void
test_one_of_eight_has_all_in_its_own_files(void **state)
{
    struct master_bed *bed = start(1000, 0);

    (void)state;
    for (unsigned i = 0; i < 18; i++) {
        commit_one(bed);
        assert_int_equal(disk.committed_refers, i % 8 != 0);
    }
    stop(bed);
}

/* If this fails, a generation that is gone fails all that come after it, too. */
static void
test_after_a_failure_all_is_written(void **state)
{
    struct master_bed *bed = start(1000, 0);

    (void)state;
    commit_one(bed);
    pass_ms(bed, 1100, NULL);
    assert_true(disk.refers);
    disk_says(bed, MASTER_DISK_FAILED);
    commit_one(bed);
    assert_false(disk.committed_refers);
    commit_one(bed);
    assert_true(disk.committed_refers);
    stop(bed);
}

static void
say_earlier(struct master_bed *bed, uint64_t number, uint64_t generation, uint64_t begin)
{
    struct psi_earlier_bytes bytes = {generation, begin, begin + 1};
    uint8_t body[128];
    struct psi_pack pack;

    psi_pack_init(&pack, body, sizeof(body));
    psi_refers_encode(&pack, &(struct psi_refers){.count = 1, .bytes = &bytes});
    say(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_EARLIER, .seq = number}, &pack);
}

/* If this fails, what a lane refers to is lost or counts twice; or a broken lane makes a generation refer
 * to one that is not there. */
static void
test_what_is_referred_to_is_checked(void **state)
{
    struct master_bed *bed = start(1000, 0);
    struct psi_frame frame;

    (void)state;
    commit_one(bed);
    pass_ms(bed, 1100, NULL);
    disk.news.generation = 2;
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){1, 1});
    (void)hear_order(bed, 0, &frame);
    say_earlier(bed, frame.seq, 1, 70);
    say_earlier(bed, frame.seq, 1, 70); /* said twice */
    assert_int_equal(bed->master->saving.generation->sums[0].earlier.count, 1);
    assert_int_equal(bed->master->saving.place[0].earlier[0], 1);
    bed->master->saving.place[0].earlier[0] = 0;
    say_earlier(bed, frame.seq, 2, 80); /* itself */
    assert_true(logged(bed, "EARLIER: bytes 80 to 81 of generation 2 of 2"));
    stop(bed);
}

/* If this fails, after a disk that hung no checkpoint is written any more, or nobody hears of it. */
static void
test_a_disk_that_hangs_is_given_up(void **state)
{
    struct master_bed *bed = start(1000, 0);

    (void)state;
    pass_ms(bed, 1100, NULL);
    assert_int_equal(disk.begun, 1);
    pass_ms(bed, 590000, NULL);
    assert_int_equal(disk.begun, 1);
    assert_int_equal(disk.dropped, 0);
    pass_ms(bed, 12000, NULL);
    assert_int_equal(disk.dropped, 1);
    assert_true(logged(bed, "does not answer for 600 s, asked to make files"));
    assert_int_equal(disk.begun, 2);
    commit_one(bed);
    assert_true(logged(bed, "it works again"));
    stop(bed);
}

/* If this fails, a full disk ends the job, or fills its log, or nobody hears that it works again. */
static void
test_a_full_disk_is_told_of_once(void **state)
{
    struct master_bed *bed = start(1000, 0);
    const char *line;

    (void)state;
    for (unsigned i = 1; i <= 3; i++) {
        pass_ms(bed, 1100, NULL);
        assert_int_equal(disk.begun, i);
        disk_says(bed, MASTER_DISK_FAILED);
        assert_int_equal(disk.dropped, i);
    }
    line = strstr(bed->log_text, "No space left on device; training goes on");
    assert_non_null(line);
    assert_null(strstr(line + 1, "No space left on device; training goes on"));
    pass_ms(bed, 1100, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){1, 1});
    for (unsigned lane = 0; lane < SERVERS; lane++) {
        struct psi_frame frame;

        (void)hear_order(bed, lane, &frame);
        has_written(bed, lane, frame.seq, half(bed));
    }
    disk_says(bed, MASTER_DISK_COMMITTED);
    assert_true(logged(bed, "it works again"));
    assert_false(is_over(bed));
    stop(bed);
}

/* If this fails, servers that were told of a checkpoint are committed for a table that they were not. */
static void
test_a_new_table_begins_it_anew(void **state)
{
    struct master_bed *bed = start(1000, 0);
    const struct psi_table_info info = table_named("v", 3);
    struct psi_frame frame;

    (void)state;
    pass_ms(bed, 1100, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){1, 1});
    (void)hear_order(bed, 0, &frame);
    open_table(bed, 0, &info, 5);
    assert_int_equal(disk.dropped, 1);
    assert_int_equal(hear_order(bed, 0, &frame).tables, 0); /* given up */
    pass_ms(bed, 500, NULL);
    assert_int_equal(disk.begun, 1); /* not while the table is being opened */
    ack_table(bed, 1);
    pass_ms(bed, 500, NULL);
    assert_int_equal(disk.begun, 2);
    stop(bed);
}

/* If this fails, a job that is about to be stopped is saved at a step that it never comes to. */
static void
test_an_urgent_one_is_of_the_next_step(void **state)
{
    struct master_bed *bed = start(0, 1000);
    struct psi_frame frame;

    (void)state;
    pass_ms(bed, 300, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){10, 10});
    (void)hear_order(bed, 0, &frame);
    (void)hear_order(bed, 1, &frame);
    assert_int_equal(frame.step, 1000);
    master_heed(bed->master, &(struct psi_word){.kind = PSI_WORD_SAVE});
    all_have_reached(bed, (const uint64_t[]){20, 21});
    for (unsigned lane = 0; lane < SERVERS; lane++) {
        (void)hear_order(bed, lane, &frame);
        assert_int_equal(frame.step, 22);
        has_written(bed, lane, frame.seq, half(bed));
    }
    assert_null(strstr(bed->told, "saved"));
    disk_says(bed, MASTER_DISK_COMMITTED);
    assert_non_null(strstr(bed->told, "saved master 0 at step 22"));
    stop(bed);

    bed = start(3600000, 0);
    bed->master->config.disk = NULL; /* none are written: nobody waits for one */
    master_heed(bed->master, &(struct psi_word){.kind = PSI_WORD_SAVE});
    assert_non_null(strstr(bed->told, "saved master 0 at step 0"));
    stop(bed);
}

/* If this fails, a job that is stopped in the moment in which a table is opened, or a server is away, is not saved. */
static void
test_an_urgent_one_waits_for_the_job_to_be_whole(void **state)
{
    struct master_bed *bed = start(3600000, 0);
    const struct psi_table_info info = table_named("v", 3);

    (void)state;
    open_table(bed, 0, &info, 5);
    master_heed(bed->master, &(struct psi_word){.kind = PSI_WORD_SAVE});
    pass_ms(bed, 300, NULL);
    assert_int_equal(disk.begun, 0);
    assert_null(strstr(bed->told, "saved"));
    ack_table(bed, 1);
    pass_ms(bed, 300, NULL);
    assert_int_equal(disk.begun, 1);
    stop(bed);
}

/* If this fails, a server that says nonsense about what it wrote writes elsewhere in the master. */
static void
test_blocks_beyond_the_file_are_refused(void **state)
{
    struct master_bed *bed = start(1000, 0);
    struct psi_frame frame;
    uint32_t sums[4] = {1, 2, 3, 4};
    uint8_t body[64];
    struct psi_pack pack;

    (void)state;
    pass_ms(bed, 1100, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){1, 1});
    (void)hear_order(bed, 0, &frame);
    psi_pack_init(&pack, body, sizeof(body));
    psi_blocks_encode(&pack, &(struct psi_blocks){.count = 4, .checksum = sums});
    say(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_BLOCKS, .seq = frame.seq}, &pack);
    assert_true(is_gone(bed->lane[0]));
    stop(bed);
}

/* ------------------------------------------------------------------------ worker 0's part --- */

/* A job of sums alone. */
static struct master_bed *
start_sums(uint64_t ms, uint64_t steps)
{
    struct master_bed *bed = start_job(2, SERVERS, PSI_DEATH_CONTINUE);

    master_generation_destroy(disk.committed);
    memset(&disk, 0, sizeof(disk));
    bed->master->config.disk = &ops;
    bed->master->config.checkpoint_ms = ms;
    bed->master->config.checkpoint_steps = steps;
    bed->master->config.checkpoint_path = "/shared/run7";
    open_everywhere(bed, "w", PSD_USE_SUM);
    return bed;
}

static void
say_part(struct master_bed *bed, unsigned worker, uint64_t number, uint64_t step,
         const struct psi_part *part)
{
    uint8_t body[2048];
    struct psi_pack pack;

    psi_pack_init(&pack, body, sizeof(body));
    psi_part_encode(&pack, part);
    say(bed, bed->worker[worker],
        (struct psi_frame){.type = PSI_FRAME_PART, .seq = number, .step = step}, &pack);
}

static void
offer(struct master_bed *bed, unsigned worker)
{
    say_part(bed, worker, 0, 0, &(struct psi_part){.news = PSI_PART_OFFERED});
}

static struct psi_part
hear_part(struct master_bed *bed, unsigned worker, struct psi_frame *frame_p)
{
    const struct world_heard *heard = hear(bed->worker[worker], PSI_FRAME_PART);
    struct psi_part part;

    assert_non_null(heard);
    assert_int_equal(psi_part_decode(heard->body, heard->frame.payload_bytes, &part, NULL), PSD_OK);
    *frame_p = heard->frame;
    return part;
}

/* If this fails, jobs of PyTorch are never saved, or saved at another step than their weights are of. */
static void
test_a_part_alone_is_a_checkpoint(void **state)
{
    const struct psi_part written = {.news = PSI_PART_WRITTEN, .bytes = 99, .checksum = 5};
    struct master_bed *bed = start_sums(1000, 0);
    struct psi_frame frame;
    struct psi_part part;

    (void)state;
    pass_ms(bed, 2100, NULL);
    assert_int_equal(disk.begun, 0);
    assert_false(logged(bed, "nothing is saved")); /* it may come */
    pass_ms(bed, 12000, NULL);
    assert_true(logged(bed, "nothing is saved"));
    offer(bed, 1); /* not that one */
    pass_ms(bed, 1100, NULL);
    assert_int_equal(disk.begun, 0);
    offer(bed, 0);
    pass_ms(bed, 1100, NULL);
    assert_int_equal(disk.begun, 1);
    disk_says(bed, MASTER_DISK_BEGUN);
    part = hear_part(bed, 0, &frame);
    assert_int_equal(part.news, PSI_PART_WANTED);
    assert_int_equal(part.token, disk.token);
    assert_string_equal(part.text, "/shared/run7");
    assert_int_equal(frame.step, 0); /* it names the step */
    assert_null(hear(bed->lane[0], PSI_FRAME_CHECKPOINT));
    say_part(bed, 0, frame.seq + 1, 41, &written); /* of another order */
    say_part(bed, 1, frame.seq, 41, &written);
    assert_null(disk.committed);
    say_part(bed, 0, frame.seq, 42, &written);
    assert_non_null(disk.committed);
    assert_int_equal(disk.committed->step, 42);
    assert_true(disk.committed->has_part);
    assert_int_equal(disk.committed->part.bytes, 99);
    assert_int_equal(disk.committed->part.checksum, 5);
    disk_says(bed, MASTER_DISK_COMMITTED);
    assert_true(logged(bed, "step 42 is saved"));
    stop(bed);
}

/* If this fails, tables and weights of one checkpoint are of different steps, or one of them is missing. */
static void
test_tables_and_a_part_are_of_one_step(void **state)
{
    const struct psi_part written = {.news = PSI_PART_WRITTEN, .bytes = 99};
    struct master_bed *bed = start(1000, 0);
    struct psi_frame frame;
    struct psi_frame second;
    struct psi_frame lane;

    (void)state;
    offer(bed, 0);
    pass_ms(bed, 1100, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){39, 40});
    (void)hear_part(bed, 0, &frame);
    assert_true(frame.step > 40);
    (void)hear_order(bed, 0, &lane);
    assert_int_equal(lane.step, frame.step);
    say_part(bed, 0, frame.seq, frame.step + 5, &(struct psi_part){.news = PSI_PART_LATE});
    (void)hear_part(bed, 0, &second);
    (void)hear_order(bed, 0, &lane);
    assert_true(second.step > frame.step + 5);
    assert_int_equal(lane.step, second.step);
    has_written(bed, 0, lane.seq, half(bed));
    has_written(bed, 1, lane.seq, half(bed));
    assert_null(disk.committed); /* worker 0 has not */
    say_part(bed, 0, second.seq, second.step - 1, &written);
    assert_null(disk.committed);
    say_part(bed, 0, second.seq, second.step, &written);
    assert_non_null(disk.committed);
    assert_true(disk.committed->has_part);
    stop(bed);
}

/* If this fails, a worker that cannot write, or that is gone, holds up checkpoints for ever, or is not named. */
static void
test_a_part_that_fails(void **state)
{
    struct master_bed *bed = start_sums(1000, 0);
    struct psi_frame frame;

    (void)state;
    offer(bed, 0);
    pass_ms(bed, 1100, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    (void)hear_part(bed, 0, &frame);
    say_part(bed, 0, frame.seq, 42,
             &(struct psi_part){.news = PSI_PART_FAILED, .text = "No space left on device"});
    assert_true(logged(bed, "worker 0: No space left on device"));
    assert_int_equal(hear_part(bed, 0, &frame).news, PSI_PART_DROPPED);
    pass_ms(bed, 1100, NULL);
    assert_int_equal(disk.begun, 2);
    disk_says(bed, MASTER_DISK_BEGUN);
    assert_int_equal(hear_part(bed, 0, &frame).news, PSI_PART_WANTED);
    offer(bed, 0); /* it was cut, and did not hear it */
    assert_int_equal(hear_part(bed, 0, &frame).news, PSI_PART_WANTED);
    bed->master->worker[0].member.state = PSD_NODE_LOST;
    master_tick(bed->master);
    assert_int_equal(bed->master->saving.stage, SAVING_IDLE);
    pass_ms(bed, 3000, NULL);
    assert_int_equal(disk.begun, 2);
    bed->master->worker[0].member.state = PSD_NODE_RUNNING;
    stop(bed);
}

/* If this fails, a server that comes back is ordered to save tables that there are not. */
static void
test_a_server_that_is_back_has_no_part_in_it(void **state)
{
    struct master_bed *bed = start_sums(1000, 0);
    struct psi_frame frame;

    (void)state;
    offer(bed, 0);
    pass_ms(bed, 1100, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    (void)hear_part(bed, 0, &frame);
    hang_up(bed->lane[1], "closed");
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 101);
    assert_non_null(hear(bed->lane[1], PSI_FRAME_VIEW_COMMIT));
    assert_null(hear(bed->lane[1], PSI_FRAME_CHECKPOINT));
    say_part(bed, 0, frame.seq, 42, &(struct psi_part){.news = PSI_PART_WRITTEN, .bytes = 99});
    assert_non_null(disk.committed);
    stop(bed);
}

/* If this fails, a job whose worker 0 is gone, or gives nothing, is not saved any more, and nobody knows. */
static void
test_who_waits_for_a_part_says_so(void **state)
{
    struct master_bed *bed = start_sums(1000, 0);
    struct psi_frame frame;

    (void)state;
    offer(bed, 0);
    pass_ms(bed, 1100, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    (void)hear_part(bed, 0, &frame);
    assert_false(logged(bed, "for what worker 0 has itself"));
    pass_ms(bed, 61000, NULL);
    assert_true(logged(bed, "for what worker 0 has itself"));
    bed->master->worker[0].member.state = PSD_NODE_LOST;
    master_tick(bed->master);
    pass_ms(bed, 5000, NULL);
    assert_false(logged(bed, "nothing is saved without worker 0"));
    pass_ms(bed, 10000, NULL);
    assert_true(logged(bed, "nothing is saved without worker 0"));
    bed->master->worker[0].member.state = PSD_NODE_RUNNING;
    stop(bed);
}

/* If this fails, a job of weights in its workers is stopped without its last steps being saved. */
static void
test_an_urgent_part_is_of_the_next_step(void **state)
{
    struct master_bed *bed = start_sums(0, 1000);
    struct psi_frame frame;

    (void)state;
    offer(bed, 0);
    pass_ms(bed, 200, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    assert_int_equal(hear_part(bed, 0, &frame).every, 1000);
    master_saving_hurry(bed->master);
    assert_int_equal(hear_part(bed, 0, &frame).every, 0);
    stop(bed);
}

/* If this fails, a table of servers waits for an epoch that nobody tells servers of. */
static void
test_servers_do_not_know_epochs(void **state)
{
    struct master_bed *bed = start_sums(0, 0);
    const struct psi_table_info info = table_named("v", 1000);
    struct psi_frame frame;

    (void)state;
    bed->master->config.checkpoint_epochs = true;
    offer(bed, 0);
    pass_ms(bed, 200, NULL);
    disk_says(bed, MASTER_DISK_BEGUN);
    assert_true(hear_part(bed, 0, &frame).every == PSI_PART_EPOCH);
    open_table(bed, 0, &info, 2);
    assert_non_null(strstr(hear_verdict(bed->worker[0], PSI_FRAME_ACK).text,
                           "--checkpoint_every epoch: table v lies on servers"));
    stop(bed);
}

static void
say_rows(struct master_bed *bed, uint64_t number, uint32_t place, const struct psi_saved_file *file)
{
    struct psi_saved_file copy = *file;
    uint8_t body[128];
    struct psi_pack pack;

    psi_pack_init(&pack, body, sizeof(body));
    psi_rows_saved_encode(&pack,
                          &(struct psi_rows_saved){.place = place, .count = 1, .file = &copy});
    say(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_ROWS_SAVED, .seq = number}, &pack);
}

/* A job with a sparse table has begun to write generation 2. The number of the order. */
static uint64_t
order_rows(struct master_bed **bed_p)
{
    const struct psd_sparse_args args = {
        .struct_size = sizeof(args), .name = "e", .dtype = PSD_F32, .width = 4};
    struct psi_table_info want = {0};
    struct psi_frame frame;
    struct master_bed *bed = start(1000, 0);

    *bed_p = bed;
    assert_int_equal(psi_spec_init_sparse(&want.spec, &args, bed->workers, NULL), PSD_OK);
    open_table(bed, 0, &want, 1);
    ack_table(bed, 1);
    (void)hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 1);
    pass_ms(bed, 1100, NULL);
    disk.news.generation = 2;
    disk_says(bed, MASTER_DISK_BEGUN);
    all_have_reached(bed, (const uint64_t[]){1, 1});
    assert_int_equal(hear_order(bed, 0, &frame).tables, 2);
    return frame.seq;
}

/* If this fails, rows that a lane has written are not in the checkpoint, or twice. */
static void
test_files_of_rows_are_listed(void **state)
{
    const struct psi_saved_file file = {
        .table = 1, .generation = 2, .number = 5, .end_bucket = 4096, .rows = 3, .bytes = 900};
    struct master_bed *bed;
    const uint64_t number = order_rows(&bed);
    const struct psi_manifest_rows *rows;

    (void)state;
    say_rows(bed, number, 0, &file);
    say_rows(bed, number, 0, &file); /* said twice */
    say_rows(bed, number + 1, 0, &file);
    rows = psi_manifest_rows(&bed->master->saving.generation->rows, "e");
    assert_non_null(rows);
    assert_int_equal(rows->form.width, 4);
    assert_int_equal(rows->count, 1);
    assert_int_equal(rows->files[0].number, 5);
    assert_int_equal(rows->files[0].place, 0);
    stop(bed);
}

/* If this fails, a broken lane lists files of other lanes or tables, or of generations that are not there. */
static void
test_files_that_cannot_be_are_refused(void **state)
{
    static const struct {
        uint32_t place;
        struct psi_saved_file file;
        const char *word;
    } cases[] = {
        {1, {.table = 1, .generation = 2, .end_bucket = 1, .bytes = 9}, "of place 1, from place 0"},
        {0, {.table = 0, .generation = 2, .end_bucket = 1, .bytes = 9}, "a file of table 0"},
        {0, {.table = 9, .generation = 2, .end_bucket = 1, .bytes = 9}, "a file of table 9"},
        {0, {.table = 1, .generation = 3, .end_bucket = 1, .bytes = 9}, "generation 3, for"},
        {0, {.table = 1, .generation = 1, .end_bucket = 1, .bytes = 9}, "generation 1, for"},
        {0, {.table = 1, .generation = 2, .end_bucket = 4097, .bytes = 9}, "buckets 0 to 4097"},
        {0, {.table = 1, .generation = 2, .end_bucket = 1}, "0 bytes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct master_bed *bed;
        const uint64_t number = order_rows(&bed);

        say_rows(bed, number, cases[i].place, &cases[i].file);
        if (!logged(bed, cases[i].word)) {
            fail_msg("case %zu: nobody says %s", i, cases[i].word);
        }
        stop(bed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_checkpoint_is_committed_when_all_have_written),
        cmocka_unit_test(test_a_lane_that_is_past_the_step_gets_a_later_one),
        cmocka_unit_test(test_a_full_disk_is_told_of_once),
        cmocka_unit_test(test_a_disk_that_hangs_is_given_up),
        cmocka_unit_test(test_one_of_eight_has_all_in_its_own_files),
        cmocka_unit_test(test_after_a_failure_all_is_written),
        cmocka_unit_test(test_what_is_referred_to_is_checked),
        cmocka_unit_test(test_a_new_table_begins_it_anew),
        cmocka_unit_test(test_an_urgent_one_is_of_the_next_step),
        cmocka_unit_test(test_an_urgent_one_waits_for_the_job_to_be_whole),
        cmocka_unit_test(test_blocks_beyond_the_file_are_refused),
        cmocka_unit_test(test_a_part_alone_is_a_checkpoint),
        cmocka_unit_test(test_tables_and_a_part_are_of_one_step),
        cmocka_unit_test(test_a_part_that_fails),
        cmocka_unit_test(test_a_server_that_is_back_has_no_part_in_it),
        cmocka_unit_test(test_who_waits_for_a_part_says_so),
        cmocka_unit_test(test_an_urgent_part_is_of_the_next_step),
        cmocka_unit_test(test_servers_do_not_know_epochs),
        cmocka_unit_test(test_files_of_rows_are_listed),
        cmocka_unit_test(test_files_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests_name("master_saving", tests, NULL, NULL);
}
