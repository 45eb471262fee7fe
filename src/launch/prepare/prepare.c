/*
 * prepare.c - from the command line and the cluster file to a plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare/prepare.h"
#include "launch/prepare/checkpoints.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "cluster/cluster.h"
#include "config/environment.h"
#include "launch/meet/slurm.h"
#include "launch/meet/ssh.h"
#include "launch/meet/ssh_options.h"
#include "launch/plan/roles.h"
#include "launch/prepare/allocation.h"
#include "launch/prepare/job_rules.h"
#include "launch/prepare/personality_given.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

/* A job that is being prepared: what was given, and what comes of it. */
struct work {
    const struct launch_options *options;
    const struct prepare_tasks *tasks; /* NULL: no others take part */
    struct psi_settings settings;
    struct psi_cluster cluster; /* zero: no file was given, and no allocation is around */
    bool has_machines;          /* the cluster names them; else everything runs here */
    struct plan_sources sources;
    struct prepared *prepared;
    struct plan *plan; /* of `prepared` */
};

static void
work_fini(struct work *work)
{
    words_fini(&work->sources.set);
    words_fini(&work->sources.forward);
    words_fini(&work->sources.worker_commands);
    psi_cluster_free(&work->cluster);
}

static char *
copy_text(const char *text)
{
    return text != NULL ? memory_need(strdup(text)) : NULL;
}

static psd_status
parse_pass(const char *text, enum psi_pass *pass_p, struct psd_error *err)
{
    static const char *const words[] = {"auto", "flags", "env", "both", "none"};

    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(text, words[i]) == 0) {
            *pass_p = (enum psi_pass)i;
            return PSD_OK;
        }
    }
    return psi_fail(err, PSD_ERR_INVALID, "pass=%.64s: must be auto, flags, env, both or none",
                    text);
}

/* What is not the default goes on to the programs that know it: options to daemons, environment
 * to workers. */
static void
hand_on_settings(struct work *work)
{
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        const struct psi_knob *knob = &psi_knobs()[i];
        char variable[PSI_VARIABLE_BYTES];
        char value[64];

        if (work->settings.source[i] == PSI_SOURCE_DEFAULT) {
            continue;
        }
        psi_settings_text(&work->settings, knob, value, sizeof(value));
        if ((knob->programs & PSI_PROGRAM_MASTER) != 0) {
            words_add_format(&work->plan->master_settings, "--%s=%s", knob->name, value);
        }
        if ((knob->programs & PSI_PROGRAM_SERVER) != 0) {
            words_add_format(&work->plan->server_settings, "--%s=%s", knob->name, value);
        }
        if ((knob->programs & PSI_PROGRAM_WORKER) != 0) {
            psi_variable_name(knob->name, variable);
            words_add_format(&work->sources.set, "%s=%s", variable, value);
        }
    }
}

psd_status
prepare_load_file(const char *path, struct psi_cluster *cluster_p, struct psd_error *err)
{
    if (psi_cluster_load(path, cluster_p, err) != PSD_OK) {
        err->status = PSD_ERR_INVALID;
        return PSD_ERR_INVALID;
    }
    return PSD_OK;
}

psd_status
prepare_own_program(char program_p[4096], struct psd_error *err)
{
    const ssize_t bytes = readlink("/proc/self/exe", program_p, 4095);

    if (bytes < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "read /proc/self/exe");
    }
    program_p[bytes] = '\0';
    return PSD_OK;
}

static void
add_variables(struct words *set, const struct psi_cluster_variable *variables, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        words_add_format(set, "%s=%s", variables[i].name, variables[i].value);
    }
}

/* --servers 0: other systems' scripts may need none. */
static bool
without_servers(const struct work *work)
{
    return work->options->servers == 0 && personality_is_foreign(work->plan->personality);
}

static psd_status
read_cluster(struct work *work, struct psd_error *err)
{
    const struct launch_options *options = work->options;
    struct psi_cluster *cluster = &work->cluster;
    psd_status status;

    if (options->workers != LAUNCH_NOT_GIVEN ||
        (options->servers != LAUNCH_NOT_GIVEN && !without_servers(work))) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--workers and --servers are for jobs of this machine alone: the cluster "
                        "file (-c) says what runs where");
    }
    status = prepare_load_file(options->cluster_config, cluster, err);
    if (status != PSD_OK) {
        return status;
    }
    psi_settings_merge(&work->settings, &cluster->settings);
    for (const char **command = cluster->worker_commands; command != NULL && *command != NULL;
         command++) {
        words_add(&work->sources.worker_commands, *command);
    }
    work->sources.image = cluster->image;
    work->plan->master_port = cluster->master_port;
    work->plan->virtualenv = copy_text(cluster->virtualenv);
    work->plan->pass = cluster->pass;
    return PSD_OK;
}

