/*
 * frame.h - the fixed 64-byte header of every frame, and the small options ("meta") behind it.
 *
 * Little-endian by explicit loads and stores; the layout is docs/protocol.md. A decoder trusts
 * nothing: it checks magic, version, type, sizes by type, what it must understand (flags, dtype,
 * codec) and the header's checksum, in that order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_WIRE_FRAME_H
#define PSI_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

enum {
    PSI_FRAME_BYTES = 64,
    PSI_FRAME_META_MAX = 4096,
    PSI_META_ENCODED_MAX = 64,       /* all the options we know, together */
    PSI_FRAME_CHUNK_MAX = 16 << 20,  /* payload of a data frame */
    PSI_FRAME_CONTROL_MAX = 1 << 20, /* payload of a control frame */
    PSI_FRAME_HELLO_MAX = 4096,      /* payload of what a stranger may send */
    PSI_PROTOCOL_VERSION = 1,

    /* What a gradient takes of a lane's window at least: even a tiny one occupies a slot there. */
    PSI_GRADIENT_COST_MIN = 4096,
};

#define PSI_FRAME_MAGIC 0x31445350u /* "PSD1" */

/* What a kind of frame is, and what it brings or asks for. */
enum psi_frame_traits {
    PSI_KIND_HELLO = 0x01,     /* what a stranger may send, and what it is told */
    PSI_KIND_CONTROL = 0x02,   /* small */
    PSI_KIND_DATA = 0x04,      /* may bring all parts of a chunk */
    PSI_KIND_RESERVED = 0x08,  /* refused today */
    PSI_TRAIT_GRADIENT = 0x10, /* brings a gradient */
    PSI_TRAIT_VALUE = 0x20,    /* asks for a value */
};

/*
 * Every kind of frame: name, number, traits, meaning. Reserved kinds have their number and meaning
 * now, so that global-norm clipping needs no new version; receiving one is PSD_ERR_PROTOCOL
 * today.
 */
