/*
 * conformance_bed.h - two loops, a listener, and ends that remember what they heard.
 *
 * A bed runs both loops on the calling thread (bed_pump), or the server's on its own
 * (bed_start_thread). Ends check every payload they get; they never assert, so that they may run on
 * any thread: tests look at `bad`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_CONFORMANCE_BED_H
#define PSI_TRANSPORT_CONFORMANCE_BED_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/monotonic.h"
#include "secure/tls.h"
#include "transport/loop/loop.h"

enum { BED_ENDS_MAX = 1200, BED_CANARY_BYTES = 64, BED_KEPT_MAX = 1024 };

/* One row: what a transport must tell the suite about itself. */
struct bed_transport {
    const char *name;
    const char *listen_at;
    bool accept_takes_descriptor; /* so that it can fail when none is left */
    bool tls;                     /* both ends prove the job's secret, unless a test says how */
    bool sealed;                  /* ... and what follows goes through TLS */
    bool lends;                   /* both ends share memory */
    bool helped;                  /* both have crews */
};

enum bed_moment { NEVER, AT_ACCEPT, AT_OPEN, AT_PREFIX, AT_HEAD, AT_FRAME, AT_CLOSE };

/*
 * One end of a connection.
 *
 * Thread: owned by its loop.
 */
struct end {
    struct psi_conn *conn; /* NULL: none, or closed */
    struct bed *bed;

    enum bed_moment close_at;                      /* close itself in that event */
    enum bed_moment fail_at;                       /* return PSD_ERR_VERSION from that event */
    struct end *victim;                            /* close that one too, in on_frame */
    bool discard;                                  /* no sink */
    bool echo;                                     /* send every frame back */
    bool goodbye;                                  /* close_after_send in on_frame */
    bool keep;                                     /* payloads on loan */
    void (*heard)(struct end *end, void *context); /* after every frame; NULL: nothing */
    void *heard_context;

    unsigned opens;
    unsigned prefixes;
    unsigned heads;
    unsigned frames;
    unsigned closes;
    unsigned releases; /* of frames sent with bed_send() */
    unsigned bad;      /* wrong order, wrong bytes, damaged canaries, echo refused */
    uint64_t payload_bytes;
    struct psd_error reason;
    uint8_t *landing;  /* owned: the payload in progress, canaries around it */
    unsigned lent;     /* payloads that came on loan ... */
    unsigned stayed;   /* ... of the sender's own memory */
    struct kept *kept; /* owned: BED_KEPT_MAX of them; NULL: none kept yet */
    unsigned kept_count;
};

/* A payload on loan. */
struct kept {
    struct psi_loan *loan;
    const uint8_t *payload;
    uint64_t number;
    size_t bytes;
};

/*
 * Thread: the server's half is owned by the thread that runs its loop.
 */
struct bed {
    const struct bed_transport *transport;
    struct psi_secret *secret; /* NULL, as are the next two: no tls */
    struct psi_tls *client_tls;
    struct psi_tls *server_tls;
    struct psi_loop *client;
    struct psi_loop *server;
    struct psi_crew *crews[2]; /* theirs; NULL: none */
    struct psi_listener *listener;
    char address[PSI_ADDRESS_BYTES];

    bool refuse;             /* on_accept says no */
    bool unlisten_in_accept; /* on_accept takes the listener away */
    struct end model;        /* accepted ends begin like this */
    struct end accepted[BED_ENDS_MAX];
    unsigned accepted_count;

    pthread_t thread;
    bool threaded;
    atomic_bool stop;
};

/* Are the payloads that end keeps still what they were? */
bool bed_kept_are_right(const struct end *end);

/* Gives them all back. */
void bed_give_back(struct end *end);

struct bed *bed_create(const struct bed_transport *transport,
                       const struct psi_loop_config *client_config,
                       const struct psi_loop_config *server_config);
void bed_destroy(struct bed *bed);

/* The server's loop runs on its own thread until bed_destroy() or bed_stop_thread(). */
void bed_start_thread(struct bed *bed);
void bed_stop_thread(struct bed *bed);

/* Runs what is due on the loops which belong to this thread. */
void bed_pump(struct bed *bed);
void bed_pump_loop(struct psi_loop *loop);

/* Starts to connect end to the bed's listener. */
void bed_connect(struct bed *bed, struct end *end);

/* Closes end's connection if it still has one. */
void bed_hang_up(struct end *end);

/* Builds a head for `number` with so much meta; returns its size. */
size_t bed_head(uint8_t *head_p, uint64_t number, size_t meta_bytes, size_t payload_bytes);

/* The payload that belongs to `number`. */
void bed_fill(void *payload, uint64_t number, size_t bytes);

/* Sends frame `number` with that payload, which is borrowed: end->releases counts. */
psd_status bed_send(struct end *end, uint64_t number, size_t meta_bytes, const void *payload,
                    size_t payload_bytes);

/* The same, and nobody changes the payload before the peer has done with it. */
psd_status bed_send_stable(struct end *end, uint64_t number, const void *payload,
                           size_t payload_bytes);

/* Pumps until the condition holds; fails the test when it does not in ten seconds. */
#define BED_WAIT(bed, condition)                                                                   \
    do {                                                                                           \
        const uint64_t deadline_ms_ = psi_monotonic_ms() + 10000;                                  \
        while (!(condition)) {                                                                     \
            assert_true(psi_monotonic_ms() < deadline_ms_);                                        \
            bed_pump(bed);                                                                         \
        }                                                                                          \
    } while (0)

#endif
