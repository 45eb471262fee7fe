/*
 * job_rules.c - by which rules a job goes on and ends, from its options and settings.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare/job_rules.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "config/replicas.h"
#include "launch/link/link.h"

static_assert((int)WATCH_FAIL == PSI_DEATH_FAIL && (int)WATCH_CONTINUE == PSI_DEATH_CONTINUE &&
                  (int)WATCH_WAIT == PSI_DEATH_WAIT,
              "watch.h and settings.h name the same policies");

enum {
    LEAVE_MS = 10000, /* for servers, when the workers are done */
    LEAVE_TENSORFLOW_MS = 1000,
    SAVE_MS = 30000, /* for a checkpoint, when the job is told to stop */
};

psd_status
job_rules_apply_restart(const struct launch_options *options, struct psi_settings *settings,
                        struct psd_error *err)
{
    const bool group = options->restart_scope == LAUNCH_SCOPE_GROUP;

    if (group && options->restart == LAUNCH_RESTART_NOT_SAID) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--restart_scope=group says what is restarted, not when: give "
                        "--restart=on-failure or exit-code, too");
    }
    if (group || options->restart == LAUNCH_RESTART_NOT_SAID) {
        return PSD_OK;
    }
    if (options->restart == LAUNCH_RESTART_NEVER) {
        return settings->on_worker_death != PSI_DEATH_WAIT
                   ? PSD_OK
                   : psi_fail(err, PSD_ERR_INVALID,
                              "--restart=never and on_worker_death=wait contradict each other");
    }
    if (settings->on_worker_death == PSI_DEATH_CONTINUE) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--restart=%s and on_worker_death=continue contradict each other",
                        options_word(launch_restart_words, options->restart));
    }
    return psi_settings_set(settings, PSI_SOURCE_COMMAND, "command line", "on_worker_death", "wait",
                            err);
}

static uint32_t
count_machines_of_servers(const struct layout *layout)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < layout->machine_count; i++) {
        count += layout->machines[i].servers > 0;
    }
    return count;
}

psd_status
job_rules_settle_replicas(struct psi_settings *settings, const struct layout *layout,
                          struct plan *plan, struct psd_error *err)
{
    const char *obstacle = psi_replicas_obstacle(settings, plan->servers);
    const char *objection = psi_replicas_objection(settings, plan->servers);
    const uint32_t machines = count_machines_of_servers(layout);
    char *why = plan->replicas_why;

    if (settings->replicas == PSI_REPLICAS_1 && plan->servers < 2) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--replicas 1: the job has %u server%s, and a copy is in another one: "
                        "give --servers 2 or more",
                        plan->servers, psi_plural(plan->servers));
    }
    if (settings->replicas == PSI_REPLICAS_1 && obstacle != NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "--replicas 1: not with %s", obstacle);
    }
    if (settings->replicas != PSI_REPLICAS_AUTO) {
        snprintf(why, PLAN_WHY_BYTES, "as told");
    } else if (objection != NULL) {
        snprintf(why, PLAN_WHY_BYTES, "auto: %s", objection);
    } else if (machines < 2) {
        snprintf(why, PLAN_WHY_BYTES, "auto: all servers are on one machine");
    } else {
        snprintf(why, PLAN_WHY_BYTES, "auto: the servers are on %u machines", machines);
    }
    psi_replicas_settle(settings, plan->servers, machines > 1);
    plan->replicas = settings->replicas;
    return psi_settings_set(settings, PSI_SOURCE_COMMAND, "command line", "replicas",
                            settings->replicas == PSI_REPLICAS_1 ? "1" : "0", err);
}

/* Why servers cannot come and go; NULL: they can. */
static const char *
fixed_servers(const struct psi_settings *settings, const struct plan *plan,
              const struct layout *layout)
{
    if (personality_is_foreign(plan->personality)) {
        return "the servers of this personality are not Poseidon's";
    }
    if (settings->sum_failover == PSI_FAILOVER_OFF) {
        return "not with sum_failover=off: what moves a place is what brings back a lost one";
    }
    if (settings->on_worker_death == PSI_DEATH_WAIT && plan->replicas == 0) {
        return "with on_worker_death=wait only with --replicas 1";
    }
    for (uint32_t i = 0; i < layout->machine_count; i++) {
        if (layout->machines[i].joined) {
            return "each process of this job is started by a psd_run of its own, and none of them "
                   "may start others";
        }
    }
    return NULL;
}

psd_status
job_rules_make_room(const struct psi_settings *settings, struct layout *layout, struct plan *plan,
                    struct psd_error *err)
{
    const uint32_t max_servers = settings->max_servers;
    const char *why = max_servers == 0 ? NULL : fixed_servers(settings, plan, layout);

    if (why != NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "--max_servers %u: %s", max_servers, why);
    }
    if (max_servers != 0 && max_servers < plan->servers) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--max_servers %u: the job has %u servers from the start; give at least "
                        "that many, or leave it out",
                        max_servers, plan->servers);
    }
    if (max_servers != 0) {
        layout_make_room(layout, plan->servers, max_servers);
        plan->start_servers = plan->servers;
        plan->servers = max_servers;
    }
    return PSD_OK;
}

psd_status
job_rules_min_workers(const struct launch_options *options, struct psi_settings *settings,
                      struct psd_error *err)
{
    char text[16];

    if (options->min_workers == LAUNCH_NOT_GIVEN) {
        return PSD_OK;
    }
    snprintf(text, sizeof(text), "%u", options->min_workers);
    return psi_settings_set(settings, PSI_SOURCE_COMMAND, "command line", "min_workers", text, err);
}

