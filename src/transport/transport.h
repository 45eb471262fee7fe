/*
 * transport.h - moving opaque frames, and the seam behind which the world lies.
 *
 * A core (client, lane, master) is pure: messages and the time come in, messages go out. Everything
 * it may ask of the world stands here: the time, randomness, connections. loop.c gives it the real
 * world (epoll; schemes tcp and inproc), tests/sim a virtual one. The cores are the same object
 * code in both.
 *
 * A frame is a fixed prefix, then meta bytes, then a payload. A transport knows nothing else of it:
 * the owner of a connection reads the sizes out of the prefix (on_prefix).
 *
 * Payloads are never copied for tidiness. Going out, they are borrowed until `release`. Coming in,
 * the owner says where they belong before the first byte of them is taken (on_head).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_TRANSPORT_H
#define PSI_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <psd/status.h>

#include "base/master_file.h"
#include "base/timed_copy.h"

struct psi_conn;
struct psi_env;
struct psi_listener;
struct psi_segment;

enum {
    PSI_PREFIX_BYTES = 64,                  /* every frame begins with that many */
    PSI_META_BYTES_MAX = 4096,              /* then at most these */
    PSI_BUFFERS_MAX = 4,                    /* pieces of one payload */
    PSI_ADDRESS_BYTES = 72,                 /* "tcp://[v6]:port" with its NUL */
    PSI_ENDS_BYTES = 2 * PSI_ADDRESS_BYTES, /* two of them, one blank between */
    PSI_CONN_QUEUE_BYTES_MAX = 64 << 20, /* unsent bytes of one connection; beyond: PSD_ERR_BUSY */
};

/* One piece of an outgoing payload. */
struct psi_buffer {
    const void *base;
    size_t bytes;
};

/* A frame to send. The struct itself may go away when send() returns. */
struct psi_outgoing {
    const void *head; /* prefix and meta: copied */
    size_t head_bytes;
    struct psi_buffer buffers[PSI_BUFFERS_MAX]; /* payload: borrowed until release */
    unsigned buffer_count;

    /* Nobody changes the payload before the peer has done with it, because the protocol forbids it:
     * a peer on this host may read it where it is, if it lies in memory that was lent (env.lend).
     * `release` does not wait for that. */
    bool stable;

    /* The peer need not hear of it before others of its kind have come, if it says so. */
    bool patient;

    /* (optional) Called exactly once per accepted frame: when its bytes are in the kernel, were
     * copied (unshare) or will never be sent (connection closed). May be called inside send(). Must
     * not send or close. */
    void (*release)(void *owner, uint64_t cookie);
    void *release_owner;
    uint64_t release_cookie;
};

/* What on_prefix reads out of the fixed prefix. */
struct psi_frame_size {
    size_t meta_bytes;    /* <= PSI_META_BYTES_MAX */
    size_t payload_bytes; /* any; the owner has checked it against its own limit */
};

/*
 * A payload that a peer on this host has lent. It stays where it is, also when the connection or
 * the peer is gone, until it is given back: once, on the connection's loop thread.
 *
 * A copy that the peer made for us (sink.stays is false) is to be given back soon: it has room for
 * few. Who keeps more of them than these, waiting for what the same peer will send, waits for ever.
 */
enum { PSI_COPIES_KEPT_MAX = 128, PSI_COPIES_KEPT_BYTES_MAX = 4 << 20 };

struct psi_loan {
    void (*give_back)(struct psi_loan *loan);
};

/*
 * Where an incoming payload goes: `into` has room for all of it and stays valid until on_frame or
 * on_close. NULL discards it (on_frame is still called, with payload NULL).
 *
 * A lent payload is here already. The owner may keep it: it sets `keep`, on_frame gets `lent`, and
 * from then on the owner has the loan. If it also says `into`, the payload is copied there all the
 * same.
 */
struct psi_sink {
    void *into;
    const void *lent; /* NULL: it has to come first */
    struct psi_loan *loan;
    bool stays; /* lent as stable: it is the sender's own memory, not a copy for this frame */
    bool keep;

    /* The owner allows that on_head of further frames of this connection comes before on_frame of
     * this one, as long as those allow it too: their payloads are brought home together. on_prefix is
     * called once more before on_frame then. Nothing else happens in between, but the end of the
     * connection. */
    bool apart;
};

/*
 * What the owner of a connection hears. Every event runs on the connection's loop thread, never
 * inside a call the owner makes. An event that returns an error closes the connection: on_close
 * follows with that status. The owner may send on and close any connection from any event.
 */
struct psi_conn_events {
    /* (optional) A connect ended well; authentication, if any, is over. */
    void (*on_open)(void *owner, struct psi_conn *conn);

