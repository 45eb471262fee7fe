/*
 * saving.c - checkpoints that nobody asks for: when, at which step, and whether all of it is there.
 *
 * The files are made first; then lanes are asked how far they are; then all are told one step that
 * none of them is past. Each writes its chunks as they are at that step (server/snapshot.c) and says
 * what it added to the checksums. When all have, the manifest is written: that alone makes it a
 * generation. Whatever goes wrong before, the servers' members or the tables change: it is given up,
 * and the generations before it are as they were.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "master/disk.h"
#include "master/state.h"

enum {
    RETRY_MS = 10000,   /* after a failure, at the latest */
    AGAIN_MS = 100,     /* after the job has changed */
    WAITING_MS = 60000, /* between two lines about who has not written */
    MARGIN_MAX = 1 << 20,
    HANGS_MS = 600000, /* the disk has not answered for so long: it is given up */
    CHAIN_MAX = 8,     /* one of so many generations has all in its own files */
};

static uint64_t
interval_ns(const struct master *master)
{
    return master->config.checkpoint_ms * MASTER_MS_NS;
}

/* ---------------------------------------------------------------------------- giving it up --- */

/* Without tables it asks how far a lane is; or, with no step that anybody comes to, gives up what was asked for. */
static void
send_order(struct master *master, struct member *lane, const struct psi_order *order)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_CHECKPOINT);

    frame.seq = master->saving.number;
    frame.step = order->tables > 0                       ? master->saving.step
                 : master->saving.stage == SAVING_ASKING ? 0
                                                         : PSI_STEP_NEVER;
    if (lane->session != NULL) {
        master_posted(lane->session, psi_post_order(lane->session->guest.conn, &frame, order));
    }
}

/* No order of an earlier life of the master has the same number. */
void
master_saving_number(struct master *master)
{
    struct saving *saving = &master->saving;

    saving->number = (uint64_t)master->config.term << 32 | ++saving->orders;
}

static void
send_to_all(struct master *master, const struct psi_order *order)
{
    struct saving *saving = &master->saving;

    master_saving_number(master);
    saving->left = master->places;
    memset(saving->place, 0, sizeof(saving->place));
    for (uint32_t place = 0; place < master->places; place++) {
        send_order(master, master->place[place], order);
    }
}

static void
forget(struct master *master)
{
    struct saving *saving = &master->saving;
    const struct psi_order none = {0};

    if (saving->stage == SAVING_ORDERED || saving->stage == SAVING_COMMITTING) {
        send_to_all(master, &none); /* their copies are memory */
        master_part_drop(master);
    }
    if (saving->stage != SAVING_IDLE) {
        master->config.disk->drop(master->config.disk->self);
    }
    master_generation_destroy(saving->generation);
    saving->generation = NULL;
    free(saving->order.table);
    saving->order.table = NULL;
    saving->stage = SAVING_IDLE;
}

void
master_saving_give_up(struct master *master, const char *reason)
{
    struct saving *saving = &master->saving;

    if (saving->stage == SAVING_IDLE) {
        return;
    }
    psi_log(master->log, PSI_LOG_DEBUG, "CHECKPOINT-DROPPED", "%s", reason);
    forget(master);
    saving->due_ns = psi_now_ns(master->env) + AGAIN_MS * MASTER_MS_NS;
    master_wake_at(master, saving->due_ns);
}

void
master_saving_free(struct master *master)
{
    if (master->saving.stage != SAVING_IDLE) {
        master->saving.stage = SAVING_BEGINNING; /* nobody is told */
        forget(master);
    }
}

/* Whoever is in a hurry hears at which step the job was saved; 0: it was not. */
static void
tell_saved(struct master *master, uint64_t step)
{
    const struct psi_tiding tiding = {
        .kind = PSI_TIDING_SAVED, .role = PSI_TIDING_MASTER, .step = step};

    if (master->saving.is_urgent && master->config.tell != NULL) {
        master->config.tell(master->config.tell_context, &tiding);
    }
    master->saving.is_urgent = false;
}