/* What workers know of the allocation is the same on all nodes: in a step, Slurm describes that. */
static void
forward_allocation(struct words *forward)
{
    static const char *const names[] = {"SLURM_JOB_NAME", "SLURM_JOB_NODELIST",
                                        "SLURM_JOB_NUM_NODES", "SLURM_SUBMIT_DIR"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        words_add(forward, names[i]);
    }
}

/* Inside a Slurm allocation, its nodes and tasks are the job's, unless the file names others. */
static psd_status
take_allocation(struct work *work, struct psd_error *err)
{
    const struct launch_options *options = work->options;
    struct psi_cluster *cluster = &work->cluster;
    struct roles roles = {0};
    struct slurm slurm = {0};
    psd_status status = slurm_read(work->sources.environment, &slurm, err);

    if (status == PSD_OK) {
        status = allocation_roles(options, cluster, &slurm, &roles, err);
    }
    if (status == PSD_OK) {
        status = allocation_fill(&slurm, &roles, cluster, err);
    }
    if (status == PSD_OK && roles.servers == 0 &&
        (options->roles != NULL || cluster->tasks != NULL)) {
        cluster->server_count = 0; /* the list is meant as it is */
    }
    forward_allocation(&work->sources.forward);
    work->prepared->way = REMOTE_SHELL_SRUN;
    work->prepared->requeues = slurm.restarts;
    roles_fini(&roles);
    slurm_fini(&slurm);
    return status;
}

/* --roles without a batch system: so many of each, here. */
static psd_status
count_roles(struct work *work, struct psd_error *err)
{
    const struct launch_options *options = work->options;
    struct roles roles = {0};
    psd_status status = PSD_OK;

    if (options->placement != ROLES_NOT_SAID) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--placement works only inside a Slurm allocation (sbatch, salloc)");
    }
    if (options->roles == NULL) {
        return PSD_OK;
    }
    if (options->workers != LAUNCH_NOT_GIVEN || options->servers != LAUNCH_NOT_GIVEN) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--roles and --servers with --workers say the same: give one of them");
    }
    status = roles_parse(options->roles, &roles, err);
    work->plan->servers = roles.servers;
    work->plan->workers = roles.workers;
    roles_fini(&roles);
    return status;
}

/* As many as the cluster names, each with an environment of its own. */
static void
take_nodes(struct work *work)
{
    const struct psi_cluster *cluster = &work->cluster;
    struct plan *plan = work->plan;

    work->has_machines = true;
    plan->servers = without_servers(work) ? 0 : cluster->server_count;
    plan->workers = cluster->worker_count;
    plan->worker_set = memory_need(calloc(cluster->worker_count, sizeof(*plan->worker_set)));
    for (uint32_t i = 0; i < cluster->worker_count; i++) {
        add_variables(&plan->worker_set[i], cluster->workers[i].env, cluster->workers[i].env_count);
    }
}

/* Who runs where, of a job that is started once. */
static psd_status
find_machines(struct work *work, struct psd_error *err)
{
    const struct launch_options *options = work->options;
    struct psi_cluster *cluster = &work->cluster;
    /* Tasks that were laid out by hand run here, whatever is around. */
    const bool around = !options->local && options->tf_config.count == 0 &&
                        slurm_is_around(work->sources.environment);
    const bool named = cluster->worker_count > 0;
    psd_status status = PSD_OK;

    if (named && options->roles != NULL) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "--roles is for the tasks of a Slurm allocation: the cluster file names the "
            "machines already");
    }
    if (!named && cluster->tasks != NULL && !around) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s: \"tasks\" needs a Slurm allocation (sbatch, salloc); elsewhere, name "
                        "worker_nodes and server_nodes",
                        options->cluster_config);
    }
    if (!named && !around) {
        return count_roles(work, err);
    }
    if (!named) {
        status = take_allocation(work, err);
    }
    if (status == PSD_OK) {
        add_variables(&work->sources.set, cluster->env, cluster->env_count);
        take_nodes(work);
    }
    return status;
}

