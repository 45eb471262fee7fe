/*
 * copy_aside.c - copying what nobody reads soon.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/copy_aside.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)

#include <emmintrin.h>

enum { LINE = 64, WORD = sizeof(__m128i) };

void
psi_copy_aside(void *to, const void *from, size_t bytes)
{
    char *at = to;
    const char *source = from;

    if ((uintptr_t)to % LINE != 0) {
        memcpy(to, from, bytes);
        return;
    }
    for (; bytes >= LINE; at += LINE, source += LINE, bytes -= LINE) {
        __m128i word[LINE / WORD];

        memcpy(word, source, LINE);
        for (unsigned i = 0; i < LINE / WORD; i++) {
            _mm_stream_si128((__m128i *)(void *)at + i, word[i]);
        }
    }
    _mm_sfence(); /* who hears of the copy sees it */
    memcpy(at, source, bytes);
}

#else

void
psi_copy_aside(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#endif
