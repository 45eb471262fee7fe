/*
 * context_life.c - a context joins its job, and ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/crew.h"
#include "base/fail.h"
#include "client/api/context.h"
#include "client/api/memory.h"
#include "client/core/state.h"
#include "config/environment.h"
#include "config/settings.h"
#include "rpc/identity.h"

/* For the master to say who is missing, after a job did not gather. */
enum { ASK_MISSING_MS = 500 };

static psd_status
init_locks(psd_context *context, struct psd_error *err)
{
    pthread_condattr_t monotonic;

    if (pthread_mutex_init(&context->lock, NULL) != 0 || pthread_condattr_init(&monotonic) != 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a lock");
    }
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&context->waiters_turn, &monotonic);
    pthread_cond_init(&context->thread_turn, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return PSD_OK;
}

/* Signals are the program's business: the thread takes none. */
static psd_status
start_thread(psd_context *context, struct psd_error *err)
{
    sigset_t all;
    sigset_t old;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    code = pthread_create(&context->thread, NULL, psi_context_run_thread, context);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0) {
        errno = code;
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start the thread of a context");
    }
    context->thread_started = true;
    return PSD_OK;
}

/* Adds who is missing to the error of a job that did not gather. The master answered before, so a
 * second question is a matter of milliseconds. */
static void
name_missing(const char *master_address, const struct psi_secret_source *source,
             struct psd_error *err)
{
    static const char *const roles[] = {
        [PSD_ROLE_MASTER] = "master", [PSD_ROLE_SERVER] = "server", [PSD_ROLE_WORKER] = "worker"};
    struct psd_error ignored;
    psd_context *context;
    psd_op *op;

    if (psi_context_observe(master_address, source, ASK_MISSING_MS, &context, &ignored) != PSD_OK) {
        return;
    }
    pthread_mutex_lock(&context->lock);
    if (psi_client_nodes(context->client, &op, &ignored) == PSD_OK &&
        psi_context_finish_locked(context, op, &op, &ignored) == PSD_OK) {
        const struct psi_nodes *nodes = psi_op_nodes(op);
        const char *separator = ": missing ";

        for (size_t i = 0; i < nodes->count; i++) {
            const size_t used = strlen(err->text);

            if (nodes->node[i].state == PSD_NODE_MISSING) {
                snprintf(err->text + used, sizeof(err->text) - used, "%s%s %u", separator,
                         roles[nodes->node[i].role], nodes->node[i].rank);
                separator = ", ";
            }
        }
        psi_context_forget_locked(context, op);
    }
    pthread_mutex_unlock(&context->lock);
    psi_context_destroy(context);
}

/* Other workers of this host may knock as soon as they know the view. */
static void
name_ourselves(psd_context *context)
{
    const struct psi_welcome *job = psi_client_job(context->client);
    const struct psi_hello hello = {
        .role = PSI_ROLE_WORKER,
        .rank = job->rank,
        .incarnation = job->incarnation,
        .job = job->job,
    };
    char self[PSI_IDENTITY_BYTES];

    if (context->tls != NULL && job->workers != 0) {
        psi_identity_of(&hello, self);
        psi_tls_name(context->tls, self);
    }
}

static psd_status
join_job(psd_context *context, const struct psi_secret_source *source, struct psd_error *err)
{
    bool known;

    pthread_mutex_lock(&context->lock);
    psi_client_tick(context->client);
    while (psi_client_state(context->client) == PSI_CLIENT_JOINING) {
        psi_context_drive_locked(context, UINT64_MAX, &context->waiter);
        name_ourselves(context);
    }
    *err = *psi_client_error(context->client);
    known = psi_client_job(context->client)->workers != 0;
    pthread_mutex_unlock(&context->lock);
    if (err->status == PSD_ERR_TIMEOUT && known) {
        name_missing(context->client->master_address, source, err);
    }
    return err->status;
}

