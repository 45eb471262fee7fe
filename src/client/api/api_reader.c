/*
 * api_reader.c - psd/reader.h: a reader's core with a lock and a loop around it. Whoever calls drives.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/fail.h"
#include "base/process.h"
#include "client/api/api.h"
#include "client/read/reader.h"
#include "config/environment.h"
#include "config/settings.h"
#include "secure/source.h"
#include "transport/loop/loop.h"

#define MS_NS UINT64_C(1000000)

enum {
    TIMEOUT_MS = 60000,
    WAIT_MS_MAX = 250, /* even without anything due */
    OPEN_ARGS_LEAST = sizeof(struct psd_reader_open_args),
    ARGS_LEAST = sizeof(struct psd_reader_args),
};

/* Thread: guarded by lock. */
struct psd_reader {
    pthread_mutex_t lock;
    struct psi_process process; /* immutable */
    uint32_t timeout_ms;        /* likewise */
    struct psi_secret *key;     /* owned, as is tls; NULL: insecure */
    struct psi_tls *tls;
    char *master_file; /* owned; NULL: nobody says where the master is */
    struct psi_loop *loop;
    struct psi_reader *core;
};

/* ---- the key ------------------------------------------------------------------------------- */

/* Who has the job's secret can make the readers' key of it. */
static psd_status
find_key(const char *file, const struct psi_secret_source *source, struct psi_secret **key_p,
         struct psd_error *err)
{
    struct psi_secret *secret = NULL;
    psd_status status;

    if (file != NULL) {
        return psi_secret_from_file(file, key_p, err);
    }
    status = psi_secret_find(source, &secret, err);
    if (status == PSD_OK && secret != NULL) {
        status = psi_secret_for_readers(secret, key_p, err);
    }
    psi_secret_destroy(secret);
    return status;
}

