/*
 * plan.c - the job of one seed, and the program its workers run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/initial.h"

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

enum { FEW = 8 }; /* workers */

enum mode { MODE_BULK, MODE_STALE, MODE_LEDGER, MODE_MIXED, MODE_BACKUP };

/* ---- tables -------------------------------------------------------------------------------- */

static uint64_t
draw_count(struct rng *rng, bool large)
{
    if (large) {
        const uint64_t full = rng_chance(rng, 20) ? 2 : 1;

        return PSD_CHUNK_ELEMENTS * full + rng_between(rng, 1, 300);
    }
    return rng_chance(rng, 20) ? 1 : rng_between(rng, 2, 400);
}

static void
draw_rounds(struct plan *plan, struct table_plan *table, struct rng *rng, bool large, bool backup)
{
    static const psd_rule rules[] = {PSD_RULE_ADD, PSD_RULE_SGD, PSD_RULE_MOMENTUM};
    static const psd_init inits[] = {PSD_INIT_ZERO, PSD_INIT_CONSTANT, PSD_INIT_UNIFORM,
                                     PSD_INIT_RANK0};

    table->kind = KIND_ROUNDS;
    table->dtype = rng_chance(rng, 15) ? PSD_F64 : PSD_F32;
    table->count = draw_count(rng, large);
    table->reduce = rng_chance(rng, 50) ? PSD_REDUCE_MEAN : PSD_REDUCE_SUM;
    /* A replacement takes the state of a sum job from another worker: there must be one. */
    if (!backup && rng_chance(rng, 35) && (plan->workers > 1 || plan->policy != PSI_DEATH_WAIT)) {
        table->use = PSD_USE_SUM;
    } else {
        table->rule.rule = rules[rng_below(rng, 3)];
        table->rule.learning_rate = table->rule.rule == PSD_RULE_ADD ? 0 : 0.125;
        table->rule.momentum = table->rule.rule == PSD_RULE_MOMENTUM ? 0.75 : 0;
        table->init = inits[rng_below(rng, 4)];
    }
    table->skips = rng_chance(rng, 40);
}

static void
draw_slots(struct plan *plan, struct table_plan *table, struct rng *rng, bool large, bool ledger)
{
    const uint64_t slots = plan->workers * plan->pushes_max + 1;

    table->kind = ledger ? KIND_LEDGER : KIND_SLOTS;
    table->dtype = rng_chance(rng, 25) ? PSD_F16 : PSD_F32;
    table->count = slots + rng_below(rng, 50);
    if (large) {
        table->count += PSD_CHUNK_ELEMENTS;
    }
    table->rule.rule = PSD_RULE_ADD;
    table->reduce = PSD_REDUCE_SUM;
    table->staleness = ledger ? PSD_STALENESS_UNBOUNDED : (uint32_t)rng_between(rng, 1, 4);
}

static void
draw_tables(struct plan *plan, struct rng *rng, enum mode mode)
{
    const bool large = rng_chance(rng, 30);
    const uint32_t backup =
        mode == MODE_BACKUP ? (uint32_t)rng_between(rng, 1, plan->workers - 1) : 0;

    plan->table_count = (unsigned)rng_between(rng, 1, TABLES_MAX);
    for (unsigned i = 0; i < plan->table_count; i++) {
        struct table_plan *table = &plan->table[i];
        const bool ledger = mode == MODE_LEDGER || (mode == MODE_MIXED && i == 1);
        const bool slots = mode == MODE_STALE || (mode == MODE_MIXED && i == 2);

        if (ledger || slots) {
            draw_slots(plan, table, rng, large && i == 0, ledger);
        } else {
            draw_rounds(plan, table, rng, large && i == 0, mode == MODE_BACKUP);
        }
        table->backup = backup; /* tables pushed together close together */
        snprintf(table->name, sizeof(table->name), "t%u", i);
        table->priority = (uint8_t)rng_below(rng, 4);
        table->split = rng_chance(rng, 30);
        table->ranges = rng_chance(rng, 30) && table->kind == KIND_ROUNDS && mode != MODE_BACKUP;
    }
    if (plan->table_count > 1 && plan->policy != PSI_DEATH_WAIT && backup == 0 &&
        rng_chance(rng, 20)) {
        plan->table[plan->table_count - 1].opened_at = rng_between(rng, 1, plan->steps - 1);
    }
    if (large && plan->steps > 8) {
        plan->steps = 8;
    }
}

/* ---- the world ----------------------------------------------------------------------------- */

static void
draw_weather(struct net_weather *weather, struct rng *rng)
{
    weather->delay_min = rng_between(rng, 10, 100) * SIM_US;
    weather->delay_max = weather->delay_min + rng_between(rng, 10, 4000) * SIM_US;
    weather->slow_percent = rng_chance(rng, 50) ? (unsigned)rng_below(rng, 15) : 0;
    weather->take_max = rng_chance(rng, 70) ? rng_between(rng, 1, 2000) * SIM_US : 20 * SIM_MS;
    weather->close_max = rng_between(rng, 1, 20) * SIM_MS;
}

