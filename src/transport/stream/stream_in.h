/*
 * stream_in.h - frames out of a stream of bytes.
 *
 * The transport asks where the next bytes belong (room), puts them there, says how many came (took)
 * and lets the frames in them be heard (run). A large payload goes straight into its owner's
 * memory; only what arrived together with its head is copied.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_STREAM_IN_H
#define PSI_TRANSPORT_STREAM_STREAM_IN_H

#include <sys/uio.h>

#include "transport/transport.h"

enum { PSI_STREAM_IN_BYTES = 65536, PSI_STREAM_IN_IOVECS = 2 };

enum psi_stream_in_phase { PSI_IN_PREFIX, PSI_IN_META, PSI_IN_PAYLOAD };

/*
 * buffer holds [frame, end): the head of the current frame as far as it is here, and what follows.
 *
 * Thread: owned by the connection's loop.
 */
struct psi_stream_in {
    uint8_t *buffer; /* borrowed for the whole life; PSI_STREAM_IN_BYTES */
    size_t frame;
    size_t next; /* PAYLOAD: first byte of buffer that is not used yet */
    size_t end;
    enum psi_stream_in_phase phase;
    struct psi_frame_size size; /* valid after PREFIX */
    uint8_t *sink;              /* PAYLOAD; NULL discards */
    size_t payload_here;        /* PAYLOAD: bytes taken so far */
    bool large;                 /* the last payload was a large one: so will be the next */
    bool stopped;               /* the connection was closed: no more events */
    uint64_t frame_count;       /* whole frames heard */
    uint64_t *copied_ns;        /* (optional) borrowed: spent with copying payloads */
};

void psi_stream_in_init(struct psi_stream_in *in, uint8_t *buffer, uint64_t *copied_ns);

/* Where the next bytes belong: iov_p gets at most PSI_STREAM_IN_IOVECS pieces, returns how many. */
int psi_stream_in_room(struct psi_stream_in *in, struct iovec *iov_p);

/* `bytes` have been put there. */
void psi_stream_in_took(struct psi_stream_in *in, size_t bytes);

/* Calls the events of conn for everything that is complete. An error: close conn with it. An event
 * may close conn; `stopped` is then set, and in must stay valid until run returns. */
psd_status psi_stream_in_run(struct psi_stream_in *in, struct psi_conn *conn,
                             struct psd_error *err);

/* Before the first frame: the bytes which wait, and using up the first of them. */
const uint8_t *psi_stream_in_peek(const struct psi_stream_in *in, size_t *bytes_p);
void psi_stream_in_skip(struct psi_stream_in *in, size_t bytes);

/* Whether a frame has begun and not ended. */
bool psi_stream_in_midway(const struct psi_stream_in *in);

#endif