/* Every connection proves the job's secret; only loopback may do without, and only when told to. */
static psd_status
init_security(psd_context *context, const struct psi_client_config *config,
              const struct psi_secret_source *source, struct psd_error *err)
{
    bool sealed_always = false;
    psd_status status = psi_environment_switch("PSD_FORCE_TLS", &sealed_always, err);

    if (status == PSD_OK) {
        status = psi_secret_find(source, &context->secret, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (context->secret != NULL) {
        status = psi_tls_create(context->secret, NULL, &context->tls, err);
        if (status == PSD_OK && sealed_always) {
            psi_tls_seal_always(context->tls);
        }
        return status;
    }
    if (source->insecure != NULL) {
        return psi_insecure_connect(source->insecure, config->master_address, err);
    }
    psi_fail(err, PSD_ERR_INVALID,
             "no secret for the job: run under psd_run, or set PSD_SECRET_FILE to its secret file "
             "(PSD_INSECURE=1 does without, on loopback only)");
    psi_environment_hint("PSD_SECRET_FILE", err);
    psi_environment_hint("PSD_SECRET_FD", err);
    psi_environment_hint("PSD_INSECURE", err);
    return PSD_ERR_INVALID;
}

/* What the job's launcher says of its master is not about another job, nor for those who only watch. */
static char *
find_master_file(const struct psi_client_config *config)
{
    const char *file = psi_environment("PSD_MASTER_FILE");
    const char *address = psi_environment("PSD_MASTER_ADDRESS");
    const bool is_ours = address == NULL || strcmp(address, config->master_address) == 0;

    return file != NULL && is_ours && !config->observer ? strdup(file) : NULL;
}

/* Without memory for it everything is done by the program's threads. */
static void
gather_crew(psd_context *context, const struct psi_client_config *config)
{
    const uint32_t spare = psi_spare_threads(psi_client_workers_here(context->client));
    const uint32_t threads = config->copy_threads != 0 ? config->copy_threads : spare;

    context->has_cores = spare > 1;

    if (threads > 1) {
        context->crew = psi_crew_create(threads, config->spin_us);
        psi_loop_take_crew(context->loop, context->crew);
    }
}

psd_status
psi_context_create(const struct psi_client_config *config, const struct psi_secret_source *source,
                   psd_context **context_p, struct psd_error *err)
{
    struct psi_loop_config loop_config = {.lends = config->lends, .spin_us = config->spin_us};
    psd_context *context = calloc(1, sizeof(*context));
    psd_status status;

    if (context == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a context");
    }
    psi_process_init(&context->process);
    context->fd = -1;
    status = init_locks(context, err);
    if (status != PSD_OK) {
        psi_process_fini(&context->process);
        free(context);
        return status;
    }
    status = init_security(context, config, source, err);
    if (status == PSD_OK && context->tls != NULL) {
        loop_config.auth = &psi_tls_auth;
        loop_config.credentials = context->tls;
    }
    context->master_file = find_master_file(config);
    loop_config.master_file = context->master_file;
    if (status == PSD_OK) {
        status = psi_loop_create(&loop_config, &context->loop, err);
    }
    if (status == PSD_OK) {
        status = psi_client_create(psi_loop_env(context->loop), config, &context->client, err);
    }
    if (status == PSD_OK) {
        context->client->context = context;
        status = config->observer ? PSD_OK : join_job(context, source, err);
    }
    if (status == PSD_OK && !config->observer) {
        gather_crew(context, config);
        status = start_thread(context, err);
    }
    if (status != PSD_OK) {
        psi_context_destroy(context);
        return status;
    }
    *context_p = context;
    return PSD_OK;
}

psd_status
psi_context_observe(const char *master_address, const struct psi_secret_source *source,
                    uint32_t timeout_ms, psd_context **context_p, struct psd_error *err)
{
    const struct psi_client_config config = {
        .master_address = master_address,
        .rank = PSI_RANK_AUTO,
        .op_timeout_ms = timeout_ms == 0 ? 1 : timeout_ms,
        .observer = true,
    };

    return psi_context_create(&config, source, context_p, err);
}

void
psi_context_destroy(psd_context *context)
{
    if (context->thread_started) {
        pthread_mutex_lock(&context->lock);
        context->closing = true;
        pthread_cond_broadcast(&context->thread_turn);
        pthread_mutex_unlock(&context->lock);
        psi_loop_wake(context->loop);
        pthread_join(context->thread, NULL);
    }
    if (context->client != NULL) {
        pthread_mutex_lock(&context->lock);
        psi_client_over(context->client, PSD_ERR_CLOSED, "context closed");
        psi_context_collect_locked(context);
        while (context->all != NULL) {
            psi_context_forget_locked(context, context->all);
        }
        psi_client_destroy(context->client);
        pthread_mutex_unlock(&context->lock);
    }
    if (context->loop != NULL) {
        psi_loop_destroy(context->loop);
    }
    psi_crew_destroy(context->crew);
    psi_regions_destroy(context);
    psi_tls_destroy(context->tls);
    psi_secret_destroy(context->secret);
    if (context->fd >= 0) {
        close(context->fd);
    }
    pthread_cond_destroy(&context->waiters_turn);
    pthread_cond_destroy(&context->thread_turn);
    pthread_mutex_destroy(&context->lock);
    psi_process_fini(&context->process);
    free(context->master_file);
    free(context);
}
