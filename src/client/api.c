/*
 * api.c - the public calls: arguments checked, the core called under the lock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/machine.h"
#include "client/context.h"
#include "client/finite.h"
#include "client/memory.h"
#include "client/state.h"
#include "client/table_view.h"
#include "config/environment.h"
#include "config/settings.h"
#include "transport/address.h"

/* A struct the caller filled, as this version of the library knows it. */
static psd_status
copy_args(void *to, size_t to_bytes, const void *from, const char *name, struct psd_error *err)
{
    size_t given;

    memset(to, 0, to_bytes);
    if (from == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "%s is NULL", name);
    }
    memcpy(&given, from, sizeof(given));
    if (given < sizeof(given) || given > 65536) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: struct_size is %zu; set it to sizeof(struct)",
                        name, given);
    }
    memcpy(to, from, given < to_bytes ? given : to_bytes);
    return PSD_OK;
}

/* ---- joining and leaving ----------------------------------------------------------------- */

static psd_status
parse_rank(const char *text, uint32_t *rank_p, struct psd_error *err)
{
    char *end;
    long rank;

    if (text == NULL || strcmp(text, "auto") == 0) {
        *rank_p = PSI_RANK_AUTO;
        return PSD_OK;
    }
    errno = 0;
    rank = strtol(text, &end, 10);
    if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' || rank >= PSI_RANKS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "rank \"%s\": give 0..%d or auto", text,
                        PSI_RANKS_MAX - 1);
    }
    *rank_p = (uint32_t)rank;
    return PSD_OK;
}

/* What could never be connected to is an error at once, not after a timeout. */
static psd_status
check_address(const char *text, struct psd_error *err)
{
    char formatted[PSI_ADDRESS_BYTES];
    struct psi_address address;
    psd_status status = psi_address_parse(text, &address, err);

    if (status == PSD_OK && psi_address_format(&address, formatted, NULL) != PSD_OK) {
        status = psi_fail(err, PSD_ERR_INVALID, "address \"%.120s\": too long", text);
    }
    if (status == PSD_OK && address.scheme == PSI_SCHEME_TCP && address.port == 0) {
        status = psi_fail(err, PSD_ERR_INVALID, "address \"%s\": no port to connect to", text);
    }
    return status;
}

static psd_status
secret_source(const char *file, struct psi_secret_source *source_p, struct psd_error *err)
{
    bool insecure = false;
    const psd_status status = psi_environment_switch("PSD_INSECURE", &insecure, err);

    *source_p = (struct psi_secret_source){
        .fd = psi_environment("PSD_SECRET_FD"),
        .file = file != NULL ? file : psi_environment("PSD_SECRET_FILE"),
        .file_key = file != NULL ? "secret_file" : "PSD_SECRET_FILE",
        .insecure = insecure ? "PSD_INSECURE=1" : NULL,
    };
    return status;
}

static psd_status
open_config(const struct psd_open_args *given, struct psi_client_config *config,
            struct psi_secret_source *source, struct psd_error *err)
{
    struct psd_open_args args;
    struct psi_settings settings;
    psd_status status = PSD_OK;

