/*
 * prepare.c - from the command line and the cluster file to a plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare/prepare.h"

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
#include "launch/plan/tf_tasks.h"
#include "launch/prepare/allocation.h"
#include "launch/prepare/job_rules.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

/* What the plan borrows while it is made. */
struct material {
    struct psi_settings settings;
    struct words master_settings;
    struct words server_settings;
    struct psi_cluster cluster; /* zero: no file was given, and no allocation is around */
    struct words worker_commands;
    struct words set;         /* environment of the workers */
    struct words forward;     /* more of it, for those on other machines */
    struct words *worker_set; /* ... and of each */
    uint32_t worker_set_count;
    struct tf_tasks tasks; /* given by files */
};

static void
material_fini(struct material *material)
{
    words_fini(&material->master_settings);
    words_fini(&material->server_settings);
    words_fini(&material->set);
    words_fini(&material->forward);
    words_fini(&material->worker_commands);
    for (uint32_t i = 0; i < material->worker_set_count; i++) {
        words_fini(&material->worker_set[i]);
    }
    free(material->worker_set);
    tf_tasks_fini(&material->tasks);
    psi_cluster_free(&material->cluster);
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
hand_on_settings(struct material *material)
{
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        const struct psi_knob *knob = &psi_knobs()[i];
        char variable[PSI_VARIABLE_BYTES];
        char value[64];

        if (material->settings.source[i] == PSI_SOURCE_DEFAULT) {
            continue;
        }
        psi_settings_text(&material->settings, knob, value, sizeof(value));
        if ((knob->programs & PSI_PROGRAM_MASTER) != 0) {
            words_add_format(&material->master_settings, "--%s=%s", knob->name, value);
        }
        if ((knob->programs & PSI_PROGRAM_SERVER) != 0) {
            words_add_format(&material->server_settings, "--%s=%s", knob->name, value);
        }
        if ((knob->programs & PSI_PROGRAM_WORKER) != 0) {
            psi_variable_name(knob->name, variable);
            words_add_format(&material->set, "%s=%s", variable, value);
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

/* The environment of the cluster, and those of single nodes. */
static void
read_environments(const struct psi_cluster *cluster, struct material *material)
{
    add_variables(&material->set, cluster->env, cluster->env_count);
    material->worker_set_count = cluster->worker_count;
    material->worker_set =
        memory_need(calloc(cluster->worker_count, sizeof(*material->worker_set)));
    for (uint32_t i = 0; i < cluster->worker_count; i++) {
        add_variables(&material->worker_set[i], cluster->workers[i].env,
                      cluster->workers[i].env_count);
    }
}

/* --servers 0: other systems' scripts may need none. */
static bool
without_servers(const struct launch_options *options, const struct plan_input *input)
{
    return options->servers == 0 && personality_is_foreign(input->personality);
}

/* Loads the file into the material and points the input at it. */
static psd_status
read_cluster(const struct launch_options *options, struct material *material,
             struct plan_input *input, struct psd_error *err)
{
    struct psi_cluster *cluster = &material->cluster;
    psd_status status;

    if (options->workers != LAUNCH_NOT_GIVEN ||
        (options->servers != LAUNCH_NOT_GIVEN && !without_servers(options, input))) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--workers and --servers are for jobs of this machine alone: the cluster "
                        "file (-c) says what runs where");
    }
    status = prepare_load_file(options->cluster_config, cluster, err);
    if (status != PSD_OK) {
        return status;
    }
    psi_settings_merge(&material->settings, &cluster->settings);
    for (const char **command = cluster->worker_commands; command != NULL && *command != NULL;
         command++) {
        words_add(&material->worker_commands, *command);
    }
    input->master_port = cluster->master_port;
    input->virtualenv = cluster->virtualenv;
    input->workdir = cluster->workdir;
    input->image = cluster->image;
    input->pass = cluster->pass;
    return status;
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
take_allocation(const struct launch_options *options, char *const *environment,
                struct material *material, struct prepared *prepared, struct psd_error *err)
{
    struct psi_cluster *cluster = &material->cluster;
    struct roles roles = {0};
    struct slurm slurm = {0};
    psd_status status = slurm_read(environment, &slurm, err);

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
    forward_allocation(&material->forward);
    prepared->way = REMOTE_SHELL_SRUN;
    prepared->requeues = slurm.restarts;
    roles_fini(&roles);
    slurm_fini(&slurm);
    return status;
}

/* --roles without a batch system: so many of each, here. */
static psd_status
count_roles(const struct launch_options *options, struct plan_input *input, struct psd_error *err)
{
    struct roles roles = {0};
    psd_status status = PSD_OK;

    if (options->placement != NULL) {
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
    input->servers = roles.servers;
    input->workers = roles.workers;
    roles_fini(&roles);
    return status;
}

/* Who runs where. *cluster_p: NULL when everything runs here. */
static psd_status
find_machines(const struct launch_options *options, char *const *environment,
              struct material *material, struct prepared *prepared, struct plan_input *input,
              const struct psi_cluster **cluster_p, struct psd_error *err)
{
    struct psi_cluster *cluster = &material->cluster;
    /* Tasks that were laid out by hand run here, whatever is around. */
    const bool around =
        !options->local && options->tf_config.count == 0 && slurm_is_around(environment);
    const bool named = cluster->worker_count > 0;
    psd_status status = PSD_OK;

    *cluster_p = NULL;
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
        return count_roles(options, input, err);
    }
    if (!named) {
        status = take_allocation(options, environment, material, prepared, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    read_environments(cluster, material);
    input->workers = cluster->worker_count;
    input->servers = without_servers(options, input) ? 0 : cluster->server_count;
    input->worker_set = material->worker_set;
    *cluster_p = cluster;
    return status;
}

/* One of the three ways to say what the workers run. */
static psd_status
choose_command(const struct launch_options *options, struct material *material,
               struct plan_input *input, struct psd_error *err)
{
    const bool given = options->command != NULL || options->argv != NULL;
    const bool listed = material->worker_commands.count > 0;

    if (given && listed) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "the cluster file has worker_commands: leave out the command");
    }
    if (!given && !listed) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "nothing to run: give the workers' command, as in psd_run \"python train.py\"");
    }
    input->command = options->command;
    input->argv = options->argv;
    input->worker_commands = listed ? &material->worker_commands : NULL;
    return PSD_OK;
}

