/*
 * workers.c - the places of workers: they join, are lost, may be replaced, and are done.
 *
 * Which place a worker gets, and what the job does without one, is a matter of the policy: it fails,
 * goes on, or waits for a replacement. That is apart from members.c, which has what workers and
 * lanes have in common; servers.c is the same for servers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/rebuild.h"
#include "master/state.h"

/* ------------------------------------------------------------------------------- joining --- */

static bool
is_free(const struct master *master, const struct worker *worker)
{
    return worker->member.state == PSD_NODE_MISSING ||
           (worker->member.state == PSD_NODE_LOST && master->config.policy == PSI_DEATH_WAIT);
}

/* Held by a life that may be gone for good, and then somebody else may take it. */
static bool
may_become_free(const struct master *master, const struct worker *worker)
{
    const bool held =
        worker->member.state == PSD_NODE_JOINED || worker->member.state == PSD_NODE_RUNNING;

    return held && worker->member.session == NULL &&
           (master->phase == PHASE_GATHERING || master->config.policy == PSI_DEATH_WAIT);
}

/* The place of a worker that did not ask for one: its own if it has one, else the lowest free one,
 * else one that may become free; NULL: all are taken. */
static struct worker *
choose_place(struct master *master, uint64_t life)
{
    struct worker *uncertain = NULL;
    struct worker *chosen = NULL;

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        struct worker *worker = &master->worker[rank];

        if (worker->member.state != PSD_NODE_MISSING && worker->member.life == life) {
            return worker;
        }
        if (chosen == NULL && is_free(master, worker)) {
            chosen = worker;
        }
        if (uncertain == NULL && may_become_free(master, worker)) {
            uncertain = worker;
        }
    }
    return chosen != NULL ? chosen : uncertain;
}

/* The life that held the place last has come back. */
static void
admit_again(struct session *session, struct worker *worker)
{
    struct member *member = &worker->member;

    if (member->state == PSD_NODE_LOST) {
        master_refuse(session, PSD_ERR_FENCED, "worker %u was declared dead: %s", member->rank,
                      worker->lost_text);
    } else {
        master_come_back(session, member);
    }
}

/* Workers of one host find each other by the view. */
static void
take_worker_place(struct session *session, struct worker *worker)
{
    worker->join_step = session->hello.join_step;
    worker->host = session->hello.host;
    memcpy(worker->host_address, session->hello.address, sizeof(worker->host_address));
    if (session->kind == SESSION_WAITING && session->master->config.term > 1) {
        master_rebuild_spare(session->master, &worker->member);
    }
    master_take_place(session, &worker->member, session->guest.conn->peer);
}

static void
replace(struct session *session, struct worker *worker)
{
    worker->old_life = worker->member.life;
    worker->wanted = CHANGE_REPLACE;
    worker->is_untold = false; /* what the last one had come to nobody will tell */
    master_barrier_replaced(session->master, worker);
    take_worker_place(session, worker);
}

/* A rank that nobody has had. In a job that has begun it counts from a later step on. */
static void
join(struct session *session, struct worker *worker)
{
    if (session->master->phase == PHASE_RUNNING) {
        worker->wanted = CHANGE_JOIN;
        master_barrier_replaced(session->master, worker);
    }
    take_worker_place(session, worker);
}

/*
 * Nobody who may be a replacement is turned away at once: of two connections that have news the
 * master may hear the younger one first, and the end of the other, which held the place, a moment
 * later. True: it waits until then.
 */
static bool
waits_a_moment(struct session *session)
{
    struct master *master = session->master;
    const uint64_t until_ns = session->heard_ns + MASTER_TAKEN_MS * MASTER_MS_NS;

    if (master->config.policy != PSI_DEATH_WAIT || master->phase != PHASE_RUNNING ||
        psi_now_ns(master->env) >= until_ns) {
        return false;
    }
    master_wait_for_place(session);
    master_wake_at(master, until_ns);
    return true;
}