    memset(&args, 0, sizeof(args));
    if (given != NULL) {
        status = copy_args(&args, sizeof(args), given, "psd_open args", err);
    }
    psi_settings_init(&settings);
    if (status == PSD_OK) {
        status = psi_settings_environment(&settings, PSI_PROGRAM_WORKER, err);
    }
    if (status == PSD_OK) {
        status = parse_rank(args.rank != NULL ? args.rank : psi_environment("PSD_RANK"),
                            &config->rank, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    config->master_address =
        args.master_address != NULL ? args.master_address : psi_environment("PSD_MASTER_ADDRESS");
    if (config->master_address == NULL) {
        psi_fail(err, PSD_ERR_INVALID,
                 "no master address: run under psd_run, set PSD_MASTER_ADDRESS to "
                 "tcp://HOST:PORT, or pass it to psd_open");
        psi_environment_hint("PSD_MASTER_ADDRESS", err);
        return PSD_ERR_INVALID;
    }
    status = check_address(config->master_address, err);
    if (status != PSD_OK) {
        return status;
    }
    config->open_timeout_ms =
        args.open_timeout_ms != 0 ? args.open_timeout_ms : settings.open_timeout_ms;
    config->op_timeout_ms = args.op_timeout_ms != 0 ? args.op_timeout_ms : settings.op_timeout_ms;
    config->window_bytes = settings.window_kib << 10;
    config->checksum = settings.payload_checksum != 0;
    config->lends = settings.transport == PSI_TRANSPORT_AUTO;
    config->spin_us = settings.spin_us;
    if (config->lends && settings.hierarchy == PSI_HIERARCHY_AUTO) {
        config->host = psi_machine_guess();
        config->door = "tcp://127.0.0.1:0";
    }
    return secret_source(args.secret_file, source, err);
}

psd_status
psd_open(const struct psd_open_args *args, psd_context **context_p)
{
    struct psi_client_config config = {0};
    struct psi_secret_source source = {0};
    struct psd_error *err = psi_error();
    psd_status status;

    if (context_p == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "psd_open: context_p is NULL");
    }
    status = open_config(args, &config, &source, err);
    if (status == PSD_OK) {
        status = psi_context_create(&config, &source, context_p, err);
    }
    if (status == PSD_ERR_TIMEOUT) {
        psi_environment_hint("PSD_OPEN_TIMEOUT_MS", err);
    }
    return status;
}

psd_status
psd_close(psd_context *context)
{
    struct psd_error *err = psi_error();
    psd_status status;
    psd_op *op;

    if (context == NULL) {
        return PSD_OK;
    }
    status = psi_context_check(context, err);
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    status = psi_context_drain_locked(context, err);
    if (psi_client_state(context->client) == PSI_CLIENT_OVER) {
        if (status == PSD_OK) {
            *err = *psi_client_error(context->client);
            status = err->status;
        }
    } else {
        struct psd_error reason;
        psd_status left = psi_client_bye(context->client, &op, &reason);

        if (left == PSD_OK) {
            left = psi_context_finish_locked(context, op, NULL, &reason);
        }
        if (status == PSD_OK && left != PSD_OK) {
            *err = reason;
            status = left;
        }
    }
    pthread_mutex_unlock(&context->lock);
    psi_context_destroy(context);
    return status;
}

void
psd_abandon(psd_context *context)
{
    if (context != NULL && psi_process_is_this(&context->process)) {
        psi_context_destroy(context);
    }
}

uint32_t
psd_rank(const psd_context *context)
{
    return psi_client_job(context->client)->rank;
}

uint32_t
psd_size(const psd_context *context)
{
    return psi_client_job(context->client)->workers;
}

uint32_t
psd_servers(const psd_context *context)
{
    return psi_client_job(context->client)->servers;
}

uint32_t
psd_incarnation(const psd_context *context)
{
    return psi_client_job(context->client)->incarnation;
}

/* ---- tables ------------------------------------------------------------------------------ */

static psd_context *
context_of(const struct psi_client *client)
{
    return client->context;
}

static psd_status
send_initial(psd_context *context, psd_table *table, const void *values, struct psd_error *err)
{
    const struct psi_transfer transfer = {.type = PSI_FRAME_INIT, .from = values};

    return psi_context_transfer(context, table, &transfer, NULL, err);
}

/* Rank 0's values are there when an empty pull is answered. */
static psd_status
await_initial(psd_context *context, psd_table *table, struct psd_error *err)
{
    const struct psi_transfer transfer = {.type = PSI_FRAME_PULL, .empty = true};

    return psi_context_transfer(context, table, &transfer, NULL, err);
}

static psd_status
check_table_args(const psd_context *context, const struct psd_table_args *args,
                 struct psi_spec *spec, struct psd_error *err)
{
    const bool gives = args->init == PSD_INIT_RANK0 && psd_rank(context) == 0;

    if (args->priority < 0 || args->priority > 255) {
        return psi_fail(err, PSD_ERR_INVALID, "table priority %d: give 0..255", args->priority);
    }
    if (gives && args->values == NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s: init is PSD_INIT_RANK0, but rank 0 gives no values",
                        args->name != NULL ? args->name : "(no name)");
    }
    return psi_spec_init(spec, args, psd_size(context), err);
}