/* Tables of several chunks meet in rounds: where a death may leave half a step. */
static bool
in_parts(const struct plan *plan)
{
    return plan->table[0].kind == KIND_ROUNDS && plan->table[0].count > PSD_CHUNK_ELEMENTS;
}

/* Replacements take the state of the job from live workers. */
static bool
hands_over(const struct plan *plan)
{
    bool sums = false;

    for (unsigned i = 0; i < plan->table_count; i++) {
        sums = sums || plan->table[i].use == PSD_USE_SUM;
    }
    return sums && plan->policy == PSI_DEATH_WAIT && plan->workers > 2;
}

static void
draw_faults(struct plan *plan, struct rng *rng)
{
    struct fault_plan *faults = &plan->faults;
    const unsigned force = (unsigned)rng_below(rng, 4); /* none, light, middling, heavy */

    faults->from_ns = rng_chance(rng, 30) ? 0 : rng_between(rng, 1, 50) * SIM_MS;
    faults->until_ns = faults->from_ns + rng_between(rng, 20, 500) * SIM_MS;
    if (force > 0) {
        faults->cuts = (unsigned)rng_below(rng, force * 8);
        faults->clogs = (unsigned)rng_below(rng, force * 3);
        faults->pauses = (unsigned)rng_below(rng, force * 3);
        plan->weather.lost_connect_percent = (unsigned)rng_below(rng, force * 10);
    }
    if (force > 0 && plan->table[0].backup > 0) {
        faults->cuts += 10; /* a third party decides: more messages that may be lost */
    }
    if (rng_chance(rng, in_parts(plan) || hands_over(plan) ? 85 : 45)) {
        faults->worker_kills = (unsigned)rng_between(rng, 1, 4);
        faults->together = rng_chance(rng, hands_over(plan) ? 75 : 40);
    }
    if (rng_chance(rng, 6)) {
        faults->kill_server = true;
    } else if (rng_chance(rng, 4)) {
        faults->kill_master = true;
    }
    faults->harsh = force == 3 && rng_chance(rng, 25);
}

/* Nobody is given up because of a network that is only slow. */
static void
be_patient(struct plan *plan)
{
    plan->heartbeat_ms = 250;
    plan->dead_heartbeats = 20;
    plan->grace_ms = 4000;
}

static void
draw_patience(struct plan *plan, struct rng *rng)
{
    if (plan->faults.cuts + plan->faults.clogs + plan->faults.pauses == 0 || plan->faults.harsh) {
        plan->heartbeat_ms = 100;
        plan->dead_heartbeats = (uint32_t)rng_between(rng, 5, 10);
        plan->grace_ms = (uint32_t)rng_between(rng, 1, 5) * 100;
    } else {
        be_patient(plan);
    }
}

/* Nobody gives initial values in the place of a rank 0 that died before it did. */
static void
go_on_without_the_dead(struct plan *plan)
{
    plan->policy = PSI_DEATH_CONTINUE;
    for (unsigned i = 0; i < plan->table_count; i++) {
        if (plan->table[i].init == PSD_INIT_RANK0) {
            plan->table[i].init = PSD_INIT_CONSTANT;
        }
    }
}

/* Workers on hosts of their own, or on few: neighbours in rank together, or scattered. Servers with
 * them, or not. */
static void
draw_hosts(struct plan *plan, struct rng *rng)
{
    const uint32_t hosts = (uint32_t)rng_between(rng, 0, (plan->workers + 1) / 2);
    const bool scattered = rng_chance(rng, 30);
    const bool apart = rng_chance(rng, 50);

    for (uint32_t i = 0; i < plan->workers && hosts > 0; i++) {
        plan->worker_host[i] = 1 + (scattered ? i % hosts : i * hosts / plan->workers);
    }
    for (uint32_t i = 0; i < plan->servers && hosts > 0 && !apart; i++) {
        plan->server_host[i] = (uint32_t)rng_between(rng, rng_chance(rng, 40) ? 0 : 1, hosts);
    }
    for (unsigned i = 0; i < plan->table_count; i++) {
        plan->table[i].ordinary = rng_chance(rng, 50);
    }
}

/* Mostly few: whole jobs of many cost as much as ten others. */
static uint32_t
draw_workers(struct rng *rng)
{
    return (uint32_t)(rng_chance(rng, 4) ? rng_between(rng, FEW + 1, WORKERS_DRAWN_MAX)
                                         : rng_between(rng, 1, FEW));
}

/* A replacement may be told to go on at an earlier step of a stale table than of the others. It
 * then makes up for it in later steps, which others wait for: in none of them can it meet them. */
static bool
catches_up(const struct plan *plan)
{
    bool stale = false;

    for (unsigned i = 0; i < plan->table_count; i++) {
        stale = stale || plan->table[i].kind == KIND_SLOTS;
    }
    return stale && plan->table_count > 1 && plan->policy == PSI_DEATH_WAIT;
}

