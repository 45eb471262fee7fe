/*
 * conformance_bed.c - two loops, a listener, and ends that remember what they heard.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/conformance_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crew.h"
#include "base/fail.h"

enum { META_AT = 0, PAYLOAD_AT = 8, NUMBER_AT = 16, CANARY = 0xa5 };

/* ---- Frames: prefix = sizes and number, then meta and payload made from the number ---- */

static uint64_t
load(const uint8_t *from)
{
    uint64_t value;

    memcpy(&value, from, sizeof(value));
    return value;
}

static void
store(uint8_t *to, uint64_t value)
{
    memcpy(to, &value, sizeof(value));
}

/* Differs between neighbours, between numbers, and between places 256 apart. */
static uint8_t
pattern(uint64_t number, size_t index)
{
    return (uint8_t)(index * 7 + (index >> 8) * 3 + number * 31);
}

void
bed_fill(void *payload, uint64_t number, size_t bytes)
{
    uint8_t *to = payload;

    for (size_t i = 0; i < bytes; i++) {
        to[i] = pattern(number, i);
    }
}

static bool
is_filled(const uint8_t *payload, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (payload[i] != pattern(number, i)) {
            return false;
        }
    }
    return true;
}

size_t
bed_head(uint8_t *head_p, uint64_t number, size_t meta_bytes, size_t payload_bytes)
{
    memset(head_p, 0, PSI_PREFIX_BYTES);
    store(head_p + META_AT, meta_bytes);
    store(head_p + PAYLOAD_AT, payload_bytes);
    store(head_p + NUMBER_AT, number);
    bed_fill(head_p + PSI_PREFIX_BYTES, number + 1, meta_bytes);
    return PSI_PREFIX_BYTES + meta_bytes;
}

/* ---- What an end keeps ---- */

static void
keep(struct end *end, const uint8_t *head, struct psi_sink *sink)
{
    if (end->kept == NULL) {
        end->kept = calloc(BED_KEPT_MAX, sizeof(*end->kept));
        psi_assert(end->kept != NULL);
    }
    psi_assert(end->kept_count < BED_KEPT_MAX);
    end->kept[end->kept_count++] = (struct kept){.loan = sink->loan,
                                                 .payload = sink->lent,
                                                 .number = load(head + NUMBER_AT),
                                                 .bytes = load(head + PAYLOAD_AT)};
    sink->keep = true;
}

bool
bed_kept_are_right(const struct end *end)
{
    for (unsigned i = 0; i < end->kept_count; i++) {
        if (!is_filled(end->kept[i].payload, end->kept[i].number, end->kept[i].bytes)) {
            return false;
        }
    }
    return true;
}

void
bed_give_back(struct end *end)
{
    for (unsigned i = 0; i < end->kept_count; i++) {
        end->kept[i].loan->give_back(end->kept[i].loan);
    }
    free(end->kept);
    end->kept = NULL;
    end->kept_count = 0;
}

/* ---- The events of an end ---- */

static void
drop_landing(struct end *end)
{
    free(end->landing);
    end->landing = NULL;
}

void
bed_hang_up(struct end *end)
{
    struct psi_conn *conn = end->conn;

    if (conn != NULL) {
        end->conn = NULL;
        conn->ops->close(conn);
        drop_landing(end);
    }
}

/* What an end was told to do at a moment. */
static psd_status
act(struct end *end, enum bed_moment moment, struct psd_error *err)
{
    if (end->close_at == moment) {
        bed_hang_up(end);
    }
    if (end->fail_at == moment) {
        return psi_fail(err, PSD_ERR_VERSION, "planted at %d", (int)moment);
    }
    return PSD_OK;
}

static void
end_on_open(void *owner, struct psi_conn *conn)
{
    struct end *end = owner;

    (void)conn;
    end->opens++;
    (void)act(end, AT_OPEN, NULL);
}

static psd_status
end_on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix,
              struct psi_frame_size *size_p, struct psd_error *err)
{
    struct end *end = owner;

    (void)conn;
    end->prefixes++;
    size_p->meta_bytes = load(prefix + META_AT);
    size_p->payload_bytes = load(prefix + PAYLOAD_AT);
    return act(end, AT_PREFIX, err);
}

static psd_status
end_on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
            struct psi_sink *sink_p, struct psd_error *err)
{
    struct end *end = owner;
    const size_t payload_bytes = load(head + PAYLOAD_AT);

