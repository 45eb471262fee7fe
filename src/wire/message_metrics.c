/*
 * message_metrics.c - METRICS: what a member has counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>

#include "wire/pack.h"

/* Numbers of metrics that a later version may tell us of. */
enum { METRIC_NUMBER_MAX = 4095 };

_Static_assert((int)PSI_METRICS <= (int)PSI_METRICS_TOLD_MAX, "all metrics fit into one METRICS");

static void
pack_traffic(struct psi_pack *pack, uint32_t count, const struct psi_traffic *traffic)
{
    psi_pack_u32(pack, count);
    for (uint32_t i = 0; i < count; i++) {
        psi_pack_u32(pack, traffic[i].id);
        psi_pack_u64(pack, traffic[i].bytes_out);
        psi_pack_u64(pack, traffic[i].bytes_in);
    }
}

static void
pack_frames(struct psi_pack *pack, uint32_t count, const struct psi_traffic *traffic)
{
    for (uint32_t i = 0; i < count; i++) {
        psi_pack_u64(pack, traffic[i].frames_out);
        psi_pack_u64(pack, traffic[i].frames_in);
    }
}

static void
pack_points(struct psi_pack *pack, const struct psi_telling *telling)
{
    psi_pack_u32(pack, telling->names);
    for (uint32_t i = 0; i < telling->names; i++) {
        psi_pack_string(pack, telling->name[i], sizeof(telling->name[i]));
    }
    psi_pack_u32(pack, telling->points);
    for (uint32_t i = 0; i < telling->points; i++) {
        psi_pack_u8(pack, telling->point[i].name);
        psi_pack_u64(pack, telling->point[i].step);
        psi_pack_f64(pack, telling->point[i].value);
    }
}

static void
pack_times(struct psi_pack *pack, const struct psi_step_times *times)
{
    psi_pack_u64(pack, times->step);
    psi_pack_u32(pack, times->total_us);
    psi_pack_u32(pack, times->compute_us);
    psi_pack_u32(pack, times->encode_us);
    psi_pack_u32(pack, times->send_us);
    psi_pack_u32(pack, times->wait_us);
    psi_pack_u32(pack, times->receive_us);
    psi_pack_u32(pack, times->alone_us);
    psi_pack_u32(pack, times->server);
}

static void
pack_spans(struct psi_pack *pack, const struct psi_telling *telling)
{
    psi_pack_u32(pack, telling->marks);
    for (uint32_t i = 0; i < telling->marks; i++) {
        psi_pack_string(pack, telling->mark[i], sizeof(telling->mark[i]));
    }
    psi_pack_u32(pack, telling->spans);
    for (uint32_t i = 0; i < telling->spans; i++) {
        const struct psi_span *span = &telling->span[i];

        psi_pack_u8(pack, span->kind);
        psi_pack_u32(pack, span->what);
        psi_pack_u32(pack, span->who);
        psi_pack_u64(pack, span->step);
        psi_pack_u64(pack, span->begin_us);
        psi_pack_u32(pack, span->us);
        psi_pack_u32(pack, span->apply_us);
    }
}

void
psi_telling_encode(struct psi_pack *pack, const struct psi_telling *telling)
{
    psi_pack_u64(pack, telling->step);
    psi_pack_u32(pack, telling->metrics);
    for (uint32_t i = 0; i < telling->metrics; i++) {
        psi_pack_u16(pack, telling->metric[i].metric);
        psi_pack_u64(pack, telling->metric[i].value);
    }
    pack_points(pack, telling);
    psi_pack_u32(pack, telling->steps);
    for (uint32_t i = 0; i < telling->steps; i++) {
        pack_times(pack, &telling->times[i]);
    }
    pack_traffic(pack, telling->servers, telling->server);
    pack_traffic(pack, telling->tables, telling->table);
    psi_pack_u32(pack, telling->steps); /* records in a list do not grow: docs/protocol.md, 8 */
    for (uint32_t i = 0; i < telling->steps; i++) {
        psi_pack_u64(pack, telling->times[i].end_us);
    }
    pack_spans(pack, telling);
    psi_pack_u32(pack, telling->waited);
    for (uint32_t i = 0; i < telling->waited; i++) {
        psi_pack_u32(pack, telling->wait[i].rank);
        psi_pack_u64(pack, telling->wait[i].ns);
    }
    pack_frames(pack, telling->servers, telling->server);
    pack_frames(pack, telling->tables, telling->table);
}