/* A load brings all tables to one step; who loads must not be one that the others go on without. */
static bool
may_load(const struct plan *plan)
{
    bool may = plan->policy != PSI_DEATH_CONTINUE;

    for (unsigned i = 0; i < plan->table_count; i++) {
        may = may && plan->table[i].kind == KIND_ROUNDS && plan->table[i].use == PSD_USE_UPDATE &&
              plan->table[i].opened_at == 0;
    }
    return may;
}

/* What a worker does at once, and when it meets the others. With backup workers each does other
 * steps: they meet only behind the last. */
static void
draw_program(struct plan *plan, struct rng *rng)
{
    const bool backup = plan->table[0].backup > 0;

    if (!backup && !catches_up(plan) && rng_chance(rng, 30)) {
        plan->depth = (uint32_t)rng_between(rng, 2, in_parts(plan) ? 3 : FLIGHTS_MAX);
        if (plan->policy == PSI_DEATH_WAIT && plan->table_count > 1 && rng_chance(rng, 50)) {
            /* Who dies while one table lags must not have gone far ahead with the others. */
            plan->faults.clogs += 6;
            plan->faults.worker_kills += 1;
            if (!plan->faults.harsh) {
                be_patient(plan);
            }
        }
    }
    if (rng_chance(rng, 30)) {
        plan->threads = (uint32_t)rng_between(rng, 2, 3);
    }
    if (!backup && !catches_up(plan) && rng_chance(rng, 30)) {
        plan->barrier_every = rng_between(rng, 1, 5);
    }
    if (rng_chance(rng, 25)) {
        plan->end_barriers = (uint32_t)rng_between(rng, 1, 3);
    }
    if (may_load(plan) && rng_chance(rng, 25)) {
        plan->load_step = rng_between(rng, 1, 5);
        plan->steps += plan->load_step;
    }
    if (rng_chance(rng, 30)) {
        plan->save_every = rng_between(rng, 1, 3);
    }
    /* Only where a dead worker ends the job do workers of one host push together. */
    if (plan->policy == PSI_DEATH_FAIL && plan->worker_host[0] > 0 && rng_chance(rng, 50)) {
        plan->faults.neighbour_cuts = (unsigned)rng_between(rng, 1, 4);
    }
}

/* Whichever server is lost, the others have lanes enough that stand by. */
static bool
has_room_for_any(const struct plan *plan)
{
    for (uint32_t lost = 0; lost < plan->servers; lost++) {
        uint32_t room = 0;

        for (uint32_t server = 0; server < plan->servers; server++) {
            room += server != lost ? plan->lanes[server] : 0;
        }
        if (room < plan->lanes[lost]) {
            return false;
        }
    }
    return true;
}

/* Tables of sums alone, whose servers die and have other lives: workers make anew what they had. */
static void
draw_server_lives(struct plan *plan, struct rng *rng)
{
    plan->server_wait_ms = 60000;
    plan->step_adds = false; /* which would die with the first server */
    for (unsigned i = 0; i < plan->table_count; i++) {
        struct table_plan *table = &plan->table[i];

        table->use = PSD_USE_SUM;
        table->rule = (struct psd_rule_args){0};
        table->init = PSD_INIT_ZERO;
    }
    plan->steps += plan->workers > FEW ? 0 : rng_between(rng, 0, 24); /* several lives long */
    plan->steps -= plan->load_step;
    plan->load_step = 0;
    plan->faults.kill_server = false;
    plan->faults.kill_master = false;
    if (plan->policy != PSI_DEATH_CONTINUE || !rng_chance(rng, 50)) {
        plan->faults.worker_kills = 0; /* the job would end before it has shown anything */
    }
    plan->faults.server_lives = (unsigned)rng_between(rng, 1, 4);
    plan->server_return_ms = (uint32_t)rng_between(rng, 0, 800);
    if (has_room_for_any(plan) && rng_chance(rng, 40)) { /* another one takes its part */
        plan->faults.server_stays_away = true;
        plan->faults.server_lives = 1;
    }
    if (plan->think_max_ns < SIM_MS) {
        plan->think_max_ns = rng_between(rng, 1, 30) * SIM_MS;
    }
}

/* Of which there is a number for each push. */
static bool
has_slots(const struct plan *plan)
{
    for (unsigned i = 0; i < plan->table_count; i++) {
        if (plan->table[i].kind != KIND_ROUNDS) {
            return true;
        }
    }
    return false;
}

static bool
has_sums_alone(const struct plan *plan)
{
    for (unsigned i = 0; i < plan->table_count; i++) {
        if (plan->table[i].use != PSD_USE_SUM) {
            return false;
        }
    }
    return true;
}

