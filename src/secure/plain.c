/*
 * plain.c - a member without a secret meets one that has one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/plain.h"

#include "base/exit_code.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/message.h"

bool
psi_plain_is_frame(const uint8_t bytes[PSI_PLAIN_BYTES])
{
    return psi_load_u32(bytes) == PSI_FRAME_MAGIC;
}

size_t
psi_plain_refusal(uint8_t *out, size_t capacity)
{
    static const struct psi_verdict verdict = {
        .status = PSD_ERR_REFUSED,
        .exit_code = PSI_EXIT_AUTH,
        .text = "that job needs a secret: set PSD_SECRET_FILE to its secret file, and leave out "
                "what says to do without (--insecure, PSD_INSECURE)"};
    struct psi_frame frame = {.type = PSI_FRAME_REFUSE, .status = PSD_ERR_REFUSED};
    struct psi_pack pack;

    if (capacity < PSI_FRAME_BYTES) {
        return 0;
    }
    psi_pack_init(&pack, out + PSI_FRAME_BYTES, capacity - PSI_FRAME_BYTES);
    psi_verdict_encode(&pack, &verdict);
    if (pack.overflow) {
        return 0;
    }
    frame.payload_bytes = (uint32_t)pack.used;
    psi_frame_encode(&frame, out);
    return PSI_FRAME_BYTES + pack.used;
}
