/*
 * settings.c - every knob of Poseidon, in one table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/settings.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "clock/clock.h"
#include "config/nearest.h"
#include "config/variable.h"

enum {
    DAY_MS = 24 * 60 * 60 * 1000,
    MASTER = PSI_PROGRAM_MASTER | PSI_PROGRAM_RUN,
    SERVER = PSI_PROGRAM_SERVER | PSI_PROGRAM_RUN,
    WORKER = PSI_PROGRAM_WORKER | PSI_PROGRAM_RUN,
    ALL = MASTER | SERVER | WORKER
};

static const char *const death_words[] = {"fail", "continue", "wait", NULL};
static const char *const kernel_words[] = {"auto", "scalar", "avx2", "avx512", NULL};
static const char *const level_words[] = {"error", "warn", "info", "debug", "trace", NULL};
static const char *const transport_words[] = {"auto", "tcp", NULL};
static const char *const hierarchy_words[] = {"auto", "off", NULL};
static const char *const lone_words[] = {"auto", "off", NULL};
static const char *const failover_words[] = {"auto", "off", NULL};
static const char *const replicas_words[] = {"0", "1", "auto", NULL};
static const char *const switch_words[] = {"off", "on", NULL};
static const char *const source_words[] = {"default", "file", "environment", "command line"};

/* What people also write for off and on. */
static const char *const switch_synonyms[][2] = {{"false", "true"}, {"no", "yes"}, {"0", "1"}};

#define NUMBER(field, fallback, min, max, unit, programs, help)                                    \
    {                                                                                              \
#field, offsetof(struct psi_settings, field), NULL, fallback, min, max, unit, programs,    \
            help                                                                                   \
    }
#define WORD(field, words, fallback, programs, help)                                               \
    {                                                                                              \
#field, offsetof(struct psi_settings, field), words, fallback, 0,                          \
            sizeof(words) / sizeof(words[0]) - 2, "", programs, help                               \
    }