    (void)conn;
    (void)head_bytes;
    end->heads++;
    end->lent += sink_p->lent != NULL;
    end->stayed += sink_p->stays;
    if (end->keep && sink_p->lent != NULL) {
        keep(end, head, sink_p);
    } else if (!end->discard) {
        psi_assert(end->landing == NULL);
        end->landing = malloc(payload_bytes + 2 * BED_CANARY_BYTES);
        psi_assert(end->landing != NULL);
        memset(end->landing, CANARY, BED_CANARY_BYTES);
        memset(end->landing + BED_CANARY_BYTES + payload_bytes, CANARY, BED_CANARY_BYTES);
        sink_p->into = end->landing + BED_CANARY_BYTES;
    }
    return act(end, AT_HEAD, err);
}

static bool
are_canaries(const uint8_t *bytes)
{
    for (size_t i = 0; i < BED_CANARY_BYTES; i++) {
        if (bytes[i] != CANARY) {
            return false;
        }
    }
    return true;
}

static bool
is_right(const struct end *end, const uint8_t *head, size_t head_bytes, const uint8_t *payload,
         size_t payload_bytes)
{
    const uint64_t number = load(head + NUMBER_AT);

    if (number != end->frames || head_bytes != PSI_PREFIX_BYTES + load(head + META_AT) ||
        payload_bytes != load(head + PAYLOAD_AT)) {
        return false;
    }
    if (!is_filled(head + PSI_PREFIX_BYTES, number + 1, head_bytes - PSI_PREFIX_BYTES)) {
        return false;
    }
    if (end->discard || payload_bytes == 0) {
        return payload == NULL;
    }
    if (!is_filled(payload, number, payload_bytes)) {
        return false;
    }
    return end->landing == NULL || (are_canaries(end->landing) &&
                                    are_canaries(end->landing + BED_CANARY_BYTES + payload_bytes));
}

static void
free_landing(void *owner, uint64_t cookie)
{
    (void)cookie;
    free(owner);
}

static void
send_back(struct end *end, const uint8_t *head, size_t head_bytes, const void *payload,
          size_t payload_bytes)
{
    struct psi_outgoing frame = {.head = head, .head_bytes = head_bytes};

    if (end->landing != NULL) {
        frame.buffers[0] = (struct psi_buffer){payload, payload_bytes};
        frame.buffer_count = 1;
        frame.release = free_landing;
        frame.release_owner = end->landing;
    }
    if (end->conn->ops->send(end->conn, &frame) == PSD_OK) {
        end->landing = NULL;
    } else {
        end->bad++;
    }
}

static psd_status
end_on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
             void *payload, size_t payload_bytes, struct psd_error *err)
{
    struct end *end = owner;

    if (!is_right(end, head, head_bytes, payload, payload_bytes)) {
        end->bad++;
    }
    end->frames++;
    end->payload_bytes += payload_bytes;
    if (end->echo) {
        send_back(end, head, head_bytes, payload, payload_bytes);
    }
    drop_landing(end);
    if (end->heard != NULL) {
        end->heard(end, end->heard_context);
    }
    if (end->victim != NULL) {
        bed_hang_up(end->victim);
    }
    if (end->goodbye) {
        end->conn = NULL;
        conn->ops->close_after_send(conn, 60000);
    }
    return act(end, AT_FRAME, err);
}

static void
end_on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct end *end = owner;

    (void)conn;
    end->closes++;
    end->reason = *reason;
    drop_landing(end);
    (void)act(end, AT_CLOSE, NULL);
    end->conn = NULL;
}

static const struct psi_conn_events end_events = {
    .on_open = end_on_open,
    .on_prefix = end_on_prefix,
    .on_head = end_on_head,
    .on_frame = end_on_frame,
    .on_close = end_on_close,
};

static void
count_release(void *owner, uint64_t cookie)
{
    struct end *end = owner;

    (void)cookie;
    end->releases++;
}

static psd_status
send_one(struct end *end, uint64_t number, size_t meta_bytes, struct psi_buffer payload,
         bool stable)
{
    uint8_t head[PSI_PREFIX_BYTES + PSI_META_BYTES_MAX];
    const struct psi_outgoing frame = {
        .head = head,
        .head_bytes = bed_head(head, number, meta_bytes, payload.bytes),
        .buffers = {payload},
        .buffer_count = payload.bytes > 0 ? 1 : 0,
        .stable = stable,
        .release = count_release,
        .release_owner = end,
    };

    return end->conn->ops->send(end->conn, &frame);
}

psd_status
bed_send(struct end *end, uint64_t number, size_t meta_bytes, const void *payload,
         size_t payload_bytes)
{
    return send_one(end, number, meta_bytes, (struct psi_buffer){payload, payload_bytes}, false);
}

psd_status
bed_send_stable(struct end *end, uint64_t number, const void *payload, size_t payload_bytes)
{
    return send_one(end, number, 0, (struct psi_buffer){payload, payload_bytes}, true);
}

/* ---- The bed ---- */

