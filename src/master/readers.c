/*
 * readers.c - readers: who looks at the values of the job, and is no part of it.
 *
 * A reader is told where the lanes are, and which tables there are, as often as that changes. Nothing waits
 * for it, nothing that it says of the job is believed, and its end is nobody's loss. One that does not
 * take what it is told is cut off, and may come again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "master/state.h"

static bool
is_reader(const struct session *session)
{
    return session->kind == SESSION_READER && session->guest.conn != NULL;
}

uint32_t
master_readers(const struct master *master)
{
    uint32_t readers = 0;

    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        readers += is_reader(session);
    }
    return readers;
}

/* Another connection of the same life is one that was cut without our noticing. */
static void
end_earlier(const struct master *master, uint64_t life)
{
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (is_reader(session) && session->hello.life == life) {
            master_session_close(session);
        }
    }
}

static bool
has_room(struct session *session)
{
    if (psi_conn_queued_bytes(session->guest.conn) <= MASTER_UNREAD_MAX) {
        return true;
    }
    psi_guest_doom(&session->guest);
    master_wake_at(session->master, 0);
    return false;
}

psd_status
master_admit_reader(struct session *session, struct psd_error *err)
{
    const struct master *master = session->master;
    const struct psi_welcome welcome = master_welcome(master);
    const struct psi_frame frame = master_answer(session, PSI_FRAME_WELCOME);

    if (master->phase == PHASE_REBUILDING || master->job == 0) {
        return psi_fail(err, PSD_ERR_BUSY,
                        "HELLO of a reader before it is known who is in the job");
    }
    if (master->phase >= PHASE_ENDING) {
        master_refuse(session, PSD_ERR_REFUSED, "the job is over: %s", master->end_text);
        return PSD_OK;
    }
    end_earlier(master, session->hello.life);
    if (master_readers(master) >= MASTER_READERS_MAX) {
        master_refuse(session, PSD_ERR_BUSY, "the job has %d readers, and no room for more",
                      MASTER_READERS_MAX);
        return PSD_OK;
    }
    session->kind = SESSION_READER;
    master_posted(session, psi_post_welcome(session->guest.conn, &frame, &welcome));
    if (session->guest.conn != NULL && master->view.id > 0) {
        master_view_tell(session);
    }
    master_wake_at(session->master, 0);
    return PSD_OK;
}

void
master_readers_tell_view(const struct master *master)
{
    for (struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (is_reader(session) && has_room(session)) {
            master_view_tell(session);
        }
    }
}

void
master_reader_tell_tables(struct session *session)
{
    const struct master *master = session->master;
    uint32_t *told = &session->subscription.tables_told;

    while (is_reader(session) && *told < master->tables &&
           master->table[*told]->state != TABLE_OPENING && has_room(session)) {
        if (master->table[*told]->state == TABLE_READY) {
            master_table_describe(session, master->table[*told], 0);
        }
        (*told)++;
    }
}