/* One line now, and one when it works again. */
void
master_saving_fail(struct master *master, const char *text)
{
    struct saving *saving = &master->saving;
    const uint64_t wait_ns =
        interval_ns(master) != 0 && interval_ns(master) < RETRY_MS * MASTER_MS_NS
            ? interval_ns(master)
            : RETRY_MS * MASTER_MS_NS;

    if (!saving->is_failing) {
        psi_log(master->log, PSI_LOG_WARN, "CHECKPOINT-FAILED",
                "%s; training goes on, the generations before it are intact, and it is tried "
                "again",
                text);
    }
    saving->is_failing = true;
    saving->last = 0; /* whatever it was: the next one needs nothing of what is there */
    tell_saved(master, 0);
    forget(master);
    saving->due_ns = psi_now_ns(master->env) + wait_ns;
    master_wake_at(master, saving->due_ns);
}

/* ------------------------------------------------------------------------------- beginning --- */

/* ... and stay where they are: a place that moves goes first. */
static bool
all_are_here(const struct master *master)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        if (master->server[index].is_away) {
            return false;
        }
    }
    return master->change.stage == STAGE_IDLE && master->view.id > 0 && !master_place_moves(master);
}

/* Where files of that size lie is known now, whatever the step will be. */
static void
begin(struct master *master, uint64_t now_ns)
{
    struct saving *saving = &master->saving;
    struct psi_outline outline;
    struct psd_error err;
    size_t count = 0;
    const struct table **list = all_are_here(master) ? master_saved_tables(master, &count) : NULL;

    if (list == NULL || master_part_is_missing(master, count)) {
        if (!master_has_saved_tables(master)) {
            tell_saved(master, 0); /* else whoever is in a hurry knows for how long to wait */
        }
        free(list);
        master_wake_at(master, now_ns + AGAIN_MS * MASTER_MS_NS);
        return;
    }
    if (master_saved_outline(list, count, 0, &outline, &err) != PSD_OK) {
        master_saving_fail(master, err.text);
    } else {
        saving->stage = SAVING_BEGINNING;
        saving->begun_ns = now_ns;
        saving->token = master->env->ops->random(master->env) | 1;
        saving->margin = 1;
        saving->any_tables = count > 0;
        saving->after = saving->chain < CHAIN_MAX ? saving->last : 0;
        master->config.disk->begin(master->config.disk->self, saving->token, outline.bytes,
                                   saving->after != 0);
        psi_outline_fini(&outline);
    }
    free(list);
}

static void
ask(struct master *master)
{
    const struct psi_order none = {0};

    master->saving.stage = SAVING_ASKING;
    master->saving.reached = 0;
    send_to_all(master, &none);
}

/* -------------------------------------------------------------------------------- ordering --- */

/* A step that no lane is past, if none goes too fast. */
static uint64_t
choose_step(const struct master *master)
{
    const uint64_t every = master->config.checkpoint_steps;
    const uint64_t reached = master->saving.reached;

    return every > 0 && !master->saving.is_urgent ? (reached / every + 1) * every
                                                  : reached + master->saving.margin;
}

static void
order(struct master *master)
{
    struct saving *saving = &master->saving;
    struct psd_error err;
    size_t count = 0;
    const struct table **list = master_saved_tables(master, &count);

    master_generation_destroy(saving->generation);
    saving->generation = NULL;
    free(saving->order.table);
    saving->order = (struct psi_order){0};
    saving->step = saving->any_tables ? choose_step(master) : 0;
    if (list == NULL || (count > 0) != saving->any_tables) {
        free(list);
        master_saving_give_up(master, "the tables of the job have changed");
        return;
    }
    if (saving->any_tables && master_make_generation(saving, list, count, &err) != PSD_OK) {
        master_saving_fail(master, err.text);
    } else {
        saving->stage = SAVING_ORDERED;
        saving->waiting_line_ns = psi_now_ns(master->env) + WAITING_MS * MASTER_MS_NS;
        if (saving->any_tables) {
            send_to_all(master, &saving->order);
        } else {
            saving->left = 0;
            master_saving_number(master);
        }
        master_part_order(master);
    }
    free(list);
}

