/*
 * limiter.c - warnings that outsiders can provoke: a few lines a second, and none twice.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/limiter.h"

#include <stdbool.h>
#include <string.h>

#include "base/crc32c.h"

static uint32_t
checksum(const char *peer, const char *text)
{
    const char *port = strrchr(peer, ':');
    const size_t host_bytes = port != NULL ? (size_t)(port - peer) : strlen(peer);

    return psi_crc32c(psi_crc32c(0, peer, host_bytes), text, strlen(text));
}

static bool
is_shown(const struct psi_limiter *limiter, uint32_t sum)
{
    for (uint32_t i = 0; i < limiter->lines; i++) {
        if (limiter->shown[i] == sum) {
            return true;
        }
    }
    return false;
}

void
psi_limiter_warn(struct psi_limiter *limiter, uint64_t now_ns, const char *id, const char *peer,
                 const char *text)
{
    const uint64_t second = now_ns / UINT64_C(1000000000);
    const uint32_t sum = checksum(peer, text);

    if (second != limiter->second) {
        limiter->second = second;
        limiter->lines = 0;
    }
    if (limiter->lines == PSI_LIMITER_LINES || is_shown(limiter, sum)) {
        limiter->hidden++;
        return;
    }
    limiter->shown[limiter->lines++] = sum;
    if (limiter->hidden > 0) {
        psi_log(limiter->log, PSI_LOG_WARN, id, "%s: %s (%llu warnings before it not shown)", peer,
                text, (unsigned long long)limiter->hidden);
        limiter->hidden = 0;
    } else {
        psi_log(limiter->log, PSI_LOG_WARN, id, "%s: %s", peer, text);
    }
}