void
psi_telling_count(struct psi_telling *telling, const struct psi_metrics *metrics)
{
    for (uint16_t metric = 0; metric < PSI_METRICS; metric++) {
        const uint64_t value = psi_metric_get(metrics, (enum psi_metric)metric);

        if (value != 0) {
            telling->metric[telling->metrics++] =
                (struct psi_metric_value){.metric = metric, .value = value};
        }
    }
}

static uint64_t
unpack_step(struct psi_unpack *unpack, const char *field)
{
    const uint64_t step = psi_unpack_u64(unpack, field);

    if (step > PSI_TOLD_STEP_MAX) {
        psi_unpack_refuse(unpack, field, "%" PRIu64 ", expected 0..2^62", step);
    }
    return step;
}

static void
unpack_metrics(struct psi_unpack *unpack, struct psi_telling *telling)
{
    int32_t last = -1;

    telling->metrics = psi_unpack_u32(unpack, "metrics", 0, PSI_METRICS_TOLD_MAX);
    for (uint32_t i = 0; i < telling->metrics && unpack->status == PSD_OK; i++) {
        telling->metric[i].metric = psi_unpack_u16(unpack, "metric.number", 0, METRIC_NUMBER_MAX);
        telling->metric[i].value = psi_unpack_u64(unpack, "metric.value");
        if (unpack->status == PSD_OK && telling->metric[i].metric <= last) {
            psi_unpack_refuse(unpack, "metric.number", "%u behind %d", telling->metric[i].metric,
                              last);
        }
        last = telling->metric[i].metric;
    }
}

static void
unpack_points(struct psi_unpack *unpack, struct psi_telling *telling)
{
    telling->names = psi_unpack_u32(unpack, "names", 0, PSI_SCALARS_MAX);
    for (uint32_t i = 0; i < telling->names && unpack->status == PSD_OK; i++) {
        psi_unpack_string(unpack, "name", telling->name[i], sizeof(telling->name[i]));
    }
    telling->points = psi_unpack_u32(unpack, "points", 0, PSI_POINTS_MAX);
    for (uint32_t i = 0; i < telling->points && unpack->status == PSD_OK; i++) {
        struct psi_point *point = &telling->point[i];

        point->name = psi_unpack_u8(unpack, "point.name", 0, PSI_SCALARS_MAX - 1);
        point->step = unpack_step(unpack, "point.step");
        point->value = psi_unpack_f64(unpack, "point.value"); /* a loss may well be NaN */
        if (unpack->status == PSD_OK && point->name >= telling->names) {
            psi_unpack_refuse(unpack, "point.name", "%u of %u names", point->name, telling->names);
        }
    }
}

static void
unpack_times(struct psi_unpack *unpack, struct psi_step_times *times)
{
    times->step = unpack_step(unpack, "times.step");
    times->total_us = psi_unpack_u32(unpack, "times.total_us", 0, UINT32_MAX);
    times->compute_us = psi_unpack_u32(unpack, "times.compute_us", 0, UINT32_MAX);
    times->encode_us = psi_unpack_u32(unpack, "times.encode_us", 0, UINT32_MAX);
    times->send_us = psi_unpack_u32(unpack, "times.send_us", 0, UINT32_MAX);
    times->wait_us = psi_unpack_u32(unpack, "times.wait_us", 0, UINT32_MAX);
    times->receive_us = psi_unpack_u32(unpack, "times.receive_us", 0, UINT32_MAX);
    times->alone_us = psi_unpack_u32(unpack, "times.alone_us", 0, UINT32_MAX);
    times->server = psi_unpack_u32(unpack, "times.server", 0, UINT32_MAX);
    times->end_us = 0;
}

/* An earlier version does not tell them. */
static void
unpack_ends(struct psi_unpack *unpack, struct psi_telling *telling)
{
    if (unpack->left == 0) {
        return;
    }
    (void)psi_unpack_u32(unpack, "ends", telling->steps, telling->steps);
    for (uint32_t i = 0; i < telling->steps && unpack->status == PSD_OK; i++) {
        telling->times[i].end_us = psi_unpack_u64(unpack, "end_us");
        if (telling->times[i].end_us > PSI_TOLD_END_MAX) {
            psi_unpack_refuse(unpack, "end_us", "%" PRIu64 ", expected 0..2^60",
                              telling->times[i].end_us);
        }
    }
}

