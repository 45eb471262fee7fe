/*
 * host.c - this worker sends for its host: the connections of the others.
 *
 * A stranger has said nothing yet and may only say HELLO. It is let in if it proves to be a worker
 * of the job and shares memory with us: then it is on this host. It is told which tables we send
 * (OFFER), says what it pushes through us (ROUTE), and then does so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "client/host/gather.h"
#include "rpc/post.h"
#include "store/level.h"

#define RANK_STRANGER UINT32_MAX
#define STALL_NS      UINT64_C(10000000)

/* ---- tables -------------------------------------------------------------------------------- */

/* Sums travel in f32: with fewer workers they are not shorter than what they are made of. Rows of
 * sparse tables are each worker's own, and have little in common. */
static bool
is_worth_it(const struct host *host, const struct psi_spec *spec)
{
    const bool narrow = spec->dtype == PSD_F16 || spec->dtype == PSD_BF16;

    return psi_spec_synchronous(spec) && spec->backup_workers == 0 && !psi_spec_is_sparse(spec) &&
           host->workers >= (narrow ? 3 : 2);
}

static bool
remember_table(struct host *host, struct psd_table *table)
{
    if (table->id >= host->table_capacity) {
        const uint32_t capacity = 2 * table->id + 16;
        struct psd_table **grown = realloc(host->table_of, capacity * sizeof(*grown));

        if (grown == NULL) {
            return false;
        }
        for (uint32_t i = host->table_capacity; i < capacity; i++) {
            grown[i] = NULL;
        }
        host->table_of = grown;
        host->table_capacity = capacity;
    }
    host->table_of[table->id] = table;
    return true;
}

static struct psd_table *
find_table(const struct host *host, uint32_t id)
{
    return id < host->table_capacity ? host->table_of[id] : NULL;
}

static void
find_lanes(struct psi_client *client)
{
    struct host *host = client->host;

    for (uint32_t i = 0; !host->lanes_known && i < client->lane_count; i++) {
        if (!client->lanes[i]->lends) {
            psi_ranks_add(&host->lanes, i);
        }
    }
    host->lanes_known = true;
}

/* Without memory, or without chunks on other hosts, each pushes its own. */
static bool
is_gathered(struct psd_table *table)
{
    struct psi_client *client = table->client;

    if (table->gathered != NULL) {
        return true;
    }
    find_lanes(client);
    return is_worth_it(client->host, &table->spec) &&
           psi_table_spread_by_host(table, &client->host->lanes) == PSD_OK &&
           table->by_host.lane_counts[client->lane_count] > 0 &&
           remember_table(client->host, table) && psi_gathered_create(table) == PSD_OK;
}

static void
offer(const struct psd_table *table, const struct host_session *session)
{
    const struct psi_client *client = table->client;
    const struct psi_frame frame = {
        .type = PSI_FRAME_OFFER, .view = client->view.id, .table = table->id};

    (void)psi_post_ranks(session->guest.conn, &frame, &client->host->lanes);
}

void
psi_host_offer(struct psd_table *table)
{
    const struct psi_guest *guest = table->client->host->guests.first;

    for (; guest != NULL; guest = guest->next) {
        const struct host_session *session = (const struct host_session *)guest;

        if (session->rank != RANK_STRANGER && is_gathered(table)) {
            offer(table, session);
        }
    }
}

/* ---- the end of a session ------------------------------------------------------------------ */

static void
session_destroy(struct host_session *session)
{
    struct psi_client *client = session->client;

    psi_guest_end(&session->guest);
    psi_contribution_free(client, session->receiving_for, session->receiving);
    if (session->rank != RANK_STRANGER) {
        client->host->by_rank[session->rank] = NULL;
        psi_gather_member_gone(client);
    }
    free(session);
}

static void
on_gone(struct psi_guest *guest, const char *peer, const struct psd_error *reason)
{
    (void)peer;
    (void)reason; /* a worker that is lost the master hears of */
    session_destroy((struct host_session *)guest);
}

/* ---- what it says -------------------------------------------------------------------------- */