psd_status
psd_table_open(psd_context *context, const struct psd_table_args *given, psd_table **table_p)
{
    struct psd_error *err = psi_error();
    struct psd_table_args args;
    struct psi_spec spec;
    psd_table *table = NULL;
    psd_op *op;
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && table_p == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_table_open: table_p is NULL");
    }
    if (status == PSD_OK) {
        status = copy_args(&args, sizeof(args), given, "psd_table_open args", err);
    }
    if (status == PSD_OK) {
        status = check_table_args(context, &args, &spec, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    status = psi_client_table_open(context->client, &spec, (uint8_t)args.priority, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        table = psi_op_table(op);
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    if (status == PSD_OK && args.init == PSD_INIT_RANK0) {
        status = psd_rank(context) == 0 ? send_initial(context, table, args.values, err)
                                        : await_initial(context, table, err);
    }
    if (status == PSD_OK) {
        *table_p = table;
    }
    return status;
}

uint64_t
psd_table_count(const psd_table *table)
{
    return table->spec.count;
}

size_t
psd_table_element_bytes(const psd_table *table)
{
    return table->element_bytes;
}

uint64_t
psd_table_step(const psd_table *table)
{
    psd_context *context = context_of(table->client);
    uint64_t step = 0;

    if (!psi_process_is_this(&context->process)) {
        return 0; /* the lock may be held by a thread that this process does not have */
    }
    pthread_mutex_lock(&context->lock);
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        /* Backup workers: chunks learn of closed rounds one by one; the latest news counts. */
        if (chunk == 0 || (table->spec.backup_workers > 0 && table->next_step[chunk] > step)) {
            step = table->next_step[chunk];
        }
    }
    pthread_mutex_unlock(&context->lock);
    return step;
}

/* ---- transfers --------------------------------------------------------------------------- */

static psd_status
check_pointers(const struct psd_table *table, const struct psd_transfer *transfer, uint8_t type,
               struct psd_error *err)
{
    if (type != PSI_FRAME_PULL && transfer->gradient == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "push table %s: gradient is NULL", table->spec.name);
    }
    if (type != PSI_FRAME_PUSH &&
        (transfer->values == NULL) != ((transfer->flags & PSD_TRANSFER_VIEW) != 0)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "pull table %s: give either values or PSD_TRANSFER_VIEW", table->spec.name);
    }
    if ((transfer->flags & ~(PSD_TRANSFER_CHECKED | PSD_TRANSFER_VIEW)) != 0) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: unknown flags 0x%x", table->spec.name,
                        transfer->flags);
    }
    if (transfer->priority < 0 || transfer->priority > 255) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: priority %d: give 0..255",
                        table->spec.name, transfer->priority);
    }
    return PSD_OK;
}

/* The policy for NaN and infinity, enforced before the first byte leaves. The range is checked. */
static psd_status
check_finite(const struct psd_table *table, struct psi_transfer *transfer, struct psd_error *err)
{
    int64_t index;

    if (table->spec.nan_policy == PSD_NAN_ALLOW) {
        return PSD_OK;
    }
    index = psi_find_not_finite(table->spec.dtype, transfer->from, transfer->count);
    if (index < 0) {
        return PSD_OK;
    }
    if (table->spec.nan_policy == PSD_NAN_SKIP) {
        transfer->empty = true;
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_NOT_FINITE,
                    "push table %s step %llu: worker %u's gradient is not finite at index %llu",
                    table->spec.name, (unsigned long long)transfer->step, table->client->job.rank,
                    (unsigned long long)(transfer->first + (uint64_t)index));
}

static void
adopt_locked(psd_context *context, psd_op *op)
{
    op->all_next = context->all;
    if (context->all != NULL) {
        context->all->all_prev = op;
    }
    context->all = op;
}

static psd_status
aim_at_view_locked(psd_table *table, struct psi_transfer *transfer, struct psd_error *err)
{
    const struct table_view *view = psi_table_view(table);

    if (view == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for its view",
                        table->spec.name);
    }
    transfer->to = view->base + transfer->first * table->element_bytes;
    transfer->to_view = true;
    return PSD_OK;
}

