/*
 * saving_part.c - what worker 0 has itself, in the same checkpoint as the tables.
 *
 * It has offered, or nothing of this happens. Where there are update tables it is asked for the step of the tables.
 * Where there are none, it names the step, and its part is all that is saved. Without its part nothing is
 * committed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/fail.h"
#include "checkpoint/worker_part.h"
#include "master/disk.h"
#include "master/state.h"

enum { NOTHING_MS = 10000 /* until the program may have offered */ };

/* Worker 0, if it has offered and is in the job. */
static struct member *
asked(const struct master *master)
{
    struct member *member = &master->worker[0].member;

    return master->saving.part_offered && master->saving.part_incarnation == member->incarnation &&
                   member->state == PSD_NODE_RUNNING
               ? member
               : NULL;
}

static bool
has_sums(const struct master *master)
{
    uint32_t id = 0;

    while (id < master->tables && (master->table[id]->spec.use != PSD_USE_SUM ||
                                   master->table[id]->state != TABLE_READY)) {
        id++;
    }
    return id < master->tables;
}

/* A program that has sums keeps parameters itself. If it gives nothing of them, they are not saved, and that is said. */
static void
tell_nothing(struct master *master, size_t tables)
{
    struct saving *saving = &master->saving;
    const uint64_t now_ns = psi_now_ns(master->env);

    if (saving->nothing_since_ns == 0 && has_sums(master)) {
        saving->nothing_since_ns = now_ns;
    }
    if (!saving->nothing_told && saving->nothing_since_ns != 0 &&
        now_ns >= saving->nothing_since_ns + NOTHING_MS * MASTER_MS_NS) {
        psi_log(master->log, PSI_LOG_WARN, "CHECKPOINT-NOTHING",
                tables == 0 ? "nothing is saved: the job's tables are sums, of which servers keep "
                              "nothing, and its "
                              "program gives nothing of its own (docs/checkpoints.md)"
                            : "only what servers keep is saved: the job also has sums, and its "
                              "program gives nothing of what it "
                              "keeps itself, such as the weights of a model (docs/checkpoints.md)");
        saving->nothing_told = true;
    }
}

/* Nobody else has what worker 0 had. It may be replaced. */
static void
tell_absent(struct master *master)
{
    struct saving *saving = &master->saving;
    const uint64_t now_ns = psi_now_ns(master->env);

    if (saving->absent_since_ns == 0) {
        saving->absent_since_ns = now_ns;
    }
    if (!saving->absent_told && now_ns >= saving->absent_since_ns + NOTHING_MS * MASTER_MS_NS) {
        psi_log(master->log, PSI_LOG_WARN, "CHECKPOINT-NOTHING",
                "nothing is saved without worker 0, which gives a part of every checkpoint: it is "
                "not in the job");
        saving->absent_told = true;
    }
}

bool
master_part_is_missing(struct master *master, size_t tables)
{
    if (master->saving.part_offered) {
        if (asked(master) == NULL) {
            tell_absent(master);
            return true;
        }
        master->saving.absent_since_ns = 0;
        master->saving.absent_told = false;
        return false;
    }
    tell_nothing(master, tables);
    return tables == 0;
}

bool
master_part_is_lost(const struct master *master)
{
    return master->saving.part == SAVING_PART_WANTED && asked(master) == NULL;
}

static void
send(struct master *master, const struct psi_part *part)
{
    const struct member *member = asked(master);
    struct psi_frame frame = master_frame(master, PSI_FRAME_PART);

    frame.seq = master->saving.number;
    frame.step = master->saving.step;
    if (member != NULL && member->session != NULL) {
        master_posted(member->session, psi_post_part(member->session->guest.conn, &frame, part));
    }
}

/* What it is told again after a cut, too. */
static void
send_order(struct master *master)
{
    const bool urgent = master->saving.is_urgent;
    struct psi_part part = {.news = PSI_PART_WANTED, .token = master->saving.token};

    if (!urgent) {
        part.every =
            master->config.checkpoint_epochs ? PSI_PART_EPOCH : master->config.checkpoint_steps;
    }
    snprintf(part.text, sizeof(part.text), "%s",
             master->config.checkpoint_path != NULL ? master->config.checkpoint_path : "");
    send(master, &part);
}

void
master_part_order(struct master *master)
{
    struct saving *saving = &master->saving;

    saving->part = saving->part_offered ? SAVING_PART_WANTED : SAVING_PART_NONE;
    saving->part_bytes = 0;
    if (saving->part == SAVING_PART_WANTED) {
        send_order(master);
    }
}

void
master_part_drop(struct master *master)
{
    const struct psi_part none = {.news = PSI_PART_DROPPED};

    if (master->saving.part != SAVING_PART_NONE) {
        master->saving.part = SAVING_PART_NONE;
        send(master, &none);
    }
}

static psd_status
offered(struct session *session)
{
    struct master *master = session->master;
    struct saving *saving = &master->saving;

    if (session->member->rank != 0) {
        return PSD_OK; /* all ranks have the same, or send it to rank 0 */
    }
    saving->part_offered = true;
    saving->part_incarnation = session->member->incarnation;
    if (saving->stage == SAVING_ORDERED && saving->part == SAVING_PART_WANTED) {
        send_order(master);
    }
    master_wake_at(master, 0);
    return PSD_OK;
}

static psd_status
written(struct master *master, const struct psi_frame *frame, const struct psi_part *part)
{
    struct saving *saving = &master->saving;
    struct psd_error reason;

    if (saving->any_tables && frame->step != saving->step) {
        return PSD_OK; /* of an order before this one */
    }
    if (!saving->any_tables && master_saving_of_part(master, frame->step, &reason) != PSD_OK) {
        master_saving_fail(master, reason.text);
        return PSD_OK;
    }
    saving->part = SAVING_PART_WRITTEN;
    saving->part_bytes = part->bytes;
    saving->generation->has_part = true;
    saving->generation->part = (struct psi_manifest_part){
        .name = PSI_WORKER_PART, .bytes = part->bytes, .checksum = part->checksum};
    master_saving_commit(master);
    return PSD_OK;
}

psd_status
master_on_part(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct saving *saving = &master->saving;
    char text[PSI_TEXT_MAX];
    struct psi_part part;
    psd_status status = psi_part_decode(body, bytes, &part, err);

    if (status != PSD_OK) {
        return status;
    }
    if (part.news == PSI_PART_OFFERED) {
        return offered(session);
    }
    if (session->member != asked(master) || saving->stage != SAVING_ORDERED ||
        saving->part != SAVING_PART_WANTED || frame->seq != saving->number) {
        return PSD_OK; /* what it is about was given up */
    }
    if (part.news == PSI_PART_LATE) {
        master_saving_later(master, frame->step);
    } else if (part.news == PSI_PART_FAILED) {
        snprintf(text, sizeof(text), "worker 0: %.400s", part.text);
        master_saving_fail(master, text);
    } else if (part.news == PSI_PART_WRITTEN) {
        return written(master, frame, &part);
    } else {
        return psi_fail(err, PSD_ERR_PROTOCOL, "PART: news %d from a worker", (int)part.news);
    }
    return PSD_OK;
}