/* The chunk of the session's current frame, if it is one that we gather and the gradient fits. */
static struct gathering *
find_gathering(const struct host_session *session, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct psd_table *table = find_table(session->client->host, frame->table);
    struct gathering *gathering =
        table == NULL || table->gathered == NULL ? NULL : psi_gathering_find(table, frame->chunk);
    uint64_t count;

    if (gathering == NULL) {
        psi_fail(err, PSD_ERR_PROTOCOL, "%s: chunk %u of table %u is not sent from here",
                 psi_frame_type_name(frame->type), frame->chunk, frame->table);
        return NULL;
    }
    count = (frame->flags & PSI_FLAG_EMPTY) != 0 || !psi_frame_has_gradient(frame->type)
                ? 0
                : psi_chunk_elements(table->spec.count, frame->chunk);
    if (!psi_codec_fits(psi_codec_find(frame->codec), table->spec.dtype, count,
                        frame->payload_bytes) ||
        frame->level != 0 || session->guest.inbox.meta.has_node ||
        session->guest.inbox.meta.has_part || (count > 0 && frame->dtype != table->spec.dtype)) {
        psi_fail(err, PSD_ERR_PROTOCOL, "%s to chunk %u of table %s: %u bytes of type %u",
                 psi_frame_type_name(frame->type), frame->chunk, table->spec.name,
                 frame->payload_bytes, frame->dtype);
        return NULL;
    }
    return gathering;
}

/* A worker has room for few of the copies that it makes for us: see struct psi_loan. */
static bool
may_keep(const struct host_session *session, const struct psi_sink *sink)
{
    const struct kept *kept = &session->client->host->kept[session->rank];

    return sink->lent != NULL &&
           (sink->stays ||
            (kept->count < PSI_COPIES_KEPT_MAX &&
             kept->bytes + session->guest.inbox.frame.payload_bytes <= PSI_COPIES_KEPT_BYTES_MAX));
}

/* Large gradients stay where they are; small ones come with the frame. */
static psd_status
push_sink(struct host_session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    const struct gathering *gathering = find_gathering(session, err);
    struct contribution *given;

    if (gathering == NULL) {
        return err->status;
    }
    given = psi_contribution_create(session->client);
    if (given == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no memory", session->rank);
    }
    session->receiving = given;
    session->receiving_for = gathering->table->gathered;
    given->rank = session->rank;
    if (may_keep(session, sink_p)) {
        given->data = sink_p->lent;
        given->loan = sink_p->loan;
        psi_contribution_kept(session->client, given,
                              sink_p->stays ? 0 : session->guest.inbox.frame.payload_bytes);
        sink_p->keep = true;
        return PSD_OK;
    }
    given->copy = psi_pool_take(&session->receiving_for->copies);
    given->data = given->copy;
    sink_p->into = given->copy;
    return given->copy != NULL
               ? PSD_OK
               : psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no memory", session->rank);
}

static psd_status
on_head(struct psi_guest *guest, struct psi_sink *sink_p, struct psd_error *err)
{
    return psi_frame_has_gradient(guest->inbox.frame.type)
               ? push_sink((struct host_session *)guest, sink_p, err)
               : psi_inbox_body(&guest->inbox, sink_p, err);
}

static psd_status
on_hello(struct psi_guest *guest, const struct psi_hello *hello, struct psd_error *err)
{
    struct host_session *session = (struct host_session *)guest;
    struct psi_client *client = session->client;
    const struct psi_frame frame = {.type = PSI_FRAME_WELCOME, .view = client->view.id};
    struct psi_welcome welcome = client->job;

    (void)err;
    if (hello->role != PSI_ROLE_WORKER || hello->rank >= client->job.workers ||
        hello->job != client->job.job ||
        hello->incarnation != client->view.worker[hello->rank].incarnation ||
        hello->rank == client->job.rank || client->host->by_rank[hello->rank] != NULL) {
        psi_guest_refuse(guest, PSD_ERR_REFUSED, "not a worker that this one sends for");
        return PSD_OK;
    }
    if (!guest->conn->lends) {
        psi_guest_refuse(guest, PSD_ERR_REFUSED, "not on this host, or without shared memory");
        return PSD_OK;
    }
    session->rank = hello->rank;
    client->host->by_rank[hello->rank] = session;
    welcome.rank = hello->rank;
    welcome.incarnation = hello->incarnation;
    welcome.window_bytes = client->config.window_bytes;
    welcome.view = client->view.id;
    (void)psi_post_welcome(guest->conn, &frame, &welcome);
    for (size_t i = 0; i < client->table_count; i++) {
        if (is_gathered(client->tables[i])) {
            offer(client->tables[i], session);
        }
    }
    return PSD_OK;
}