/* Tables of any kind, whose servers die, and have copies. */
static void
draw_copies(struct plan *plan, struct rng *rng)
{
    plan->server_wait_ms = 60000;
    plan->replicas = 1;
    plan->step_adds = plan->step_adds && !has_sums_alone(plan); /* else it may go on without them */
    plan->server_return_ms = (uint32_t)rng_between(rng, 0, 800);
    if (plan->workers <= FEW && !has_slots(plan)) {
        plan->steps += rng_between(rng, 0, 16);
    }
    plan->faults.kill_server = false;
    plan->faults.kill_master = false;
    plan->faults.server_lives = (unsigned)rng_between(rng, 1, 4);
    plan->faults.exiles = rng_chance(rng, 30) ? (unsigned)rng_between(rng, 1, 2) : 0;
    plan->faults.harsh = false;
    be_patient(plan);
    if (plan->faults.cuts + plan->faults.clogs + plan->faults.pauses == 0) {
        plan->grace_ms = (uint32_t)rng_between(rng, 4, 40) * 100;
    }
    if (plan->think_max_ns < SIM_MS) {
        plan->think_max_ns = rng_between(rng, 1, 30) * SIM_MS;
    }
    plan->faults.freezes = rng_chance(rng, 30) ? (unsigned)rng_between(rng, 1, 2) : 0;
    plan->faults.blocks = rng_chance(rng, 30) ? (unsigned)rng_between(rng, 1, 3) : 0;
    if (plan->policy == PSI_DEATH_FAIL && rng_chance(rng, 80)) {
        plan->faults.worker_kills = 0; /* else the job ends, and shows little */
    }
}

static bool
may_have_copies(const struct plan *plan)
{
    return plan->servers > 1;
}

static bool
may_have_server_lives(const struct plan *plan)
{
    for (unsigned i = 0; i < plan->table_count; i++) {
        if (plan->table[i].kind != KIND_ROUNDS || plan->table[i].backup > 0) {
            return false;
        }
    }
    return plan->policy != PSI_DEATH_WAIT;
}

/* The master dies and is started again; what it knew, it hears. */
static void
draw_master_lives(struct plan *plan, struct rng *rng)
{
    plan->master_grace_ms = 30000;
    plan->faults.kill_server = false;
    plan->faults.kill_master = false;
    plan->faults.master_lives = (unsigned)rng_between(rng, 1, 3);
    if (plan->steps > 16 + plan->load_step) {
        plan->steps = 16 + plan->load_step; /* a slow network takes seconds for each */
    }
    /* One that ends the job is obeyed by whoever still hears it. */
    plan->faults.masters_overlap =
        (plan->policy != PSI_DEATH_FAIL || plan->faults.worker_kills == 0) &&
        (plan->replicas > 0 || plan->faults.server_lives == 0) && !plan->faults.harsh &&
        rng_chance(rng, 40);
    plan->faults.masters_move =
        plan->seed % 2 == 0; /* nothing is drawn for it: plans stay what they were */
    if (plan->think_max_ns < SIM_MS) {
        plan->think_max_ns = rng_between(rng, 1, 30) * SIM_MS;
    }
}

/* Who is in a step with backup workers only one life of the master knows. */
static bool
may_have_master_lives(const struct plan *plan)
{
    for (unsigned i = 0; i < plan->table_count; i++) {
        if (plan->table[i].backup > 0) {
            return false;
        }
    }
    return true;
}

static bool
may_have_rifts(const struct plan *plan)
{
    return may_have_master_lives(plan) && plan->policy != PSI_DEATH_WAIT &&
           plan->faults.master_lives == 0 && !plan->faults.kill_server &&
           !plan->faults.kill_master && !plan->faults.harsh;
}

/* Some do not reach each other, but all reach the master: who is deposed or given up for it is all
 * that is lost. */
static void
draw_rifts(struct plan *plan, struct rng *rng)
{
    plan->faults.rifts = (unsigned)rng_between(rng, 1, 3);
    plan->faults.server_lives = 0;
    plan->faults.exiles = 0;
    plan->faults.freezes = 0;
    plan->faults.blocks = 0;
    plan->faults.worker_kills = 0;
    if (plan->replicas > 0) {
        plan->policy =
            PSI_DEATH_FAIL; /* what others gave to open rounds would die with the server */
    }
    if (plan->faults.cuts + plan->faults.clogs + plan->faults.pauses == 0) {
        plan->heartbeat_ms = 100;
        plan->dead_heartbeats = (uint32_t)rng_between(rng, 5, 10);
    } else {
        be_patient(plan);
    }
}

/* Servers save by themselves, at some steps or after some time; some with hardly any room for copies. */
static void
draw_checkpoints(struct plan *plan, struct rng *rng)
{
    if (rng_chance(rng, 50)) {
        plan->checkpoint_steps = rng_between(rng, 1, 4);
    } else {
        plan->checkpoint_ms = rng_between(rng, 1, 300);
    }
    plan->snapshot_bytes = rng_chance(rng, 40) ? 1 : 0;
    /* Some tables change so little that their values stay: later checkpoints refer to earlier ones. */
    for (unsigned i = 0; i < plan->table_count; i++) {
        if (plan->table[i].rule.learning_rate > 0 && rng_chance(rng, 40)) {
            plan->table[i].rule.learning_rate = 1e-30;
        }
    }
}

/* Not where rounds leave workers out: such a job cannot be joined. */
static bool
may_have_joins(const struct plan *plan)
{
    return may_have_master_lives(plan) && plan->workers > 1 && plan->workers <= FEW;
}

