/*
 * api_open.c - joining a job and leaving it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/fail.h"
#include "base/machine.h"
#include "client/api/api.h"
#include "config/environment.h"
#include "config/settings.h"

/* What every version of struct psd_open_args has. */
enum { ARGS_LEAST = offsetof(struct psd_open_args, open_timeout_ms) };

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

/* Said by psd_run, for programs; what makes no sense there is no reason not to join. */
static uint32_t
workers_here(void)
{
    const char *text = psi_environment("PSD_LOCAL_SIZE");
    const long count = text != NULL ? strtol(text, NULL, 10) : 0;

    return count > 0 && count <= PSI_RANKS_MAX ? (uint32_t)count : 0;
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
        status = psi_args_copy(&args, sizeof(args), given, ARGS_LEAST, "psd_open_args", err);
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
    status = psi_check_address(config->master_address, err);
    if (status != PSD_OK) {
        return status;
    }
    config->open_timeout_ms =
        args.open_timeout_ms != 0 ? args.open_timeout_ms : settings.open_timeout_ms;
    config->op_timeout_ms = args.op_timeout_ms != 0 ? args.op_timeout_ms : settings.op_timeout_ms;
    config->window_bytes = settings.window_kib << 10;
    config->checksum = settings.payload_checksum != 0;
    config->in_time = settings.join == 0;
    config->join_step = settings.join_step;
    config->lends = settings.transport == PSI_TRANSPORT_AUTO;
    config->spin_us = settings.spin_us;
    config->copy_threads = settings.copy_threads;
    config->lone_sums = settings.lone_sums == PSI_LONE_SUMS_AUTO;
    config->workers_here = workers_here();
    if (config->lends && settings.hierarchy == PSI_HIERARCHY_AUTO) {
        config->host = psi_machine_guess();
        config->host_address = "tcp://127.0.0.1:0";
    }
    return psi_secret_source(args.secret_file, source, err);
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
    config.measure = psi_measure_process;
    if (status == PSD_OK) {
        status = psi_context_create(&config, &source, context_p, err);
    }
    if (status == PSD_ERR_TIMEOUT) {
        psi_environment_hint("PSD_OPEN_TIMEOUT_MS", err);
    }
    return status;
}

/* The first error: that of what was under way, or of the farewell. */
static psd_status
say_bye_locked(psd_context *context, psd_status status, struct psd_error *err)
{
    struct psd_error reason;
    psd_status left;
    psd_op *op;

    if (psi_client_state(context->client) == PSI_CLIENT_OVER) {
        if (status == PSD_OK) {
            *err = *psi_client_error(context->client);
            status = err->status;
        }
        return status;
    }
    left = psi_client_bye(context->client, &op, &reason);
    if (left == PSD_OK) {
        left = psi_context_finish_locked(context, op, NULL, &reason);
    }
    if (status == PSD_OK && left != PSD_OK) {
        *err = reason;
        status = left;
    }
    return status;
}

psd_status
psd_close(psd_context *context)
{
    struct psd_error *err = psi_error();
    psd_status status;

    if (context == NULL) {
        return PSD_OK;
    }
    status = psi_context_check(context, err);
    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    status = psi_context_drain_locked(context, err);
    if (!context->left) {
        status = say_bye_locked(context, status, err);
    }
    pthread_mutex_unlock(&context->lock);
    psi_context_destroy(context);
    return status;
}

psd_status
psd_leave(psd_context *context)
{
    struct psd_error *err = psi_error();
    psd_status status = psi_context_check(context, err);

    if (status != PSD_OK) {
        return status;
    }
    pthread_mutex_lock(&context->lock);
    if (!context->left) {
        struct psd_error unused;

        (void)psi_context_drain_locked(context, &unused); /* each operation tells its own error */
        status = context->left ? PSD_OK : say_bye_locked(context, PSD_OK, err);
    }
    if (status == PSD_OK && !context->left) {
        context->left = true;
        psi_client_left(context->client);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

void
psd_abandon(psd_context *context)
{
    if (context == NULL || !psi_process_is_this(&context->process)) {
        return;
    }
    pthread_mutex_lock(&context->lock);
    psi_client_tell_last(context->client); /* how it went until it failed */
    pthread_mutex_unlock(&context->lock);
    psi_context_destroy(context);
}

uint32_t
psd_rank(const psd_context *context)
{
    return psi_client_job(context->client)->rank;
}

uint32_t
psd_size(const psd_context *context)
{
    return psi_client_job(context->client)->size;
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
