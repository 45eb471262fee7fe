/*
 * stream_out.h - frames that wait to be sent: heads copied, payloads borrowed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_STREAM_OUT_H
#define PSI_TRANSPORT_STREAM_STREAM_OUT_H

#include <sys/uio.h>

#include "transport/transport.h"

struct out_block;
struct out_frame;

/*
 * A zeroed one is empty and owns nothing.
 *
 * Thread: owned by the connection's loop.
 */
struct psi_stream_out {
    struct out_frame *first; /* oldest */
    struct out_frame *last;
    struct out_block *first_block; /* where the frames lie, in the same order */
    struct out_block *last_block;
    size_t bytes; /* unsent */
};

/* Releases every frame that waits, and all memory. The queue can be used again. */
void psi_stream_out_clear(struct psi_stream_out *out);

/* All bytes of a frame. */
size_t psi_stream_out_size(const struct psi_outgoing *frame);

/* Appends what is left of frame after its first `sent` bytes. PSD_ERR_NO_MEMORY: nothing taken. */
psd_status psi_stream_out_add(struct psi_stream_out *out, const struct psi_outgoing *frame,
                              size_t sent);

/* The first unsent pieces, at most `max`; returns how many. */
int psi_stream_out_gather(const struct psi_stream_out *out, struct iovec *iov_p, int max);

/* The first `bytes` of them are gone: drops and releases the frames that are complete. */
void psi_stream_out_sent(struct psi_stream_out *out, size_t bytes);

/* The first frame as it was added; none of it may have been sent. False: there is none. */
bool psi_stream_out_first(const struct psi_stream_out *out, struct psi_outgoing *frame_p);

/* Copies and releases the unsent payload of every frame that still borrows from the range. copied_ns:
 * (optional) grows by the time that large copies take. */
psd_status psi_stream_out_unshare(struct psi_stream_out *out, const void *base, size_t bytes,
                                  uint64_t *copied_ns);

#endif