/* Workers come and go while the others train. */
static void
draw_joins(struct plan *plan, struct rng *rng)
{
    plan->start_workers = (uint32_t)rng_between(rng, 1, plan->workers - 1);
    plan->steps -= plan->load_step;
    plan->load_step = 0;
    for (uint32_t slot = plan->start_workers; slot < plan->workers; slot++) {
        plan->join_ms[slot] = (uint32_t)rng_between(rng, 1, rng_chance(rng, 50) ? 400 : 2000);
    }
    for (unsigned i = 0; i < plan->table_count; i++) {
        plan->table[i].opened_at = 0; /* all tables are at one step */
        plan->auto_rank = plan->auto_rank && plan->table[i].use != PSD_USE_SUM;
    }
    plan->leave_percent = rng_chance(rng, 50) ? (uint32_t)rng_between(rng, 10, 60) : 0;
    if (plan->think_max_ns < 5 * SIM_MS) {
        plan->think_max_ns = rng_between(rng, 5, 60) * SIM_MS;
    }
    plan->faults.neighbour_cuts = 0; /* none pushes for another */
}

/* Some who join say with which step: one that is to come, or one that may be over when they come. */
static void
draw_join_steps(struct plan *plan, struct rng *rng)
{
    for (uint32_t slot = plan->start_workers; slot < plan->workers; slot++) {
        if (rng_chance(rng, 40)) {
            plan->join_step[slot] = (uint32_t)rng_between(rng, 1, plan->steps);
        }
    }
}

/* Not where it is the point that a server's death ends the job, or that nobody comes back. */
static bool
may_have_moves(const struct plan *plan)
{
    const bool has_two_places = plan->servers > 1 || plan->lanes[0] > 1;

    return has_two_places && plan->workers <= FEW && !plan->faults.harsh &&
           !plan->faults.kill_server && !plan->faults.kill_master && plan->faults.rifts == 0 &&
           !plan->faults.server_stays_away && plan->load_step == 0 &&
           (plan->policy != PSI_DEATH_WAIT || plan->replicas > 0);
}

/* Servers come and go while the workers train. */
static void
draw_moves(struct plan *plan, struct rng *rng)
{
    if (plan->server_wait_ms == 0) {
        plan->server_wait_ms = 60000;
        plan->server_return_ms = (uint32_t)rng_between(rng, 0, 800);
    }
    plan->max_servers = plan->servers + (uint32_t)rng_between(rng, 1, 2);
    plan->scales = (uint32_t)rng_between(rng, 1, 4);
    plan->move_bytes_per_s = rng_chance(rng, 50) ? 0 : rng_between(rng, 1 << 20, 64 << 20);
    plan->faults.target_kills = rng_chance(rng, 30) ? 1 : 0;
    if (plan->think_max_ns < 5 * SIM_MS) {
        plan->think_max_ns = rng_between(rng, 5, 60) * SIM_MS;
    }
}

/* Servers can read update tables; the model has none of those without rounds at a step. */
static bool
may_resume(const struct plan *plan)
{
    bool may = true;

    for (unsigned i = 0; i < plan->table_count; i++) {
        const struct table_plan *table = &plan->table[i];

        may = may && table->kind == KIND_ROUNDS && table->use == PSD_USE_UPDATE &&
              table->opened_at == 0 && table->backup == 0;
    }
    return may;
}

/* The job goes on from a checkpoint, as psd_run --resume has it. */
static void
draw_resume(struct plan *plan, struct rng *rng)
{
    plan->resumes = true;
    if (plan->load_step == 0) {
        plan->load_step = rng_between(rng, 1, 5);
        plan->steps += plan->load_step;
    }
}

