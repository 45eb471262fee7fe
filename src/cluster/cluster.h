/*
 * cluster.h - cluster.json: which hosts a job runs on, and how.
 *
 *     {
 *         "worker_nodes": ["10.0.0.1", "ann@10.0.0.2:2200", {"host": "gpu7", "slots": 4}],
 *         "server_nodes": ["10.0.0.1"],
 *         "master_node": "10.0.0.1:5555",
 *         "settings": {"heartbeat_ms": 100, "on_worker_death": "continue"}
 *     }
 *
 * worker_nodes and server_nodes are required, each with one process or more; a host may appear as
 * often as it should run one. Nodes are a string, "[user@]host[:sshport]" with IPv6 addresses in
 * brackets when a port follows, where "n[01-16]" is 16 nodes (hostlist.h), or an object with host,
 * slots, addr, user, env, gpus. Optional keys: master_node, master_port, pem_file, virtualenv,
 * username, ssh_options, workdir, image, settings, pass, worker_commands, env, setup.
 *
 * Where a batch system names the machines, "tasks" stands for both lists of nodes: a role ("ps" or
 * "worker") for each of its tasks.
 *
 * Whatever is wrong is refused with FILE:LINE:COLUMN: unknown and repeated keys, wrong types, host
 * names that could be taken for an option or a piece of shell.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLUSTER_CLUSTER_H
#define PSI_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "config/settings.h"

enum {
    PSI_CLUSTER_WORKERS_MAX = 1024,
    PSI_CLUSTER_SERVERS_MAX = 256,
    PSI_CLUSTER_HOST_BYTES_MAX = 255,
    PSI_CLUSTER_USER_BYTES_MAX = 64,
    PSI_CLUSTER_FILE_BYTES_MAX = 16 * 1024 * 1024
};

/* How a worker learns its place: flags on its command line, the environment, ... */
enum psi_pass { PSI_PASS_AUTO, PSI_PASS_FLAGS, PSI_PASS_ENV, PSI_PASS_BOTH, PSI_PASS_NONE };

struct psi_cluster_variable {
    const char *name;
    const char *value;
};

/* One process: its host, and how to start it there. An entry with n slots becomes n nodes. */
struct psi_cluster_node {
    char host[PSI_CLUSTER_HOST_BYTES_MAX + 1]; /* a name or an address, without brackets */
    char user[PSI_CLUSTER_USER_BYTES_MAX + 1]; /* "": not said; "user" wins over "user@host" */
    uint16_t ssh_port;                         /* 0: not said */
    const char *addr;                          /* where the others reach it; NULL: host */
    const struct psi_cluster_variable *env;    /* wins over that of the cluster */
    uint32_t env_count;
    uint32_t gpus; /* of the host, for its slots; 0: not said */
    uint32_t slot; /* 0..slots - 1 */
    uint32_t slots;
};

/* Thread: immutable between load and free. */
struct psi_cluster {
    struct psi_cluster_node *workers; /* worker k is rank k */
    uint32_t worker_count;
    struct psi_cluster_node *servers;
    uint32_t server_count;
    struct psi_cluster_node master; /* host "": the machine of psd_run */
    uint16_t master_port;           /* 0: any free one */
    char *pem_file;                 /* NULL: not said; relative ones start at the file's folder */
    unsigned pem_line;              /* where it stands, for those who find fault with it */
    unsigned pem_column;
    const char *virtualenv;   /* NULL: not said */
    const char *username;     /* NULL: not said */
    const char **ssh_options; /* owned; ssh_option_count arguments for ssh */
    uint32_t ssh_option_count;
    const char *workdir; /* NULL: not said */
    const char *image;   /* NULL: not said; what runs a command in a container */
    const char *setup;   /* NULL: not said; what a batch script does before it starts the job */
    enum psi_pass pass;
    const char **worker_commands; /* NULL, or one for each worker, ended by NULL */
    const char *
        *tasks; /* owned; NULL, or task_count roles: then there are no workers and servers */
    uint32_t task_count;
    const struct psi_cluster_variable *env;
    uint32_t env_count;
    struct psi_settings settings; /* defaults and the file's: for psi_settings_merge() */

    struct psi_cluster_variable *variables; /* owned: what every env points into */
    void *document;                         /* owned: what every borrowed string points into */
};

/* PSD_ERR_IO when the file cannot be read, PSD_ERR_TOO_BIG beyond PSI_CLUSTER_FILE_BYTES_MAX,
 * PSD_ERR_INVALID for what is in it, PSD_ERR_NO_MEMORY. */
psd_status psi_cluster_load(const char *path, struct psi_cluster *cluster_p, struct psd_error *err);

/* The same from memory; `name` stands for the file in messages and for its folder in pem_file. */
psd_status psi_cluster_parse(const char *text, size_t bytes, const char *name,
                             struct psi_cluster *cluster_p, struct psd_error *err);
void psi_cluster_free(struct psi_cluster *cluster);

/* Whether the servers are on two hosts or more, by their names. */
bool psi_cluster_spreads_servers(const struct psi_cluster *cluster);

#endif