static psd_status
route_arrived(struct host_session *session, const void *payload, size_t bytes,
              struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    struct psd_table *table = find_table(session->client->host, frame->table);
    const psd_status status = psi_ranks_decode(payload, bytes, &session->lanes, err);

    if (status != PSD_OK) {
        return status;
    }
    if (table == NULL || table->gathered == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "ROUTE: table %u was not offered", frame->table);
    }
    table->gathered->from[session->rank] = frame->step;
    if (table->route_from == PSI_STEP_NEVER) {
        table->route_from = psi_table_first_unsent_step(table);
    }
    return PSD_OK;
}

/* What has come becomes numbers, where it is if its codec lets it be. */
static psd_status
decode(const struct psi_frame *frame, const struct gathering *gathering, struct contribution *given,
       struct psd_error *err)
{
    const struct psi_spec *spec = &gathering->table->spec;
    const struct psi_codec *codec = psi_codec_find(frame->codec);
    const struct psi_encoded encoded = {.bytes = given->data, .size = frame->payload_bytes};
    struct psi_decoded decoded;

    if (given->data == NULL) {
        return PSD_OK;
    }
    decoded =
        codec->decode(spec->dtype, encoded, psi_chunk_elements(spec->count, frame->chunk), NULL);
    if (decoded.numbers == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to chunk %u of table %s: not of codec %s",
                        psi_frame_type_name(frame->type), frame->chunk, spec->name, codec->name);
    }
    given->data = decoded.numbers;
    given->is_real = decoded.is_real;
    return PSD_OK;
}

static psd_status
push_arrived(struct host_session *session, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    struct gathering *gathering = find_gathering(session, err);
    struct contribution *given = session->receiving;

    if (gathering == NULL) {
        return err->status;
    }
    if (given == NULL) { /* it adds nothing */
        given = psi_contribution_create(session->client);
    }
    if (given == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no memory", session->rank);
    }
    if (decode(frame, gathering, given, err) != PSD_OK) {
        return err->status;
    }
    session->receiving = NULL;
    given->rank = session->rank;
    given->request = frame->request;
    given->step = frame->step;
    given->type = frame->type;
    given->priority = frame->priority;
    psi_gather_give(session->client, gathering, given);
    return PSD_OK;
}

/* A server wants that chunk from the session's worker: whatever we have of it leaves. */
static psd_status
want_arrived(const struct host_session *session, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct gathering *gathering = find_gathering(session, err);

    if (gathering == NULL) {
        return err->status;
    }
    psi_gather_wanted(gathering->table, frame);
    return PSD_OK;
}

static psd_status
why_arrived(const struct host_session *session, struct psd_error *err)
{
    const struct psi_frame *asked = &session->guest.inbox.frame;
    const struct gathering *gathering = find_gathering(session, err);
    const struct psi_frame frame = {
        .type = PSI_FRAME_BECAUSE,
        .view = session->client->view.id,
        .request = asked->request,
        .table = asked->table,
        .chunk = asked->chunk,
    };
    char text[PSI_TEXT_MAX];

    if (gathering == NULL) {
        return err->status;
    }
    if (psi_gather_why(gathering->table, asked->chunk, text, sizeof(text))) {
        (void)psi_post_error(session->guest.conn, &frame, PSD_PENDING, 0, text);
    }
    return PSD_OK;
}

