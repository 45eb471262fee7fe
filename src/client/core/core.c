/*
 * core.c - a worker's life in the job: find the master, join, beat, and hear when it is over.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "client/core/lone.h"
#include "client/core/state.h"
#include "rpc/follow_view.h"
#include "rpc/post.h"

#define MS_NS UINT64_C(1000000)

enum { FAREWELL_MS = 500 };

void
psi_client_over(struct psi_client *client, psd_status status, const char *format, ...)
{
    va_list args;

    if (client->state == PSI_CLIENT_OVER) {
        return;
    }
    client->state = PSI_CLIENT_OVER;
    client->error.status = status < 0 ? status : PSD_ERR_JOB_FAILED; /* a peer may say anything */
    va_start(args, format);
    vsnprintf(client->error.text, sizeof(client->error.text), format, args);
    va_end(args);
    psi_ops_end_all(client, &client->error);
}

static void
hello(void *owner, struct psi_hello *hello_p)
{
    const struct psi_client *client = owner;
    const bool known = client->job.workers != 0;

    hello_p->role = client->config.observer ? PSI_ROLE_OBSERVER : PSI_ROLE_WORKER;
    hello_p->rank = known ? client->job.rank : client->config.rank;
    hello_p->incarnation = known ? client->job.incarnation : 0;
    hello_p->life = client->life;
    hello_p->job =
        client->config.observer ? 0 : client->job.job; /* it looks at whatever there is */
    hello_p->view = client->view.id;
    hello_p->in_time = client->config.in_time;
    hello_p->join_step = client->config.join_step;
    hello_p->host = client->host_address[0] != '\0' ? client->config.host : 0;
    snprintf(hello_p->address, sizeof(hello_p->address), "%s", client->host_address);
}

static void
on_up(void *owner, const struct psi_welcome *welcome)
{
    struct psi_client *client = owner;
    const bool known = client->job.workers != 0;

    if (!known) {
        if (psi_view_init(&client->view, welcome->workers) != PSD_OK) {
            psi_client_over(client, PSD_ERR_NO_MEMORY, "no memory for a job of %u workers",
                            welcome->workers);
            return;
        }
        client->job = *welcome;
    } else if (client->view.id == 0 && welcome->barriers > client->job.barriers) {
        client->job.barriers = welcome->barriers; /* it has come to none, and others go on */
    }
    if (known && welcome->term > 1 && !client->config.observer) {
        psi_control_tell_state(client);
    }
    if (client->config.observer && client->state == PSI_CLIENT_JOINING) {
        client->state = PSI_CLIENT_RUNNING;
    }
    psi_part_up(client);
    psi_control_resend(client);
}

static void
on_refused(void *owner, const struct psi_verdict *verdict)
{
    struct psi_client *client = owner;

    psi_client_over(client, (psd_status)verdict->status, "refused by the master at %s: %s",
                    client->master_address, verdict->text);
}

static psd_status
on_view(void *owner, const struct psi_view *old, const struct psi_view *now, struct psd_error *err)
{
    struct psi_client *client = owner;
    psd_status status;

    if (!psi_view_has(now, client->job.rank, client->job.incarnation)) {
        psi_client_over(client, PSD_ERR_FENCED,
                        "worker %u incarnation %u: the job goes on without it", client->job.rank,
                        client->job.incarnation);
        return PSD_OK;
    }
    status = psi_lanes_on_view(client, old, now, err);
    if (status != PSD_OK) {
        /* The view counts as taken and does not come again: with some of its lanes there would be
         * chunks that belong to none. */
        psi_client_over(client, status, "join the job at %s: %s", client->master_address,
                        err->text);
        return PSD_OK;
    }
    if (old->id == 0) {
        psi_route_start(client);
    }
    return PSD_OK;
}

static psd_status
end_arrived(struct psi_client *client, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_verdict verdict;
    const psd_status status = psi_verdict_decode(payload, bytes, &verdict, err);

    if (status == PSD_OK) {
        psi_client_over(client,
                        verdict.status == PSD_OK ? PSD_ERR_JOB_FAILED : (psd_status)verdict.status,
                        "the job is over: %s", verdict.text);
    }
    return status;
}

