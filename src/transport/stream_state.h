/*
 * stream_state.h - the inside of a stream, for the files of this folder.
 */
#ifndef PSI_TRANSPORT_STREAM_STATE_H
#define PSI_TRANSPORT_STREAM_STATE_H

#include "transport/handshake.h"
#include "transport/shm.h"
#include "transport/stream.h"
#include "transport/stream_in.h"
#include "transport/stream_out.h"
#include "transport/upgrade.h"

enum psi_stream_state { CONNECTING, AUTHENTICATING, OPEN, LINGERING, CLOSED };

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
    bool known;    /* accepted, and no stranger any more */
    TAILQ_ENTRY(psi_stream) strangers_link;
    struct psi_door_place *place;        /* accepted: of its address; NULL: not counted */
    struct psd_error reason;             /* status not PSD_OK: broken, on_close is due */
    struct psi_handshake *handshake;     /* NULL: over, and all of it sent; or not begun yet */
    void *sealed;                        /* bytes go through this session; NULL: plain */
    bool again;                          /* the timer goes on receiving: the session has more */
    char wanted[2 * PSI_IDENTITY_BYTES]; /* connecting: what to prove */
    struct psi_upgrade *upgrade;         /* whether the peer is on this host is being found out */
    struct psi_shm *shm;                 /* it is: frames go through this; NULL: through bytes */
    uint8_t word[PSI_PREFIX_BYTES];      /* of the upgrade: sent before any frame, ... */
    size_t word_unsent;                  /* ... as far as it is not sent yet */
    struct psi_stream_in in;
    struct psi_stream_out out;
    uint8_t buffer[]; /* PSI_STREAM_IN_BYTES, for in */
};

/* Ends it with on_close, if it has an owner who waits for events. */
void psi_stream_end(struct psi_stream *stream, const struct psd_error *reason);

/* From now on frames go through shm; old_fd, and what sealed its bytes, are closed. Takes both. */
void psi_stream_switch(struct psi_stream *stream, struct psi_shm *shm, int old_fd);

/* Sends what was held back, as far as that is possible now. */
void psi_stream_flush(struct psi_stream *stream);

/* Sends a word of the upgrade. */
void psi_stream_say(struct psi_stream *stream, const void *word);

/* Connecting: it is open, through whatever. */
void psi_stream_tell_open(struct psi_stream *stream);

/* There is something in its ring, or room. */
void psi_stream_ring_ready(void *object);

#endif
