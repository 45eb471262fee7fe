/*
 * read_life.c - a reader: its connection to the master, and what it knows of the job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/read/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/read/reader_state.h"
#include "rpc/follow_view.h"

/* ---- events of the master's connection ----------------------------------------------------- */

static void
hello(void *owner, struct psi_hello *hello_p)
{
    const struct psi_reader *reader = owner;

    hello_p->role = PSI_ROLE_READER;
    hello_p->rank = PSI_RANK_AUTO;
    hello_p->life = reader->life;
    hello_p->job = reader->job;
}

static void
end(struct psi_reader *reader, psd_status status, const char *text)
{
    if (reader->over.status == PSD_OK) {
        psi_fail(&reader->over, status, "%s", text);
    }
}

static void
on_up(void *owner, const struct psi_welcome *welcome)
{
    struct psi_reader *reader = owner;

    reader->job = welcome->job;
    if (reader->view.worker == NULL && psi_view_init(&reader->view, welcome->workers) != PSD_OK) {
        end(reader, PSD_ERR_NO_MEMORY, "no memory for a view");
    }
}

static void
on_refused(void *owner, const struct psi_verdict *verdict)
{
    struct psi_reader *reader = owner;
    char text[PSI_TEXT_MAX + PSI_ADDRESS_BYTES + 64];

    snprintf(text, sizeof(text), "refused by the master at %s: %s", reader->master.peer.address,
             verdict->text);
    end(reader, verdict->status < 0 ? verdict->status : PSD_ERR_REFUSED, text);
}

static psd_status
on_view(void *owner, const struct psi_view *old, const struct psi_view *now, struct psd_error *err)
{
    (void)old;
    return read_lanes_follow(owner, now, err);
}

static psd_status
end_arrived(struct psi_reader *reader, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_verdict verdict;
    const psd_status status = psi_verdict_decode(payload, bytes, &verdict, err);
    char text[PSI_TEXT_MAX + 32];

    if (status == PSD_OK) {
        snprintf(text, sizeof(text), "the job is over: %s", verdict.text);
        end(reader, verdict.status < 0 ? verdict.status : PSD_ERR_CLOSED, text);
    }
    return status;
}

static psd_status
on_frame(void *owner, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_reader *reader = owner;
    const struct psi_frame *frame = &reader->master.peer.inbox.frame;
    uint32_t id;

    switch (frame->type) {
    case PSI_FRAME_VIEW_COMMIT:
        return psi_follow_view(&reader->view, payload, bytes, on_view, reader, &id, err);
    case PSI_FRAME_TABLE_INFO:
        return read_table_arrived(reader, payload, bytes, err);
    case PSI_FRAME_END:
        return end_arrived(reader, payload, bytes, err);
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from the master: not expected by a reader",
                        psi_frame_type_name(frame->type));
    }
}

static void
ping(void *owner, struct psi_ping *ping_p)
{
    (void)owner;
    (void)ping_p; /* a reader is at no step */
}

static const struct psi_master_events master_events = {
    .hello = hello,
    .on_up = on_up,
    .on_refused = on_refused,
    .on_frame = on_frame,
    .ping = ping,
};

/* ---- life and time ------------------------------------------------------------------------- */

psd_status
psi_reader_create(struct psi_env *env, const char *master_address, struct psi_reader **reader_p,
                  struct psd_error *err)
{
    struct psi_reader *reader = calloc(1, sizeof(*reader));

    if (reader == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a reader");
    }
    reader->env = env;
    reader->life = env->ops->random(env) | 1;
    psi_master_link_start(&reader->master, env, master_address, &master_events, reader);
    *reader_p = reader;
    return PSD_OK;
}

void
psi_reader_destroy(struct psi_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    psi_reader_end(reader);
    psi_peer_close(&reader->master.peer);
    read_lanes_destroy(reader);
    read_tables_destroy(reader);
    psi_view_fini(&reader->view);
    free(reader);
}

/* A master that is silent may be starting anew: whoever waits says for how long. */
void
psi_reader_tick(struct psi_reader *reader)
{
    const uint64_t now_ns = psi_now_ns(reader->env);

    if (reader->over.status != PSD_OK) {
        return;
    }
    if (psi_master_link_tick(&reader->master, now_ns)) {
        psi_master_link_again(&reader->master);
    }
    read_lanes_tick(reader, now_ns);
}

uint64_t
psi_reader_next_ns(const struct psi_reader *reader)
{
    const uint64_t master_ns = psi_master_link_next_ns(&reader->master);
    const uint64_t lanes_ns = read_lanes_next_ns(reader);

    if (reader->over.status != PSD_OK) {
        return UINT64_MAX;
    }
    return master_ns < lanes_ns ? master_ns : lanes_ns;
}

psd_status
psi_reader_state(const struct psi_reader *reader, struct psd_error *err)
{
    if (reader->over.status != PSD_OK) {
        *err = reader->over;
        return err->status;
    }
    return reader->view.id > 0 ? PSD_OK : PSD_PENDING;
}
