/*
 * stream_state.h - the inside of a stream, for the files of this folder.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_STREAM_STATE_H
#define PSI_TRANSPORT_STREAM_STREAM_STATE_H

#include <errno.h>

#include "base/crew.h"
#include "base/fail.h"
#include "transport/loop/loop_state.h"
#include "transport/stream/carrier_shm.h"
#include "transport/stream/handshake.h"
#include "transport/stream/sockets.h"
#include "transport/stream/stream_in.h"
#include "transport/stream/stream_out.h"

enum psi_stream_state { CONNECTING, LOOKING_UP, AUTHENTICATING, OPEN, LINGERING, CLOSED };

/*
 * How the frames of a stream travel: as bytes, plain or sealed, or through shared memory. A stream
 * begins with bytes and changes over at most once (psi_stream_switch).
 */
struct psi_carrier {
    struct psi_conn_ops ops;                      /* the connection's */
    void (*ready)(void *object, uint32_t events); /* the source's */

    /* Hears a bounded amount. Returns whether there is more. */
    bool (*receive)(struct psi_stream *stream);

    /* Sends what waits, as far as there is room, and watches for more room. */
    void (*flush)(struct psi_stream *stream);

    /* Its owner has closed it. Returns whether it has to stay until all is sent. */
    bool (*linger)(struct psi_stream *stream);

    void (*close)(struct psi_stream *stream);
};

enum psi_move_state { PSI_MOVE_NONE, PSI_MOVE_BEGUN, PSI_MOVE_DONE };

/* Of one call. The same for everybody: a session that could not send all must be given as much again. */
enum { PSI_MOVE_IOVECS = 64 };

/* One call that moves bytes, made by whoever has time. Thread: while it is under way, its maker's. */
struct psi_stream_move {
    struct psi_stream *stream;
    struct psi_crew_task task;
    enum psi_move_state state; /* the loop's */
    struct iovec iov[PSI_MOVE_IOVECS];
    int count;
    ssize_t moved; /* as recvmsg() and sendmsg() say it, ... */
    int code;      /* ... with errno */
    uint64_t ns;   /* that it took */
};

struct psi_stream_moves {
    struct psi_stream_move in;
    struct psi_stream_move out;
};

extern const struct psi_carrier psi_carrier_bytes;
extern const struct psi_carrier psi_carrier_shm;

/*
 * Thread: owned by the loop.
 */
struct psi_stream {
    struct psi_conn conn; /* first */
    struct psi_source source;
    struct psi_timer timer;
    struct psi_loop *loop;
    const struct psi_sockets *sockets;
    struct psi_listener *listener; /* accepted, and on_accept is still to be called; or NULL */
    enum psi_stream_state state;
    bool stranger; /* in loop->strangers */
    TAILQ_ENTRY(psi_stream) strangers_link;
    struct psi_admission_origin *origin; /* accepted: of its address; NULL: not counted */
    struct psd_error reason;             /* status not PSD_OK: broken, on_close is due */
    struct psi_handshake *handshake;     /* NULL: over, and all of it sent; or not begun yet */
    void *sealed;                        /* bytes go through this session; NULL: plain */
    bool again;                          /* the timer goes on receiving: the session has more */
    char wanted[2 * PSI_IDENTITY_BYTES]; /* connecting: what to prove */
    struct psi_lookup *lookup;           /* LOOKING_UP: the question */
    struct psi_shm_offer *shm_offer;     /* whether the peer is on this host is being found out */
    const struct psi_carrier *carrier;   /* how frames travel */
    struct psi_shm *shm;                 /* psi_carrier_shm: through this; else NULL */
    uint8_t word[PSI_PREFIX_BYTES];      /* of the offer: sent before any frame, ... */
    size_t word_unsent;                  /* ... as far as it is not sent yet */
    struct psi_stream_in in;
    struct psi_stream_out out;
    struct psi_stream_moves *moves; /* owned; NULL: a crew has never helped */
    bool queued;                    /* in loop->queued */
    TAILQ_ENTRY(psi_stream) queued_link;
    uint64_t cork_turn; /* of the loop, in which a frame left last at once */
    bool corked;        /* in loop->corked_streams */
    TAILQ_ENTRY(psi_stream) corked_link;
    uint8_t buffer[]; /* PSI_STREAM_IN_BYTES, for in */
};