/* One of the three ways to say what the workers run. */
static psd_status
choose_command(struct work *work, struct psd_error *err)
{
    const struct launch_options *options = work->options;
    const bool given = options->command != NULL || options->argv != NULL;
    const bool listed = work->sources.worker_commands.count > 0;

    if (given && listed) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "the cluster file has worker_commands: leave out the command");
    }
    if (!given && !listed) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "nothing to run: give the workers' command, as in psd_run \"python train.py\"");
    }
    work->sources.command = options->command;
    work->sources.argv = options->argv;
    return PSD_OK;
}

/* The command line, else the environment (PSD_AUTO=off), else on. */
static void
choose_automatic(struct work *work)
{
    const enum plan_automatic asked = work->options->automatic;
    const char *variable = variables_get(work->sources.environment, "PSD_AUTO");
    const bool off = variable != NULL && strcmp(variable, "off") == 0;

    work->plan->automatic_asked = asked != PLAN_AUTOMATIC_NOT_SAID;
    work->sources.automatic = work->plan->automatic_asked ? asked
                              : off                       ? PLAN_AUTOMATIC_OFF
                                                          : PLAN_AUTOMATIC_ON;
}

/* Fills what is left of the plan's first part. */
static psd_status
complete(struct work *work, struct psd_error *err)
{
    const struct launch_options *options = work->options;
    struct plan *plan = work->plan;
    psd_status status = choose_command(work, err);

    if (status == PSD_OK && options->pass != NULL) {
        status = parse_pass(options->pass, &plan->pass, err);
    }
    if (status == PSD_OK) {
        status = job_rules_apply_restart(options, &work->settings, err);
    }
    for (size_t i = 0; i < options->forward.count; i++) {
        words_add(&work->sources.forward, options->forward.values[i]);
    }
    plan->workdir = copy_text(options->workdir != NULL ? options->workdir : work->cluster.workdir);
    plan->max_restarts = job_rules_restarts(options, &work->settings);
    plan->keep_env = options->keep_env;
    plan->gpus_per_worker = options->gpus_per_worker;
    plan->lanes = work->settings.lanes;
    plan->max_workers = work->settings.max_workers;
    plan->standby_lanes = work->settings.standby_lanes;
    choose_automatic(work);
    return status;
}

static uint32_t
given_or_1(uint32_t number)
{
    return number != LAUNCH_NOT_GIVEN ? number : 1;
}

/* A key that ssh would refuse is a mistake of the file, and shown there. */
static psd_status
check_key(const char *config, const struct psi_cluster *cluster, struct psd_error *err)
{
    struct psd_error why = {0};

    if (ssh_check_key(cluster->pem_file, &why) == PSD_OK) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_INVALID, "%s:%u:%u: %s", config, cluster->pem_line,
                    cluster->pem_column, why.text);
}

/* How the machines of the cluster file are reached. */
static psd_status
prepare_ssh(const struct work *work, struct psd_error *err)
{
    const char *config = work->options->cluster_config;
    const struct psi_cluster *cluster = &work->cluster;
    struct prepared *prepared = work->prepared;
    struct psd_error why = {0};

    for (uint32_t i = 0; i < cluster->ssh_option_count; i++) {
        words_add(&prepared->ssh_options, cluster->ssh_options[i]);
    }
    if (!work->options->trust_ssh_options &&
        ssh_options_check(&prepared->ssh_options, &why) != PSD_OK) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: %s", config, why.text);
    }
    prepared->username = copy_text(cluster->username);
    if (cluster->pem_file == NULL || !layout_is_remote(&prepared->layout)) {
        return PSD_OK;
    }
    prepared->pem_file = copy_text(cluster->pem_file);
    return check_key(config, cluster, err);
}

/* A machine that says how many GPUs it has must have enough. */
static psd_status
check_gpus(const struct layout *layout, const struct plan *plan, struct psd_error *err)
{
    for (uint32_t slot = 1 + plan->servers; slot < layout->slots; slot++) {
        const struct layout_machine *machine = &layout->machines[layout->machine_of[slot]];

        if (layout->gpus[slot] > 0 &&
            plan->gpus_per_worker * machine->workers > layout->gpus[slot]) {
            return psi_fail(
                err, PSD_ERR_INVALID, "--gpus_per_worker %u: %s has %u GPUs for %u workers",
                plan->gpus_per_worker, machine->name, layout->gpus[slot], machine->workers);
        }
    }
    return PSD_OK;
}

/* How many there are, where nobody has said so. */
static psd_status
count_servers(const struct work *work, struct psd_error *err)
{
    const struct launch_options *options = work->options;

    if (!personality_has_servers(work->plan->personality)) {
        work->plan->servers = 0; /* a cluster file may be shared with other jobs */
    }
    return options->servers == LAUNCH_NOT_GIVEN
               ? PSD_OK
               : personality_check_servers(work->plan->personality, options->personality,
                                           options->servers, err);
}