/* clang-format off */
static const struct psi_knob knobs[] = {
    NUMBER(heartbeat_ms, 250, 10, 60000, "ms", ALL,
           "time between two signs of life"),
    NUMBER(dead_heartbeats, 8, 2, 1000, "", MASTER,
           "heartbeats missed before a silent process counts as lost"),
    NUMBER(lost_grace_ms, 500, 0, 600000, "ms", MASTER,
           "how long a process whose connection ended may take to come back"),
    NUMBER(server_grace_ms, 200, 0, 600000, "ms", MASTER,
           "the same of a server that the job could do without for a while (sum_failover)"),
    WORD(sum_failover, failover_words, PSI_FAILOVER_AUTO, MASTER,
         "auto: a job that only sums goes on when a server died and was started again"),
    NUMBER(server_silence_ms, 0, 0, DAY_MS, "ms", MASTER,
           "how long a server may be silent; 0: as long as others (dead_heartbeats)"),
    /* Less than op_timeout_ms: workers are to hear the master's reason, not to give up before. */
    NUMBER(server_wait_ms, 30000, 1, DAY_MS, "ms", MASTER,
           "how long a job waits for another life of a server, or a silent one"),
    NUMBER(server_return_ms, 2000, 0, DAY_MS, "ms", MASTER,
           "... before another server, if there is one, takes its part"),
    WORD(replicas, replicas_words, PSI_REPLICAS_AUTO, MASTER | SERVER,
         "copies of each server in another: it may die; auto: 1 with servers on two hosts"),
    NUMBER(max_servers, 0, 0, 256, "", MASTER | SERVER,
           "servers may come and go while the job runs, up to so many; 0: they do not"),
    NUMBER(move_mib_per_s, 256, 1, 1048576, "MiB/s", MASTER,
           "how fast the part of a server moves to one that has come, or before it leaves"),
    NUMBER(master_grace_ms, 30000, 0, DAY_MS, "ms", MASTER,
           "how long the others wait for a master that died and is started again"),
    NUMBER(start_timeout_ms, 60000, 1, DAY_MS, "ms", MASTER | SERVER,
           "how long the processes of a job may take to gather"),
    NUMBER(op_timeout_ms, 60000, 1, DAY_MS, "ms", WORKER,
           "deadline of a push or pull that names none"),
    NUMBER(open_timeout_ms, 60000, 1, DAY_MS, "ms", WORKER,
           "how long psd_open waits for the whole job"),
    WORD(on_worker_death, death_words, PSI_DEATH_FAIL, MASTER,
         "end the job, go on with the others, or wait for a replacement"),
    NUMBER(replacement_timeout_ms, 60000, 1, DAY_MS, "ms", MASTER,
           "how long to wait for a replacement"),
    NUMBER(max_workers, 0, 0, PSI_RANKS_MAX, "", MASTER,
           "workers may join while the job runs, up to so many ranks; 0: none may"),
    NUMBER(min_workers, 0, 0, PSI_RANKS_MAX, "", MASTER,
           "so many workers are enough to begin, and to go on after a death; 0: all, any"),
    NUMBER(lanes, 0, 0, 64, "", SERVER,
           "threads of a server; 0: cores / servers on the host, at least 1"),
    NUMBER(standby_lanes, 0, 0, 1024, "", SERVER,
           "threads to take over parts of other servers; 0: as many as lanes, twice with copies"),
    NUMBER(slot_pool_mib, 48, 1, 1048576, "MiB", SERVER,
           "memory for gradients that wait for their round, all lanes together"),
    NUMBER(memory_max_mib, 0, 0, 1u << 30, "MiB", SERVER,
           "most memory a server may use; 0: 80 % of what is available at its start"),
    WORD(kernel, kernel_words, PSI_KERNEL_AUTO, SERVER,
         "instructions of the update kernels; auto: the best this CPU has"),
    WORD(payload_checksum, switch_words, 0, SERVER | WORKER,
         "checksum of the numbers too, not only of the headers"),
    WORD(log_level, level_words, PSI_LOG_INFO, MASTER | SERVER,
         "how much the daemons tell"),
    NUMBER(window_kib, 2048, 512, 1048576, "KiB", SERVER | WORKER,
           "bytes of gradients, and of values, on their way to or from one lane"),
    WORD(harden, switch_words, 1, MASTER | SERVER,
         "daemons give up the files, privileges and system calls they do not need"),
    WORD(transport, transport_words, PSI_TRANSPORT_AUTO, SERVER | WORKER,
         "auto: shared memory between processes on one host, tcp otherwise; tcp: always tcp"),
    NUMBER(spin_us, 50, 0, 1000, "us", SERVER | WORKER,
           "how long to look for the next message before sleeping; 0: sleep at once"),
    WORD(join, switch_words, 1, WORKER,
         "off: a worker that comes when the job has begun is refused (max_workers)"),
    NUMBER(join_step, 0, 0, UINT32_MAX, "", WORKER,
           "who joins counts from exactly this step on; 0: the first possible one"),
    WORD(hierarchy, hierarchy_words, PSI_HIERARCHY_AUTO, WORKER,
         "auto: workers on one host send one sum to other hosts; off: each sends its own"),
    NUMBER(copy_threads, 0, 0, PSI_COPY_THREADS_MAX, "", WORKER,
           "threads for large tensors, to copy, send and receive; 0: as cores are free, 1: one"),
    WORD(lone_sums, lone_words, PSI_LONE_SUMS_AUTO, WORKER,
         "auto: with one worker a sum is its gradient, and stays there; off: servers add it"),
};
/* clang-format on */

static_assert(sizeof(knobs) / sizeof(knobs[0]) == PSI_KNOBS, "source[] has an entry per knob");
static_assert(offsetof(struct psi_settings, source) == PSI_KNOBS * sizeof(uint32_t),
              "the table has a row per value");

const struct psi_knob *
psi_knobs(void)
{
    return knobs;
}

static uint32_t *
value_of(struct psi_settings *settings, const struct psi_knob *knob)
{
    return (uint32_t *)(void *)((char *)settings + knob->offset);
}

static uint32_t
value_in(const struct psi_settings *settings, const struct psi_knob *knob)
{
    return *(const uint32_t *)(const void *)((const char *)settings + knob->offset);
}

void
psi_settings_init(struct psi_settings *settings)
{
    memset(settings, 0, sizeof(*settings));
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        *value_of(settings, &knobs[i]) = knobs[i].fallback;
    }
}

static const struct psi_knob *
find_knob(const char *name)
{
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        if (psi_name_equal(knobs[i].name, name, strlen(name))) {
            return &knobs[i];
        }
    }
    return NULL;
}

static psd_status
unknown_setting(const char *where, const char *name, struct psd_error *err)
{
    struct psi_nearest nearest = {.word = name};

    for (size_t i = 0; i < PSI_KNOBS; i++) {
        psi_nearest_try(&nearest, knobs[i].name);
    }
    if (nearest.name == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: unknown setting %.64s", where, name);
    }
    return psi_fail(err, PSD_ERR_INVALID, "%s: unknown setting %.64s; did you mean %s?", where,
                    name, nearest.name);
}

