/*
 * shm_script.h - the language of fuzz_shm.c's inputs: what a peer on this host does, one byte each,
 * followed by what it needs. What the input does not have is zero.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FUZZ_SHM_SCRIPT_H
#define FUZZ_SHM_SCRIPT_H

/* The first byte of an input: what the stream under test is, and that it does not share. */
enum shm_side { SHM_ACCEPTED = 0, SHM_CONNECTED = 1, SHM_SIDES = 2, SHM_ALONE = 2 };

enum shm_happening {
    SHM_PUMP,      /* the loop under test runs */
    SHM_PUMP_POOR, /* count: ... with so many descriptors left */
    SHM_WORD,  /* kind: over the stream; an OFFER names our meeting place, or none (SHM_NOWHERE) */
    SHM_BYTES, /* count, bytes: over the stream */
    SHM_INTRODUCE, /* enum shm_lie bits: at the meeting place, or answering who has introduced itself */
    SHM_RECORD, /* kind, head 2, block, segment 2, offset 4, payload 4, enum shm_record_lie, what */
    SHM_SCRIBBLE,  /* offset 3, count, bytes: anywhere in our side of the ring */
    SHM_COUNTER,   /* enum shm_counter, value 4 */
    SHM_ANNOUNCE,  /* number 2, enum shm_descriptor */
    SHM_MESSAGE,   /* count, descriptors, bytes: over the new socket */
    SHM_DATAGRAM,  /* the same, to the meeting place under test */
    SHM_SEND,      /* size 3, enum shm_source: the stream's owner sends a frame */
    SHM_GIVE_BACK, /* ... gives back what it keeps on loan */
    SHM_RELEND,    /* ... takes its lent memory back, and lends other */
    SHM_CLOSE,     /* ... closes: 0 at once, else after what it has sent */
    SHM_READ,      /* count: the peer reads so many records, and gives blocks back */
    SHM_HANG_UP,   /* the peer closes: 0 the stream, else the new socket */
    SHM_HAPPENINGS,
};

enum { SHM_NOWHERE = 128 };

enum shm_lie {
    SHM_RING_IS_BELL = 1,
    SHM_RING_IS_FILE = 2,
    SHM_BELL_IS_RING = 4,
    SHM_BELL_IS_UNSEALED = 8,
    SHM_WRONG_TOKEN = 16,
    SHM_TOO_FEW = 32,
    SHM_SOCKET_IS_CLOSED = 64,
};

/* SHM_RECORD: by how much its size is wrong, as a signed number in the low bits; and this. */
enum shm_record_lie { SHM_HEAD_CONTRADICTS = 64, SHM_SIZE_LIE_MASK = 15 };

/* SHM_RECORD: what the owner does with the frame. */
enum shm_what {
    SHM_KEEP = 1,
    SHM_DISCARD = 2,
    SHM_REFUSE_PREFIX = 4,
    SHM_REFUSE_HEAD = 8,
    SHM_REFUSE_FRAME = 16,
    SHM_CLOSE_IN_HEAD = 32,
    SHM_CLOSE_IN_FRAME = 64,
};

enum shm_counter {
    SHM_TAIL,
    SHM_TAIL_MORE,
    SHM_HEAD,
    SHM_HEAD_MORE,
    SHM_HEAD_LESS,
    SHM_STARVED,
    SHM_SLEEPERS,
    SHM_COUNTERS,
};

enum shm_descriptor { SHM_SEGMENT, SHM_UNSEALED, SHM_FILE, SHM_WRONG_SIZE, SHM_DESCRIPTORS };

enum shm_source { SHM_ORDINARY, SHM_LENT, SHM_LENT_BUT_CHANGING, SHM_SOURCES };

/* Added to it: the peer need not hear of it at once, nor its owner of the peer's frames. */
enum { SHM_PATIENT = 128 };

#endif