static psd_status
submit(psd_table *table, const struct psd_transfer *given, uint8_t type, psd_op **op_p)
{
    struct psd_error *err = psi_error();
    struct psd_transfer args;
    struct psi_transfer transfer;
    psd_context *context;
    psd_op *op;
    psd_status status;

    if (table == NULL || op_p == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "table or op_p is NULL");
    }
    context = context_of(table->client);
    status = psi_context_check(context, err);
    if (status == PSD_OK) {
        status = copy_args(&args, sizeof(args), given, "psd_transfer", err);
    }
    if (status == PSD_OK) {
        status = check_pointers(table, &args, type, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    transfer = (struct psi_transfer){
        .type = type,
        .step = args.step,
        .first = args.first,
        .count = args.count,
        .from = type == PSI_FRAME_PULL ? NULL : args.gradient,
        .to = type == PSI_FRAME_PUSH ? NULL : args.values,
        .priority = (uint8_t)args.priority,
        .timeout_ms = args.timeout_ms,
        .done = args.done,
        .user = args.user,
    };
    status = psi_transfer_check_range(table, &transfer, err);
    if (status == PSD_OK && type != PSI_FRAME_PULL && (args.flags & PSD_TRANSFER_CHECKED) == 0) {
        status = check_finite(table, &transfer, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    if (type != PSI_FRAME_PUSH && (args.flags & PSD_TRANSFER_VIEW) != 0) {
        status = aim_at_view_locked(table, &transfer, err);
    }
    transfer.lent = psi_region_has_locked(context, transfer.from,
                                          transfer.count * (uint64_t)table->element_bytes);
    if (status == PSD_OK) {
        status = psi_client_transfer(context->client, table, &transfer, &op, err);
    }
    if (status == PSD_OK) {
        adopt_locked(context, op);
        *op_p = op;
        psi_context_send_locked(context);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psd_push(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p)
{
    return submit(table, transfer, PSI_FRAME_PUSH, op_p);
}

psd_status
psd_pull(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p)
{
    return submit(table, transfer, PSI_FRAME_PULL, op_p);
}

psd_status
psd_push_pull(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p)
{
    return submit(table, transfer, PSI_FRAME_PUSH_PULL, op_p);
}

psd_status
psd_view(psd_table *table, const void **values_p)
{
    struct psd_error *err = psi_error();
    const struct table_view *view;
    psd_context *context;
    psd_status status;

    if (table == NULL || values_p == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "table or values_p is NULL");
    }
    context = context_of(table->client);
    status = psi_context_check(context, err);
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    view = psi_table_view(table);
    pthread_mutex_unlock(&context->lock);
    if (view == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for its view",
                        table->spec.name);
    }
    *values_p = view->base;
    return PSD_OK;
}

psd_status
psd_wait(psd_op *op, uint32_t timeout_ms)
{
    struct psd_error *err = psi_error();
    psd_context *context;
    psd_status status;

    if (op == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "op is NULL");
    }
    context = context_of(op->client);
    status = psi_context_check(context, err);
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    status = op->ended ? op->error.status
                       : psi_context_wait_locked(context, op,
                                                 psi_context_deadline_ns(context, timeout_ms));
    if (op->ended) {
        op->waited = true;
        psi_context_any_remove_locked(context, op);
    }
    if (op->ended && status != PSD_OK) {
        *err = op->error;
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psd_test(psd_op *op)
{
    return psd_wait(op, 0);
}

psd_status
psd_wait_any(psd_context *context, uint32_t timeout_ms, psd_op **op_p)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && op_p == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_wait_any: op_p is NULL");
    }
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    status = psi_context_wait_any_locked(context, psi_context_deadline_ns(context, timeout_ms));
    if (status == PSD_OK) {
        *op_p = context->any;
        psi_context_any_remove_locked(context, context->any);
    } else if (psi_client_state(context->client) == PSI_CLIENT_OVER) {
        *err = *psi_client_error(context->client);
        status = err->status;
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_outcome
psd_op_outcome(const psd_op *op)
{
    psd_context *context = context_of(op->client);
    psd_outcome outcome;

    if (!psi_process_is_this(&context->process)) {
        return PSD_OUTCOME_UNKNOWN;
    }
    pthread_mutex_lock(&context->lock);
    outcome = op->outcome;
    pthread_mutex_unlock(&context->lock);
    return outcome;
}

const struct psd_error *
psd_op_error(const psd_op *op)
{
    return &op->error;
}

void *
psd_op_user(const psd_op *op)
{
    return op->user;
}

void
psd_op_release(psd_op *op)
{
    psd_context *context;

    if (op == NULL) {
        return;
    }
    context = context_of(op->client);
    if (!psi_process_is_this(&context->process)) {
        return;
    }
    pthread_mutex_lock(&context->lock);
    if (op->ended && op->taken && !op->calling) {
        psi_context_forget_locked(context, op);
    } else {
        op->released = true;
    }
    pthread_mutex_unlock(&context->lock);
}

int
psd_fd(psd_context *context)
{
    struct psd_error *err = psi_error();

    if (psi_context_check(context, err) != PSD_OK) {
        return -1;
    }
    pthread_mutex_lock(&context->lock);
    if (context->fd < 0) {
        context->fd = eventfd(context->any != NULL ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (context->fd < 0) {
            psi_fail_errno(err, PSD_ERR_NO_MEMORY, "psd_fd: eventfd");
        }
    }
    pthread_mutex_unlock(&context->lock);
    return context->fd;
}

/* ---- all together ------------------------------------------------------------------------ */

psd_status
psd_barrier(psd_context *context, uint32_t timeout_ms)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);
    psd_op *op;

    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    status = psi_client_barrier(context->client, timeout_ms, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, NULL, err);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psd_global_step(psd_context *context, uint64_t add, uint64_t *step_p)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);
    psd_op *op;

    if (status == PSD_OK && step_p == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_global_step: step_p is NULL");
    }
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    status = psi_client_step_add(context->client, add, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        *step_p = psi_op_value(op);
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

psd_status
psd_report(psd_context *context, uint64_t step, const char *name, double value)
{
    const psd_status status = psi_context_check(context, psi_error());

    if (status == PSD_OK) {
        pthread_mutex_lock(&context->lock);
        psi_client_report(context->client, step, name, value);
        pthread_mutex_unlock(&context->lock);
    }
    return status;
}

static psd_status
nodes_locked(psd_context *context, struct psd_node *nodes, size_t capacity, size_t *count_p,
             struct psd_error *err)
{
    const struct psi_nodes *found;
    psd_op *op;
    psd_status status = psi_client_nodes(context->client, &op, err);

    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, &op, err);
    }
    if (status == PSD_OK) {
        found = psi_op_nodes(op);
        for (size_t i = 0; i < found->count && i < capacity; i++) {
            nodes[i] = found->node[i];
        }
        *count_p = found->count;
        psi_context_forget_locked(context, op);
    }
    return status;
}

psd_status
psd_nodes(psd_context *context, struct psd_node *nodes, size_t capacity, size_t *count_p)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && (count_p == NULL || (nodes == NULL && capacity > 0))) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_nodes: nodes or count_p is NULL");
    }
    if (status == PSD_OK) {
        pthread_mutex_lock(&context->lock);
        status = nodes_locked(context, nodes, capacity, count_p, err);
        pthread_mutex_unlock(&context->lock);
    }
    return status;
}