/* The command line, else the environment (PSD_AUTO=off), else on. */
static void
choose_automatic(const struct launch_options *options, struct plan_input *input)
{
    const char *variable = variables_get(input->environment, "PSD_AUTO");
    const bool off = variable != NULL && strcmp(variable, "off") == 0;

    input->automatic = options->automatic != NULL ? options->automatic : off ? "off" : "on";
    input->automatic_asked = options->automatic != NULL;
}

/* Fills what is left of the input. */
static psd_status
complete(const struct launch_options *options, struct material *material, struct plan_input *input,
         struct psd_error *err)
{
    psd_status status = choose_command(options, material, input, err);

    if (status == PSD_OK && options->pass != NULL) {
        status = parse_pass(options->pass, &input->pass, err);
    }
    if (status == PSD_OK) {
        status = job_rules_apply_restart(options, &material->settings, err);
    }
    hand_on_settings(material);
    for (size_t i = 0; i < options->forward.count; i++) {
        words_add(&material->forward, options->forward.values[i]);
    }
    input->workdir = options->workdir != NULL ? options->workdir : input->workdir;
    input->max_restarts = job_rules_restarts(options, &material->settings);
    input->keep_env = options->keep_env;
    input->gpus_per_worker = options->gpus_per_worker;
    choose_automatic(options, input);
    input->forward = &material->forward;
    input->set = &material->set;
    input->master_settings = &material->master_settings;
    input->server_settings = &material->server_settings;
    input->lanes = material->settings.lanes;
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
prepare_ssh(const struct launch_options *options, const struct psi_cluster *cluster,
            struct prepared *prepared, struct psd_error *err)
{
    const char *config = options->cluster_config;
    struct psd_error why = {0};
    psd_status status = PSD_OK;

    for (uint32_t i = 0; i < cluster->ssh_option_count; i++) {
        words_add(&prepared->ssh_options, cluster->ssh_options[i]);
    }
    if (!options->trust_ssh_options && ssh_options_check(&prepared->ssh_options, &why) != PSD_OK) {
        status = psi_fail(err, PSD_ERR_INVALID, "%s: %s", config, why.text);
    }
    if (status == PSD_OK && cluster->username != NULL) {
        prepared->username = memory_need(strdup(cluster->username));
    }
    if (status == PSD_OK && cluster->pem_file != NULL && layout_is_remote(&prepared->layout)) {
        prepared->pem_file = memory_need(strdup(cluster->pem_file));
        status = check_key(config, cluster, err);
    }
    return status;
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

/* What kind of script it is, and the tasks of it that were laid out by hand. */
static psd_status
read_personality(const struct launch_options *options, char *const *environment,
                 struct material *material, struct plan_input *input, struct psd_error *err)
{
    const bool by_hand = options->tf_config.count > 0;
    enum tf_tasks_need need;
    psd_status status = PSD_OK;

