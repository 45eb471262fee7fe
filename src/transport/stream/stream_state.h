/*
 * stream_state.h - the inside of a stream, for the files of this folder.
 */
#ifndef PSI_TRANSPORT_STREAM_STREAM_STATE_H
#define PSI_TRANSPORT_STREAM_STREAM_STATE_H

#include "transport/stream/carrier_shm.h"
#include "transport/stream/handshake.h"
#include "transport/stream/shm_offer.h"
#include "transport/stream/stream.h"
#include "transport/stream/stream_in.h"
#include "transport/stream/stream_out.h"

enum psi_stream_state { CONNECTING, LOOKING_UP, AUTHENTICATING, OPEN, LINGERING, CLOSED };

/*
 * Thread: owned by the loop.
 */
struct psi_stream {
    struct psi_conn conn; /* first */
    struct psi_source source;
    struct psi_timer timer;
    struct psi_loop *loop;
    const struct psi_scheme *scheme;
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
    struct psi_shm *shm;                 /* it is: frames go through this; NULL: through bytes */
    uint8_t word[PSI_PREFIX_BYTES];      /* of the offer: sent before any frame, ... */
    size_t word_unsent;                  /* ... as far as it is not sent yet */
    struct psi_stream_in in;
    struct psi_stream_out out;
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

/* ---- stream.c ---- */

/* An object without a descriptor, and then one, in the loop. */
struct psi_stream *psi_stream_create(struct psi_loop *loop, const struct psi_scheme *scheme,
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

/* From now on frames go through shm; old_fd, and what sealed its bytes, are closed. Takes both. */
void psi_stream_switch(struct psi_stream *stream, struct psi_shm *shm, int old_fd);

/* There is something in its ring, or room. */
void psi_stream_ring_ready(void *object);

/* ---- stream_send.c ---- */

/* As recvmsg(), through whatever seals the bytes. */
ssize_t psi_stream_receive_some(const struct psi_stream *stream, struct iovec *iov, int count);

/* Sends what the kernel takes, and waits for it to take the rest. */
void psi_stream_flush(struct psi_stream *stream);
bool psi_stream_has_unsent(const struct psi_stream *stream);

/* Sends a word of the offer. */
void psi_stream_say(struct psi_stream *stream, const void *word);

/* As in struct psi_conn_ops. */
psd_status psi_stream_send(struct psi_conn *conn, const struct psi_outgoing *frame);
psd_status psi_stream_unshare(struct psi_conn *conn, const void *base, size_t bytes);
size_t psi_stream_queued_bytes(const struct psi_conn *conn);

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