static psd_status
on_frame(void *owner, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_client *client = owner;
    uint32_t id;

    switch (client->master.peer.inbox.frame.type) {
    case PSI_FRAME_VIEW_COMMIT:
        return psi_follow_view(&client->view, payload, bytes, on_view, client, &id, err);
    case PSI_FRAME_END:
        return end_arrived(client, payload, bytes, err);
    case PSI_FRAME_PART:
        return psi_part_arrived(client, payload, bytes, err);
    default:
        return psi_control_frame(client, &client->master.peer, payload, bytes, err);
    }
}

static void
ping(void *owner, struct psi_ping *ping_p)
{
    struct psi_client *client = owner;

    *ping_p = client->ping;
    if (!client->scalars.reported) { /* then what it pushes says where it is */
        ping_p->step = client->steps.step;
    }
    psi_reach_beat(client);
}

static const struct psi_master_events master_events = {
    .hello = hello,
    .on_up = on_up,
    .on_refused = on_refused,
    .on_frame = on_frame,
    .ping = ping,
    .recall = psi_recall_tell,
    .tell = psi_client_tell,
    .hush = psi_client_hush,
};

psd_status
psi_client_create(struct psi_env *env, const struct psi_client_config *config,
                  struct psi_client **client_p, struct psd_error *err)
{
    struct psi_client *client = calloc(1, sizeof(*client));

    if (client != NULL) {
        client->metrics = psi_metrics_create();
    }
    if (client == NULL || client->metrics == NULL) {
        free(client);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a context");
    }
    client->env = env;
    client->config = *config;
    client->life = env->ops->random(env) | 1;
    client->started_ns = psi_now_ns(env);
    client->next_deadline_ns = UINT64_MAX;
    psi_step_clock_init(&client->steps);
    psi_pool_init(&client->requests, sizeof(struct psd_op));
    psi_pool_init(&client->lane_requests, sizeof(struct request));
    snprintf(client->master_address, sizeof(client->master_address), "%s", config->master_address);
    psi_master_link_start(&client->master, env, client->master_address, &master_events, client);
    psi_route_open(client);
    *client_p = client;
    return PSD_OK;
}

void
psi_client_destroy(struct psi_client *client)
{
    struct psd_op *op;

    if (client == NULL) {
        return;
    }
    psi_client_over(client, PSD_ERR_CLOSED, "context closed");
    psi_peer_close_after_send(&client->master.peer, FAREWELL_MS);
    while ((op = psi_client_next_done(client)) != NULL) {
        psi_op_free(op);
    }
    psi_route_stop(client);
    psi_share_fini(client);
    for (size_t i = 0; i < client->table_count; i++) {
        psi_table_destroy(client->tables[i]);
    }
    psi_groups_destroy(client);
    psi_lanes_stop(client); /* after the tables, which count the lanes */
    free(client->tables);
    free(client->offered);
    psi_view_fini(&client->view);
    psi_pool_fini(&client->requests);
    psi_pool_fini(&client->lane_requests);
    free(client->telling);
    free(client->marked);
    free(client->metrics);
    free(client);
}

void
psi_client_ping(struct psi_client *client)
{
    psi_master_link_ping(&client->master);
}

/* Until when the job may gather. */
static uint64_t
open_ns(const struct psi_client *client)
{
    if (client->config.observer || client->state != PSI_CLIENT_JOINING) {
        return UINT64_MAX; /* operations of an observer have deadlines */
    }
    return client->started_ns + client->config.open_timeout_ms * MS_NS;
}

/* An observer has nothing to lose: it goes on trying, and its operations have deadlines. */
static void
lose_master(struct psi_client *client)
{
    char text[PSI_TEXT_MAX];

    if (client->config.observer) {
        psi_master_link_again(&client->master);
        return;
    }
    psi_master_link_lost_text(&client->master, text, sizeof(text));
    psi_client_over(client, PSD_ERR_PEER_LOST, "%s", text);
}

