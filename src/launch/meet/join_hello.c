/*
 * join_hello.c - what a psd_run says of itself when it joins.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/join_hello.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
join_hello_write(const struct join_hello *hello, struct words *words)
{
    const struct join_member *member = &hello->member;

    words_add_format(words, "version=%s", hello->version);
    words_add_format(words, "rank=%u", member->rank);
    words_add_format(words, "size=%u", hello->size);
    words_add_format(words, "incarnation=%llu", (unsigned long long)member->incarnation);
    words_add_format(words, "pid=%d", member->pid);
    words_add_format(words, "host=%s", member->host);
    words_add_format(words, "address=%s", member->address);
    if (member->seen[0] != '\0') {
        words_add_format(words, "seen=%s", member->seen);
    }
    if (member->advertised[0] != '\0') {
        words_add_format(words, "advertised=%s", member->advertised);
    }
}

static bool
is_word(const char *text, const char *key, const char **value_p)
{
    const size_t bytes = strlen(key);

    *value_p = text + bytes;
    return strncmp(text, key, bytes) == 0;
}

struct join_hello
join_hello_read(const struct words *words)
{
    struct join_hello hello = {.member = {.rank = UINT32_MAX}};
    struct join_member *member = &hello.member;

    for (size_t i = 0; i < words->count; i++) {
        const char *word = words->list[i];
        const char *value;

        if (is_word(word, "rank=", &value)) {
            member->rank = (uint32_t)strtoul(value, NULL, 10);
        } else if (is_word(word, "size=", &value)) {
            hello.size = (uint32_t)strtoul(value, NULL, 10);
        } else if (is_word(word, "incarnation=", &value)) {
            member->incarnation = strtoull(value, NULL, 10);
        } else if (is_word(word, "pid=", &value)) {
            member->pid = atoi(value);
        } else if (is_word(word, "version=", &value)) {
            snprintf(hello.version, sizeof(hello.version), "%.31s", value);
        } else if (is_word(word, "host=", &value)) {
            snprintf(member->host, sizeof(member->host), "%.255s", value);
        } else if (is_word(word, "address=", &value)) {
            snprintf(member->address, sizeof(member->address), "%.63s", value);
        } else if (is_word(word, "seen=", &value)) {
            snprintf(member->seen, sizeof(member->seen), "%.63s", value);
        } else if (is_word(word, "advertised=", &value)) {
            snprintf(member->advertised, sizeof(member->advertised), "%.63s", value);
        }
    }
    return hello;
}