#define PSI_FRAME_MAP(X)                                                                           \
    /* meeting */                                                                                  \
    X(HELLO, 1, PSI_KIND_HELLO, "who I am")                                                        \
    X(WELCOME, 2, PSI_KIND_CONTROL, "you are in")                                                  \
    X(REFUSE, 3, PSI_KIND_HELLO, "you are not, because")                                           \
    X(PING, 4, PSI_KIND_CONTROL, "alive, at this step")                                            \
    X(PONG, 5, PSI_KIND_CONTROL, "so am I")                                                        \
    X(BYE, 6, PSI_KIND_CONTROL, "done")                                                            \
    X(END, 7, PSI_KIND_CONTROL, "the job is over, because")                                        \
    /* membership */                                                                               \
    X(VIEW_PROPOSE, 10, PSI_KIND_CONTROL, "this rank leaves or is replaced: freeze and report")    \
    X(VIEW_ACK, 11, PSI_KIND_CONTROL, "what that rank has given here")                             \
    X(VIEW_COMMIT, 12, PSI_KIND_CONTROL, "the new view")                                           \
    X(VIEW_ABORT, 13, PSI_KIND_CONTROL, "the old view stays")                                      \
    X(DONE, 14, PSI_KIND_CONTROL, "who has said BYE, which loads are over: keep it in mind")       \
    X(PAIR, 15, PSI_KIND_CONTROL,                                                                  \
      "that is your copy; to a lane that stands by: be one of that lane")                          \
    X(UNPAIR, 16, PSI_KIND_CONTROL, "go on alone; you are no copy any more")                       \
    X(ELIGIBLE, 17, PSI_KIND_CONTROL, "my copy has all that I have told anybody")                  \
    X(PAIR_LOST, 18, PSI_KIND_CONTROL, "I do not reach my copy, or it cannot go on")               \
    X(RECALL, 19, PSI_KIND_CONTROL,                                                                \
      "no server is left: what do you know of the job? From a worker: that is all")                \
    /* tables */                                                                                   \
    X(TABLE_OPEN, 20, PSI_KIND_CONTROL, "create or join")                                          \
    X(TABLE_INFO, 21, PSI_KIND_CONTROL, "its number and its places")                               \
    X(TABLE_DROP, 22, PSI_KIND_CONTROL, "forget it")                                               \
    X(TABLE_RESUME, 24, PSI_KIND_CONTROL, "where a replacement goes on with it")                   \
    /* data */                                                                                     \
    X(PUSH, 30, PSI_KIND_DATA | PSI_TRAIT_GRADIENT, "a gradient of one chunk")                     \
    X(PULL, 31, PSI_KIND_CONTROL | PSI_TRAIT_VALUE, "the value of one chunk, please")              \
    X(PUSH_PULL, 32, PSI_KIND_DATA | PSI_TRAIT_GRADIENT | PSI_TRAIT_VALUE, "both")                 \
    X(ACK, 33, PSI_KIND_CONTROL, "your request ended thus")                                        \
    X(VALUE, 34, PSI_KIND_DATA, "the value of one chunk")                                          \
    X(INIT, 35, PSI_KIND_DATA, "the initial value of one chunk")                                   \
    X(STATE_PULL, 36, PSI_KIND_DATA | PSI_TRAIT_VALUE, "all parts of a chunk, for saving")         \
    X(STATE_PUSH, 37, PSI_KIND_DATA, "one part of a chunk, from a file")                           \
    X(WANT, 38, PSI_KIND_CONTROL, "send this chunk now, whatever your window")                     \
    X(RESEND, 39, PSI_KIND_CONTROL, "I let this chunk go, send it again")                          \
    X(HAVE, 40, PSI_KIND_CONTROL, "all of my gradients of this step are on their way")             \
    X(CLOSE, 41, PSI_KIND_CONTROL, "these ranks are in this round")                                \
    X(WHY, 42, PSI_KIND_CONTROL, "what is this chunk waiting for?")                                \
    X(BECAUSE, 43, PSI_KIND_CONTROL, "for this")                                                   \
    X(NORM, 44, PSI_KIND_RESERVED, "reserved: part of a global norm")                              \
    X(SPARSE_PUSH, 45, PSI_KIND_DATA | PSI_TRAIT_GRADIENT, "gradients of rows")                    \
    X(SPARSE_PULL, 46, PSI_KIND_DATA | PSI_TRAIT_VALUE, "these rows, please")                      \
    X(SPARSE_VALUE, 47, PSI_KIND_DATA, "those rows")                                               \
    X(OFFER, 48, PSI_KIND_CONTROL, "push this table to these lanes through me")                    \
    X(ROUTE, 49, PSI_KIND_CONTROL, "I do so, from this step on")                                   \
    X(REPLICATE, 50, PSI_KIND_DATA, "what changed a chunk, for its copy")                          \
    X(REPLICATE_ACK, 51, PSI_KIND_CONTROL, "so much of what you said is in the copy")              \
    X(SNAPSHOT, 52, PSI_KIND_DATA, "all of a chunk, for its copy")                                 \
    X(ADOPT, 53, PSI_KIND_CONTROL, "where I am in this table, of which you have nothing")          \
    X(GOT, 54, PSI_KIND_CONTROL, "these results are here; from a lane: are they?")                 \
    X(RELEASE, 55, PSI_KIND_CONTROL, "everybody has these results")                                \
    X(GIVE, 56, PSI_KIND_CONTROL, "show me the result of this step")                               \
    X(TAKE_PLACE, 57, PSI_KIND_CONTROL, "be that lane of that server")                             \
    X(LANE_STATE, 58, PSI_KIND_CONTROL, "that is all I know of the job")                           \
    X(WORKER_STATE, 59, PSI_KIND_CONTROL, "what I have come to")                                   \
    /* all together */                                                                             \
    X(BARRIER, 60, PSI_KIND_CONTROL, "I am at my n-th barrier")                                    \
    X(STEP_ADD, 61, PSI_KIND_CONTROL, "add to the global step")                                    \
    X(NODES, 62, PSI_KIND_CONTROL, "who is in the job?")                                           \
    X(NODES_INFO, 63, PSI_KIND_CONTROL, "these")                                                   \
    X(SHARE_PULL, 64, PSI_KIND_CONTROL, "a piece of a worker's published state, please")           \
    X(SHARE_DATA, 65, PSI_KIND_DATA, "that piece")                                                 \
    X(SUBSCRIBE, 66, PSI_KIND_CONTROL, "who is in the job? Tell me again and again")               \
    X(METRICS, 67, PSI_KIND_CONTROL, "what I have counted")                                        \
    X(STEP_STATE, 68, PSI_KIND_CONTROL, "additions to the global step, for the copy")              \
    X(CHECKPOINT, 70, PSI_KIND_CONTROL,                                                            \
      "write this step of your chunks there; without tables: how far are you?")                    \
    X(WRITTEN, 71, PSI_KIND_CONTROL, "so far I am; or it is on the disk; or why it is not")        \
    X(BLOCKS, 72, PSI_KIND_CONTROL, "checksums of what I wrote")                                   \
    X(HINT, 73, PSI_KIND_CONTROL, "I do not reach that lane, or do again; or it hung up")          \
    X(PART, 74, PSI_KIND_CONTROL,                                                                  \
      "a worker's part of a checkpoint is wanted; from a worker: what became of it")               \
    X(EARLIER, 75, PSI_KIND_CONTROL, "what of mine is in earlier checkpoints already")             \
    X(ROWS_SAVED, 69, PSI_KIND_CONTROL, "the files that have my rows of sparse tables")            \
    X(GIVE_PLACE, 76, PSI_KIND_CONTROL, "hand your place over to your copy, when you can")         \
    X(SPARSE_PUSH_PULL, 77, PSI_KIND_DATA | PSI_TRAIT_GRADIENT | PSI_TRAIT_VALUE,                  \
      "gradients of rows; and these rows, please")                                                 \
    X(REPLICATE_PART, 78, PSI_KIND_DATA, "a part of a chunk as a change left it, for its copy")

