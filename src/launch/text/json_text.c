/*
 * json_text.c - text that came from elsewhere, as JSON can hold it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/text/json_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

/* The bytes of the character that begins here; 0: none does. */
static size_t
character_bytes(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    const size_t bytes = at[0] < 0x80                    ? 1
                         : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                         : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                         : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                         : 0;

    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) { /* the end of the text, too */
            return 0;
        }
    }
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90)) {
        return 0; /* written too long, half of a pair, or beyond the last one */
    }
    return bytes;
}

json_t *
json_text(const char *bytes)
{
    char *clean = malloc(3 * strlen(bytes) + 1);
    char *end = clean;
    json_t *value;

    if (clean == NULL) {
        return NULL;
    }
    while (*bytes != '\0') {
        const size_t count = character_bytes(bytes);

        if (count > 0) {
            memcpy(end, bytes, count);
            end += count;
            bytes += count;
        } else {
            memcpy(end, replacement, sizeof(replacement) - 1);
            end += sizeof(replacement) - 1;
            bytes++;
        }
    }
    *end = '\0';
    value = json_string(clean);
    free(clean);
    return value;
}