void
master_saving_resend(struct master *master, struct member *lane)
{
    const struct saving *saving = &master->saving;
    const struct psi_order none = {0};

    if (saving->stage != SAVING_ASKING &&
        (saving->stage != SAVING_ORDERED || !saving->any_tables)) {
        return;
    }
    if (!saving->place[place_of(master, lane)].answered) {
        send_order(master, lane, saving->stage == SAVING_ASKING ? &none : &saving->order);
    }
}

/* --------------------------------------------------------------------------- lanes' answers --- */

psd_status
master_on_blocks(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct saving *saving = &session->master->saving;
    struct saving_place *place = &saving->place[place_of(session->master, session->member)];
    struct psi_blocks blocks = {.checksum = malloc(PSI_BLOCKS_MAX * sizeof(uint32_t))};
    struct psi_manifest_file *sums;
    psd_status status;

    if (blocks.checksum == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "BLOCKS: no memory");
    }
    status = psi_blocks_decode(body, bytes, &blocks, err);
    if (status == PSD_OK && saving->stage == SAVING_ORDERED && saving->any_tables &&
        session->guest.inbox.frame.seq == saving->number &&
        blocks.first == place->blocks[blocks.file]) { /* else it is said once more */
        sums = &saving->generation->sums[blocks.file];
        if (blocks.count > sums->block_count - blocks.first) {
            status = psi_fail(err, PSD_ERR_PROTOCOL, "BLOCKS: %u of %zu from %u on", blocks.count,
                              sums->block_count, blocks.first);
        }
        for (uint32_t i = 0; i < blocks.count && status == PSD_OK; i++) {
            sums->blocks[blocks.first + i] ^= blocks.checksum[i];
        }
        place->blocks[blocks.file] += status == PSD_OK ? blocks.count : 0;
    }
    free(blocks.checksum);
    return status;
}

static void
count_updates(struct saving *saving, const struct psi_written *written)
{
    for (uint32_t i = 0; i < written->tables && i < saving->order.tables; i++) {
        struct psi_manifest_table *record = &saving->generation->tables[i];

        if (written->table[i].id == saving->order.table[i].id &&
            written->table[i].updates > record->updates) {
            record->updates = written->table[i].updates;
        }
    }
}

void
master_saving_commit(struct master *master)
{
    struct saving *saving = &master->saving;
    struct master_generation *generation = saving->generation;
    char text[PSI_TEXT_MAX];

    if (saving->left > 0 || saving->part == SAVING_PART_WANTED) {
        return;
    }

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        const uint64_t there = generation->written[kind] + generation->outline.head_bytes[kind];

        if (there != generation->outline.bytes[kind]) {
            snprintf(text, sizeof(text),
                     "checkpoint of step %" PRIu64 ": servers wrote %" PRIu64 " of %" PRIu64
                     " bytes",
                     saving->step, there, generation->outline.bytes[kind]);
            master_saving_fail(master, text);
            return;
        }
    }
    saving->stage = SAVING_COMMITTING;
    saving->referred = 0;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        saving->referred += psi_ranges_bytes(&generation->sums[kind].earlier);
    }
    master_saving_count_rows(saving);
    saving->generation = NULL;
    master->config.disk->commit(master->config.disk->self, generation);
}

/* All that one lane has is on the disk. */
static psd_status
lane_has_written(struct master *master, struct saving_place *place,
                 const struct psi_written *written, struct psd_error *err)
{
    struct saving *saving = &master->saving;

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        if (place->blocks[kind] != saving->generation->sums[kind].block_count) {
            return psi_fail(err, PSD_ERR_PROTOCOL, "WRITTEN: %u of %zu BLOCKS came before it",
                            place->blocks[kind], saving->generation->sums[kind].block_count);
        }
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        saving->generation->sums[kind].checksum ^= written->checksum[kind];
        saving->generation->written[kind] += written->bytes[kind];
    }
    count_updates(saving, written);
    place->answered = true;
    saving->left--;
    master_saving_commit(master);
    return PSD_OK;
}