psd_status
psd_nodes_at(const char *master_address, uint32_t timeout_ms, struct psd_node *nodes,
             size_t capacity, size_t *count_p)
{
    struct psi_secret_source source;
    struct psi_client_config config = {
        .master_address = master_address,
        .rank = PSI_RANK_AUTO,
        .op_timeout_ms = timeout_ms == 0 ? 1 : timeout_ms,
        .observer = true,
    };
    struct psd_error *err = psi_error();
    psd_context *context;
    psd_status status;

    if (master_address == NULL || count_p == NULL || (nodes == NULL && capacity > 0)) {
        return psi_fail(err, PSD_ERR_INVALID, "psd_nodes_at: an argument is NULL");
    }
    status = check_address(master_address, err);
    if (status == PSD_OK) {
        status = secret_source(NULL, &source, err);
    }
    if (status == PSD_OK) {
        status = psi_context_create(&config, &source, &context, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    status = nodes_locked(context, nodes, capacity, count_p, err);
    if (status == PSD_ERR_TIMEOUT) {
        psi_fail(err, status, "ask the master at %s: no answer in %u ms%s%s", master_address,
                 timeout_ms, context->client->master.reason.status != PSD_OK ? ": " : "",
                 context->client->master.reason.text);
    }
    pthread_mutex_unlock(&context->lock);
    psi_context_destroy(context);
    return status;
}

/* ---- state of sum jobs ------------------------------------------------------------------- */

psd_status
psd_state_publish(psd_context *context, uint64_t step, const struct psd_state *states, size_t count)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && states == NULL && count > 0) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_state_publish: states is NULL");
    }
    if (status == PSD_OK) {
        pthread_mutex_lock(&context->lock);
        status = psi_client_publish(context->client, step, states, count, err);
        psi_context_settle_locked(context);
        pthread_mutex_unlock(&context->lock);
    }
    return status;
}

