/*
 * mask.c - a command as text for others' eyes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/text/mask.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Whether the first `bytes` of a word name a secret. */
static bool
names_secret(const char *word, size_t bytes)
{
    static const char *const hints[] = {"key", "token", "secret", "password", "passwd"};
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)(bytes < 63 ? bytes : 63), word);
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        if (strcasestr(name, hints[i]) != NULL) {
            return true;
        }
    }
    return false;
}

void
mask_words(const struct words *words, char *text_p, size_t size)
{
    bool value_next = false;
    size_t used = 0;

    text_p[0] = '\0';
    for (size_t i = 0; i < words->count && used < size; i++) {
        const char *word = words->list[i];
        const size_t name = strcspn(word, "=");
        const bool secret = names_secret(word, name);
        const bool masked = secret && word[name] == '=';
        int bytes;

        if (value_next) {
            bytes = snprintf(text_p + used, size - used, " ***");
        } else {
            bytes = snprintf(text_p + used, size - used, "%s%.*s%s", i > 0 ? " " : "",
                             masked ? (int)name + 1 : (int)strlen(word), word, masked ? "***" : "");
        }
        used += (size_t)(bytes > 0 ? bytes : 0);
        value_next = !value_next && secret && word[0] == '-' && word[name] == '\0';
    }
}