uint32_t
job_rules_restarts(const struct launch_options *options, const struct psi_settings *settings)
{
    return settings->on_worker_death == PSI_DEATH_WAIT &&
                   options->restart_scope != LAUNCH_SCOPE_GROUP
               ? options->max_restarts
               : 0;
}

static uint32_t
leave_ms(const struct launch_options *options, const struct plan *plan)
{
    const struct plan_task last = plan_task(plan, plan->servers + plan->workers);

    if (options->grace_ms != LAUNCH_NOT_GIVEN) {
        return options->grace_ms;
    }
    /* TensorFlow's servers wait for ever; an evaluator still looks at the last result, and the
     * servers of the others have a farewell of their own. */
    return personality_is_tensorflow(plan->personality) && last.type != PSI_TF_EVALUATOR
               ? LEAVE_TENSORFLOW_MS
               : LEAVE_MS;
}

/* The machine on which psd_run itself is, if the job has it. */
static uint32_t
machine_here(const struct layout *layout)
{
    for (uint32_t i = 0; i < layout->machine_count; i++) {
        if (layout->machines[i].here) {
            return i;
        }
    }
    return CAUSE_NOWHERE;
}

/* After that the master takes a silent process for dead. */
static uint32_t
silence_ms(const struct psi_settings *settings)
{
    const uint64_t ms = (uint64_t)settings->heartbeat_ms * settings->dead_heartbeats;

    return ms < UINT32_MAX / 2 ? (uint32_t)ms : UINT32_MAX / 2;
}

/* Why workers cannot be added to the job while it runs, or taken from it; NULL: they can. */
static const char *
alone(const struct plan *plan, const struct layout *layout)
{
    if (personality_is_foreign(plan->personality)) {
        return "its workers are not Poseidon's";
    }
    if (plan->automatic && plan->automatic_asked) {
        return "its scripts know nothing of Poseidon (--auto), and their models are with the "
               "workers: to run it on others, stop it and resume it from a checkpoint";
    }
    if (plan->command_count > 1 || plan->worker_set != NULL) {
        return "each of its workers has a command or variables of its own";
    }
    for (uint32_t i = 0; i < layout->machine_count; i++) {
        if (layout->machines[i].joined) {
            return "each of its processes was started by a psd_run of its own: start one more in "
                   "the same way";
        }
    }
    return NULL;
}

struct watch_config
job_rules(const struct launch_options *options, const struct psi_settings *settings,
          const struct plan *plan, const struct layout *layout, bool may_return)
{
    struct watch_config rules = {
        .servers = plan->servers,
        .parts = plan_start_servers(plan),
        .may_scale_servers = plan->start_servers != 0,
        .workers = plan->workers,
        .on_worker_death = (enum watch_policy)settings->on_worker_death,
        .is_policy_told = psi_settings_told(settings, "on_worker_death"),
        .max_restarts = job_rules_restarts(options, settings),
        .restart_delay_ms = options->restart_delay_ms,
        .server_restarts =
            settings->sum_failover == PSI_FAILOVER_OFF ? 0 : options->server_restarts,
        .master_restarts = settings->master_grace_ms == 0 ? 0 : options->master_restarts,
        .restart_signals_only = options->restart == LAUNCH_RESTART_EXIT_CODE,
        .machine_of = layout->machine_of,
        .machines = layout->machine_count,
        .here = machine_here(layout),
        .silence_ms = silence_ms(settings),
        .server_grace_ms = settings->server_grace_ms,
        .others_take_over = settings->sum_failover != PSI_FAILOVER_OFF && plan->servers > 1,
        .server_wait_ms = settings->server_wait_ms,
        .replicas = plan->replicas,
        .lease_ms = LINK_LEASE_MS,
        .start_timeout_ms = settings->start_timeout_ms,
        .timeout_ms = (uint64_t)options->timeout_s * 1000,
        .leave_ms = leave_ms(options, plan),
        .save_ms = options->checkpoint != NULL ? SAVE_MS : 0,
        .foreign = personality_is_foreign(plan->personality),
        .masterless = !personality_has_master(plan->personality),
        .max_workers = settings->max_workers,
        .min_workers = settings->min_workers,
        .alone = alone(plan, layout),
        .leaders = plan_leaders(plan)};

    if (may_return) {
        /* The others of a foreign job know the address of who was lost: it begins anew. */
        rules.replace_ms = settings->on_worker_death == PSI_DEATH_WAIT && !rules.foreign
                               ? settings->replacement_timeout_ms
                               : 0;
        /* Of a worker that fails; one that is lost is replaced as often as it is. */
        rules.max_restarts = psi_settings_told(&options->settings, "on_worker_death") ||
                                     options->restart != LAUNCH_RESTART_NOT_SAID
                                 ? rules.max_restarts
                                 : 0;
    }
    return rules;
}

psd_status
job_rules_apply_joining(struct psi_settings *settings, uint32_t wait_s, struct psd_error *err)
{
    char wait_ms[16];
    psd_status status = PSD_OK;

    snprintf(wait_ms, sizeof(wait_ms), "%u", wait_s * 1000);
    if (!psi_settings_told(settings, "on_worker_death")) {
        status = psi_settings_set(settings, PSI_SOURCE_COMMAND, "--size", "on_worker_death", "wait",
                                  err);
    }
    if (status == PSD_OK && !psi_settings_told(settings, "replacement_timeout_ms")) {
        status = psi_settings_set(settings, PSI_SOURCE_COMMAND, "--max_wait",
                                  "replacement_timeout_ms", wait_ms, err);
    }
    return status;
}
