/*
 * identity.c - the bytes are the numbers: read, sent and added where they are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/codec.h"

static uint64_t
bound(psd_dtype dtype, uint64_t count)
{
    return count * psi_dtype_bytes(dtype);
}

static struct psi_encoded
encode(psd_dtype dtype, const void *numbers, uint64_t count, void *room)
{
    (void)room;
    return (struct psi_encoded){.bytes = numbers, .size = (size_t)bound(dtype, count)};
}

static struct psi_decoded
decode(psd_dtype dtype, struct psi_encoded encoded, uint64_t count, void *room)
{
    (void)dtype;
    (void)count;
    (void)room;
    return (struct psi_decoded){.numbers = encoded.bytes};
}

const struct psi_codec psi_codec_identity = {
    .name = "identity",
    .id = PSI_CODEC_IDENTITY,
    .exact = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