static void
admit_another(struct session *session, struct worker *worker)
{
    struct master *master = session->master;
    const struct psi_hello *hello = &session->hello;
    const struct member *member = &worker->member;

    if (master->phase != PHASE_GATHERING &&
        ((worker->old_life != 0 && hello->life == worker->old_life) ||
         (hello->incarnation != 0 && hello->incarnation < member->incarnation))) {
        master_refuse(session, PSD_ERR_FENCED, "rank %u was replaced", member->rank);
    } else if (member->state == PSD_NODE_MISSING && master->phase == PHASE_RUNNING &&
               hello->in_time) {
        master_refuse(session, PSD_ERR_REFUSED,
                      "the job has begun, and this program cannot join it (setting join): what it "
                      "trains is with the other workers");
    } else if (member->state == PSD_NODE_MISSING && master->phase == PHASE_RUNNING &&
               master_rebuild_awaits_state(master)) {
        master_wait_for_place(session);
    } else if (member->state == PSD_NODE_MISSING) {
        worker->member.incarnation = 0;
        join(session, worker);
    } else if (is_free(master, worker) && !master_rebuild_awaits_state(master)) {
        replace(session, worker);
    } else if (is_free(master, worker) || may_become_free(master, worker)) {
        master_wait_for_place(session);
    } else if (member->state == PSD_NODE_LOST) {
        master_refuse(session, PSD_ERR_REFUSED, "worker rank %u was lost, the job goes on without",
                      member->rank);
    } else if (!waits_a_moment(session)) {
        master_refuse(session, PSD_ERR_REFUSED, "worker rank %u is taken by %s", member->rank,
                      member->address);
    }
}

void
master_admit_worker(struct session *session)
{
    struct master *master = session->master;
    const struct psi_hello *hello = &session->hello;
    struct worker *worker;

    if (hello->rank == PSI_RANK_AUTO) {
        worker = choose_place(master, hello->life);
    } else if (hello->rank < master->config.workers) {
        worker = &master->worker[hello->rank];
    } else {
        master_refuse(session, PSD_ERR_REFUSED,
                      "worker rank %u: the job has %u worker%s, ranks 0..%u", hello->rank,
                      master->config.workers, psi_plural(master->config.workers),
                      master->config.workers - 1);
        return;
    }
    if (worker == NULL) {
        if (!waits_a_moment(session)) {
            master_refuse(
                session, PSD_ERR_REFUSED,
                "all %u worker ranks are taken, and none is used twice: a job that others may join "
                "is started with a larger --max_workers",
                master->config.workers);
        }
        return;
    }
    if (master_rebuild_knows(master, &worker->member, hello)) {
        worker->member.life = hello->life;
        snprintf(worker->member.address, sizeof(worker->member.address), "%s",
                 session->guest.conn->peer);
    }
    if (master_rebuild_replaces(master, &worker->member, hello)) {
        worker->member.incarnation = hello->incarnation - 1; /* taking the place counts a life */
        replace(session, worker);
    } else if (worker->member.state != PSD_NODE_MISSING && worker->member.life == hello->life) {
        admit_again(session, worker);
    } else {
        admit_another(session, worker);
    }
}

/* A worker that is done and has not heard that its BYE was taken. */
bool
master_admit_late_worker(struct session *session)
{
    const struct psi_hello *hello = &session->hello;
    const struct master *master = session->master;
    struct member *member;

    if (hello->role != PSI_ROLE_WORKER || hello->rank >= master->config.workers) {
        return false;
    }
    member = &master->worker[hello->rank].member;
    if (master_rebuild_knows(master, member, hello)) {
        member->life = hello->life;
    }
    if (member->state != PSD_NODE_DONE || member->life != hello->life) {
        return false;
    }
    master_come_back(session, member);
    return true;
}

/* -------------------------------------------------------------------------------- losing --- */

/* It is in no view, nor in the one to come. */
static bool
has_not_joined(const struct master *master, const struct worker *worker)
{
    const uint32_t rank = worker->member.rank;
    const struct change *change = &master->change;

    return !master->view.worker[rank].member &&
           !(change->stage == STAGE_COMMITTED && change->kind == PSI_VIEW_WORKER_JOINED &&
             change->who == rank);
}

/* Nobody has waited for it, and another may have the rank. */
static void
forget_joiner(struct master *master, struct worker *worker, const char *reason)
{
    struct member *member = &worker->member;

    snprintf(worker->lost_text, sizeof(worker->lost_text), "%s", reason);
    master_fence(member);
    master_view_forget(master, member->rank);
    member->state = PSD_NODE_MISSING;
    member->life = 0;
    master_barrier_left(master, worker);
    master_tables_forget(master, member->rank);
    master_barrier_check(master);
    master_check_done(master, worker);
    master_wake_at(master, 0);
}

