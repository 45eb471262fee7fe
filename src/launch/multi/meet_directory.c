/*
 * meet_directory.c - meeting in a directory that all see: --rendezvous DIR.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/settings.h"
#include "launch/meet/rendezvous.h"
#include "launch/multi/given_ranks.h"
#include "launch/system/close_fd.h"
#include "launch/text/memory.h"

/* multi->way */
struct directory {
    struct rendezvous *rendezvous; /* NULL: not entered */
    char run[64];                  /* name of the run */
    bool named;                    /* by somebody: no other run has that name */
};

/* There while the run has begun and is not over: rank 0 that finds it has had another life. */
static bool
begun_path(const struct multi_start *multi, char path_p[PATH_MAX])
{
    const struct directory *directory = multi->way;

    return directory->named && multi->options->checkpoint != NULL &&
           snprintf(path_p, PATH_MAX, "%s/psd-%s/begun", multi->options->rendezvous,
                    directory->run) < PATH_MAX;
}

static bool
detect(const struct launch_options *options)
{
    return options->rendezvous != NULL;
}

/* A run has a name of its own, so that files of another one do no harm. */
static struct directory *
name_run(const struct launch_options *options)
{
    static const char *const variables[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    struct directory *directory = memory_need(calloc(1, sizeof(*directory)));
    const char *name = options->job_id;

    for (size_t i = 0; name == NULL && i < sizeof(variables) / sizeof(variables[0]); i++) {
        name = psi_environment(variables[i]);
    }
    directory->named = name != NULL;
    snprintf(directory->run, sizeof(directory->run), "%.63s", name != NULL ? name : "job");
    return directory;
}

static psd_status
roles(struct multi_start *multi, struct psd_error *err)
{
    multi->way = name_run(multi->options);
    return given_ranks_find(multi, err);
}

static void
mention_old_files(const struct multi_start *multi)
{
    const struct directory *directory = multi->way;
    char example[160];
    const uint32_t count = rendezvous_old_files(directory->rendezvous, example, sizeof(example));

    if (count > 0 && multi->rank == 0) {
        fprintf(stderr,
                "psd_run: %s has %u .tfcluster file%s of other runs%s%s: left alone, since they do "
                "not tell who is alive\n",
                multi->options->rendezvous, count, count == 1 ? "" : "s",
                example[0] != '\0' ? ", such as " : "", example);
    }
}

static psd_status
enter(struct multi_start *multi, struct psd_error *err)
{
    struct directory *directory = multi->way;
    const struct rendezvous_config config = {.directory = multi->options->rendezvous,
                                             .run = directory->run,
                                             .rank = multi->rank,
                                             .size = multi->size};
    char path[PATH_MAX];
    psd_status status = rendezvous_open(&config, &directory->rendezvous, err);

    if (status != PSD_OK) {
        return status;
    }
    multi->incarnation = rendezvous_incarnation(directory->rendezvous);
    multi->requeues = begun_path(multi, path) && access(path, F_OK) == 0;
    mention_old_files(multi);
    return multi_start_has_secret(multi)
               ? PSD_OK
               : rendezvous_secret(directory->rendezvous, &multi->secret_file, err);
}

static psd_status
publish(struct multi_start *multi, bool v6, uint16_t port, struct psd_error *err)
{
    const struct directory *directory = multi->way;

    return rendezvous_publish(directory->rendezvous, multi_start_advertised(multi), v6, port, err);
}

static void
begun(struct multi_start *multi)
{
    char path[PATH_MAX];
    const int fd = begun_path(multi, path)
                       ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
                       : -1;

    close_fd(&(int){fd});
}

static psd_status
find(void *context, char address_p[JOINER_ADDRESS_BYTES], int *code_p, struct psd_error *err)
{
    const struct multi_start *multi = context;
    const struct directory *directory = multi->way;

    return rendezvous_find(directory->rendezvous, address_p, code_p, err);
}

static psd_status
beat(void *context, struct psd_error *err)
{
    const struct multi_start *multi = context;
    const struct directory *directory = multi->way;

    return rendezvous_beat(directory->rendezvous, err);
}

static void
over(struct multi_start *multi, int code, bool all_know)
{
    const struct directory *directory = multi->way;
    char path[PATH_MAX];

    if (begun_path(multi, path)) {
        unlink(path);
    }
    /* Who comes later to a run without a name may be of the next job. */
    rendezvous_over(directory->rendezvous, code, all_know || !directory->named);
}

static void
leave(struct multi_start *multi)
{
    struct directory *directory = multi->way;

    if (directory != NULL) {
        rendezvous_close(directory->rendezvous);
    }
    free(directory);
}

const struct meet_ops meet_directory = {
    .name = "--rendezvous",
    .returns = true,
    .detect = detect,
    .roles = roles,
    .enter = enter,
    .publish = publish,
    .begun = begun,
    .find = find,
    .beat = beat,
    .over = over,
    .close = leave,
};