    /* The first PSI_PREFIX_BYTES of a frame. */
    psd_status (*on_prefix)(void *owner, struct psi_conn *conn, const uint8_t *prefix,
                            struct psi_frame_size *size_p, struct psd_error *err);

    /* Prefix and meta are here (head, contiguous). Only called for frames with a payload. */
    psd_status (*on_head)(void *owner, struct psi_conn *conn, const uint8_t *head,
                          size_t head_bytes, struct psi_sink *sink_p, struct psd_error *err);

    /* The whole frame is here. head is valid until the event returns. */
    psd_status (*on_frame)(void *owner, struct psi_conn *conn, const uint8_t *head,
                           size_t head_bytes, void *payload, size_t payload_bytes,
                           struct psd_error *err);

    /* The connection ended, by the peer, the network, an error of an event, or a failed connect.
     * The last event: conn is gone when it returns. Not called after psi_conn_close(). */
    void (*on_close)(void *owner, struct psi_conn *conn, const struct psd_error *reason);
};

struct psi_listener_events {
    /* A new connection, authenticated if there is authentication: set *events_p and *owner_p, or
     * return an error to refuse it. */
    psd_status (*on_accept)(void *owner, struct psi_conn *conn,
                            const struct psi_conn_events **events_p, void **owner_p);

    /* (optional) Somebody came and went without getting as far as that: refused, too slow, or gone
     * by itself. For the log: strangers choose how often this happens. Must not unlisten. */
    void (*on_refused)(void *owner, const char *peer, const struct psd_error *reason);
};

/*
 * A transport's verbs for one connection. Every hook runs on the connection's loop thread (the
 * client's: under its lock), never blocks, and never calls an event before it returns.
 */
struct psi_conn_ops {
    /* Queues a frame and sends what the kernel takes at once. PSD_OK: the transport keeps the
     * borrowed payload until release. PSD_ERR_BUSY: the queue is full, nothing was taken. Any other
     * error: the connection is broken, on_close follows, nothing was taken. */
    psd_status (*send)(struct psi_conn *conn, const struct psi_outgoing *frame);

    /* Copies whatever unsent frames of this connection still borrow from [base, base + bytes), and
     * releases those frames' payloads: the owner is about to change that memory. Nothing borrows it
     * afterwards in any case: without memory for the copies all frames are released and the
     * connection is broken (the error is returned, on_close follows). */
    psd_status (*unshare)(struct psi_conn *conn, const void *base, size_t bytes);

    /* Ends the connection at once; unsent frames are released. No event follows. */
    void (*close)(struct psi_conn *conn);

    /* Ends it after what is queued has been sent and the peer has closed too, at the latest after
     * linger_ms; at once if it is not open yet. No event follows. */
    void (*close_after_send)(struct psi_conn *conn, uint32_t linger_ms);

    size_t (*queued_bytes)(const struct psi_conn *conn);

    /* (optional) So many frames more have to come before they are worth hearing, except those that
     * their sender does not call patient. A hint that spares wake-ups. */
    void (*wake_after)(struct psi_conn *conn, uint32_t frames);
};

/*
 * The common part of every transport's connection object; the transport embeds it first.
 *
 * Thread: owned by the loop that made it.
 */
struct psi_conn {
    const struct psi_conn_ops *ops;
    const struct psi_conn_events *events;
    void *owner;
    bool lends; /* the peer is on this host: large payloads come and go as loans */
    char peer[PSI_ADDRESS_BYTES]; /* for messages: "tcp://127.0.0.1:4711" */
    char identity[40]; /* accepted: whom the peer has proved to be; "": nobody asked for proof */
};

/*
 * (optional) Proves who is at the other end before the first frame: bytes go back and forth until
 * both sides are satisfied. on_open and on_accept wait for it. Absent: loopback peers are believed.
 */
enum { PSI_AUTH_BYTES_MAX = 16384, PSI_AUTH_TIMEOUT_MS = 5000, PSI_IDENTITY_BYTES = 40 };

struct psi_auth_args {
    bool connecting;
    bool loopback;        /* both ends are on this machine's loopback */
    const char *identity; /* connecting: "who we are" and "whom we want", one blank between */

    /* The addresses of both ends, the connecting one first, so that both sides name the same text
     * unless somebody between them passes the bytes on. "": nobody can. */
    const char *ends;
};

struct psi_auth_ops {
    /* The accepting side says nothing before it has heard so many bytes: a session is made only
     * then, and those who never speak cost next to nothing. 0: it begins. */
    size_t listens_first;

    /* (optional) Do the first bytes of a peer show that it has the secret? Cheap: asked before a
     * session is made, when so many have come to nothing that others are turned away.
     * Absent: no. */
    bool (*recognises)(void *credentials, const uint8_t *first, size_t bytes);

    /* NULL: no memory. */
    void *(*create)(void *credentials, const struct psi_auth_args *args);

