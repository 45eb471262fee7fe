/*
 * tell.c - what a worker tells the master of itself: counters, the times of its steps, its traffic,
 * and what its program reports.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
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

/* As much of a name as there is room for, in whole characters of UTF-8. */
void
psi_name_cut(char name_p[PSI_SCALAR_NAME_MAX], const char *name)
{
    size_t bytes = strnlen(name, PSI_SCALAR_NAME_MAX);

    if (bytes == PSI_SCALAR_NAME_MAX) {
        bytes--;
        while (bytes > 0 && ((uint8_t)name[bytes] & 0xc0) == 0x80) { /* the middle of one */
            bytes--;
        }
    }
    memcpy(name_p, name, bytes);
    memset(name_p + bytes, 0, PSI_SCALAR_NAME_MAX - bytes);
}

/* A number that cannot be told is lost, and counted: that is no reason to stop a training. */
static void
keep_scalar(struct psi_client *client, const struct scalar *scalar)
{
    struct scalars *scalars = &client->scalars;

    if (scalars->points == scalars->told + PSI_POINTS_MAX) { /* of too many the oldest are lost */
        scalars->told++;
        psi_metric_add(client->metrics, PSI_METRIC_POINTS_UNTOLD, client->steps.on);
    }
    scalars->scalar[scalars->points++ % PSI_POINTS_MAX] = *scalar;
}

/* How far the program will go is no curve: it is told again and again, as a metric. */
static void
expect_steps(struct psi_client *client, double value)
{
    psi_metric_set(client->metrics, PSI_METRIC_STEPS_EXPECTED,
                   value >= 1 && value <= (double)PSI_TOLD_STEP_MAX ? (uint64_t)value : 0);
}

psd_status
psi_client_report(struct psi_client *client, uint64_t step, const char *name, double value,
                  struct psd_error *err)
{
    struct scalar scalar = {.step = step, .value = value};
    const char *known = scalar.name;

    psi_name_cut(scalar.name, name != NULL ? name : "");
    if (step > PSI_TOLD_STEP_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "report %s: step %" PRIu64 ", expected 0..2^62",
                        known, step);
    }
    if (strcmp(known, "steps_total") == 0) {
        expect_steps(client, value);
        return PSD_OK;
    }
    client->scalars.reported = true;
    client->ping.step = step;
    if (known[0] == '\0') {
        return PSD_OK;
    }
    if (is_for_ping(client, known)) {
        client->ping.value = value;
        memcpy(client->ping.name, known, sizeof(scalar.name));
    }
    keep_scalar(client, &scalar);
    return PSD_OK;
}

/* Its number among the names that are told. There is one for each point. */
static uint8_t
name_number(struct psi_telling *telling, const char name[PSI_SCALAR_NAME_MAX])
{
    uint32_t i = 0;

    while (i < telling->names && memcmp(telling->name[i], name, PSI_SCALAR_NAME_MAX) != 0) {
        i++;
    }
    if (i == telling->names) {
        memcpy(telling->name[telling->names++], name, PSI_SCALAR_NAME_MAX);
    }
    return (uint8_t)i;
}

static void
tell_scalars(const struct psi_client *client, struct psi_telling *telling)
{
    const struct scalars *scalars = &client->scalars;

    telling->names = 0;
    for (uint64_t number = scalars->told; number < scalars->points; number++) {
        const struct scalar *scalar = &scalars->scalar[number % PSI_POINTS_MAX];

        telling->point[telling->points++] =
            (struct psi_point){.name = name_number(telling, scalar->name),
                               .step = scalar->step,
                               .value = scalar->value};
    }
}

static void
tell_steps(const struct psi_client *client, struct psi_telling *telling)
{
    const struct step_clock *clock = &client->steps;
    const uint64_t step = client->scalars.reported ? client->ping.step : clock->step;

    telling->step = step < PSI_TOLD_STEP_MAX ? step : PSI_TOLD_STEP_MAX;
    telling->steps = psi_step_clock_read(clock, telling->times);
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
    list[i].frames_in += more->frames_in;
    list[i].frames_out += more->frames_out;
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
            sum.traffic.frames_in += lane->traffic.frames_in;
            sum.traffic.frames_out += lane->traffic.frames_out;
            sum.traffic.bytes_in += lane->traffic.bytes_in;
            sum.traffic.bytes_out += lane->traffic.bytes_out;
            sum.used += lane->used;
        }
    }
    psi_metric_set(client->metrics, PSI_METRIC_FRAMES_IN, sum.frames_in);
    psi_metric_set(client->metrics, PSI_METRIC_GRADIENTS_OUT, sum.traffic.frames_out);
    psi_metric_set(client->metrics, PSI_METRIC_GRADIENT_BYTES_OUT, sum.traffic.bytes_out);
    psi_metric_set(client->metrics, PSI_METRIC_VALUES_IN, sum.traffic.frames_in);
    psi_metric_set(client->metrics, PSI_METRIC_VALUE_BYTES_IN, sum.traffic.bytes_in);
    psi_metric_set(client->metrics, PSI_METRIC_WINDOW_USED, sum.used);
}

static uint64_t
queued_bytes(const struct psi_client *client)
{
    uint64_t bytes = psi_conn_queued_bytes(client->master.peer.conn);

    for (uint32_t i = 0; client->lanes != NULL && i <= client->lane_count;
         i++) { /* the host's, too */
        bytes += client->lanes[i] != NULL ? psi_conn_queued_bytes(client->lanes[i]->peer.conn) : 0;
    }
    return bytes;
}

static void
measure(const struct psi_client *client)
{
    const struct psi_env_counts counts = psi_env_counts(client->env);

    sum_up(client);
    psi_metric_set(client->metrics, PSI_METRIC_STEPS, client->steps.count);
    psi_metric_set(client->metrics, PSI_METRIC_SEAL_TIME, counts.sealed_ns);
    psi_metric_set(client->metrics, PSI_METRIC_COPYING_TIME, counts.copied_ns + client->copied_ns);
    psi_metric_set(client->metrics, PSI_METRIC_FRAMES_OUT, counts.frames_out);
    psi_metric_set(client->metrics, PSI_METRIC_SEND_QUEUE, queued_bytes(client));
    psi_metric_set(client->metrics, PSI_METRIC_RESULTS_KEPT, client->kept_bytes);
    psi_metric_set(client->metrics, PSI_METRIC_STEPS_UNTOLD, client->steps.untold);
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
    psi_step_clock_start(&client->steps);
    memset(client->telling, 0, sizeof(*client->telling));
    tell_scalars(client, client->telling);
    tell_steps(client, client->telling);
    tell_traffic(client, client->telling);
    psi_mark_tell(client, client->telling);
    measure(client);
    psi_telling_count(client->telling, client->metrics);
    if (psi_post_telling(client->master.peer.conn, &frame, client->telling) == PSD_OK) {
        client->scalars.told = client->scalars.points;
        psi_step_clock_told(&client->steps);
        psi_mark_told(client);
    } /* else they are told the next time */
}

void
psi_client_hush(void *owner)
{
    struct psi_client *client = owner;

    psi_step_clock_stop(&client->steps);
    free(client->marked);
    client->marked = NULL;
}