static psd_status
dispatch(struct host_session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    switch (session->guest.inbox.frame.type) {
    case PSI_FRAME_PUSH:
    case PSI_FRAME_PUSH_PULL:
        return push_arrived(session, err);
    case PSI_FRAME_ROUTE:
        return route_arrived(session, payload, bytes, err);
    case PSI_FRAME_WANT:
        return want_arrived(session, err);
    case PSI_FRAME_WHY:
        return why_arrived(session, err);
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: not expected by a worker",
                        psi_frame_type_name(session->guest.inbox.frame.type));
    }
}

static psd_status
on_frame(struct psi_guest *guest, void *payload, size_t bytes, struct psd_error *err)
{
    struct host_session *session = (struct host_session *)guest;
    const psd_status status =
        psi_guest_speaks_as(guest, session->rank, &session->client->view, 0, err);

    return status == PSD_OK ? dispatch(session, payload, bytes, err) : status;
}

static const struct psi_guest_events guest_events = {
    .payload_max = PSI_FRAME_CHUNK_MAX,
    .on_hello = on_hello,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_gone = on_gone,
};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct psi_client *client = owner;
    struct host_session *session;

    if (client->host == NULL) {
        return PSD_ERR_BUSY; /* we have not heard yet that we send: come again */
    }
    session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    session->client = client;
    session->rank = RANK_STRANGER;
    psi_guest_begin(&session->guest, &client->host->guests, conn, events_p, owner_p);
    return PSD_OK;
}

const struct psi_listener_events psi_host_listener_events = {.on_accept = on_accept};

/* ---- life ---------------------------------------------------------------------------------- */

psd_status
psi_host_start(struct psi_client *client, uint32_t workers)
{
    struct lane_link *lane = psi_host_lane(client);
    struct host *host = calloc(1, sizeof(*host));

    if (host == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    client->host = host;
    host->workers = workers;
    host->guests.events = &guest_events;
    host->kernels = psi_kernel_level_kernels(psi_kernel_level_best());
    psi_pool_init(&host->contributions, sizeof(struct contribution));
    host->by_rank = calloc(client->job.workers, sizeof(struct host_session *));
    host->kept = calloc(client->job.workers, sizeof(*host->kept));
    host->leaves = calloc(client->job.workers, sizeof(*host->leaves));
    host->scratch = aligned_alloc(64, SUM_SCRATCH_BYTES);
    if (host->by_rank == NULL || host->kept == NULL || host->leaves == NULL ||
        host->scratch == NULL) {
        psi_host_stop(client);
        return PSD_ERR_NO_MEMORY;
    }
    lane->is_self = true;
    lane->window_bytes = UINT64_MAX;
    return PSD_OK;
}

/* After every operation has ended: what the others have lent goes back. */
void
psi_host_stop(struct psi_client *client)
{
    struct host *host = client->host;

    if (host == NULL) {
        return;
    }
    while (host->guests.first != NULL) {
        struct host_session *session = (struct host_session *)host->guests.first;

        psi_contribution_free(client, session->receiving_for, session->receiving);
        psi_guest_end(&session->guest);
        free(session);
    }
    for (size_t i = 0; i < client->table_count; i++) {
        psi_gathered_destroy(client->tables[i]);
    }
    psi_pool_fini(&host->contributions);
    free(host->by_rank);
    free(host->kept);
    free(host->table_of);
    free(host->leaves);
    free(host->scratch);
    free(host);
    client->host = NULL;
    psi_host_lane(client)->is_self = false;
}

void
psi_host_tick(struct psi_client *client, uint64_t now_ns)
{
    struct host *host = client->host;

    psi_guests_cut_doomed(&host->guests);
    if (host->progressed) {
        host->progressed = false;
        host->progress_ns = now_ns;
    }
    if (host->open != NULL && now_ns >= host->progress_ns + STALL_NS) {
        host->progress_ns = now_ns;
        psi_gather_want(client);
    }
}

uint64_t
psi_host_next_ns(const struct psi_client *client)
{
    const struct host *host = client->host;

    if (host->guests.some_doomed || host->progressed) {
        return 0;
    }
    return host->open != NULL ? host->progress_ns + STALL_NS : UINT64_MAX;
}