void
master_worker_turn_away(struct master *master, struct worker *worker, uint64_t first_step)
{
    struct session *session = worker->member.session;
    char text[PSI_TEXT_MAX];

    if (first_step == 0) {
        snprintf(text, sizeof(text),
                 "worker %u is to count from step %" PRIu64
                 " on (join_step), but no step of a table "
                 "has been pushed: let it come when training has begun",
                 worker->member.rank, worker->join_step);
    } else {
        snprintf(text, sizeof(text),
                 "worker %u is to count from step %" PRIu64
                 " on (join_step), but the first step that "
                 "it can have is %" PRIu64 ": ask for a later one",
                 worker->member.rank, worker->join_step, first_step);
    }
    psi_log(master->log, PSI_LOG_WARN, "MEMBER-REFUSED", "%s", text);
    forget_joiner(master, worker, text);
    if (session != NULL) { /* else it hears so when it is back, and asks once more */
        master_refuse(session, PSD_ERR_REFUSED, "%s", text);
    }
}

/* Who is in the view, alive. */
static uint32_t
count_members(const struct master *master)
{
    uint32_t members = 0;

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        members += master->view.worker[rank].member &&
                   master->worker[rank].member.state == PSD_NODE_RUNNING;
    }
    return members;
}

/* Who was done has not to be made up for: the others are about to be. */
static bool
is_anybody_done(const struct master *master)
{
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        if (master->worker[rank].member.state == PSD_NODE_DONE) {
            return true;
        }
    }
    return false;
}

bool
master_worker_is_held(const struct master *master, const struct worker *worker)
{
    return worker->member.state == PSD_NODE_LOST && !is_anybody_done(master) &&
           count_members(master) < master->config.min_workers;
}

static void
say_that_it_pauses(const struct master *master, const struct worker *worker)
{
    if (master_worker_is_held(master, worker)) {
        psi_log(
            master->log, PSI_LOG_WARN, "JOB-PAUSES",
            "%u worker%s left, min_workers is %u: no step ends until another joins, for at most "
            "%u ms (replacement_timeout_ms)",
            count_members(master), count_members(master) == 1 ? " is" : "s are",
            master->config.min_workers, master->config.replacement_timeout_ms);
    }
}

void
master_worker_lost(struct master *master, struct worker *worker, enum psi_loss loss,
                   const char *reason)
{
    struct member *member = &worker->member;

    worker->loss = loss;
    if (has_not_joined(master, worker)) {
        psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST",
                "worker %u (%s) lost before it counted: %s", member->rank, member->address, reason);
        forget_joiner(master, worker, reason);
        return;
    }
    psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST", "worker %u (%s) lost: %s", member->rank,
            member->address, reason);
    snprintf(worker->lost_text, sizeof(worker->lost_text), "%s", reason);
    master_tell(master, PSI_TIDING_LOST, member, loss, reason);
    master_fence(member);
    member->state = PSD_NODE_LOST;
    worker->lost_ns = psi_now_ns(master->env);
    worker->wanted = CHANGE_NONE;
    master_barrier_left(master, worker);
    master_tables_forget(master, member->rank);
    master_wake_at(master, 0);
    if (master->config.policy == PSI_DEATH_FAIL) {
        master_blame(master, member, loss);
        master_end(master, PSI_EXIT_WORKER_LOST, PSD_ERR_PEER_LOST, "worker %u (%s) lost: %s",
                   member->rank, member->address, reason);
    } else if (master->config.policy == PSI_DEATH_CONTINUE) {
        worker->wanted = CHANGE_LEAVE;
        say_that_it_pauses(master, worker);
        master_barrier_check(master);
        master_check_done(master, worker);
    }
}

/* Too few are left, and nobody has joined. */
static void
look_at_pause(struct master *master, const struct worker *worker, uint64_t now_ns)
{
    const uint64_t deadline_ns =
        worker->lost_ns + master->config.replacement_timeout_ms * MASTER_MS_NS;

    if (now_ns < deadline_ns) {
        master_wake_at(master, deadline_ns);
        return;
    }
    master_blame(master, &worker->member, worker->loss);
    master_end(master, PSI_EXIT_WORKER_LOST, PSD_ERR_PEER_LOST,
               "worker %u lost (%s), %u of at least %u workers (min_workers) left, and nobody "
               "joined in %u ms",
               worker->member.rank, worker->lost_text, count_members(master),
               master->config.min_workers, master->config.replacement_timeout_ms);
}

