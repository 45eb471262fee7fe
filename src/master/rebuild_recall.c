/*
 * rebuild_recall.c - another life of the master that finds no server: what workers tell it.
 *
 * All servers that had a part have died together with the last master, and what they kept in mind with them.
 * Workers have it, too, as far as anybody has acted on it: the view, which they hear of last, and the tables
 * that they have opened. So they are asked, before they are let in, and what they tell is the truth if no
 * server comes. What servers had is lost all the same. Whether the job can do without it is not decided
 * here: sums are made again by their workers, and a copy takes the place of what it is a copy of.
 *
 * A worker that does not tell may know a table of which nobody else does. It is lost when the others go on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "master/rebuild.h"

/* Nobody is asked before: servers that live tell all there is to know in less. */
enum { ASK_MS = 500 };

/* ------------------------------------------------------------------------------- asking --- */

static bool
is_anybody_gone(const struct master *master)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        if (master->gone[index] != 0) {
            return true;
        }
    }
    return false;
}

static void
ask(struct session *session)
{
    const struct psi_frame frame = master_frame(session->master, PSI_FRAME_RECALL);

    session->is_asked = true;
    master_posted(session, psi_post(session->guest.conn, &frame));
}

/* One that has no view is in that of others: it knows nothing, but it is here. */
static bool
is_to_be_asked(const struct session *session)
{
    const struct psi_hello *hello = &session->hello;

    return session->guest.conn != NULL && session->kind == SESSION_WAITING && !session->is_asked &&
           hello->role == PSI_ROLE_WORKER && hello->incarnation != 0 && hello->recalls &&
           (hello->view > 0 || session->master->recall.view.id > 0);
}

void
master_recall_ask(struct master *master, uint64_t now_ns)
{
    const uint64_t ask_ns = master->begun_ns + ASK_MS * MASTER_MS_NS;

    if (master->config.policy == PSI_DEATH_WAIT || master_is_elastic(master)) {
        return; /* where replacements go on, or who joined when, is known to servers alone */
    }
    if (now_ns < ask_ns && !is_anybody_gone(master)) {
        master_wake_at(master, ask_ns);
        return;
    }
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (is_to_be_asked(session)) {
            ask(session);
        }
    }
}

/* ------------------------------------------------------------------------------ hearing --- */

static psd_status
take_view(struct master *master, const void *body, size_t bytes, struct psd_error *err)
{
    struct psi_view view = {0};
    const psd_status status = master_report_take_view(master, body, bytes, &view, err);

    if (status != PSD_OK) {
        return status;
    }
    if (view.id > master->recall.view.id) {
        psi_view_fini(&master->recall.view);
        master->recall.view = view;
        master_wake_at(master, 0); /* there may be more to be asked */
    } else {
        psi_view_fini(&view);
    }
    return PSD_OK;
}

/* That is all: unless it is not the worker that it says it is. */
static psd_status
take_end(struct session *session, struct psd_error *err)
{
    struct master *master = session->master;
    const struct psi_hello *hello = &session->hello;

    if (hello->rank >= master->config.workers ||
        !psi_view_has(&master->recall.view, hello->rank, hello->incarnation)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "RECALL: worker %u is in no view", hello->rank);
    }
    psi_ranks_add(&master->recall.told, hello->rank);
    master_wake_at(master, 0);
    return PSD_OK;
}

psd_status
master_on_recalled(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const uint8_t type = session->guest.inbox.frame.type;

    if (!session->is_asked || (type != PSI_FRAME_VIEW_COMMIT && type != PSI_FRAME_TABLE_INFO &&
                               type != PSI_FRAME_RECALL)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s before WELCOME", psi_frame_type_name(type));
    }
    if (master->phase != PHASE_REBUILDING) {
        return PSD_OK; /* it is known by now */
    }
    if (type == PSI_FRAME_VIEW_COMMIT) {
        return take_view(master, body, bytes, err);
    }
    return type == PSI_FRAME_TABLE_INFO ? master_recall_table(master, body, bytes, err)
                                        : take_end(session, err);
}

/* ----------------------------------------------------------------------------- deciding --- */

bool
master_recall_has_all(const struct master *master)
{
    const struct psi_view *view = &master->recall.view;

    for (uint32_t rank = 0; rank < view->workers; rank++) {
        if (view->worker[rank].member && !psi_ranks_has(&master->recall.told, rank) &&
            !psi_ranks_has(&master->done, rank)) {
            return false;
        }
    }
    return view->id > 0 && (master->is_reminded || !master->config.heeds);
}

void
master_recall_lose_the_rest(struct master *master)
{
    for (uint32_t rank = 0; rank < master->config.workers && master->phase == PHASE_RUNNING;
         rank++) {
        struct member *member = &master->worker[rank].member;

        if (member->state == PSD_NODE_RUNNING && !psi_ranks_has(&master->recall.told, rank)) {
            master_member_lost(master, member, PSI_LOSS_SILENT,
                               "not back since the master returned");
        }
    }
}

void
master_recall_free(struct master *master)
{
    psi_view_fini(&master->recall.view);
    master->recall = (struct recall){0};
}