enum { PIECE_BYTES = 256 << 10 };

static psd_status
fetch_from(psd_context *context, uint32_t rank, uint64_t step, const struct psd_state *state,
           struct psd_error *err)
{
    struct psi_share share = {.from = rank, .step = step, .total = state->bytes};
    psd_status status = PSD_OK;
    psd_op *op;

    if (state->name == NULL || strlen(state->name) >= sizeof(share.name)) {
        return psi_fail(err, PSD_ERR_INVALID, "fetch state: no usable name");
    }
    strcpy(share.name, state->name);
    while (share.offset < state->bytes && status == PSD_OK) {
        const uint64_t left = state->bytes - share.offset;

        share.bytes = left < PIECE_BYTES ? (uint32_t)left : PIECE_BYTES;
        pthread_mutex_lock(&context->lock);
        status = psi_client_share_pull(context->client, &share,
                                       (uint8_t *)state->data + share.offset, &op, err);
        if (status == PSD_OK) {
            status = psi_context_finish_locked(context, op, NULL, err);
        }
        pthread_mutex_unlock(&context->lock);
        share.offset += share.bytes;
    }
    if (status == PSD_ERR_TIMEOUT) {
        const struct psd_error reason = *err;

        psi_fail(err, status, "worker %u, state %s of step %llu: %.300s", rank, state->name,
                 (unsigned long long)step, reason.text);
    }
    return status;
}

/* The next live worker after `after` that could be asked; UINT32_MAX: none. */
static uint32_t
next_live(psd_context *context, uint32_t after)
{
    const struct psi_client *client = context->client;
    uint32_t rank;

    pthread_mutex_lock(&context->lock);
    for (rank = after + 1; rank < client->job.workers; rank++) {
        if (rank != client->job.rank && client->workers[rank].member) {
            break;
        }
    }
    pthread_mutex_unlock(&context->lock);
    return rank < client->job.workers ? rank : UINT32_MAX;
}

static bool
is_over(psd_context *context)
{
    bool over;

    pthread_mutex_lock(&context->lock);
    over = psi_client_state(context->client) == PSI_CLIENT_OVER;
    pthread_mutex_unlock(&context->lock);
    return over;
}

psd_status
psd_state_fetch(psd_context *context, uint64_t step, const struct psd_state *states, size_t count)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);
    uint32_t rank;

    if (status != PSD_OK) {
        return status;
    }
    if (states == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "psd_state_fetch: states is NULL");
    }
    status = psi_fail(err, PSD_ERR_PEER_LOST, "fetch state: no other worker is alive");
    for (rank = next_live(context, UINT32_MAX); rank != UINT32_MAX;
         rank = next_live(context, rank)) {
        status = PSD_OK;
        for (size_t i = 0; i < count && status == PSD_OK; i++) {
            status = fetch_from(context, rank, step, &states[i], err);
        }
        if (status != PSD_ERR_PEER_LOST || is_over(context)) {
            break;
        }
    }
    return status;
}
