/*
 * image.h - workers in containers: the words before a worker's command.
 *
 * Whatever runs its arguments as a child of its own (apptainer exec, env) needs no more than to
 * stand there: environment and descriptors are inherited. podman inherits them only on request.
 * docker cannot: its daemon is the parent of the container.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_IMAGE_H
#define LAUNCH_IMAGE_H

#include "launch/text/words.h"

/* PSD_ERR_INVALID: a worker could not be a member of the job in there. No words: no image. */
psd_status image_check(const struct words *image, struct psd_error *err);

/* The descriptor on which the job's secret must be for it to get into the container; -1: any. */
int image_secret_fd(const struct words *image);

/* Adds the image's words to argv; `names` are the variables that a container is to have. They
 * stand there without values, which stay off the command line. */
void image_begin(const struct words *image, const struct words *names, struct words *argv);

#endif