enum { PSI_STREAM_WORK_BYTES = 512 * 1024 }; /* per dispatch: the others get their turn */

static inline struct psi_stream *
psi_stream_of(struct psi_conn *conn)
{
    return (struct psi_stream *)conn;
}

static inline bool
psi_stream_is_broken(const struct psi_stream *stream)
{
    return stream->reason.status != PSD_OK;
}

/* Whether a frame of so many bytes may be sent now, or queued. */
static inline psd_status
psi_stream_may_send(const struct psi_stream *stream, const struct psi_outgoing *frame, size_t bytes)
{
    psi_assert(frame->head_bytes >= PSI_PREFIX_BYTES);
    psi_assert(frame->head_bytes <= PSI_PREFIX_BYTES + PSI_META_BYTES_MAX);
    psi_assert(frame->buffer_count <= PSI_BUFFERS_MAX);
    if (stream->state == LINGERING || stream->state == CLOSED) {
        return PSD_ERR_CLOSED;
    }
    if (psi_stream_is_broken(stream)) {
        return stream->reason.status;
    }
    return bytes > PSI_CONN_QUEUE_BYTES_MAX - stream->out.bytes ? PSD_ERR_BUSY : PSD_OK;
}

/* All of it was sent at once: nothing of it is borrowed now. */
static inline void
psi_stream_release(const struct psi_outgoing *frame)
{
    if (frame->release != NULL) {
        frame->release(frame->release_owner, frame->release_cookie);
    }
}

static inline void
psi_stream_flush(struct psi_stream *stream)
{
    stream->carrier->flush(stream);
}

/* ---- stream.c ---- */

/* An object without a descriptor, and then one, in the loop. */
struct psi_stream *psi_stream_create(struct psi_loop *loop, const struct psi_sockets *sockets,
                                     const char *peer);
psd_status psi_stream_enter(struct psi_stream *stream, int fd, uint32_t events, uint32_t within_ms,
                            struct psd_error *err);

/* Receives and hears a bounded amount. Returns whether more may wait. */
bool psi_stream_receive(struct psi_stream *stream);

/* Ends it without an event. Outside of dispatch it is gone when this returns. */
void psi_stream_detach(struct psi_stream *stream);

/* Ends it with on_close, if it has an owner who waits for events. */
void psi_stream_end(struct psi_stream *stream, const struct psd_error *reason);

/* It failed inside a call of its owner (reason says how): the next dispatch, which is due now,
 * tells. */
void psi_stream_end_later(struct psi_stream *stream);

/* The peer is gone: tells in which way. */
void psi_stream_lost(struct psi_stream *stream, bool by_error);

/* That the kernel has given a peer up proves no death: nothing came back from its machine. */
static inline psd_status
psi_stream_lost_status(int code)
{
    return code == ETIMEDOUT ? PSD_ERR_TIMEOUT : PSD_ERR_PEER_LOST;
}

/* A stranger that has sent a whole frame is a stranger no longer. */
void psi_stream_heard_a_frame(struct psi_stream *stream);

/* Ends what sealed its bytes, if anything did. */
void psi_stream_unseal(struct psi_stream *stream);

/* As in struct psi_conn_ops. */
void psi_stream_close(struct psi_conn *conn);
void psi_stream_close_after_send(struct psi_conn *conn, uint32_t linger_ms);

/* ---- stream_shm.c ---- */

/* From now on frames go through shm; old_fd, and what sealed its bytes, are closed. Takes both. */
void psi_stream_switch(struct psi_stream *stream, struct psi_shm *shm, int old_fd);