void
plan_make(struct plan *plan, uint64_t seed)
{
    struct rng readers = {.state = sim_mix(seed, 37, 38, 39)};
    struct rng resumes = {.state = sim_mix(seed, 34, 35, 36)};
    struct rng asks = {.state = sim_mix(seed, 31, 32, 33)};
    struct rng moves = {.state = sim_mix(seed, 25, 26, 27)};
    struct rng rows = {.state = sim_mix(seed, 28, 29, 30)};
    struct rng alone = {.state = sim_mix(seed, 22, 23, 24)};
    struct rng checkpoints = {.state = sim_mix(seed, 19, 20, 21)};
    struct rng joins = {.state = sim_mix(seed, 16, 17, 18)};
    struct rng rifts = {.state = sim_mix(seed, 13, 14, 15)};
    struct rng copies = {.state = sim_mix(seed, 10, 11, 12)};
    struct rng reigns = {.state = sim_mix(seed, 7, 8, 9)};
    struct rng lives = {.state = sim_mix(seed, 4, 5, 6)}; /* apart: other seeds stay as they were */

    struct rng rng = {.state = sim_mix(seed, 1, 2, 3)};
    static const enum mode modes[] = {MODE_BULK,   MODE_BULK,   MODE_BULK,   MODE_BULK,
                                      MODE_STALE,  MODE_LEDGER, MODE_LEDGER, MODE_MIXED,
                                      MODE_BACKUP, MODE_BACKUP};
    enum mode mode = modes[rng_below(&rng, sizeof(modes) / sizeof(modes[0]))];

    memset(plan, 0, sizeof(*plan));
    plan->seed = seed;
    plan->workers = draw_workers(&rng);
    plan->readers = rng_chance(&readers, 30) ? (uint32_t)rng_between(&readers, 1, 2) : 0;
    plan->servers = rng_chance(&rng, 25) ? 1 : (uint32_t)rng_between(&rng, 1, SERVERS_MAX);
    for (uint32_t i = 0; i < plan->servers; i++) {
        plan->lanes[i] = (uint32_t)rng_between(&rng, 1, LANES_MAX);
    }
    plan->policy = (enum psi_death_policy)rng_below(&rng, 3);
    if (mode == MODE_BACKUP && plan->workers == 1) {
        mode = MODE_BULK;
    }
    plan->steps = rng_between(&rng, 2, plan->workers > FEW ? 5 : 16);
    plan->pushes_max = 3 * plan->steps;
    draw_tables(plan, &rng, mode);
    if (plan->policy == PSI_DEATH_CONTINUE) {
        go_on_without_the_dead(plan);
    }
    draw_weather(&plan->weather, &rng);
    if (in_parts(plan) && plan->policy == PSI_DEATH_FAIL && rng_chance(&rng, 70)) {
        go_on_without_the_dead(plan);
    }
    draw_faults(plan, &rng);
    draw_patience(plan, &rng);
    plan->op_timeout_ms = 300000;
    plan->ledger_timeout_ms = rng_chance(&rng, 60) ? (uint32_t)rng_between(&rng, 2, 100) : 300000;
    plan->pool_bytes = rng_chance(&rng, 30) ? 1 : 8 << 20;
    plan->window_bytes = rng_chance(&rng, 30) ? 4096 : 2 << 20;
    plan->checksum = rng_chance(&rng, 30);
    plan->step_adds = rng_chance(&rng, mode == MODE_LEDGER ? 80 : 40);
    plan->auto_rank = rng_chance(&rng, 15);
    plan->think_max_ns = rng_chance(&rng, 50) ? rng_between(&rng, 1, 60) * SIM_MS : 0;
    draw_hosts(plan, &rng);
    draw_program(plan, &rng);
    if (may_have_copies(plan) && rng_chance(&copies, 35)) {
        draw_copies(plan, &copies);
    } else if (may_have_server_lives(plan) && rng_chance(&lives, 40)) {
        draw_server_lives(plan, &lives);
    }
    if (may_have_master_lives(plan) && rng_chance(&reigns, 30)) {
        draw_master_lives(plan, &reigns);
    }
    if (may_have_rifts(plan) && rng_chance(&rifts, 25)) {
        draw_rifts(plan, &rifts);
    }
    if (rng_chance(&checkpoints, 20)) {
        draw_checkpoints(plan, &checkpoints);
    }
    if (may_have_joins(plan) && rng_chance(&joins, 25)) {
        draw_joins(plan, &joins);
        draw_join_steps(plan, &asks);
    }
    if (may_have_moves(plan) && rng_chance(&moves, 25)) {
        draw_moves(plan, &moves);
    }
    if (may_resume(plan) && rng_chance(&resumes, 50)) {
        draw_resume(plan, &resumes);
    }
    plan->lone_sums = plan->workers == 1 && rng_chance(&alone, 50);
    plan_draw_rows(plan, &rows);
}