static psd_status
bed_on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
              void **owner_p)
{
    struct bed *bed = owner;
    struct end *end;

    if (bed->refuse || bed->accepted_count == BED_ENDS_MAX) {
        return PSD_ERR_REFUSED;
    }
    end = &bed->accepted[bed->accepted_count++];
    *end = bed->model;
    end->bed = bed;
    end->conn = conn;
    *events_p = &end_events;
    *owner_p = end;
    if (bed->unlisten_in_accept) {
        psi_loop_env(bed->server)->ops->unlisten(psi_loop_env(bed->server), bed->listener);
        bed->listener = NULL;
    }
    return act(end, AT_ACCEPT, NULL);
}

static const struct psi_listener_events bed_events = {.on_accept = bed_on_accept};

static void
create_tls(struct bed *bed)
{
    assert_int_equal(psi_secret_create(&bed->secret, NULL), PSD_OK);
    assert_int_equal(psi_tls_create(bed->secret, NULL, &bed->client_tls, NULL), PSD_OK);
    assert_int_equal(psi_tls_create(bed->secret, "server:0.0", &bed->server_tls, NULL), PSD_OK);
    if (bed->transport->sealed) {
        psi_tls_seal_always(bed->client_tls);
        psi_tls_seal_always(bed->server_tls);
    }
}

static struct psi_loop *
create_loop(const struct bed_transport *transport, const struct psi_loop_config *given,
            struct psi_tls *tls)
{
    struct psi_loop_config config = {0};
    struct psi_loop *loop = NULL;

    if (given != NULL) {
        config = *given;
    }
    config.lends = config.lends || transport->lends;
    if (config.auth == NULL && tls != NULL) {
        config.auth = &psi_tls_auth;
        config.credentials = tls;
    }
    assert_int_equal(psi_loop_create(&config, &loop, NULL), PSD_OK);
    return loop;
}

struct bed *
bed_create(const struct bed_transport *transport, const struct psi_loop_config *client_config,
           const struct psi_loop_config *server_config)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    struct psd_error err = {0};
    struct psi_env *env;

    assert_non_null(bed);
    bed->transport = transport;
    if (transport->tls) {
        create_tls(bed);
    }
    bed->client = create_loop(transport, client_config, bed->client_tls);
    bed->server = create_loop(transport, server_config, bed->server_tls);
    for (int i = 0; i < 2 && transport->helped; i++) {
        bed->crews[i] = psi_crew_create(3, 20);
        assert_non_null(bed->crews[i]);
        psi_loop_take_crew(i == 0 ? bed->client : bed->server, bed->crews[i]);
    }
    env = psi_loop_env(bed->server);
    assert_int_equal(env->ops->listen(env, transport->listen_at, &bed_events, bed, &bed->listener,
                                      bed->address, &err),
                     PSD_OK);
    return bed;
}

void
bed_destroy(struct bed *bed)
{
    bed_stop_thread(bed);
    psi_loop_destroy(bed->client);
    psi_loop_destroy(bed->server);
    psi_crew_destroy(bed->crews[0]);
    psi_crew_destroy(bed->crews[1]);
    psi_tls_destroy(bed->client_tls);
    psi_tls_destroy(bed->server_tls);
    psi_secret_destroy(bed->secret);
    for (unsigned i = 0; i < bed->accepted_count; i++) {
        drop_landing(&bed->accepted[i]);
        bed_give_back(&bed->accepted[i]);
    }
    free(bed);
}

static void *
run_server(void *context)
{
    struct bed *bed = context;

    while (!atomic_load(&bed->stop)) {
        psi_assert(psi_loop_run_once(bed->server, -1, NULL) == PSD_OK);
    }
    return NULL;
}

void
bed_start_thread(struct bed *bed)
{
    bed->threaded = true;
    assert_int_equal(pthread_create(&bed->thread, NULL, run_server, bed), 0);
}

void
bed_stop_thread(struct bed *bed)
{
    if (bed->threaded) {
        atomic_store(&bed->stop, true);
        psi_loop_wake(bed->server);
        pthread_join(bed->thread, NULL);
        bed->threaded = false;
    }
}

void
bed_pump_loop(struct psi_loop *loop)
{
    assert_int_equal(psi_loop_run_once(loop, 0, NULL), PSD_OK);
}

void
bed_pump(struct bed *bed)
{
    if (bed->threaded) {
        assert_int_equal(psi_loop_run_once(bed->client, 10, NULL), PSD_OK);
    } else {
        bed_pump_loop(bed->client);
        bed_pump_loop(bed->server);
    }
}

void
bed_connect(struct bed *bed, struct end *end)
{
    struct psi_env *env = psi_loop_env(bed->client);
    struct psd_error err = {0};

    end->bed = bed;
    assert_int_equal(env->ops->connect(env, bed->address, "worker:0 server:0.0", &end_events, end,
                                       &end->conn, &err),
                     PSD_OK);
}