/* There is something in its ring, or room. */
void psi_stream_ring_ready(void *object);

/* As psi_shm_args.heard. */
void psi_stream_heard_later(void *object, psd_status status, struct psd_error *err);

/* ---- stream_send.c ---- */

/* As recvmsg(), through whatever seals the bytes. raw: nothing is counted; whichever thread. */
ssize_t psi_stream_receive_some(const struct psi_stream *stream, struct iovec *iov, int count);
ssize_t psi_stream_receive_raw(const struct psi_stream *stream, struct iovec *iov, int count);
ssize_t psi_stream_send_raw(const struct psi_stream *stream, struct iovec *iov, int count);

/* Sends what the kernel takes, and waits for it to take the rest. */
void psi_stream_flush_bytes(struct psi_stream *stream);
bool psi_stream_has_unsent(const struct psi_stream *stream);

/* Sends a word of the offer. */
void psi_stream_say(struct psi_stream *stream, const void *word);

/* Queues a frame of which so many bytes were sent. */
psd_status psi_stream_queue(struct psi_stream *stream, const struct psi_outgoing *frame,
                            size_t sent);

/* As in struct psi_conn_ops. */
psd_status psi_stream_send(struct psi_conn *conn, const struct psi_outgoing *frame);
psd_status psi_stream_unshare(struct psi_conn *conn, const void *base, size_t bytes);
size_t psi_stream_queued_bytes(const struct psi_conn *conn);

/* ---- stream_moves.c: what a crew moves; those that take and finish are for streams with moves ---- */

/* It is ready, or its timer is due: its bytes may be moved before its turn comes. */
void psi_stream_prepare(void *object, uint32_t events);
void psi_stream_prepare_again(void *object);

/* Takes what a move has brought, or sent, if there was one: as the call that it made, with errno. */
bool psi_stream_received(struct psi_stream *stream, ssize_t *got_p, size_t *room_p);
bool psi_stream_sent(struct psi_stream *stream, ssize_t *sent_p);

/* Should a frame of so many bytes be queued until bells are rung, and moved then? */
bool psi_stream_queues(struct psi_stream *stream, size_t bytes);

/* No move uses the session of a sealed stream any more. */
void psi_stream_finish_sealed(struct psi_stream *stream);

/* No move reads frames that wait to be sent. */
void psi_stream_finish_sending(struct psi_stream *stream);

/* No move is under way, and none will be heard of. */
void psi_stream_end_moves(struct psi_stream *stream);

/* ---- stream_cork.c: small frames that leave together ---- */

/* The loop is corked: should a frame of so many bytes wait until it is not? */
bool psi_stream_corks(struct psi_stream *stream, size_t bytes);
bool psi_stream_is_full(const struct psi_stream *stream);

/* What waits is sent now; or nobody is to send it. */
void psi_stream_pour(struct psi_stream *stream);
void psi_stream_leave_corked(struct psi_stream *stream);

/* ---- stream_open.c ---- */

/* The host's number is known, or that it has none. */
void psi_stream_finish_lookup(struct psi_stream *stream);

/* The descriptor can tell how connecting ended. */
void psi_stream_finish_connecting(struct psi_stream *stream);

/* The bytes can flow: authenticates, or does without. */
void psi_stream_begin(struct psi_stream *stream);
void psi_stream_begin_handshake(struct psi_stream *stream);

/* One step of authentication; the last one opens the stream. */
psd_status psi_stream_authenticate(struct psi_stream *stream, struct psd_error *err);

/* Ends the stream if something that was heard says so. */
void psi_stream_conclude(struct psi_stream *stream, psd_status status, struct psd_error *err);

/* Connecting: it is open, through whatever. */
void psi_stream_tell_open(struct psi_stream *stream);

/* A stranger that says little costs little: it is heard again when it has said so much. */
void psi_stream_wake_at(struct psi_stream *stream, size_t bytes);

/* ---- strangers.c ---- */

void psi_stream_leave_strangers(struct psi_stream *stream);

#endif
