/*
 * codec.c - the codecs there are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/codec.h"

const struct psi_codec *const psi_codecs[PSI_CODECS] = {
    [PSI_CODEC_IDENTITY] = &psi_codec_identity,
};