void
plan_print(const struct plan *plan)
{
    static const char *const policies[] = {"fail", "continue", "wait"};

    printf("seed %llu: %u workers, %u servers (", (unsigned long long)plan->seed, plan->workers,
           plan->servers);
    for (uint32_t i = 0; i < plan->servers; i++) {
        printf("%s%u", i > 0 ? " " : "", plan->lanes[i]);
    }
    printf(" lanes), policy %s, %llu steps, faults: %u cuts, %u clogs, %u pauses, %u worker "
           "kills%s%s%s\n",
           policies[plan->policy], (unsigned long long)plan->steps, plan->faults.cuts,
           plan->faults.clogs, plan->faults.pauses, plan->faults.worker_kills,
           plan->faults.kill_server ? ", a server" : "",
           plan->faults.kill_master ? ", the master" : "", plan->faults.harsh ? ", harsh" : "");
    if (plan->readers > 0) {
        printf("  %u look at values from outside\n", plan->readers);
    }
    if (plan->replicas > 0) {
        printf("  servers have copies; %u lose the master, %u sleep, %u cuts one way\n",
               plan->faults.exiles, plan->faults.freezes, plan->faults.blocks);
    }
    if (plan->max_servers > 0) {
        printf(
            "  up to %u servers come and go, %u times, at %llu bytes/s, %u killed as they come\n",
            plan->max_servers, plan->scales, (unsigned long long)plan->move_bytes_per_s,
            plan->faults.target_kills);
    }
    if (plan->faults.rifts > 0) {
        printf("  %u times some do not reach each other, and all reach the master\n",
               plan->faults.rifts);
    }
    if (plan->faults.server_lives > 0) {
        printf("  servers die %u times, and are started again\n", plan->faults.server_lives);
    }
    if (plan->faults.master_lives > 0) {
        printf("  the master dies %u times, and is started again%s%s\n", plan->faults.master_lives,
               plan->faults.masters_move ? ", or elsewhere" : "",
               plan->faults.masters_overlap ? ", or while the last lives on" : "");
    }
    if (plan->depth > 1 || plan->threads > 1) {
        printf("  %u steps in flight, %u threads\n", plan_depth(plan),
               plan->threads > 1 ? plan->threads : 1);
    }
    if (plan->load_step > 0) {
        printf("  %s at step %llu\n", plan->resumes ? "goes on from a checkpoint" : "loaded",
               (unsigned long long)plan->load_step);
    }
    if (plan_is_elastic(plan)) {
        printf("  begins with %u workers, %u%% leave early, others begin after ms:",
               plan->start_workers, plan->leave_percent);
        for (uint32_t slot = 0; slot < plan->workers; slot++) {
            printf(" %u", plan->join_ms[slot]);
            if (plan->join_step[slot] != 0) {
                printf(" (asks for step %u)", plan->join_step[slot]);
            }
        }
        printf("\n");
    }
    if (plan->save_every > 0) {
        printf("  a save every %llu steps\n", (unsigned long long)plan->save_every);
    }
    if (plan->checkpoint_steps > 0 || plan->checkpoint_ms > 0) {
        printf("  a checkpoint every %llu %s%s\n",
               (unsigned long long)(plan->checkpoint_steps + plan->checkpoint_ms),
               plan->checkpoint_ms > 0 ? "ms" : "steps",
               plan->snapshot_bytes > 0 ? ", with little room" : "");
    }
    if (plan->faults.neighbour_cuts > 0) {
        printf("  %u cuts between workers of one host\n", plan->faults.neighbour_cuts);
    }
    if (plan->barrier_every > 0 || plan->end_barriers > 0) {
        printf("  a barrier every %llu steps, %u behind the last\n",
               (unsigned long long)plan->barrier_every, plan->end_barriers);
    }
    if (plan->worker_host[0] > 0) {
        printf("  hosts of workers:");
        for (uint32_t i = 0; i < plan->workers; i++) {
            printf(" %u", plan->worker_host[i]);
        }
        printf(", of servers:");
        for (uint32_t i = 0; i < plan->servers; i++) {
            printf(" %u", plan->server_host[i]);
        }
        printf("\n");
    }
    for (unsigned i = 0; i < plan->table_count; i++) {
        struct psi_spec spec;
        char text[512];

        plan_spec(plan, i, &spec);
        psi_spec_text(&spec, text, sizeof(text));
        printf("  table %s: %s%s%s%s%s\n", plan->table[i].name, text,
               plan->table[i].split ? ", push and pull" : "",
               plan->table[i].ranges ? ", by ranges" : "",
               plan->table[i].skips ? ", empty ones" : "",
               plan->table[i].ordinary ? ", ordinary memory" : "");
    }
}

/* ---- the program --------------------------------------------------------------------------- */

unsigned
plan_depth(const struct plan *plan)
{
    return plan->depth > 1 ? plan->depth : 1;
}

static void
spec_of_rows(const struct plan *plan, const struct table_plan *table,
             const struct psd_table_args *dense, struct psi_spec *spec_p)
{
    const struct psd_sparse_args args = {
        .struct_size = sizeof(args),
        .name = dense->name,
        .dtype = dense->dtype,
        .width = table->width,
        .use = dense->use,
        .reduce = dense->reduce,
        .rule = dense->rule,
        .staleness = dense->staleness,
        .backup_workers = dense->backup_workers,
        .init = dense->init,
        .init_value = dense->init_value,
        .seed = dense->seed,
        .capacity_rows = table->spills ? PLAN_HOT_ROWS : 0,
        .full = table->spills ? PSD_FULL_SPILL : PSD_FULL_REFUSE,
        .idle_steps = table->idle,
        .sweep_every = table->idle > 0,
    };
    struct psd_error err;

    if (psi_spec_init_sparse(spec_p, &args, plan->workers, &err) != PSD_OK) {
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)plan->seed, err.text);
        abort();
    }
}

void
plan_spec(const struct plan *plan, unsigned index, struct psi_spec *spec_p)
{
    const struct table_plan *table = &plan->table[index];
    struct psd_rule_args rule = table->rule;
    const struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = table->name,
        .dtype = table->dtype,
        .dims = 1,
        .shape = {table->count},
        .use = table->use,
        .reduce = table->reduce,
        .rule = &rule,
        .staleness = table->staleness,
        .backup_workers = table->backup,
        .init = table->init,
        .init_value = table->init == PSD_INIT_CONSTANT || table->init == PSD_INIT_UNIFORM ? 0.5 : 0,
        .seed = table->init == PSD_INIT_UNIFORM ? plan->seed : 0,
    };
    struct psd_error err;

    rule.struct_size = sizeof(rule);
    if (table->width > 0) {
        spec_of_rows(plan, table, &args, spec_p);
        return;
    }
    if (psi_spec_init(spec_p, &args, plan->workers, &err) != PSD_OK) {
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)plan->seed, err.text);
        abort();
    }
}