/* Somebody is past the step of the order. */
void
master_saving_later(struct master *master, uint64_t step)
{
    struct saving *saving = &master->saving;

    saving->reached = step > saving->step && step < PSI_STEP_NEVER ? step : saving->step;
    saving->margin = saving->margin < MARGIN_MAX ? 4 * saving->margin : MARGIN_MAX;
    order(master);
}

static psd_status
take_answer(struct session *session, const struct psi_written *written, struct psd_error *err)
{
    struct master *master = session->master;
    struct saving *saving = &master->saving;
    struct saving_place *place = &saving->place[place_of(master, session->member)];
    const uint64_t step = session->guest.inbox.frame.step;

    if (saving->stage == SAVING_ASKING && written->news == PSI_WRITTEN_REACHED) {
        saving->reached = step > saving->reached && step < PSI_STEP_NEVER ? step : saving->reached;
        place->answered = true;
        saving->left--;
        if (saving->left == 0) {
            order(master);
        }
    } else if (saving->stage == SAVING_ORDERED && written->news == PSI_WRITTEN_LATE) {
        master_saving_later(master, step);
    } else if (saving->stage == SAVING_ORDERED && written->news == PSI_WRITTEN_ALL) {
        return lane_has_written(master, place, written, err);
    } else if (written->news == PSI_WRITTEN_FAILED) {
        master_saving_fail(master, written->text);
    }
    return PSD_OK;
}

psd_status
master_on_written(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    const struct saving *saving = &session->master->saving;
    struct psi_written written = {.table = calloc(PSI_TABLES_MAX, sizeof(*written.table))};
    psd_status status;

    if (written.table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "WRITTEN: no memory");
    }
    status = psi_written_decode(body, bytes, &written, err);
    if (status == PSD_OK && session->guest.inbox.frame.seq == saving->number &&
        saving->any_tables && session->master->phase == PHASE_RUNNING &&
        !saving->place[place_of(session->master, session->member)].answered) {
        status = take_answer(session, &written, err);
    }
    free(written.table);
    return status;
}

/* ------------------------------------------------------------------------------------ time --- */

static void
committed(struct master *master, const struct master_disk_news *news, uint64_t now_ns)
{
    struct saving *saving = &master->saving;
    const uint64_t next_ns = saving->begun_ns + interval_ns(master);
    char text[80] = "";

    if (saving->referred > 0) {
        snprintf(text, sizeof(text), "; %" PRIu64 " MiB more have not changed since earlier ones",
                 saving->referred >> 20);
    }
    psi_log(master->log, PSI_LOG_INFO, "CHECKPOINT",
            "%sstep %" PRIu64 " is saved: generation %" PRIu64 ", %" PRIu64 " MiB in %" PRIu64
            " ms%s",
            saving->is_failing ? "it works again: " : "", saving->step, news->generation,
            (saving->order.bytes[0] + saving->order.bytes[1] + saving->part_bytes + saving->rows -
             saving->referred) >>
                20,
            (now_ns - saving->begun_ns) / MASTER_MS_NS, text);
    saving->is_failing = false;
    saving->saved = saving->step;
    saving->last = saving->token;
    saving->chain = saving->after != 0 ? saving->chain + 1 : 1;
    tell_saved(master, saving->step);
    saving->due_ns = next_ns > now_ns ? next_ns : now_ns;
    forget(master);
}

static void
hurry(struct master *master)
{
    if (master->saving.any_tables) {
        ask(master);
    } else {
        order(master);
    }
}

void
master_saving_hurry(struct master *master)
{
    struct saving *saving = &master->saving;

    saving->is_urgent = true;
    if (master->config.disk == NULL || master->phase != PHASE_RUNNING) {
        tell_saved(master, 0);
    } else if (saving->stage == SAVING_ORDERED) {
        hurry(master); /* the step may be far away: for a nearer one */
    }
    saving->due_ns = 1;
    master_wake_at(master, 0);
}