    input->personality = by_hand ? PERSONALITY_TF_CONFIG : PERSONALITY_POSEIDON;
    input->chief = options->chief;
    input->evaluator = options->evaluator;
    if (options->personality != NULL) {
        status = personality_parse(options->personality, &input->personality, err);
    }
    if (status == PSD_OK && options->pass != NULL && personality_is_foreign(input->personality)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--pass is about Poseidon's own flags and variables, and does not go with "
                        "--personality=%.64s",
                        options->personality != NULL ? options->personality : "tf_config");
    }
    if (status != PSD_OK || !by_hand) {
        return status;
    }
    if ((input->personality & (PERSONALITY_TORCH | PERSONALITY_DMLC | PERSONALITY_MPI)) != 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--tf_config runs tasks of TensorFlow's clusters: with it, --personality "
                        "is tf_config, tf1 or poseidon");
    }
    if (options->cluster_config != NULL || options->workers != LAUNCH_NOT_GIVEN ||
        options->servers != LAUNCH_NOT_GIVEN || options->roles != NULL || options->chief ||
        options->evaluator || options->tf_config_dir != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--tf_config says which tasks run here, and where all of them listen: give "
                        "no cluster file, --workers, --servers, --roles, --chief, --evaluator or "
                        "--tf_config_dir beside it");
    }
    need = !personality_is_foreign(input->personality)   ? TF_TASKS_RANK
           : (input->personality & PERSONALITY_TF1) != 0 ? TF_TASKS_FLAGS
                                                         : TF_TASKS_VARIABLE;
    status = tf_tasks_load(&options->tf_config, environment, need, &material->tasks, err);
    if (need == TF_TASKS_RANK) { /* its daemons run elsewhere */
        input->personality = PERSONALITY_TF_CONFIG;
        input->joins = true;
    }
    input->servers = material->tasks.servers;
    input->workers = material->tasks.workers;
    input->given = material->tasks.list;
    return status;
}

/* How many there are, where nobody has said so. */
static psd_status
count_servers(const struct launch_options *options, struct plan_input *input, struct psd_error *err)
{
    if (!personality_has_servers(input->personality)) {
        input->servers = 0; /* a cluster file may be shared with other jobs */
    }
    return options->servers == LAUNCH_NOT_GIVEN
               ? PSD_OK
               : personality_check_servers(input->personality, options->personality,
                                           options->servers, err);
}

static void
count_tasks(const struct prepare_tasks *tasks, struct plan_input *input)
{
    input->servers = 0;
    for (uint32_t i = 0; i < tasks->count; i++) {
        input->servers += tasks->list[i].role == LAUNCH_SERVER;
    }
    input->workers = tasks->count - input->servers;
}

psd_status
prepare_job(const struct launch_options *options, char *const *environment,
            const struct prepare_tasks *tasks, struct prepared *prepared_p, struct psd_error *err)
{
    struct material material = {.settings = options->settings};
    struct prepared prepared = {.pem_file = NULL};
    struct plan_input input = {.servers = given_or_1(options->servers),
                               .workers = given_or_1(options->workers),
                               .environment = environment};
    const struct psi_cluster *cluster = NULL;
    psd_status status = prepare_own_program(prepared.program, err);

    if (status == PSD_OK) {
        status = read_personality(options, environment, &material, &input, err);
    }
    if (status == PSD_OK && tasks != NULL) {
        count_tasks(tasks, &input);
        input.joined = true;
        status = tasks->may_return
                     ? job_rules_apply_joining(&material.settings, options->max_wait_s, err)
                     : PSD_OK;
    }
    if (status == PSD_OK && options->cluster_config != NULL) {
        status = read_cluster(options, &material, &input, err);
    }
    if (status == PSD_OK && tasks != NULL) {
        add_variables(&material.set, material.cluster.env, material.cluster.env_count);
    } else if (status == PSD_OK) {
        status = find_machines(options, environment, &material, &prepared, &input, &cluster, err);
    }
    if (status == PSD_OK) {
        status = complete(options, &material, &input, err);
    }
    if (status == PSD_OK) {
        status = count_servers(options, &input, err);
    }
    if (status == PSD_OK) {
        status = tasks != NULL
                     ? layout_build_joined(tasks->list, tasks->count, &prepared.layout, err)
                     : layout_build(cluster, input.servers, input.workers, &prepared.layout, err);
    }
    if (status == PSD_OK && !personality_has_master(input.personality)) {
        layout_leave_master_out(&prepared.layout);
    }
    if (status == PSD_OK) {
        input.remote = layout_is_remote(&prepared.layout);
        status = plan_build(&input, &prepared.plan, err);
    }
    if (status == PSD_OK) {
        status = check_gpus(&prepared.layout, &prepared.plan, err);
    }
    if (status == PSD_OK && cluster != NULL) {
        status = prepare_ssh(options, cluster, &prepared, err);
    }
    if (status == PSD_OK) {
        prepared.watch = job_rules(options, &material.settings, &prepared.plan, &prepared.layout,
                                   tasks != NULL && tasks->may_return);
        memcpy(prepared.note, material.tasks.note, sizeof(prepared.note));
        *prepared_p = prepared;
    } else {
        prepare_fini(&prepared);
    }
    material_fini(&material);
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