    /* (optional) Accepting: has the peer shown that it has the secret, though perhaps not yet who
     * it is? Absent: no. */
    bool (*recognised)(const void *session);

    /* (optional) How many bytes of the peer step() may use now; no more are taken from the wire. */
    size_t (*wants)(const void *session);

    /* Called with what the peer sent (0 bytes at first) and writes what to send back. PSD_OK:
     * satisfied, the bytes it did not consume begin the first frame. PSD_PENDING: send what it
     * wrote and call again when more came. An error: refused. At most PSI_AUTH_BYTES_MAX each way,
     * within PSI_AUTH_TIMEOUT_MS. */
    psd_status (*step)(void *session, const uint8_t *in, size_t in_bytes, size_t *consumed_p,
                       uint8_t *out, size_t out_capacity, size_t *out_bytes_p,
                       struct psd_error *err);

    /* (optional) Whom the accepting side has proved the peer to be: "worker:3". */
    const char *(*peer)(const void *session);

    /* (optional) Do the bytes behind the exchange go through the session too? Absent, false: plain
     * bytes follow. Then receive and send move them, as recvmsg() and sendmsg() would. */
    bool (*seals)(const void *session);
    ssize_t (*receive)(void *session, int fd, struct iovec *iov, int count);
    ssize_t (*send)(void *session, int fd, struct iovec *iov, int count);

    void (*destroy)(void *session);
};

/* Thread: owned by whose world it is. */
struct psi_env_counts {
    uint64_t sealed_ns;  /* spent with sealing, opening and moving sealed bytes */
    uint64_t copied_ns;  /* spent with copying large payloads: base/timed_copy.h */
    uint64_t frames_out; /* that were sent, or wait to be */
};

/* The world, as a core sees it. */
struct psi_env_ops {
    uint64_t (*now_ns)(struct psi_env *env); /* monotonic */
    uint64_t (*random)(struct psi_env *env);

    /* Starts connecting to "scheme://..."; on_open or on_close follows. An error (malformed
     * address, no descriptor left): no event follows.
     * identity: what to prove, see psi_auth_args. */
    psd_status (*connect)(struct psi_env *env, const char *address, const char *identity,
                          const struct psi_conn_events *events, void *owner,
                          struct psi_conn **conn_p, struct psd_error *err);

    /* Listens; "tcp://127.0.0.1:0" chooses a port. bound_p gets the real address. */
    psd_status (*listen)(struct psi_env *env, const char *address,
                         const struct psi_listener_events *events, void *owner,
                         struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
                         struct psd_error *err);
    void (*unlisten)(struct psi_env *env, struct psi_listener *listener);

    /* (optional) Stable payloads in this segment are lent to peers on this host instead of being
     * copied, until it is taken back. The segment is the caller's, and outlives that. */
    void (*lend)(struct psi_env *env, const struct psi_segment *segment);
    void (*take_back)(struct psi_env *env, const struct psi_segment *segment);

    /* (optional) What was said, outside of all connections, of where the job's master is. Quick; for who
     * looks for it. An error says why that is not believed. */
    psd_status (*find_master)(struct psi_env *env, struct psi_master_told *told_p,
                              struct psd_error *err);

    /* (optional) What it has counted so far. */
    const struct psi_env_counts *(*counts)(const struct psi_env *env);
};

struct psi_env {
    const struct psi_env_ops *ops;
};

static inline uint64_t
psi_now_ns(struct psi_env *env)
{
    return env->ops->now_ns(env);
}

/* Nothing, where nobody says anything. */
static inline psd_status
psi_env_find_master(struct psi_env *env, struct psi_master_told *told_p, struct psd_error *err)
{
    *told_p = (struct psi_master_told){0};
    return env->ops->find_master != NULL ? env->ops->find_master(env, told_p, err) : PSD_OK;
}

/* memcpy() that counts how long it took, on the environment's clock; small ones are not worth a look at it. */
static inline void
psi_env_copy(struct psi_env *env, void *to, const void *from, size_t bytes, uint64_t *spent_ns)
{
    uint64_t begun_ns;

    if (!PSI_COUNTS || bytes < PSI_TIMED_COPY_BYTES) {
        memcpy(to, from, bytes);
        return;
    }
    begun_ns = psi_now_ns(env);
    memcpy(to, from, bytes);
    *spent_ns += psi_now_ns(env) - begun_ns;
}

/* What waits to be sent; of no connection: nothing. */
static inline uint64_t
psi_conn_queued_bytes(const struct psi_conn *conn)
{
    return conn != NULL ? conn->ops->queued_bytes(conn) : 0;
}

static inline struct psi_env_counts
psi_env_counts(const struct psi_env *env)
{
    return env->ops->counts != NULL ? *env->ops->counts(env) : (struct psi_env_counts){0};
}

#endif
