/*
 * image.c - workers in containers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/image.h"

#include <stdbool.h>
#include <string.h>

#include "base/fail.h"
#include "launch/system/spawn.h"

static bool
is_program(const struct words *image, const char *name)
{
    const char *slash;

    if (image->count == 0) {
        return false;
    }
    slash = strrchr(image->list[0], '/');
    return strcmp(slash != NULL ? slash + 1 : image->list[0], name) == 0;
}

/* Where "run" or "exec" stands, which options follow; 0: nowhere. */
static size_t
find_verb(const struct words *image)
{
    for (size_t i = 1; i < image->count; i++) {
        if (strcmp(image->list[i], "run") == 0 || strcmp(image->list[i], "exec") == 0) {
            return i;
        }
    }
    return 0;
}

psd_status
image_check(const struct words *image, struct psd_error *err)
{
    if (is_program(image, "docker") || is_program(image, "nerdctl")) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "image: %s starts containers from its daemon, which inherits no "
                        "descriptor: the job's secret cannot reach a worker in there, and is not "
                        "put into a file or a variable; podman run, with the same options, and "
                        "apptainer exec hand it on",
                        image->list[0]);
    }
    if (is_program(image, "podman") && find_verb(image) == 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "image: %s needs a verb: \"podman run --rm --network=host IMAGE\" or "
                        "\"podman exec CONTAINER\"",
                        image->list[0]);
    }
    return PSD_OK;
}

int
image_secret_fd(const struct words *image)
{
    return is_program(image, "podman") ? SPAWN_EXTRA_FD : -1;
}

void
image_begin(const struct words *image, const struct words *names, struct words *argv)
{
    const size_t verb = is_program(image, "podman") ? find_verb(image) : 0;

    for (size_t i = 0; i < image->count; i++) {
        words_add(argv, image->list[i]);
        if (verb == 0 || i != verb) {
            continue;
        }
        words_add(argv, "--preserve-fds=1");
        for (size_t k = 0; k < names->count; k++) {
            words_add_format(argv, "--env=%.*s", (int)strcspn(names->list[k], "="), names->list[k]);
        }
    }
}
