/*
 * part.c - a worker's part of a checkpoint: written into the job's directory, read where it goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "checkpoint/read.h"
#include "checkpoint/worker_part.h"
#include "client/api/api.h"
#include "config/settings.h"

uint64_t
psd_checkpoint_due(psd_context *context, uint64_t step)
{
    uint64_t at = PSD_CHECKPOINT_NONE;

    if (psi_context_check(context, psi_error()) == PSD_OK) {
        psi_context_lock(context);
        at = psi_client_part_due(context->client, step);
        pthread_mutex_unlock(&context->lock);
    }
    return at;
}

static bool
tell(psd_context *context, uint64_t number, uint64_t step, const struct psi_part *part)
{
    bool wanted;

    psi_context_lock(context);
    wanted = psi_client_part_tell(context->client, number, step, part);
    pthread_mutex_unlock(&context->lock);
    return wanted;
}

/* The disk is waited for without the lock. */
static psd_status
write_and_tell(psd_context *context, const struct psi_part *order, uint64_t number, uint64_t step,
               const void *data, size_t bytes)
{
    struct psd_error *err = psi_error();
    struct psi_part part = {.news = PSI_PART_WRITTEN, .token = order->token, .bytes = bytes};
    psd_status status = psi_worker_part_write(&psi_disk_system, order->text, order->token, data,
                                              bytes, &part.checksum, err);

    if (status != PSD_OK) {
        part.news = PSI_PART_FAILED;
        snprintf(part.text, sizeof(part.text), "%s", err->text);
    }
    if (!tell(context, number, step, &part) && status == PSD_OK) {
        status =
            psi_fail(err, PSD_ERR_STATE,
                     "checkpoint part of step %llu: it was given up meanwhile, the job has changed",
                     (unsigned long long)step);
    }
    return status;
}

psd_status
psd_checkpoint_part(psd_context *context, uint64_t step, const void *data, size_t bytes)
{
    struct psd_error *err = psi_error();
    struct psi_part order;
    uint64_t number = 0;
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && (data == NULL || bytes == 0)) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_checkpoint_part: no data given");
    }
    if (status == PSD_OK) {
        psi_context_lock(context);
        status = psi_client_part_take(context->client, step, &order, &number, err);
        pthread_mutex_unlock(&context->lock);
    }
    return status == PSD_OK ? write_and_tell(context, &order, number, step, data, bytes) : status;
}

/* ---------------------------------------------------------------------------------- reading --- */

static psd_status
open_resumed(const char *path, struct psi_checkpoint **checkpoint_p, struct psd_error *err)
{
    const char *text = psi_environment("PSD_RESUME_GENERATION");
    const uint64_t generation = text != NULL ? strtoull(text, NULL, 10) : 0;

    return generation > 0 ? psi_checkpoint_open_one(&psi_disk_system, path, generation, false,
                                                    checkpoint_p, err)
                          : psi_checkpoint_open(&psi_disk_system, path, checkpoint_p, err);
}

static psd_status
read_part(const char *path, const struct psi_manifest *manifest, void *data, size_t capacity,
          struct psd_error *err)
{
    const struct psi_manifest_part *part = psi_worker_part(manifest);
    struct psi_directory directory;
    psd_status status;

    if (part == NULL) {
        return psi_fail(err, PSD_ERR_STATE, "generation %llu of %s has no part of a worker",
                        (unsigned long long)manifest->generation, path);
    }
    status = psi_directory_open(&directory, &psi_disk_system, path, err);
    if (status == PSD_OK && capacity > 0) {
        status = psi_worker_part_read(&directory, manifest->generation, part, data, capacity, err);
    }
    psi_directory_close(&directory);
    return status;
}

psd_status
psd_checkpoint_resumed(psd_context *context, void *data, size_t capacity, size_t *bytes_p,
                       uint64_t *step_p)
{
    const char *path = psi_environment("PSD_RESUME");
    struct psd_error *err = psi_error();
    struct psi_checkpoint *checkpoint;
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && (bytes_p == NULL || step_p == NULL || (data == NULL && capacity > 0))) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_checkpoint_resumed: an argument is NULL");
    }
    if (status == PSD_OK && path == NULL) {
        status =
            psi_fail(err, PSD_ERR_STATE, "the job begins anew: no psd_run --resume, no PSD_RESUME");
    }
    if (status == PSD_OK) {
        status = open_resumed(path, &checkpoint, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    status = read_part(path, &checkpoint->manifest, data, capacity, err);
    if (status == PSD_OK) {
        *bytes_p = psi_worker_part(&checkpoint->manifest)->bytes;
        *step_p = checkpoint->manifest.step;
    }
    psi_checkpoint_destroy(checkpoint);
    return status;
}
