/*
 * tf_files.c - the TF_CONFIG of every task as a file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/tf_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/system/whole_file.h"
#include "launch/text/memory.h"

/* ps.json where there is one, ps_1.json where there are several; worker_0.json always. */
static void
name_file(const struct run *run, struct plan_task task, char name_p[64])
{
    const bool only = task.type == PSI_TF_CHIEF || task.type == PSI_TF_EVALUATOR ||
                      (task.type == PSI_TF_PS && run->cluster.jobs[PSI_TF_PS].count == 1);

    if (only) {
        snprintf(name_p, 64, "%s.json", task.name);
    } else {
        snprintf(name_p, 64, "%s_%u.json", task.name, task.index);
    }
}

/* Somebody may be waiting for it. */
static psd_status
write_file(const char *path, const char *text, struct psd_error *err)
{
    struct psd_error why = {0};

    if (whole_file_write(AT_FDCWD, path, text, &why) != PSD_OK) {
        return psi_fail(err, why.status, "tf_config_dir: %s", why.text);
    }
    return PSD_OK;
}

psd_status
tf_files_write(const struct run *run, const char *directory, struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (mkdir(directory, 0755) != 0 && errno != EEXIST) {
        return psi_fail_errno(err, PSD_ERR_IO, "tf_config_dir: make %s", directory);
    }
    for (uint32_t slot = 1; slot < run->slots && status == PSD_OK; slot++) {
        const struct plan_task task = plan_task(run->plan, slot);
        char *text = memory_need(psi_tf_config_text(&run->cluster, task.type, task.index));
        char name[64];
        char path[4096];

        name_file(run, task, name);
        snprintf(path, sizeof(path), "%.4000s/%s", directory, name);
        status = write_file(path, text, err);
        free(text);
    }
    return status;
}
