/*
 * checkpoints.c - where a job's checkpoints go, and from which one it goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare/checkpoints.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "checkpoint/read.h"
#include "config/every.h"
#include "launch/plan/personality.h"
#include "launch/text/variables.h"

/* Daemons may be started elsewhere. */
static psd_status
whole_path(const char *option, const char *path, char whole_p[PATH_MAX], struct psd_error *err)
{
    char here[PATH_MAX] = "";

    if (path[0] == '\0') {
        return psi_fail(err, PSD_ERR_INVALID, "--%s: no directory given", option);
    }
    if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
        return psi_fail_errno(err, PSD_ERR_IO, "--%s %s: the current directory", option, path);
    }
    if (snprintf(whole_p, PATH_MAX, "%s%s%s", here, path[0] != '/' ? "/" : "", path) >= PATH_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "--%s %.64s...: too long", option, path);
    }
    return PSD_OK;
}

static psd_status
settle_saving(const struct launch_options *options, struct plan *plan, struct psd_error *err)
{
    const char *text = options->checkpoint_every;
    struct psi_every every;
    char path[PATH_MAX];
    psd_status status = whole_path("checkpoint", options->checkpoint, path, err);

    if (status == PSD_OK && text != NULL) {
        status = psi_every_parse("--checkpoint_every", text, &every, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    variables_set_pair(&plan->worker_environment, "PSD_CHECKPOINT", path);
    words_add_format(&plan->master_settings, "--checkpoint=%s", path);
    words_add_format(&plan->server_settings, "--checkpoint=%s", path);
    if (text != NULL) {
        words_add_format(&plan->master_settings, "--checkpoint_every=%s", text);
    }
    if (options->keep > 0) {
        words_add_format(&plan->master_settings, "--keep=%u", options->keep);
    }
    return PSD_OK;
}

static psd_status
settle_cold(const struct launch_options *options, struct plan *plan, struct psd_error *err)
{
    char path[PATH_MAX];
    const psd_status status = whole_path("cold_dir", options->cold_dir, path, err);

    if (status == PSD_OK) {
        words_add_format(&plan->server_settings, "--cold_dir=%s", path);
    }
    return status;
}

psd_status
checkpoints_settle(const struct launch_options *options, struct plan *plan, struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (options->cold_dir != NULL && settle_cold(options, plan, err) != PSD_OK) {
        return err->status;
    }
    if (options->checkpoint == NULL && (options->checkpoint_every != NULL || options->keep > 0)) {
        return psi_fail(err, PSD_ERR_INVALID, "--%s works only with --checkpoint DIR",
                        options->keep > 0 ? "keep" : "checkpoint_every");
    }
    if ((options->checkpoint != NULL || options->resume != NULL) &&
        personality_is_foreign(plan->personality)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--%s: servers of this --personality are not Poseidon's, and save nothing",
                        options->checkpoint != NULL ? "checkpoint" : "resume");
    }
    if (options->checkpoint != NULL) {
        status = settle_saving(options, plan, err);
    }
    if (status == PSD_OK && options->resume != NULL) {
        status = checkpoints_resume(options->resume, plan, err);
    }
    return status;
}

psd_status
checkpoints_resume(const char *directory, struct plan *plan, struct psd_error *err)
{
    struct psi_checkpoint *checkpoint;
    char path[PATH_MAX];
    char generation[24];
    psd_status status = whole_path("resume", directory, path, err);

    if (status != PSD_OK) {
        return status;
    }
    status = psi_checkpoint_open(&psi_disk_system, path, &checkpoint, err);
    if (status != PSD_OK) {
        return status;
    }
    if (err->text[0] != '\0') {
        fprintf(stderr, "psd_run: %s; an older generation is taken\n", err->text);
        err->text[0] = '\0';
    }
    fprintf(stderr, "psd_run: the job goes on from step %llu: generation %llu of %s\n",
            (unsigned long long)checkpoint->manifest.step,
            (unsigned long long)checkpoint->manifest.generation, path);
    words_fini(&plan->resume);
    words_add_format(&plan->resume, "--resume=%s", path);
    words_add_format(&plan->resume, "--generation=%llu",
                     (unsigned long long)checkpoint->manifest.generation);
    snprintf(generation, sizeof(generation), "%llu",
             (unsigned long long)checkpoint->manifest.generation);
    variables_set_pair(&plan->worker_environment, "PSD_RESUME", path);
    variables_set_pair(&plan->worker_environment, "PSD_RESUME_GENERATION", generation);
    psi_checkpoint_destroy(checkpoint);
    return PSD_OK;
}

bool
checkpoints_any(const char *directory)
{
    struct psi_directory opened;
    struct psi_generations generations;
    bool any = false;

    if (psi_directory_open(&opened, &psi_disk_system, directory, NULL) != PSD_OK) {
        return false;
    }
    if (psi_generations_init(&generations, &opened, NULL) == PSD_OK) {
        for (size_t i = 0; i < generations.count; i++) {
            any = any || generations.list[i].kind == PSI_CHECKPOINT_MANIFEST;
        }
        psi_generations_fini(&generations);
    }
    psi_directory_close(&opened);
    return any;
}