struct plan_parts
plan_parts(const struct table_plan *table)
{
    const size_t value = psi_dtype_bytes(table->dtype);
    const size_t master = value == 2 ? sizeof(float) : 0;
    const size_t state = table->rule.rule != PSD_RULE_MOMENTUM || table->use == PSD_USE_SUM ? 0
                         : value == 8                                                       ? 8
                                                                                            : 4;

    return (struct plan_parts){value, master, state, value + master + state};
}

bool
plan_is_lone(const struct plan *plan, unsigned table)
{
    return plan->lone_sums && plan->workers == 1 && plan->policy != PSI_DEATH_WAIT &&
           plan->table[table].use == PSD_USE_SUM && plan->table[table].width == 0;
}

void
plan_initial(const struct plan *plan, unsigned index, uint64_t first, uint64_t count,
             void *values_p)
{
    const struct table_plan *table = &plan->table[index];

    if (table->width > 0) {
        plan_initial_rows(plan, index, first, count, values_p);
        return;
    }
    if (table->init != PSD_INIT_RANK0) {
        store_initial(table->init, 0.5, plan->seed, table->dtype, first, count, values_p);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const double value = (double)((first + i) % 101) / 8 - 6;

        if (table->dtype == PSD_F64) {
            ((double *)values_p)[i] = value;
        } else {
            ((float *)values_p)[i] = (float)value;
        }
    }
}

void
plan_loaded(const struct plan *plan, unsigned index, unsigned part, uint64_t first, uint64_t count,
            void *values_p)
{
    const uint64_t key = sim_mix(plan->seed, index, part, plan->load_step) % 89;

    for (uint64_t i = 0; i < count; i++) {
        const double value = (double)((first + i) * 7 % 97 + key) / 16 - 5;

        if (plan->table[index].dtype == PSD_F64) {
            ((double *)values_p)[i] = value;
        } else {
            ((float *)values_p)[i] = (float)value;
        }
    }
}

bool
plan_is_elastic(const struct plan *plan)
{
    return plan->start_workers > 0 && plan->start_workers < plan->workers;
}

/* Rank 0 stays: somebody has to have the weights of sum tables. */
uint64_t
plan_leaves_at(const struct plan *plan, uint32_t rank)
{
    const uint64_t drawn = sim_mix(plan->seed, 22, 23, rank);

    return rank > 0 && drawn % 100 < plan->leave_percent
               ? plan->load_step + 1 + drawn / 100 % (plan->steps - plan->load_step)
               : plan->steps;
}

bool
plan_is_empty(const struct plan *plan, unsigned index, uint32_t rank, uint64_t step)
{
    return plan->table[index].skips && sim_mix(plan->seed, index, rank, step) % 8 == 0;
}

/* Full mantissas, so that the order of additions shows; a negative zero now and then, so that an
 * added zero does, too. */
static double
draw_gradient(uint64_t key, uint64_t index, uint64_t bits)
{
    uint64_t x = (key + index * GOLDEN) ^ bits;

    if (index % 16 == 3) {
        return -0.0;
    }
    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return (double)((int64_t)(x & 0xffffff) - 0x800000) * 0x1p-23;
}

void
plan_gradient(const struct plan *plan, unsigned index, uint32_t rank, uint64_t step, uint64_t first,
              uint64_t count, const void *values, void *gradient_p)
{
    const uint64_t key = sim_mix(plan->seed, index, rank, step);
    /* With backup workers a worker may have pulled a later version than that of its step; with
     * several steps in flight it has not pulled that one yet. */
    const bool alone = plan->table[index].backup > 0 || plan_depth(plan) > 1;

    for (uint64_t i = 0; i < count; i++) {
        if (plan->table[index].dtype == PSD_F64) {
            uint64_t bits;

            memcpy(&bits, (const double *)values + i, sizeof(bits));
            ((double *)gradient_p)[i] = draw_gradient(key, first + i, alone ? 0 : bits);
        } else {
            uint32_t bits;

            memcpy(&bits, (const float *)values + i, sizeof(bits));
            ((float *)gradient_p)[i] = (float)draw_gradient(key, first + i, alone ? 0 : bits);
        }
    }
}

uint64_t
plan_slot(const struct plan *plan, const struct table_plan *table, uint32_t rank, uint64_t number)
{
    (void)table;
    return rank * plan->pushes_max + number;
}

uint64_t
plan_hot_slot(const struct plan *plan, const struct table_plan *table)
{
    (void)table;
    return plan->workers * plan->pushes_max;
}

float
plan_hot_amount(uint32_t rank, uint64_t number)
{
    return (float)(1 + (rank * 31 + number) % 13);
}
