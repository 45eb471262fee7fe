/*
 * together.c - several psd_run that make up one job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/together.h"

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
together_wanted(const struct launch_options *options)
{
    return options->rendezvous != NULL || options->coordinator != NULL ||
           together_is_task_of_slurm(options);
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
find_rank(struct together *together, struct psd_error *err)
{
    static const char *const variables[] = {"JOB_COMPLETION_INDEX", "_CONDOR_PROCNO"};

    if (together->options->rank != LAUNCH_NOT_GIVEN) {
        together->rank = together->options->rank;
        return PSD_OK;
    }
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (read_variable(variables[i], &together->rank)) {
            return PSD_OK;
        }
    }
    if (psi_environment("KUBERNETES_SERVICE_HOST") != NULL && read_ordinal(&together->rank)) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_INVALID,
                    "--rank is needed: which of the --size processes this one is, from 0; neither "
                    "JOB_COMPLETION_INDEX nor _CONDOR_PROCNO is set, and this is no pod");
}

psd_status
together_servers(const struct together *together, uint32_t *servers_p, struct psd_error *err)
{
    const struct launch_options *options = together->options;

    *servers_p = options->servers != LAUNCH_NOT_GIVEN
                     ? options->servers
                     : personality_usual_servers(together->personality);
    return personality_check_servers(together->personality, options->personality, *servers_p, err);
}

static psd_status
find_size(struct together *together, struct psd_error *err)
{
    const struct launch_options *options = together->options;
    const psd_status status = together_servers(together, &together->servers, err);

    if (status != PSD_OK) {
        return status;
    }
    together->size = options->size;
    if (options->size == LAUNCH_NOT_GIVEN && !read_variable("_CONDOR_NPROCS", &together->size)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--size is needed: how many psd_run make up the job, servers and workers "
                        "together");
    }
    if (together->size < 2 || together->size > JOIN_SIZE_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "--size %u: must be 2 to %d", together->size,
                        JOIN_SIZE_MAX);
    }
    if (together->rank >= together->size) {
        return psi_fail(err, PSD_ERR_INVALID, "--rank %u of --size %u: ranks are 0 to %u",
                        together->rank, together->size, together->size - 1);
    }
    if (together->servers >= together->size) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--servers %u of --size %u leaves no worker: ranks from %u on are workers",
                        together->servers, together->size, together->servers);
    }
    if (options->min_workers != LAUNCH_NOT_GIVEN &&
        options->min_workers > together->size - together->servers) {
        return psi_fail(err, PSD_ERR_INVALID, "--min_workers %u: there are %u (--size %u less %u)",
                        options->min_workers, together->size - together->servers, together->size,
                        together->servers);
    }
    return PSD_OK;
}

/* A run has a name of its own, so that files of another one do no harm. */
static void
find_run(struct together *together)
{
    static const char *const variables[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    const char *name = together->options->job_id;

    for (size_t i = 0; name == NULL && i < sizeof(variables) / sizeof(variables[0]); i++) {
        name = psi_environment(variables[i]);
    }
    together->named = name != NULL;
    snprintf(together->run, sizeof(together->run), "%.63s", name != NULL ? name : "job");
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
find_coordinator(struct together *together, struct psd_error *err)
{
    const char *text = together->options->coordinator;
    struct psi_address address;
    psd_status status;

    if (text == NULL) {
        return PSD_OK;
    }
    snprintf(together->coordinator, sizeof(together->coordinator), "%s%s",
             strncmp(text, "tcp://", 6) == 0 ? "" : "tcp://", text);
    status = psi_address_parse(together->coordinator, &address, err);
    if (status == PSD_OK && address.port == 0) {
        status = psi_fail(err, PSD_ERR_INVALID, "the port is missing");
    }
    if (status != PSD_OK) {
        char why[200];

        snprintf(why, sizeof(why), "%.199s", err->text);
        return psi_fail(err, PSD_ERR_INVALID, "--coordinator %.100s: must be HOST:PORT: %s", text,
                        why);
    }
    together->port = address.port;
    return PSD_OK;
}

/* A name is fine: the others need the number. */
psd_status
together_find_advertised(struct together *together, struct psd_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char *text = together->options->advertise_addr != NULL ? together->options->advertise_addr
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
    getnameinfo(found->ai_addr, found->ai_addrlen, together->advertised,
                sizeof(together->advertised), NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    return PSD_OK;
}

const char *
together_hint(const struct together *together)
{
    const bool contained =
        access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;

    return contained && psi_environment("KUBERNETES_SERVICE_HOST") == NULL &&
                   together->advertised[0] == '\0'
               ? "this is a container: the others must be on its network, or it on theirs "
                 "(--network host); --advertise_addr says which address is meant"
               : NULL;
}

static void
mention_old_files(const struct together *together)
{
    char example[160];
    const uint32_t count = rendezvous_old_files(together->rendezvous, example, sizeof(example));

    if (count > 0 && together->rank == 0) {
        fprintf(stderr,
                "psd_run: %s has %u .tfcluster file%s of other runs%s%s: left alone, since they do "
                "not tell who is alive\n",
                together->options->rendezvous, count, count == 1 ? "" : "s",
                example[0] != '\0' ? ", such as " : "", example);
    }
}

static enum launch_role
role_of(const struct together *together, uint32_t rank)
{
    if (together->roles.count > 0) {
        return together->roles.list[rank];
    }
    return rank < together->servers ? LAUNCH_SERVER : LAUNCH_WORKER;
}

/* The task of a rank; its port is the one that Slurm reserved for it. */
struct layout_task
together_task(const struct together *together, uint32_t rank)
{
    const struct slurm *slurm = &together->slurm;
    struct layout_task task = {.rank = rank, .role = role_of(together, rank)};
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
together_list_tasks(struct together *together, struct psd_error *err)
{
    together->tasks = calloc(together->size, sizeof(*together->tasks));
    if (together->tasks == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %u ranks", together->size);
    }
    for (uint32_t rank = 0; rank < together->size; rank++) {
        together->tasks[rank] = together_task(together, rank);
    }
    together->task_count = together->size;
    return PSD_OK;
}

static psd_status
enter_directory(struct together *together, struct psd_error *err)
{
    const struct rendezvous_config config = {.directory = together->options->rendezvous,
                                             .run = together->run,
                                             .rank = together->rank,
                                             .size = together->size};
    psd_status status = rendezvous_open(&config, &together->rendezvous, err);

    if (status != PSD_OK) {
        return status;
    }
    mention_old_files(together);
    if (together->options->secret_file == NULL && psi_environment("PSD_SECRET_FILE") == NULL) {
        status = rendezvous_secret(together->rendezvous, &together->secret_file, err);
    }
    return status;
}

psd_status
together_open(struct together *together, const struct launch_options *options,
              struct psd_error *err)
{
    psd_status status;

    *together = (struct together){.options = options, .secret_file = options->secret_file};
    status = personality_parse(options->personality, &together->personality, err);
    if (status != PSD_OK) {
        return status;
    }
    if (together_is_task_of_slurm(options)) {
        status = together_open_slurm(together, err);
        if (status != PSD_OK) {
            together_close(together);
        }
        return status;
    }
    status = check_options(options, err);
    find_run(together);
    status = status == PSD_OK ? find_rank(together, err) : status;
    status = status == PSD_OK ? find_size(together, err) : status;
    status = status == PSD_OK ? find_coordinator(together, err) : status;
    status = status == PSD_OK ? together_find_advertised(together, err) : status;
    status = status == PSD_OK ? together_list_tasks(together, err) : status;
    if (status == PSD_OK && options->coordinator != NULL && options->secret_file == NULL &&
        psi_environment("PSD_SECRET_FILE") == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "--coordinator needs a secret that all have: --secret_file FILE or "
                          "PSD_SECRET_FILE (psd_run secret FILE makes one)");
    }
    if (status == PSD_OK && options->rendezvous != NULL) {
        status = enter_directory(together, err);
    }
    if (status != PSD_OK) {
        together_close(together);
    }
    return status;
}

void
together_close(struct together *together)
{
    join_close(together->join);
    together->join = NULL;
    rendezvous_close(together->rendezvous);
    together->rendezvous = NULL;
    slurm_meet_close(together->meet);
    together->meet = NULL;
    slurm_fini(&together->slurm);
    roles_fini(&together->roles);
    if (together->prepared_anew) {
        prepare_fini(&together->prepared);
        together->prepared_anew = false;
    }
    free(together->tasks);
    together->tasks = NULL;
}

/* ----------------------------------------------------------------------------------- joining ---
 */

static psd_status
find_by_name(void *context, char address_p[JOINER_ADDRESS_BYTES], int *code_p,
             struct psd_error *err)
{
    const struct together *together = context;

    (void)code_p;
    (void)err;
    memcpy(address_p, together->coordinator, JOINER_ADDRESS_BYTES);
    return PSD_OK;
}

static const struct joiner_finder name_finder = {.find = find_by_name};

int
together_join(struct together *together, int secret_fd)
{
    const bool by_directory = together->rendezvous != NULL;
    const struct joiner_config config = {
        .rank = together->rank,
        .size = together->size,
        .incarnation = by_directory ? rendezvous_incarnation(together->rendezvous)
                                    : wall_clock_ms(), /* later lives have larger ones */
        .wait_ms = together->options->max_wait_s * 1000,
        .hint = together_hint(together),
        .advertised = together->advertised[0] != '\0' ? together->advertised : NULL,
        .secret_fd = secret_fd,
        .environment = environ,
        .finder = by_directory             ? &rendezvous_finder
                  : together->meet != NULL ? &slurm_meet_finder
                                           : &name_finder,
        .context = by_directory             ? (void *)together->rendezvous
                   : together->meet != NULL ? (void *)together->meet
                                            : (void *)together};

    return joiner_run(&config);
}
