/*
 * fuzz_cluster.c - cluster.json, as a user or a script may have written it.
 *
 * The text is read twice, from memory and as a file: both must come to the same end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "cluster/cluster.h"
#include "fuzz.h"

/* Frees what was read, or checks that the refusal says why. Returns the number of processes. */
static uint32_t
settle(psd_status status, struct psi_cluster *cluster, const struct psd_error *err)
{
    uint32_t count = 0;

    if (status == PSD_OK) {
        count = cluster->worker_count + cluster->server_count + cluster->task_count;
        psi_assert((cluster->worker_count >= 1 && cluster->server_count >= 1) ||
                   (cluster->tasks != NULL && cluster->task_count >= 2));
        psi_cluster_free(cluster);
    } else {
        psi_assert(err->status == status);
        psi_assert(err->text[0] != '\0');
    }
    return count;
}

/* An anonymous file with this content; its descriptor. */
static int
make_file(const uint8_t *data, size_t size)
{
    const int descriptor = memfd_create("cluster.json", MFD_CLOEXEC);

    psi_assert(descriptor >= 0);
    psi_assert(write(descriptor, data, size) == (ssize_t)size);
    return descriptor;
}

/* What is not there or not a file says so. */
static void
check_unreadable(void)
{
    struct psi_cluster cluster;
    struct psd_error err;

    psi_assert(psi_cluster_load("/nowhere/cluster.json", &cluster, &err) == PSD_ERR_IO);
    psi_assert(psi_cluster_load("/", &cluster, &err) == PSD_ERR_IO);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int file = make_file(data, size);
    struct psi_cluster cluster;
    struct psd_error err = {0};
    char path[64];
    psd_status parsed;
    psd_status loaded;
    uint32_t count;

    if (size == 0) {
        check_unreadable();
    }
    parsed = psi_cluster_parse((const char *)data, size, "cluster.json", &cluster, &err);
    count = settle(parsed, &cluster, &err);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    loaded = psi_cluster_load(path, &cluster, &err);
    psi_assert(loaded == parsed);
    psi_assert(settle(loaded, &cluster, &err) == count);
    close(file);
    return 0;
}
