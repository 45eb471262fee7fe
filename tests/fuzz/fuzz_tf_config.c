/*
 * fuzz_tf_config.c - TF_CONFIG, as a user, a script or another system may have written it.
 *
 * The text is read twice, from memory and as a file: both must come to the same end. What was read
 * is written again and read once more: it must be the same cluster.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "cluster/tf_config.h"
#include "fuzz.h"

static void
check_same(const struct psi_tf_config *one, const struct psi_tf_config *other)
{
    for (unsigned type = 0; type < PSI_TF_TYPES; type++) {
        psi_assert(one->jobs[type].count == other->jobs[type].count);
        for (uint32_t i = 0; i < one->jobs[type].count; i++) {
            const struct psi_tf_task *task = &one->jobs[type].tasks[i];

            psi_assert(task->index == other->jobs[type].tasks[i].index);
            psi_assert(strcmp(task->address, other->jobs[type].tasks[i].address) == 0);
            psi_assert(i == 0 || task->index > one->jobs[type].tasks[i - 1].index);
        }
    }
}

static void
write_and_read(const struct psi_tf_config *config)
{
    const enum psi_tf_type type = config->has_task ? config->type : PSI_TF_EVALUATOR;
    char *text = psi_tf_config_text(config, type, config->index);
    struct psi_tf_config again = {0};
    struct psd_error err = {0};

    psi_assert(text != NULL);
    if (strlen(text) <= PSI_TF_BYTES_MAX) { /* it may have grown by blanks */
        psi_assert(psi_tf_config_parse(text, strlen(text), "again", &again, &err) == PSD_OK);
        psi_assert(again.has_task && again.type == type && again.index == config->index);
        check_same(config, &again);
        psi_assert(psi_tf_config_merge(&again, "again", config, "once", &err) == PSD_OK);
        check_same(config, &again);
    }
    psi_tf_config_free(&again);
    free(text);
}

/* The same text as a file, and a copy of what it says. */
static void
load_and_copy(const uint8_t *data, size_t size, const struct psi_tf_config *config)
{
    const int file = memfd_create("tf_config.json", MFD_CLOEXEC);
    struct psi_tf_config loaded;
    struct psi_tf_config copy;
    struct psd_error err = {0};
    char path[64];

    psi_assert(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    psi_assert((psi_tf_config_load(path, &loaded, &err) == PSD_OK) == (config != NULL));
    if (config != NULL) {
        check_same(config, &loaded);
        psi_assert(psi_tf_config_copy(&loaded, &copy, &err) == PSD_OK);
        check_same(config, &copy);
        psi_tf_config_free(&copy);
        psi_tf_config_free(&loaded);
    }
    close(file);
}

/* Bounds, files that are none, pieces that fit and pieces that do not. */
static void
check_corners(void)
{
    static const char large[PSI_TF_BYTES_MAX + 1];
    struct psi_tf_config config = {0};
    struct psi_tf_config other = {0};
    struct psd_error err = {0};
    char *hosts;

    psi_assert(psi_tf_config_load("/nowhere/ps.json", &config, &err) == PSD_ERR_IO);
    psi_assert(psi_tf_config_load("/", &config, &err) == PSD_ERR_IO);
    psi_assert(psi_tf_config_parse(large, sizeof(large), "large", &config, &err) ==
               PSD_ERR_INVALID);
    psi_assert(psi_tf_config_add(&config, PSI_TF_WORKER, 0, "me:1", &err) == PSD_OK);
    psi_assert(psi_tf_config_address(&config, PSI_TF_WORKER, 4) != NULL); /* itself */
    psi_assert(psi_tf_config_address(&config, PSI_TF_PS, 4) == NULL);
    psi_assert(psi_tf_config_merge(&other, "other", &config, "one", &err) == PSD_OK);
    check_same(&config, &other);
    psi_tf_config_free(&other);
    psi_assert(psi_tf_config_add(&other, PSI_TF_WORKER, 0, "you:1", &err) == PSD_OK);
    psi_assert(psi_tf_config_merge(&other, "other", &config, "one", &err) == PSD_ERR_INVALID);
    for (uint32_t i = 1; i < PSI_TF_TASKS_MAX; i++) {
        psi_assert(psi_tf_config_add(&config, PSI_TF_WORKER, i, "h:1", &err) == PSD_OK);
    }
    psi_assert(psi_tf_config_add(&config, PSI_TF_PS, 0, "h:1", &err) == PSD_ERR_INVALID);
    hosts = psi_tf_job_text(&other.jobs[PSI_TF_WORKER]);
    psi_assert(hosts != NULL && strcmp(hosts, "you:1") == 0);
    psi_assert(strcmp(psi_tf_type_name(PSI_TF_PS), "ps") == 0);
    free(hosts);
    psi_tf_config_free(&config);
    psi_tf_config_free(&other);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct psi_tf_config config;
    struct psd_error err = {0};

    if (size == 0) {
        check_corners();
    }
    if (psi_tf_config_parse((const char *)data, size, "TF_CONFIG", &config, &err) == PSD_OK) {
        write_and_read(&config);
        load_and_copy(data, size, &config);
        psi_tf_config_free(&config);
    } else {
        psi_assert(err.status == PSD_ERR_INVALID && err.text[0] != '\0');
        load_and_copy(data, size, NULL);
    }
    return 0;
}