static psd_status
init_security(psd_reader *reader, const char *key_file, const char *address, struct psd_error *err)
{
    const char *file = key_file != NULL ? key_file : psi_environment("PSD_READER_KEY_FILE");
    struct psi_secret_source source;
    bool sealed_always = false;
    psd_status status = psi_environment_switch("PSD_FORCE_TLS", &sealed_always, err);

    if (status == PSD_OK) {
        status = psi_secret_source(NULL, &source, err);
    }
    if (status == PSD_OK) {
        status = find_key(file, &source, &reader->key, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (reader->key != NULL) {
        status = psi_tls_create(reader->key, NULL, &reader->tls, err);
        if (status == PSD_OK && sealed_always) {
            psi_tls_seal_always(reader->tls);
        }
        return status;
    }
    if (source.insecure != NULL) {
        return psi_insecure_connect(source.insecure, address, err);
    }
    psi_fail(err, PSD_ERR_INVALID,
             "no key to read the job: set PSD_READER_KEY_FILE to the file that psd_run reader-key "
             "wrote (PSD_INSECURE=1 does without, on loopback only)");
    psi_environment_hint("PSD_READER_KEY_FILE", err);
    return PSD_ERR_INVALID;
}

/* ---- driving ------------------------------------------------------------------------------- */

static uint64_t
now_ns(const psd_reader *reader)
{
    return psi_now_ns(psi_loop_env(reader->loop));
}

static uint64_t
deadline_ns(const psd_reader *reader, uint32_t timeout_ms)
{
    const uint32_t wanted_ms = timeout_ms != 0 ? timeout_ms : reader->timeout_ms;

    return wanted_ms == PSD_FOREVER ? UINT64_MAX : now_ns(reader) + wanted_ms * MS_NS;
}

/* One turn on the loop, not beyond the deadline. */
static psd_status
drive_locked(psd_reader *reader, uint64_t until_ns, struct psd_error *err)
{
    const uint64_t at_ns = now_ns(reader);
    const uint64_t core_ns = psi_reader_next_ns(reader->core);
    const uint64_t loop_ns = psi_loop_next_ns(reader->loop);
    uint64_t wake_ns = at_ns + WAIT_MS_MAX * MS_NS;
    psd_status status;

    wake_ns = core_ns < wake_ns ? core_ns : wake_ns;
    wake_ns = loop_ns < wake_ns ? loop_ns : wake_ns;
    wake_ns = until_ns < wake_ns ? until_ns : wake_ns;
    status = psi_loop_run_once(
        reader->loop, wake_ns > at_ns ? (int)((wake_ns - at_ns + MS_NS - 1) / MS_NS) : 0, err);
    psi_reader_tick(reader->core);
    return status;
}

static psd_status
timed_out(const psd_reader *reader, const char *what, struct psd_error *err)
{
    char waits[400];

    psi_reader_waits(reader->core, waits, sizeof(waits));
    return psi_fail(err, PSD_ERR_TIMEOUT, "%s: the deadline passed. It waits for %s", what, waits);
}

/* Until it knows who is in the job. */
static psd_status
wait_for_job_locked(psd_reader *reader, uint64_t until_ns, struct psd_error *err)
{
    psd_status status = PSD_PENDING;

    psi_reader_tick(reader->core);
    while ((status = psi_reader_state(reader->core, err)) == PSD_PENDING) {
        if (now_ns(reader) >= until_ns) {
            return timed_out(reader, "find the job", err);
        }
        status = drive_locked(reader, until_ns, err);
        if (status != PSD_OK) {
            return status;
        }
    }
    return status;
}

/* ---- life ---------------------------------------------------------------------------------- */

static void
destroy(psd_reader *reader)
{
    psi_reader_destroy(reader->core);
    if (reader->loop != NULL) {
        psi_loop_destroy(reader->loop);
    }
    psi_tls_destroy(reader->tls);
    psi_secret_destroy(reader->key);
    free(reader->master_file);
    psi_process_fini(&reader->process);
    pthread_mutex_destroy(&reader->lock);
    free(reader);
}

/* What the environment says of one job's master is not about another job. */
static char *
find_master_file(const char *address)
{
    const char *file = psi_environment("PSD_MASTER_FILE");
    const char *ours = psi_environment("PSD_MASTER_ADDRESS");

    return file != NULL && (ours == NULL || strcmp(ours, address) == 0) ? strdup(file) : NULL;
}

static psd_status
begin(psd_reader *reader, const struct psd_reader_open_args *args, const char *address,
      struct psd_error *err)
{
    struct psi_loop_config config = {.lends = false};
    psd_status status = init_security(reader, args->key_file, address, err);

    if (status == PSD_OK && reader->tls != NULL) {
        config.auth = &psi_tls_auth;
        config.credentials = reader->tls;
    }
    reader->master_file = find_master_file(address);
    config.master_file = reader->master_file;
    if (status == PSD_OK) {
        status = psi_loop_create(&config, &reader->loop, err);
    }
    if (status == PSD_OK) {
        status = psi_reader_create(psi_loop_env(reader->loop), address, &reader->core, err);
    }
    return status;
}

static psd_status
find_address(const struct psd_reader_open_args *args, const char **address_p, struct psd_error *err)
{
    *address_p =
        args->master_address != NULL ? args->master_address : psi_environment("PSD_MASTER_ADDRESS");
    if (*address_p == NULL) {
        psi_fail(err, PSD_ERR_INVALID,
                 "no master address: set PSD_MASTER_ADDRESS to tcp://HOST:PORT (psd_run reader-key "
                 "prints it), or pass it to psd_reader_open");
        psi_environment_hint("PSD_MASTER_ADDRESS", err);
        return PSD_ERR_INVALID;
    }
    return psi_check_address(*address_p, err);
}

psd_status
psd_reader_open(const struct psd_reader_open_args *given, psd_reader **reader_p)
{
    struct psd_reader_open_args args = {0};
    struct psd_error *err = psi_error();
    const char *address = NULL;
    psd_reader *reader;
    psd_status status = PSD_OK;

    if (reader_p == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "psd_reader_open: reader_p is NULL");
    }
    if (given != NULL) {
        status =
            psi_args_copy(&args, sizeof(args), given, OPEN_ARGS_LEAST, "psd_reader_open_args", err);
    }
    if (status == PSD_OK) {
        status = find_address(&args, &address, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    reader = calloc(1, sizeof(*reader));
    if (reader == NULL || pthread_mutex_init(&reader->lock, NULL) != 0) {
        free(reader);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a reader");
    }
    psi_process_init(&reader->process);
    reader->timeout_ms = args.timeout_ms != 0 ? args.timeout_ms : TIMEOUT_MS;
    status = begin(reader, &args, address, err);
    if (status == PSD_OK) {
        status = wait_for_job_locked(reader, deadline_ns(reader, 0), err);
    }
    if (status != PSD_OK) {
        destroy(reader);
        return status;
    }
    *reader_p = reader;
    return PSD_OK;
}

/* Of the parent's, a child has nothing to end: its descriptors are closed with the process. */
void
psd_reader_close(psd_reader *reader)
{
    if (reader != NULL && psi_process_is_this(&reader->process)) {
        destroy(reader);
    }
}

static psd_status
check(const psd_reader *reader, struct psd_error *err)
{
    if (reader == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "reader is NULL");
    }
    if (!psi_process_is_this(&reader->process)) {
        return psi_fail(err, PSD_ERR_FORKED,
                        "reader of process %d used in its child %d: open one of its own there",
                        (int)reader->process.pid, (int)getpid());
    }
    return PSD_OK;
}

/* ---- tables -------------------------------------------------------------------------------- */

static psd_status
find_locked(psd_reader *reader, const char *name, const struct psi_read_table **table_p,
            struct psd_error *err)
{
    const uint64_t until_ns = deadline_ns(reader, 0);
    psd_status status = PSD_OK;

    psi_reader_tick(reader->core);
    while ((*table_p = psi_reader_find(reader->core, name)) == NULL) {
        status = psi_reader_state(reader->core, err);
        if (status != PSD_OK && status != PSD_PENDING) {
            return status;
        }
        if (now_ns(reader) >= until_ns) {
            return psi_fail(err, PSD_ERR_TIMEOUT, "table %.200s: no worker has opened it in time",
                            name);
        }
        status = drive_locked(reader, until_ns, err);
        if (status != PSD_OK) {
            return status;
        }
    }
    return PSD_OK;
}

psd_status
psd_reader_find(psd_reader *reader, const char *name, struct psd_reader_table *table_p)
{
    struct psd_error *err = psi_error();
    struct psd_reader_table found = {.struct_size = sizeof(found)};
    const struct psi_read_table *table = NULL;
    psd_status status = check(reader, err);

    if (status == PSD_OK && (name == NULL || table_p == NULL)) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_reader_find: %s is NULL",
                          name == NULL ? "name" : "table_p");
    }
    if (status == PSD_OK) {
        status = psi_args_check_size(table_p->struct_size, sizeof(found), sizeof(found),
                                     "psd_reader_table", err);
    }
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&reader->lock);
    status = find_locked(reader, name, &table, err);
    if (status == PSD_OK) {
        found.number = table->id;
        found.dtype = (uint32_t)table->spec.dtype;
        found.width = table->spec.width;
        found.dims = table->spec.width > 0 ? 0 : table->spec.dims;
        for (uint32_t i = 0; i < found.dims; i++) {
            found.shape[i] = table->spec.shape[i];
        }
        found.count = table->spec.width > 0 ? 0 : table->spec.count;
        found.struct_size = table_p->struct_size;
        psi_args_fill(table_p, table_p->struct_size, &found, sizeof(found));
    }
    pthread_mutex_unlock(&reader->lock);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------- */

