/*
 * multi_start.c - several psd_run that make up one job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/multi_start.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/system/wall_clock.h"
#include "transport/address.h"

bool
multi_start_wanted(const struct launch_options *options)
{
    return options->rendezvous != NULL || options->coordinator != NULL ||
           multi_start_is_task_of_slurm(options);
}

/* ------------------------------------------------------------------------------- who is who --- */

/* A number out of the environment; false: not there. */
static bool
read_variable(const char *name, uint32_t *number_p)
{
    const char *text = psi_environment(name);
    char *end;
    unsigned long number;

    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return false;
    }
    number = strtoul(text, &end, 10);
    *number_p = (uint32_t)number;
    return *end == '\0' && number < UINT32_MAX;
}

/* The ordinal behind the last '-' of a pod's name. */
static bool
read_ordinal(uint32_t *number_p)
{
    char name[256] = "";
    const char *dash;
    char *end;

    gethostname(name, sizeof(name) - 1);
    name[strcspn(name, ".")] = '\0';
    dash = strrchr(name, '-');
    if (dash == NULL || dash[1] < '0' || dash[1] > '9') {
        return false;
    }
    *number_p = (uint32_t)strtoul(dash + 1, &end, 10);
    return *end == '\0';
}

/* --rank, or what the batch system says. */
static psd_status
find_rank(struct multi_start *multi, struct psd_error *err)
{
    static const char *const variables[] = {"JOB_COMPLETION_INDEX", "_CONDOR_PROCNO"};

    if (multi->options->rank != LAUNCH_NOT_GIVEN) {
        multi->rank = multi->options->rank;
        return PSD_OK;
    }
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (read_variable(variables[i], &multi->rank)) {
            return PSD_OK;
        }
    }
    if (psi_environment("KUBERNETES_SERVICE_HOST") != NULL && read_ordinal(&multi->rank)) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_INVALID,
                    "--rank is needed: which of the --size processes this one is, from 0; neither "
                    "JOB_COMPLETION_INDEX nor _CONDOR_PROCNO is set, and this is no pod");
}

psd_status
multi_start_servers(const struct multi_start *multi, uint32_t *servers_p, struct psd_error *err)
{
    const struct launch_options *options = multi->options;

    *servers_p = options->servers != LAUNCH_NOT_GIVEN
                     ? options->servers
                     : personality_usual_servers(multi->personality);
    return personality_check_servers(multi->personality, options->personality, *servers_p, err);
}

static psd_status
find_size(struct multi_start *multi, struct psd_error *err)
{
    const struct launch_options *options = multi->options;
    const psd_status status = multi_start_servers(multi, &multi->servers, err);

    if (status != PSD_OK) {
        return status;
    }
    multi->size = options->size;
    if (options->size == LAUNCH_NOT_GIVEN && !read_variable("_CONDOR_NPROCS", &multi->size)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--size is needed: how many psd_run make up the job, servers and workers "
                        "together");
    }
    if (multi->size < 2 || multi->size > JOIN_SIZE_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "--size %u: must be 2 to %d", multi->size,
                        JOIN_SIZE_MAX);
    }
    if (multi->rank >= multi->size) {
        return psi_fail(err, PSD_ERR_INVALID, "--rank %u of --size %u: ranks are 0 to %u",
                        multi->rank, multi->size, multi->size - 1);
    }
    if (multi->servers >= multi->size) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--servers %u of --size %u leaves no worker: ranks from %u on are workers",
                        multi->servers, multi->size, multi->servers);
    }
    if (options->min_workers != LAUNCH_NOT_GIVEN &&
        options->min_workers > multi->size - multi->servers) {
        return psi_fail(err, PSD_ERR_INVALID, "--min_workers %u: there are %u (--size %u less %u)",
                        options->min_workers, multi->size - multi->servers, multi->size,
                        multi->servers);
    }
    return PSD_OK;
}

