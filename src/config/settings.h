/*
 * settings.h - every knob of Poseidon, in one table.
 *
 * A setting comes, in rising precedence, from its default, from the "settings" object of
 * cluster.json, from the environment (PSD_<NAME>) and from the command line (--name=value). Sources
 * may be read in any order: a value never replaces one that came from a higher source.
 *
 * This folder is the only one that looks at the environment and at argv. See options.h for the
 * command line, cluster.h for cluster.json.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CONFIG_SETTINGS_H
#define PSI_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "base/log.h"
#include "clock/clock.h"

/* Who has a use for a setting: bits. */
enum psi_program {
    PSI_PROGRAM_MASTER = 1,
    PSI_PROGRAM_SERVER = 2,
    PSI_PROGRAM_WORKER = 4,
    PSI_PROGRAM_RUN = 8, /* psd_run knows them all, since it passes them on */
};

enum psi_source { PSI_SOURCE_DEFAULT, PSI_SOURCE_FILE, PSI_SOURCE_ENVIRONMENT, PSI_SOURCE_COMMAND };

enum psi_kernel { PSI_KERNEL_AUTO, PSI_KERNEL_SCALAR, PSI_KERNEL_AVX2, PSI_KERNEL_AVX512 };

enum psi_transport { PSI_TRANSPORT_AUTO, PSI_TRANSPORT_TCP };

enum psi_hierarchy { PSI_HIERARCHY_AUTO, PSI_HIERARCHY_OFF };

enum psi_lone_sums { PSI_LONE_SUMS_AUTO, PSI_LONE_SUMS_OFF };

enum psi_failover { PSI_FAILOVER_AUTO, PSI_FAILOVER_OFF };

/* Copies of what servers hold: so many, or as who starts the job finds right. */
enum psi_replicas { PSI_REPLICAS_0, PSI_REPLICAS_1, PSI_REPLICAS_AUTO };

enum { PSI_KNOBS = 35, PSI_COPY_THREADS_MAX = 64 };

/*
 * The values. Enums and booleans are numbers too, so that one table can describe them all.
 *
 * Thread: immutable once a program has read its sources.
 */
struct psi_settings {
    uint32_t heartbeat_ms;
    uint32_t dead_heartbeats;
    uint32_t lost_grace_ms;
    uint32_t server_grace_ms;
    uint32_t sum_failover;      /* enum psi_failover */
    uint32_t server_silence_ms; /* 0: as dead_heartbeats says */
    uint32_t server_wait_ms;
    uint32_t server_return_ms;
    uint32_t replicas;    /* enum psi_replicas */
    uint32_t max_servers; /* 0: they do not come and go */
    uint32_t move_mib_per_s;
    uint32_t master_grace_ms;
    uint32_t start_timeout_ms;
    uint32_t op_timeout_ms;
    uint32_t open_timeout_ms;
    uint32_t on_worker_death; /* enum psi_death_policy */
    uint32_t replacement_timeout_ms;
    uint32_t max_workers; /* 0: none may join */
    uint32_t min_workers; /* 0: all begin together, and any number goes on */
    uint32_t lanes;
    uint32_t standby_lanes; /* 0: as many as lanes, or twice */
    uint32_t slot_pool_mib;
    uint32_t memory_max_mib;
    uint32_t kernel;           /* enum psi_kernel */
    uint32_t payload_checksum; /* 0, 1 */
    uint32_t log_level;        /* enum psi_log_level */
    uint32_t window_kib;
    uint32_t harden;    /* 0, 1 */
    uint32_t transport; /* enum psi_transport */
    uint32_t spin_us;
    uint32_t join;             /* 0, 1 */
    uint32_t join_step;        /* 0: the first possible one */
    uint32_t hierarchy;        /* enum psi_hierarchy */
    uint32_t copy_threads;     /* 0: as cores are free */
    uint32_t lone_sums;        /* enum psi_lone_sums */
    uint8_t source[PSI_KNOBS]; /* enum psi_source, in the order of the table */
};

/* One row of the table. Thread: immutable. */
struct psi_knob {
    const char *name;
    size_t offset; /* of the value in struct psi_settings */
    const char *const
        *words;        /* of an enum or a boolean, value 0 first, NULL last; NULL: a number */
    uint32_t fallback; /* the default */
    uint32_t min;
    uint32_t max;
    const char *unit; /* "ms", "" */
    unsigned programs;
    const char *help;
};

/* The table: PSI_KNOBS rows. */
const struct psi_knob *psi_knobs(void);

/* Defaults everywhere. */
void psi_settings_init(struct psi_settings *settings);

/*
 * Sets `name` ('-' and '_' are equal) from text, unless a higher source has set it already; the
 * text is checked either way. PSD_ERR_INVALID, with `where` ("command line", "cluster.json:3:7") in
 * front of the message: no such setting (the nearest name is suggested), not a number or word, out
 * of range. Then nothing has changed.
 */
psd_status psi_settings_set(struct psi_settings *settings, enum psi_source source,
                            const char *where, const char *name, const char *text,
                            struct psd_error *err);

/* Reads PSD_<NAME> for every setting of `programs`. An empty variable counts as unset. */
psd_status psi_settings_environment(struct psi_settings *settings, unsigned programs,
                                    struct psd_error *err);

/* Whether somebody has said it: false for a default, and for what is no setting. */
bool psi_settings_told(const struct psi_settings *settings, const char *name);

/* Takes over from `other` every value whose source is higher. */
void psi_settings_merge(struct psi_settings *settings, const struct psi_settings *other);

/* A value as psi_settings_set() would read it: "250", "fail", "off". Cut to size. */
void psi_settings_text(const struct psi_settings *settings, const struct psi_knob *knob, char *text,
                       size_t size);

/* One line with every setting of `programs`; those that are not the default name their source. */
void psi_settings_log(const struct psi_settings *settings, unsigned programs,
                      const struct psi_log *log);

/* A variable of the environment; NULL when unset or empty. Valid until the environment changes. */
const char *psi_environment(const char *name);

#endif