static psd_status
read_locked(psd_reader *reader, const struct psi_read_args *args, uint32_t timeout_ms,
            struct psi_read_answer *answer_p, struct psd_error *err)
{
    const uint64_t until_ns = deadline_ns(reader, timeout_ms);
    psd_status status = wait_for_job_locked(reader, until_ns, err);

    if (status == PSD_OK) {
        status = psi_reader_begin(reader->core, args, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    psi_reader_tick(reader->core);
    while ((status = psi_reader_progress(reader->core, answer_p, err)) == PSD_PENDING) {
        if (now_ns(reader) >= until_ns) {
            char what[PSD_NAME_MAX + 16];

            snprintf(what, sizeof(what), "read table %s", args->table->spec.name);
            status = timed_out(reader, what, err);
            break;
        }
        status = drive_locked(reader, until_ns, err);
        if (status != PSD_OK) {
            break;
        }
    }
    psi_reader_end(reader->core);
    return status;
}

static psd_status
check_args(const struct psd_reader_args *args, const struct psi_read_table *table,
           struct psd_error *err)
{
    const bool is_sparse = table != NULL && psi_spec_is_sparse(&table->spec);

    if (table == NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %u: psd_reader_find has returned no such number", args->table);
    }
    if (table->spec.use == PSD_USE_SUM) {
        return psi_fail(err, PSD_ERR_STATE,
                        "table %s is a sum: servers keep no values of it; read a table that they "
                        "update",
                        table->spec.name);
    }
    if (!is_sparse && (args->count > 0 || args->ids != NULL || args->steps != NULL)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s has no rows by id: all of it is read, without ids and steps",
                        table->spec.name);
    }
    if (args->values == NULL && (!is_sparse || args->count > 0)) {
        return psi_fail(err, PSD_ERR_INVALID, "psd_reader_read: values is NULL");
    }
    if (args->ids == NULL && args->count > 0) {
        return psi_fail(err, PSD_ERR_INVALID, "psd_reader_read: ids is NULL");
    }
    return PSD_OK;
}

static const struct psi_read_table *
table_of(const psd_reader *reader, uint32_t number)
{
    const struct psi_read_table *table;

    for (uint32_t i = 0; (table = psi_reader_table(reader->core, i)) != NULL; i++) {
        if (table->id == number) {
            return table;
        }
    }
    return NULL;
}

psd_status
psd_reader_read(psd_reader *reader, const struct psd_reader_args *given,
                struct psd_reader_answer *answer_p)
{
    struct psd_error *err = psi_error();
    struct psd_reader_answer filled = {0};
    struct psi_read_answer answer = {0};
    struct psi_read_args wanted = {0};
    struct psd_reader_args args = {0};
    psd_status status = check(reader, err);

    if (status == PSD_OK) {
        status = psi_args_copy(&args, sizeof(args), given, ARGS_LEAST, "psd_reader_args", err);
    }
    if (status == PSD_OK && answer_p != NULL) {
        status = psi_args_check_size(answer_p->struct_size, sizeof(filled), sizeof(filled),
                                     "psd_reader_answer", err);
    }
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&reader->lock);
    wanted = (struct psi_read_args){.table = table_of(reader, args.table),
                                    .count = args.count,
                                    .ids = args.ids,
                                    .values = args.values,
                                    .steps = args.steps};
    status = check_args(&args, wanted.table, err);
    if (status == PSD_OK) {
        status = read_locked(reader, &wanted, args.timeout_ms, &answer, err);
    }
    pthread_mutex_unlock(&reader->lock);
    if (status == PSD_OK && answer_p != NULL) {
        filled = (struct psd_reader_answer){.struct_size = answer_p->struct_size,
                                            .step = answer.oldest,
                                            .newest = answer.newest,
                                            .age_us = (answer.age_ns + 999) / 1000};
        psi_args_fill(answer_p, answer_p->struct_size, &filled, sizeof(filled));
    }
    return status;
}