/* A run has a name of its own, so that files of another one do no harm. */
static void
find_run(struct multi_start *multi)
{
    static const char *const variables[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    const char *name = multi->options->job_id;

    for (size_t i = 0; name == NULL && i < sizeof(variables) / sizeof(variables[0]); i++) {
        name = psi_environment(variables[i]);
    }
    multi->named = name != NULL;
    snprintf(multi->run, sizeof(multi->run), "%.63s", name != NULL ? name : "job");
}

static psd_status
check_options(const struct launch_options *options, struct psd_error *err)
{
    if (options->rendezvous != NULL && options->coordinator != NULL) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "--rendezvous and --coordinator are two ways to find each other: give only one");
    }
    if (options->cluster_config != NULL || options->workers != LAUNCH_NOT_GIVEN) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s does not go with --rendezvous or --coordinator: there the job is "
                        "--size processes, of which --servers are servers",
                        options->cluster_config != NULL ? "--cluster_config" : "--workers");
    }
    if (options->detach || options->check || options->dry_run || options->print_cluster) {
        return psi_fail(err, PSD_ERR_INVALID, "--%s does not go with --rendezvous or --coordinator",
                        options->detach    ? "detach"
                        : options->check   ? "check"
                        : options->dry_run ? "dry_run"
                                           : "print_cluster");
    }
    if (options->tf_config.count > 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--tf_config does not go with --rendezvous or --coordinator: its files "
                        "already say who is where");
    }
    if (options->roles != NULL || options->placement != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--%s is about the tasks of Slurm: with --rendezvous or --coordinator, the "
                        "first --servers ranks are servers",
                        options->roles != NULL ? "roles" : "placement");
    }
    if (options->sync != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--sync does not go with --rendezvous or --coordinator: several processes "
                        "may share a disk");
    }
    if (options->first_port > options->last_port) {
        return psi_fail(err, PSD_ERR_INVALID, "--initial_port %u is greater than --final_port %u",
                        options->first_port, options->last_port);
    }
    return PSD_OK;
}

/* "HOST:PORT", with tcp:// before it or not. */
static psd_status
find_coordinator(struct multi_start *multi, struct psd_error *err)
{
    const char *text = multi->options->coordinator;
    struct psi_address address;
    psd_status status;

    if (text == NULL) {
        return PSD_OK;
    }
    snprintf(multi->coordinator, sizeof(multi->coordinator), "%s%s",
             strncmp(text, "tcp://", 6) == 0 ? "" : "tcp://", text);
    status = psi_address_parse(multi->coordinator, &address, err);
    if (status == PSD_OK && address.port == 0) {
        status = psi_fail(err, PSD_ERR_INVALID, "the port is missing");
    }
    if (status != PSD_OK) {
        char why[200];

        snprintf(why, sizeof(why), "%.199s", err->text);
        return psi_fail(err, PSD_ERR_INVALID, "--coordinator %.100s: must be HOST:PORT: %s", text,
                        why);
    }
    multi->port = address.port;
    return PSD_OK;
}