/* "fail, continue or wait" */
static void
list_words(const char *const *words, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; words[i] != NULL && used < size; i++) {
        const char *joint = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";

        used += (size_t)snprintf(text + used, size - used, "%s%s", joint, words[i]);
    }
}

static bool
parse_word(const struct psi_knob *knob, const char *text, uint32_t *value_p)
{
    for (uint32_t i = 0; knob->words[i] != NULL; i++) {
        if (strcmp(text, knob->words[i]) == 0) {
            *value_p = i;
            return true;
        }
    }
    if (knob->words == switch_words) {
        for (uint32_t i = 0; i < 6; i++) {
            if (strcmp(text, switch_synonyms[i / 2][i % 2]) == 0) {
                *value_p = i % 2;
                return true;
            }
        }
    }
    return false;
}

/* Digits alone: "4k" and "-1" are mistakes, not 4 and 4294967295. */
static bool
parse_number(const struct psi_knob *knob, const char *text, uint32_t *value_p)
{
    uint64_t value = 0;

    if (text[0] == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > knob->max) {
            return false;
        }
    }
    *value_p = (uint32_t)value;
    return value >= knob->min;
}

psd_status
psi_settings_set(struct psi_settings *settings, enum psi_source source, const char *where,
                 const char *name, const char *text, struct psd_error *err)
{
    const struct psi_knob *knob = find_knob(name);
    uint32_t value;

    if (knob == NULL) {
        return unknown_setting(where, name, err);
    }
    if (knob->words != NULL && !parse_word(knob, text, &value)) {
        char words[128];

        list_words(knob->words, words, sizeof(words));
        return psi_fail(err, PSD_ERR_INVALID, "%s: %s=%.64s: must be %s", where, knob->name, text,
                        words);
    }
    if (knob->words == NULL && !parse_number(knob, text, &value)) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: %s=%.64s: must be a number, %u to %u%s%s", where,
                        knob->name, text, knob->min, knob->max, knob->unit[0] != '\0' ? " " : "",
                        knob->unit);
    }
    if (source >= settings->source[knob - knobs]) {
        *value_of(settings, knob) = value;
        settings->source[knob - knobs] = (uint8_t)source;
    }
    return PSD_OK;
}

bool
psi_settings_told(const struct psi_settings *settings, const char *name)
{
    const struct psi_knob *knob = find_knob(name);

    return knob != NULL && settings->source[knob - knobs] != PSI_SOURCE_DEFAULT;
}

const char *
psi_environment(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

psd_status
psi_settings_environment(struct psi_settings *settings, unsigned programs, struct psd_error *err)
{
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        char variable[PSI_VARIABLE_BYTES];
        const char *text;
        psd_status status;

        psi_variable_name(knobs[i].name, variable);
        text = psi_environment(variable);
        if ((knobs[i].programs & programs) == 0 || text == NULL) {
            continue;
        }
        status =
            psi_settings_set(settings, PSI_SOURCE_ENVIRONMENT, variable, knobs[i].name, text, err);
        if (status != PSD_OK) {
            return status;
        }
    }
    return PSD_OK;
}

void
psi_settings_merge(struct psi_settings *settings, const struct psi_settings *other)
{
    for (size_t i = 0; i < PSI_KNOBS; i++) {
        if (other->source[i] > settings->source[i]) {
            *value_of(settings, &knobs[i]) = value_in(other, &knobs[i]);
            settings->source[i] = other->source[i];
        }
    }
}

void
psi_settings_text(const struct psi_settings *settings, const struct psi_knob *knob, char *text,
                  size_t size)
{
    const uint32_t value = value_in(settings, knob);

    if (knob->words != NULL) {
        snprintf(text, size, "%s", knob->words[value]);
    } else {
        snprintf(text, size, "%u", value);
    }
}

void
psi_settings_log(const struct psi_settings *settings, unsigned programs, const struct psi_log *log)
{
    char line[1000] = "";
    size_t used = 0;

    for (size_t i = 0; i < PSI_KNOBS; i++) {
        char value[32];

        if ((knobs[i].programs & programs) == 0 || used >= sizeof(line)) {
            continue;
        }
        psi_settings_text(settings, &knobs[i], value, sizeof(value));
        used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s=%s", used > 0 ? " " : "",
                                 knobs[i].name, value);
        if (settings->source[i] != PSI_SOURCE_DEFAULT && used < sizeof(line)) {
            used += (size_t)snprintf(line + used, sizeof(line) - used, " (%s)",
                                     source_words[settings->source[i]]);
        }
    }
    psi_log(log, PSI_LOG_INFO, "SETTINGS", "%s", line);
}