void
master_worker_tick(struct master *master, const struct worker *worker, uint64_t now_ns)
{
    const uint64_t deadline_ns =
        worker->lost_ns + master->config.replacement_timeout_ms * MASTER_MS_NS;

    if (worker->wanted == CHANGE_LEAVE && master_worker_is_held(master, worker)) {
        look_at_pause(master, worker, now_ns);
        return;
    }
    if (master->config.policy != PSI_DEATH_WAIT || worker->member.state != PSD_NODE_LOST) {
        return;
    }
    if (now_ns < deadline_ns) {
        master_wake_at(master, deadline_ns);
        return;
    }
    master_blame(master, &worker->member, worker->loss);
    master_end(master, PSI_EXIT_WORKER_LOST, PSD_ERR_PEER_LOST,
               "worker %u lost (%s) and not replaced in %u ms", worker->member.rank,
               worker->lost_text, master->config.replacement_timeout_ms);
}

/* -------------------------------------------------------------------------- for the view --- */

void
master_missing_workers(const struct master *master, struct names *names)
{
    uint32_t here = 0;

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        here += master_may_begin(master, &master->worker[rank].member);
    }
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        if ((rank == 0 || here < master->config.start_workers) &&
            !master_may_begin(master, &master->worker[rank].member)) {
            master_names_add(names, "worker", rank);
            names->workers++;
            here++;
        }
    }
}

struct worker *
master_next_to_change(const struct master *master)
{
    struct worker *joiner = NULL;

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        struct worker *worker = &master->worker[rank];

        if (worker->wanted == CHANGE_REPLACE ||
            (worker->wanted == CHANGE_LEAVE && !master_worker_is_held(master, worker))) {
            return worker;
        }
        if (worker->wanted == CHANGE_JOIN && joiner == NULL &&
            master_may_begin(master, &worker->member)) {
            joiner = worker;
        }
    }
    return joiner;
}

/* ---------------------------------------------------------------------------------- done --- */

bool
master_worker_expected(const struct master *master, const struct worker *worker)
{
    return worker->member.state == PSD_NODE_JOINED || worker->member.state == PSD_NODE_RUNNING ||
           (worker->member.state == PSD_NODE_LOST && master->config.policy == PSI_DEATH_WAIT);
}

void
master_check_done(struct master *master, const struct worker *lost)
{
    uint32_t done = 0;

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        if (master_worker_expected(master, &master->worker[rank])) {
            return;
        }
        done += master->worker[rank].member.state == PSD_NODE_DONE;
    }
    if (done > 0 && !master_done_is_kept(master)) {
        return;
    }
    if (done > 0) {
        master_rebuild_end_well(master);
    } else {
        psi_assert(lost != NULL);
        master_blame(master, &lost->member, lost->loss);
        master_end(master, PSI_EXIT_WORKER_LOST, PSD_ERR_PEER_LOST,
                   "no worker is left: worker %u (%s) lost: %s", lost->member.rank,
                   lost->member.address, lost->lost_text);
    }
}

psd_status
master_on_bye(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    struct worker *worker = &master->worker[session->member->rank];
    const struct psi_frame ack = master_answer(session, PSI_FRAME_ACK);
    uint32_t done = 0;

    (void)body;
    (void)bytes;
    if (master->phase == PHASE_GATHERING) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "BYE before the start");
    }
    if (worker->member.state == PSD_NODE_DONE) { /* repeated after a reconnect */
        master_done_say(master, worker, &ack);
        return PSD_OK;
    }
    if (master->phase >= PHASE_ENDING) {
        return PSD_OK;
    }
    worker->member.state = PSD_NODE_DONE;
    worker->wanted = CHANGE_LEAVE;
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        done += master->worker[rank].member.state == PSD_NODE_DONE;
    }
    psi_log(master->log, PSI_LOG_INFO, "MEMBER-DONE", "worker %u done (%u of %u)",
            worker->member.rank, done, master->config.workers);
    master_tell(master, PSI_TIDING_DONE, &worker->member, PSI_LOSS_NONE, "");
    master_barrier_check(master);
    psi_fail_point(master_worker_done);
    master_done_say(master, worker, &ack);
    master_wake_at(master, 0);
    return PSD_OK;
}