/* Who runs where, of a job of several psd_run. */
static psd_status
take_tasks(struct work *work, struct psd_error *err)
{
    const struct prepare_tasks *tasks = work->tasks;

    work->sources.joined = true;
    work->plan->servers = 0;
    for (uint32_t i = 0; i < tasks->count; i++) {
        work->plan->servers += tasks->list[i].role == LAUNCH_SERVER;
    }
    work->plan->workers = tasks->count - work->plan->servers;
    return tasks->may_return
               ? job_rules_apply_joining(&work->settings, work->options->max_wait_s, err)
               : PSD_OK;
}

static void
lay_out(struct work *work)
{
    const struct plan *plan = work->plan;
    struct layout *layout = &work->prepared->layout;

    *layout = work->tasks != NULL ? layout_build_joined(work->tasks->list, work->tasks->count)
                                  : layout_build(work->has_machines ? &work->cluster : NULL,
                                                 plan->servers, plan->workers);
    if (!personality_has_master(plan->personality)) {
        layout_leave_master_out(layout);
    }
    work->sources.remote = layout_is_remote(layout);
}

/* What is given, up to the first part of the plan. */
static psd_status
read_all(struct work *work, struct psd_error *err)
{
    psd_status status = prepare_own_program(work->prepared->program, err);

    if (status == PSD_OK) {
        status = personality_given(work->options, work->sources.environment, work->plan,
                                   work->prepared->note, err);
    }
    if (status == PSD_OK && work->tasks != NULL) {
        status = take_tasks(work, err);
    }
    if (status == PSD_OK && work->options->cluster_config != NULL) {
        status = read_cluster(work, err);
    }
    if (status == PSD_OK && work->tasks != NULL) {
        add_variables(&work->sources.set, work->cluster.env, work->cluster.env_count);
    } else if (status == PSD_OK) {
        status = find_machines(work, err);
    }
    if (status == PSD_OK) {
        status = complete(work, err);
    }
    return status == PSD_OK ? count_servers(work, err) : status;
}

psd_status
prepare_job(const struct launch_options *options, char *const *environment,
            const struct prepare_tasks *tasks, struct prepared *prepared_p, struct psd_error *err)
{
    struct work work = {.options = options,
                        .tasks = tasks,
                        .settings = options->settings,
                        .sources = {.environment = environment},
                        .prepared = prepared_p,
                        .plan = &prepared_p->plan};
    psd_status status;

    *prepared_p = (struct prepared){
        .plan = {.servers = given_or_1(options->servers), .workers = given_or_1(options->workers)}};
    status = read_all(&work, err);
    status = status == PSD_OK && tasks == NULL ? job_rules_min_workers(options, &work.settings, err)
                                               : status;
    if (status == PSD_OK) {
        lay_out(&work);
        status =
            personality_is_foreign(work.plan->personality)
                ? PSD_OK
                : job_rules_settle_replicas(&work.settings, &prepared_p->layout, work.plan, err);
    }
    if (status == PSD_OK) {
        hand_on_settings(&work);
        status = job_rules_make_room(&work.settings, &prepared_p->layout, work.plan, err);
        status = status == PSD_OK ? checkpoints_settle(options, work.plan, err) : status;
        status = status == PSD_OK ? plan_build(work.plan, &work.sources, err) : status;
    }
    status = status == PSD_OK ? check_gpus(&prepared_p->layout, work.plan, err) : status;
    if (status == PSD_OK && work.has_machines) {
        status = prepare_ssh(&work, err);
    }
    if (status == PSD_OK) {
        prepared_p->watch = job_rules(options, &work.settings, work.plan, &prepared_p->layout,
                                      tasks != NULL && tasks->may_return);
    } else {
        prepare_fini(prepared_p);
    }
    work_fini(&work);
    return status;
}

struct remote_shell_rules
prepare_shell_rules(const struct prepared *prepared)
{
    return (struct remote_shell_rules){.way = prepared->way,
                                       .program = prepared->program,
                                       .pem_file = prepared->pem_file,
                                       .username = prepared->username,
                                       .ssh_options = &prepared->ssh_options};
}

void
prepare_fini(struct prepared *prepared)
{
    plan_fini(&prepared->plan);
    layout_fini(&prepared->layout);
    words_fini(&prepared->ssh_options);
    free(prepared->pem_file);
    free(prepared->username);
}