static void
unpack_span(struct psi_unpack *unpack, const struct psi_telling *telling, struct psi_span *span)
{
    span->kind = psi_unpack_u8(unpack, "span.kind", PSI_SPAN_PUSH, PSI_SPAN_MARK);
    span->what = psi_unpack_u32(unpack, "span.what", 0, UINT32_MAX);
    span->who = psi_unpack_u32(unpack, "span.who", 0, UINT32_MAX);
    span->step = unpack_step(unpack, "span.step");
    span->begin_us = psi_unpack_u64(unpack, "span.begin_us");
    span->us = psi_unpack_u32(unpack, "span.us", 0, UINT32_MAX);
    span->apply_us = psi_unpack_u32(unpack, "span.apply_us", 0, UINT32_MAX);
    if (unpack->status == PSD_OK && (span->begin_us == 0 || span->begin_us > PSI_TOLD_END_MAX)) {
        psi_unpack_refuse(unpack, "span.begin_us", "%" PRIu64 ", expected 1..2^60", span->begin_us);
    }
    if (unpack->status == PSD_OK && span->kind == PSI_SPAN_MARK && span->what >= telling->marks) {
        psi_unpack_refuse(unpack, "span.what", "%u of %u marks", span->what, telling->marks);
    }
}

/* An earlier version tells none. */
static void
unpack_spans(struct psi_unpack *unpack, struct psi_telling *telling)
{
    telling->marks = 0;
    telling->spans = 0;
    telling->waited = 0;
    if (unpack->left == 0) {
        return;
    }
    telling->marks = psi_unpack_u32(unpack, "marks", 0, PSI_MARKS_MAX);
    for (uint32_t i = 0; i < telling->marks && unpack->status == PSD_OK; i++) {
        psi_unpack_string(unpack, "mark", telling->mark[i], sizeof(telling->mark[i]));
    }
    telling->spans = psi_unpack_u32(unpack, "spans", 0, PSI_SPANS_MAX);
    for (uint32_t i = 0; i < telling->spans && unpack->status == PSD_OK; i++) {
        unpack_span(unpack, telling, &telling->span[i]);
    }
    telling->waited = psi_unpack_u32(unpack, "waited", 0, PSI_WAITED_MAX);
    for (uint32_t i = 0; i < telling->waited && unpack->status == PSD_OK; i++) {
        telling->wait[i].rank = psi_unpack_u32(unpack, "waited.rank", 0, PSI_RANKS_MAX - 1);
        telling->wait[i].ns = psi_unpack_u64(unpack, "waited.ns");
    }
}

static uint32_t
unpack_traffic(struct psi_unpack *unpack, struct psi_traffic *traffic)
{
    const uint32_t count = psi_unpack_u32(unpack, "traffic", 0, PSI_TRAFFIC_MAX);

    for (uint32_t i = 0; i < count && unpack->status == PSD_OK; i++) {
        traffic[i].id = psi_unpack_u32(unpack, "traffic.id", 0, UINT32_MAX);
        traffic[i].bytes_out = psi_unpack_u64(unpack, "traffic.bytes_out");
        traffic[i].bytes_in = psi_unpack_u64(unpack, "traffic.bytes_in");
        traffic[i].frames_out = 0;
        traffic[i].frames_in = 0;
    }
    return count;
}

static void
unpack_frames(struct psi_unpack *unpack, uint32_t count, struct psi_traffic *traffic)
{
    for (uint32_t i = 0; i < count && unpack->status == PSD_OK; i++) {
        traffic[i].frames_out = psi_unpack_u64(unpack, "traffic.frames_out");
        traffic[i].frames_in = psi_unpack_u64(unpack, "traffic.frames_in");
    }
}

psd_status
psi_telling_decode(const uint8_t *bytes, size_t size, struct psi_telling *telling_p,
                   struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "METRICS", bytes, size, err);
    telling_p->step = unpack_step(&unpack, "step");
    unpack_metrics(&unpack, telling_p);
    unpack_points(&unpack, telling_p);
    telling_p->steps = psi_unpack_u32(&unpack, "steps", 0, PSI_STEPS_MAX);
    for (uint32_t i = 0; i < telling_p->steps && unpack.status == PSD_OK; i++) {
        unpack_times(&unpack, &telling_p->times[i]);
    }
    telling_p->servers = unpack_traffic(&unpack, telling_p->server);
    telling_p->tables = unpack_traffic(&unpack, telling_p->table);
    unpack_ends(&unpack, telling_p);
    unpack_spans(&unpack, telling_p);
    if (unpack.left > 0) { /* an earlier version tells none */
        unpack_frames(&unpack, telling_p->servers, telling_p->server);
        unpack_frames(&unpack, telling_p->tables, telling_p->table);
    }
    return unpack.status;
}