/* A table that nobody pushes to any more never comes to the step. */
static void
tell_waiting(struct master *master, uint64_t now_ns)
{
    struct saving *saving = &master->saving;
    struct names names = {0};

    if (master->config.checkpoint_steps > 0 || master->config.checkpoint_epochs) {
        return; /* it may be long until then */
    }
    if (now_ns >= saving->waiting_line_ns && saving->left == 0) {
        psi_log(master->log, PSI_LOG_INFO, "CHECKPOINT-WAITS",
                "for what worker 0 has itself, which it gives between two steps");
        saving->waiting_line_ns = now_ns + WAITING_MS * MASTER_MS_NS;
    } else if (now_ns >= saving->waiting_line_ns) {
        for (uint32_t place = 0; place < master->places; place++) {
            if (!saving->place[place].answered && master->place[place]->lane == 0) {
                master_names_add(&names, "server", master->place[place]->rank);
            }
        }
        master_names_end(&names);
        psi_log(master->log, PSI_LOG_INFO, "CHECKPOINT-WAITS",
                "for step %" PRIu64 " of all tables on %s; one that is not pushed to in every step "
                "keeps the others from being saved",
                saving->step, names.text);
        saving->waiting_line_ns = now_ns + WAITING_MS * MASTER_MS_NS;
    }
    master_wake_at(master, saving->waiting_line_ns);
}

/* Files are made, or committed, and the disk says nothing. Nobody waits for that but the next checkpoint. */
static bool
hangs(struct master *master, const struct master_disk_news *news, uint64_t now_ns)
{
    struct saving *saving = &master->saving;

    if (news->state != MASTER_DISK_BUSY ||
        (saving->stage != SAVING_BEGINNING && saving->stage != SAVING_COMMITTING)) {
        saving->asked_ns = now_ns;
        return false;
    }
    master_wake_at(master, saving->asked_ns + HANGS_MS * MASTER_MS_NS);
    return now_ns - saving->asked_ns >= HANGS_MS * MASTER_MS_NS;
}

void
master_saving_tick(struct master *master, uint64_t now_ns)
{
    struct saving *saving = &master->saving;
    struct master_disk_news news = {0};

    if (master->config.disk == NULL) {
        return;
    }
    if (saving->due_ns == 0) {
        saving->due_ns = now_ns + interval_ns(master);
    }
    if (saving->stage != SAVING_IDLE) {
        master->config.disk->look(master->config.disk->self, &news);
    }
    if (saving->stage != SAVING_IDLE && news.state == MASTER_DISK_FAILED) {
        master_saving_fail(master, news.text);
    } else if (hangs(master, &news, now_ns)) {
        master_saving_fail(master, saving->stage == SAVING_BEGINNING
                                       ? "the disk of the checkpoints does not answer for 600 s, "
                                         "asked to make files; is it still there?"
                                       : "the disk of the checkpoints does not answer for 600 s, "
                                         "asked to commit; is it still there?");
    } else if (saving->stage == SAVING_ORDERED && master_part_is_lost(master)) {
        master_saving_give_up(master, "worker 0 has left, or was replaced");
    } else if (saving->stage == SAVING_BEGINNING && news.state == MASTER_DISK_BEGUN) {
        saving->generation_number = news.generation;
        hurry(master);
    } else if (saving->stage == SAVING_COMMITTING && news.state == MASTER_DISK_COMMITTED) {
        committed(master, &news, now_ns);
    } else if (saving->stage == SAVING_ORDERED) {
        tell_waiting(master, now_ns);
    }
    if (saving->stage == SAVING_IDLE && now_ns >= saving->due_ns) {
        begin(master, now_ns);
    } else if (saving->stage == SAVING_IDLE) {
        master_wake_at(master, saving->due_ns);
    }
}