enum psi_frame_type {
#define PSI_FRAME_ENUM(name, code, traits, text) PSI_FRAME_##name = code,
    PSI_FRAME_MAP(PSI_FRAME_ENUM)
#undef PSI_FRAME_ENUM
};

/* enum psi_frame_traits of every type; 0: there is no such type. */
extern const uint8_t psi_frame_traits[256];

static inline bool
psi_frame_has_gradient(uint8_t type)
{
    return (psi_frame_traits[type] & PSI_TRAIT_GRADIENT) != 0;
}

static inline bool
psi_frame_wants_value(uint8_t type)
{
    return (psi_frame_traits[type] & PSI_TRAIT_VALUE) != 0;
}

/* It asks for a value, and gives nothing for it. */
static inline bool
psi_frame_only_reads(uint8_t type)
{
    return type == PSI_FRAME_PULL || type == PSI_FRAME_SPARSE_PULL;
}

/* It is about rows of a sparse table (wire/rows.h). */
static inline bool
psi_frame_is_sparse(uint8_t type)
{
    return type == PSI_FRAME_SPARSE_PUSH || type == PSI_FRAME_SPARSE_PULL ||
           type == PSI_FRAME_SPARSE_PUSH_PULL || type == PSI_FRAME_SPARSE_VALUE;
}

/* Flags. The low byte must be understood by the receiver; the high byte may be ignored. */
enum {
    PSI_FLAG_CHECKSUM = 0x0001, /* payload_crc covers the payload */
    PSI_FLAG_EMPTY = 0x0002,    /* PUSH: present, adding nothing (no payload) */
    PSI_FLAG_EXACT = 0x0004,    /* PULL: version `step` itself, not a later one */
    PSI_FLAG_RESULT = 0x0008, /* PUSH, SPARSE_PUSH: no gradient, but the result of `step` (GIVE) */
    PSI_FLAG_KEEPS = 0x0010,  /* PUSH*: the sender can show the result when it has gone on */
    PSI_FLAG_HOLD = 0x0020,   /* VALUE, SPARSE_VALUE: some cannot; say GOT */
    PSI_FLAG_MORE = 0x0040,   /* SPARSE_*: a part; the next frame of the request goes on with it */
    PSI_FLAGS_KNOWN = 0x007f,
};

/* Decoded header. `type` is a known one; sizes are within the limits of the type. */
struct psi_frame {
    uint8_t type;
    uint16_t flags;
    uint32_t payload_bytes;
    uint16_t meta_bytes;
    uint8_t dtype;
    uint8_t codec; /* by which the numbers of the payload were encoded */
    uint64_t seq;  /* per worker, grows with every push */
    uint64_t step;
    uint32_t view;
    uint32_t request; /* echoed by the answer */
    uint32_t table;
    uint32_t chunk;
    uint16_t rank;
    uint16_t incarnation;
    uint8_t level; /* of the summation tree; 0: one rank's own gradient */
    uint8_t priority;
    int16_t status; /* of an answer: a psd_status */
    uint32_t payload_crc;
};

/* Writes the 64 bytes, checksum included. */
void psi_frame_encode(const struct psi_frame *frame, uint8_t bytes[PSI_FRAME_BYTES]);

/*
 * Reads them. PSD_ERR_PROTOCOL: not a frame of ours (the text says which check failed);
 * PSD_ERR_VERSION: a frame of another protocol version (the text names both).
 */
psd_status psi_frame_decode(const uint8_t bytes[PSI_FRAME_BYTES], struct psi_frame *frame_p,
                            struct psd_error *err);

const char *psi_frame_type_name(uint8_t type); /* "PUSH"; "?" */

/* A frame of a request, a reply or a gradient is decoded by everybody; its options are few. */
struct psi_meta {
    bool has_part;
    uint8_t part; /* STATE_*: 0 value, 1 master, 2.. optimizer state */
    bool has_deadline;
    uint32_t deadline_ms;
    bool has_weight;
    float weight; /* of a contribution; reserved: must be 1 today */
    bool has_trace;
    uint64_t trace;

    /* PUSH*: not the sender's own gradient, but that of another rank (level 0), or the sum of a
     * node of the tree over ranks (level of the frame; f32, or f64 for f64 tables). */
    bool has_node;
    uint16_t node_first;  /* rank; a multiple of 1 << level */
    uint16_t node_leaves; /* gradients in it: its ranks less those that add nothing */
};

/* Encodes into bytes (PSI_META_ENCODED_MAX of room); returns how many. */
size_t psi_meta_encode(const struct psi_meta *meta, uint8_t *bytes);

/* Tag, length, value, by rising tag; unknown tags with the low bit of the tag clear are skipped,
 * others refused. */
psd_status psi_meta_decode(const uint8_t *bytes, size_t size, struct psi_meta *meta_p,
                           struct psd_error *err);

#endif