static void
gathering_failed(struct psi_client *client)
{
    char name[128];

    for (uint32_t i = 0; i < client->lane_count; i++) {
        const struct psi_peer *peer = &client->lanes[i]->peer;

        if (peer->state != PSI_PEER_UP) {
            psi_client_over(client, peer->refusals > 0 ? PSD_ERR_REFUSED : PSD_ERR_TIMEOUT,
                            "join the job: %s not reached in %u ms: %s",
                            psi_lane_name(client->lanes[i], name, sizeof(name)),
                            client->config.open_timeout_ms,
                            peer->refusals > 0 ? peer->refusal.text : peer->reason.text);
            return;
        }
    }
    psi_client_over(client, PSD_ERR_TIMEOUT, "join the job at %s: %s in %u ms%s%s",
                    client->master_address,
                    client->job.workers != 0 ? "it did not gather" : "no answer from the master",
                    client->config.open_timeout_ms, client->job.workers != 0 ? "" : ": ",
                    client->job.workers != 0 ? "" : client->master.peer.reason.text);
}

void
psi_client_tick(struct psi_client *client)
{
    const uint64_t now_ns = psi_now_ns(client->env);

    psi_step_clock_turn(&client->steps, now_ns);
    if (client->state == PSI_CLIENT_OVER) {
        return;
    }
    if (psi_master_link_tick(&client->master, now_ns)) {
        lose_master(client);
    }
    if (now_ns >= open_ns(client)) {
        gathering_failed(client);
    }
    if (client->state == PSI_CLIENT_OVER) {
        return;
    }
    if (client->state == PSI_CLIENT_JOINING && psi_lanes_up(client)) {
        psi_route_begin(client);
        if (psi_route_settled(client)) {
            client->state = PSI_CLIENT_RUNNING;
        }
    }
    psi_ops_check_deadlines(client, now_ns);
    psi_lanes_tick(client, now_ns);
    psi_route_tick(client, now_ns);
    psi_share_tick(client, now_ns);
    psi_lone_turn(client);
    psi_client_send(client);
}

void
psi_client_send(struct psi_client *client)
{
    if (client->state != PSI_CLIENT_OVER) {
        psi_order_let_go(client);
        psi_lanes_send(client);
    }
}

static uint64_t
earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t
psi_client_next_ns(const struct psi_client *client)
{
    uint64_t next_ns = open_ns(client);

    if (client->state == PSI_CLIENT_OVER) {
        return UINT64_MAX;
    }
    next_ns = earlier(next_ns, psi_master_link_next_ns(&client->master));
    next_ns = earlier(next_ns, client->next_deadline_ns);
    next_ns = earlier(next_ns, psi_lanes_next_ns(client));
    next_ns = earlier(next_ns, psi_route_next_ns(client));
    next_ns = earlier(next_ns, psi_share_next_ns(client));
    return client->hold_changed || client->lone != NULL ? 0 : next_ns;
}

enum psi_client_state
psi_client_state(const struct psi_client *client)
{
    return client->state;
}

const struct psd_error *
psi_client_error(const struct psi_client *client)
{
    return &client->error;
}

const struct psi_welcome *
psi_client_job(const struct psi_client *client)
{
    return &client->job;
}

uint32_t
psi_client_workers_here(const struct psi_client *client)
{
    const struct psi_view *view = &client->view;
    uint32_t count = 0;

    for (uint32_t rank = 0; client->config.host != 0 && rank < view->workers; rank++) {
        count += view->worker[rank].member && view->worker[rank].host == client->config.host;
    }
    count = client->config.workers_here > count ? client->config.workers_here : count;
    return count > 0 ? count : 1;
}

size_t
psi_client_pending(const struct psi_client *client)
{
    return client->pending_count;
}

bool
psi_client_serves(const struct psi_client *client)
{
    return client->host != NULL;
}