/* A name is fine: the others need the number. */
psd_status
multi_start_find_advertised(struct multi_start *multi, struct psd_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char *text = multi->options->advertise_addr != NULL ? multi->options->advertise_addr
                                                              : psi_environment("PSD_ADVERTISE");
    struct addrinfo *found = NULL;
    int code;

    if (text == NULL) {
        return PSD_OK;
    }
    code = getaddrinfo(text, NULL, &hints, &found);
    if (code != 0) {
        return psi_fail(err, PSD_ERR_INVALID, "--advertise_addr %.100s: %s", text,
                        gai_strerror(code));
    }
    getnameinfo(found->ai_addr, found->ai_addrlen, multi->advertised, sizeof(multi->advertised),
                NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    return PSD_OK;
}

const char *
multi_start_hint(const struct multi_start *multi)
{
    const bool contained =
        access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;

    return contained && psi_environment("KUBERNETES_SERVICE_HOST") == NULL &&
                   multi->advertised[0] == '\0'
               ? "this is a container: the others must be on its network, or it on theirs "
                 "(--network host); --advertise_addr says which address is meant"
               : NULL;
}

static void
mention_old_files(const struct multi_start *multi)
{
    char example[160];
    const uint32_t count = rendezvous_old_files(multi->rendezvous, example, sizeof(example));

    if (count > 0 && multi->rank == 0) {
        fprintf(stderr,
                "psd_run: %s has %u .tfcluster file%s of other runs%s%s: left alone, since they do "
                "not tell who is alive\n",
                multi->options->rendezvous, count, count == 1 ? "" : "s",
                example[0] != '\0' ? ", such as " : "", example);
    }
}

static enum launch_role
role_of(const struct multi_start *multi, uint32_t rank)
{
    if (multi->roles.count > 0) {
        return multi->roles.list[rank];
    }
    return rank < multi->servers ? LAUNCH_SERVER : LAUNCH_WORKER;
}

/* The task of a rank; its port is the one that Slurm reserved for it. */
struct layout_task
multi_start_task(const struct multi_start *multi, uint32_t rank)
{
    const struct slurm *slurm = &multi->slurm;
    struct layout_task task = {.rank = rank, .role = role_of(multi, rank)};
    uint32_t local = rank;

    for (size_t node = 0; node < slurm->nodes.count && local >= slurm->tasks_on.numbers[node];
         node++) {
        local -= slurm->tasks_on.numbers[node];
    }
    if (local < slurm->ports.count) {
        task.port = (uint16_t)slurm->ports.numbers[local];
    }
    return task;
}

/* Everybody, until it is known who is there. */
psd_status
multi_start_list_tasks(struct multi_start *multi, struct psd_error *err)
{
    multi->tasks = calloc(multi->size, sizeof(*multi->tasks));
    if (multi->tasks == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %u ranks", multi->size);
    }
    for (uint32_t rank = 0; rank < multi->size; rank++) {
        multi->tasks[rank] = multi_start_task(multi, rank);
    }
    multi->task_count = multi->size;
    return PSD_OK;
}

static psd_status
enter_directory(struct multi_start *multi, struct psd_error *err)
{
    const struct rendezvous_config config = {.directory = multi->options->rendezvous,
                                             .run = multi->run,
                                             .rank = multi->rank,
                                             .size = multi->size};
    psd_status status = rendezvous_open(&config, &multi->rendezvous, err);

    if (status != PSD_OK) {
        return status;
    }
    mention_old_files(multi);
    if (multi->options->secret_file == NULL && psi_environment("PSD_SECRET_FILE") == NULL) {
        status = rendezvous_secret(multi->rendezvous, &multi->secret_file, err);
    }
    return status;
}

psd_status
multi_start_open(struct multi_start *multi, const struct launch_options *options,
                 struct psd_error *err)
{
    psd_status status;

    *multi = (struct multi_start){.options = options, .secret_file = options->secret_file};
    status = personality_parse(options->personality, &multi->personality, err);
    if (status != PSD_OK) {
        return status;
    }
    if (multi_start_is_task_of_slurm(options)) {
        status = multi_start_open_slurm(multi, err);
        if (status != PSD_OK) {
            multi_start_close(multi);
        }
        return status;
    }
    status = check_options(options, err);
    find_run(multi);
    status = status == PSD_OK ? find_rank(multi, err) : status;
    status = status == PSD_OK ? find_size(multi, err) : status;
    status = status == PSD_OK ? find_coordinator(multi, err) : status;
    status = status == PSD_OK ? multi_start_find_advertised(multi, err) : status;
    status = status == PSD_OK ? multi_start_list_tasks(multi, err) : status;
    if (status == PSD_OK && options->coordinator != NULL && options->secret_file == NULL &&
        psi_environment("PSD_SECRET_FILE") == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "--coordinator needs a secret that all have: --secret_file FILE or "
                          "PSD_SECRET_FILE (psd_run secret FILE makes one)");
    }
    if (status == PSD_OK && options->rendezvous != NULL) {
        status = enter_directory(multi, err);
    }
    if (status != PSD_OK) {
        multi_start_close(multi);
    }
    return status;
}

void
multi_start_close(struct multi_start *multi)
{
    join_close(multi->join);
    multi->join = NULL;
    rendezvous_close(multi->rendezvous);
    multi->rendezvous = NULL;
    slurm_meet_close(multi->meet);
    multi->meet = NULL;
    slurm_fini(&multi->slurm);
    roles_fini(&multi->roles);
    if (multi->prepared_anew) {
        prepare_fini(&multi->prepared);
        multi->prepared_anew = false;
    }
    free(multi->tasks);
    multi->tasks = NULL;
}

/* ----------------------------------------------------------------------------------- joining ---
 */

static psd_status
find_by_name(void *context, char address_p[JOINER_ADDRESS_BYTES], int *code_p,
             struct psd_error *err)
{
    const struct multi_start *multi = context;

    (void)code_p;
    (void)err;
    memcpy(address_p, multi->coordinator, JOINER_ADDRESS_BYTES);
    return PSD_OK;
}

static const struct joiner_finder name_finder = {.find = find_by_name};

int
multi_start_join(struct multi_start *multi, int secret_fd)
{
    const bool by_directory = multi->rendezvous != NULL;
    const struct joiner_config config = {
        .rank = multi->rank,
        .size = multi->size,
        .incarnation = by_directory ? rendezvous_incarnation(multi->rendezvous)
                                    : wall_clock_ms(), /* later lives have larger ones */
        .wait_ms = multi->options->max_wait_s * 1000,
        .hint = multi_start_hint(multi),
        .advertised = multi->advertised[0] != '\0' ? multi->advertised : NULL,
        .secret_fd = secret_fd,
        .environment = environ,
        .finder = by_directory          ? &rendezvous_finder
                  : multi->meet != NULL ? &slurm_meet_finder
                                        : &name_finder,
        .context = by_directory          ? (void *)multi->rendezvous
                   : multi->meet != NULL ? (void *)multi->meet
                                         : (void *)multi};

    return joiner_run(&config);
}
