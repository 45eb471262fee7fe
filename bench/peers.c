/*
 * peers.c - what users would take instead: OpenMPI, Gloo and torch.distributed.rpc.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "peers.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/fail.h"
#include "process.h"

static const char python[] = BENCH_ROOT "/.venv-frameworks/bin/python";
static const char script[] = BENCH_ROOT "/bench/peer_torch.py";

enum { WORDS_MAX = 24, NAME_MAX_BYTES = 64 };

void
peer_beside(const char *name, char path[PATH_MAX])
{
    char own[PATH_MAX] = "";
    char *slash;

    if (readlink("/proc/self/exe", own, sizeof(own) - NAME_MAX_BYTES) < 0) {
        own[0] = '\0';
    }
    slash = strrchr(own, '/');
    snprintf(path, PATH_MAX, "%.*s/%.32s", slash != NULL ? (int)(slash - own) : 0, own, name);
}

bool
peer_is_on_path(const char *program)
{
    char list[4096];
    char *rest = NULL;

    snprintf(list, sizeof(list), "%s", getenv("PATH") != NULL ? getenv("PATH") : "/usr/bin:/bin");
    for (char *one = strtok_r(list, ":", &rest); one != NULL; one = strtok_r(NULL, ":", &rest)) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", one, program);
        if (access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

const char *
peer_missing(enum subject peer)
{
    char path[PATH_MAX];

    if (subject_about(peer)->kind == KIND_MPI) {
        peer_beside("peer_mpi", path);
        if (access(path, X_OK) != 0 || !peer_is_on_path("mpirun")) {
            return "OpenMPI is not installed: make bench-peers";
        }
    } else if (access(python, X_OK) != 0) {
        return "PyTorch is not installed: make bench-peers";
    }
    return NULL;
}

/* ---- OpenMPI ---- */

static psd_status
start_mpi(const struct subject_about *about, uint32_t workers, struct group *group,
          const char *const *environment, struct psd_error *err)
{
    char program[PATH_MAX];
    char count[16];
    const char *words[WORDS_MAX] = {"mpirun", "--allow-run-as-root", "-n", count};
    size_t used = 4;

    peer_beside("peer_mpi", program);
    snprintf(count, sizeof(count), "%u", workers);
    if (workers > psi_usable_cores()) {
        words[used++] = "--oversubscribe"; /* or it would refuse */
    }
    if (about->tcp) {
        static const char *const tcp[] = {"--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include",
                                          "lo"};

        memcpy(&words[used], tcp, sizeof(tcp));
        used += sizeof(tcp) / sizeof(tcp[0]);
    }
    if (environment[0] != NULL) { /* for the ranks; mpirun itself needs none */
        words[used++] = "-x";
        words[used++] = environment[0];
    }
    words[used++] = program;
    words[used++] = group->control;
    return group_start(group, words, NULL, err);
}

/* ---- PyTorch ---- */

/* peer_torch.py KIND RANK WORKERS CONTROL STORE LIBRARY; all of them meet at the file STORE. */
static psd_status
start_torch(const struct subject_about *about, uint32_t workers, struct group *group,
            const char *const *environment, struct psd_error *err)
{
    const bool rpc = about->kind == KIND_RPC;
    const char *kind = !rpc ? "gloo" : about->tcp ? "rpc_tcp" : "rpc";
    char library[PATH_MAX];
    char store[96];
    char count[16];
    psd_status status = PSD_OK;

    peer_beside("libpeer_tensor.so", library);
    snprintf(store, sizeof(store), "%s/store", group->directory);
    snprintf(count, sizeof(count), "%u", workers);
    for (uint32_t rank = 0; rank < workers + rpc && status == PSD_OK; rank++) {
        char text[16];
        const char *const words[] = {python, "-W",           "ignore", script,  kind, text,
                                     count,  group->control, store,    library, NULL};

        snprintf(text, sizeof(text), "%u", rank);
        status = group_start(group, words, environment, err);
    }
    return status;
}

psd_status
peer_start(enum subject peer, uint32_t workers, struct group *group_p, struct psd_error *err)
{
    const struct subject_about *about = subject_about(peer);
    char library[PATH_MAX];
    char preload[PATH_MAX + 16];
    const char *const environment[] = {about->tuned ? preload : NULL, NULL};
    psd_status status = group_init(group_p, about->title, err);

    if (status != PSD_OK) {
        return status;
    }
    group_p->restless = about->kind == KIND_RPC;
    peer_beside("libcongestion.so", library);
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", library);
    status = about->kind == KIND_MPI ? start_mpi(about, workers, group_p, environment, err)
                                     : start_torch(about, workers, group_p, environment, err);
    if (status == PSD_OK) {
        status = group_gather(group_p, workers, err);
    }
    if (status != PSD_OK) {
        group_abandon(group_p);
    }
    return status;
}
