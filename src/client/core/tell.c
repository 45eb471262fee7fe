/*
 * tell.c - what a worker tells the master of itself: counters, the times of its steps, its traffic,
 * and what its program reports.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/state.h"
#include "rpc/post.h"

/* The one that a table of nodes has room for: a loss says most. */
static bool
is_for_ping(const struct psi_client *client, const char *name)
{
    return strcmp(client->ping.name, "loss") != 0 || strcmp(name, "loss") == 0;
}

/* Its number; UINT32_MAX: there are too many. */
static uint32_t
name_number(struct scalars *scalars, const char *name)
{
    for (uint32_t i = 0; i < scalars->names; i++) {
        if (strcmp(scalars->name[i], name) == 0) {
            return i;
        }
    }
    if (scalars->names == PSI_SCALARS_MAX) {
        return UINT32_MAX;
    }
    snprintf(scalars->name[scalars->names], PSI_SCALAR_NAME_MAX, "%s", name);
    return scalars->names++;
}

psd_status
psi_client_report(struct psi_client *client, uint64_t step, const char *name, double value,
                  struct psd_error *err)
{
    struct psi_point point = {.step = step, .value = value};
    char known[PSI_SCALAR_NAME_MAX];
    uint32_t number;

    client->scalars.reported = true;
    client->ping.step = step;
    snprintf(known, sizeof(known), "%s", name != NULL ? name : "");
    if (is_for_ping(client, known)) {
        client->ping.value = value;
        snprintf(client->ping.name, sizeof(client->ping.name), "%s", known);
    }
    if (known[0] == '\0') {
        return PSD_OK;
    }
    number = name_number(&client->scalars, known);
    if (number == UINT32_MAX) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "report %s: this worker reports under %d other names already", known,
                        PSI_SCALARS_MAX);
    }
    point.name = (uint8_t)number;
    client->scalars.point[client->scalars.points++ % PSI_POINTS_MAX] = point;
    return PSD_OK;
}

static void
tell_scalars(struct psi_client *client, struct psi_telling *telling)
{
    struct scalars *scalars = &client->scalars;

    telling->names = scalars->names;
    memcpy(telling->name, scalars->name, scalars->names * sizeof(scalars->name[0]));
    if (scalars->points > scalars->told + PSI_POINTS_MAX) { /* of too many the oldest are lost */
        scalars->told = scalars->points - PSI_POINTS_MAX;
    }
    while (scalars->told < scalars->points) {
        telling->point[telling->points++] = scalars->point[scalars->told++ % PSI_POINTS_MAX];
    }
}

static void
tell_steps(struct psi_client *client, struct psi_telling *telling)
{
    struct step_clock *clock = &client->steps;
    uint64_t lost;

    telling->step = client->scalars.reported ? client->ping.step : clock->step;
    telling->steps = psi_step_clock_take(clock, telling->times, &lost);
    psi_metric_add(client->metrics, PSI_METRIC_STEPS_UNTOLD, lost);
}

static void
add_traffic(uint32_t *count, struct psi_traffic *list, const struct psi_traffic *more)
{
    uint32_t i = 0;

    while (i < *count && list[i].id != more->id) {
        i++;
    }
    if (i == PSI_TRAFFIC_MAX || more->bytes_in + more->bytes_out == 0) {
        return;
    }
    if (i == *count) {
        list[(*count)++] = (struct psi_traffic){.id = more->id};
    }
    list[i].bytes_in += more->bytes_in;
    list[i].bytes_out += more->bytes_out;
}

static void
tell_traffic(const struct psi_client *client, struct psi_telling *telling)
{
    for (uint32_t i = 0; client->lanes != NULL && i < client->lane_count; i++) {
        struct psi_traffic traffic = client->lanes[i]->traffic;

        traffic.id = client->lanes[i]->server;
        add_traffic(&telling->servers, telling->server, &traffic);
    }
    for (size_t i = 0; i < client->table_count; i++) {
        struct psi_traffic traffic = client->tables[i]->traffic;

        traffic.id = client->tables[i]->id;
        add_traffic(&telling->tables, telling->table, &traffic);
    }
}

/* What lanes have counted, all together: the host's own is behind the last of them. */
static void
sum_up(const struct psi_client *client)
{
    struct lane_link sum = {0};

    for (uint32_t i = 0; client->lanes != NULL && i <= client->lane_count; i++) {
        const struct lane_link *lane = client->lanes[i];

        if (lane != NULL) {
            sum.frames_in += lane->frames_in;
            sum.gradients_out += lane->gradients_out;
            sum.values_in += lane->values_in;
            sum.traffic.bytes_in += lane->traffic.bytes_in;
            sum.traffic.bytes_out += lane->traffic.bytes_out;
            sum.used += lane->used;
        }
    }
    psi_metric_set(client->metrics, PSI_METRIC_FRAMES_IN, sum.frames_in);
    psi_metric_set(client->metrics, PSI_METRIC_GRADIENTS_OUT, sum.gradients_out);
    psi_metric_set(client->metrics, PSI_METRIC_GRADIENT_BYTES_OUT, sum.traffic.bytes_out);
    psi_metric_set(client->metrics, PSI_METRIC_VALUES_IN, sum.values_in);
    psi_metric_set(client->metrics, PSI_METRIC_VALUE_BYTES_IN, sum.traffic.bytes_in);
    psi_metric_set(client->metrics, PSI_METRIC_WINDOW_USED, sum.used);
}

static void
measure(const struct psi_client *client)
{
    sum_up(client);
    psi_metric_set(client->metrics, PSI_METRIC_STEPS, client->steps.count);
    psi_metric_set(client->metrics, PSI_METRIC_SEAL_TIME, psi_sealed_ns(client->env));
    psi_metric_set(client->metrics, PSI_METRIC_OPERATIONS, client->pending_count);
    psi_metric_set(client->metrics, PSI_METRIC_ENCODE_TIME, client->steps.parts.encode_ns);
    psi_metric_set(client->metrics, PSI_METRIC_SEND_TIME, client->steps.parts.send_ns);
    psi_metric_set(client->metrics, PSI_METRIC_SLEEP_TIME, client->steps.parts.wait_ns);
    psi_metric_set(client->metrics, PSI_METRIC_RECEIVE_TIME, client->steps.parts.receive_ns);
    if (client->config.measure != NULL) {
        client->config.measure(client->metrics);
    }
}

void
psi_client_tell(void *owner)
{
    struct psi_client *client = owner;
    const struct psi_frame frame = {.type = PSI_FRAME_METRICS,
                                    .view = client->view.id,
                                    .rank = (uint16_t)client->job.rank,
                                    .incarnation = (uint16_t)client->job.incarnation,
                                    .table = PSI_ROLE_WORKER};

    if (client->telling == NULL) {
        client->telling = malloc(sizeof(*client->telling));
    }
    if (client->telling == NULL || client->config.observer) {
        return;
    }
    client->steps.on = true;
    memset(client->telling, 0, sizeof(*client->telling));
    tell_scalars(client, client->telling);
    tell_steps(client, client->telling);
    tell_traffic(client, client->telling);
    measure(client);
    psi_telling_count(client->telling, client->metrics);
    (void)psi_post_telling(client->master.peer.conn, &frame, client->telling);
}
