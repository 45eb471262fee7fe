/*
 * codec.h - numbers <-> fewer bytes. Pure: a codec has no memory of its own and knows no table.
 *
 * Whoever sends a chunk encodes it, whoever adds it decodes it: sums are made of decoded numbers
 * only, so that their bits depend on codec and numbers alone. A codec is one file and one line in
 * codec.c. The frame says by which it was encoded (`codec`), and wire refuses those not listed here.
 *
 * There is one today, identity: its bytes are the numbers, and nothing is copied or converted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CODEC_CODEC_H
#define PSI_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "table/spec.h"

/* As the frame's header numbers them. Never renumbered. */
enum { PSI_CODEC_IDENTITY = 0, PSI_CODECS };

/* What leaves: `numbers` themselves, or what was written into the room. */
struct psi_encoded {
    const void *bytes;
    size_t size;
};

/* What is added: `bytes` themselves, or what was written into the room. */
struct psi_decoded {
    const void *numbers; /* NULL: these bytes are not what encode() makes */
    bool is_real;        /* in f32 (f64 for f64); else in the type that was encoded */
};

/* Thread: immutable. */
struct psi_codec {
    const char *name;
    uint8_t id;
    bool exact; /* what encode() makes has always as many bytes as bound() says */

    /* Bytes that `count` numbers take at most. */
    uint64_t (*bound)(psd_dtype dtype, uint64_t count);

    /* room: bound() bytes; NULL for identity. */
    struct psi_encoded (*encode)(psd_dtype dtype, const void *numbers, uint64_t count, void *room);

    /* The bytes come from a peer: psi_codec_fits() has looked at their number, nobody at what they
     * say. room: for `count` f32 (f64 for f64); NULL for identity. */
    struct psi_decoded (*decode)(psd_dtype dtype, struct psi_encoded encoded, uint64_t count,
                                 void *room);
};

extern const struct psi_codec psi_codec_identity;
extern const struct psi_codec *const psi_codecs[PSI_CODECS];

/* NULL: not known. */
static inline const struct psi_codec *
psi_codec_find(uint8_t id)
{
    return id < PSI_CODECS ? psi_codecs[id] : NULL;
}

/* May `count` numbers have come as so many bytes? */
static inline bool
psi_codec_fits(const struct psi_codec *codec, psd_dtype dtype, uint64_t count, uint64_t size)
{
    const uint64_t bound = codec->bound(dtype, count);

    return codec->exact ? size == bound : size <= bound;
}

#endif
