/*
 * join_hello.c - what a psd_run says of itself when it joins.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/join_hello.h"

#include <stdio.h>
#include <stdlib.h>

#include "launch/text/variables.h"

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

struct join_hello
join_hello_read(const struct words *words)
{
    char *const *list = words->list;
    const char *rank = variables_get(list, "rank");
    struct join_hello hello = {.size = (uint32_t)strtoul(variables_text(list, "size"), NULL, 10)};
    struct join_member *member = &hello.member;

    member->rank = rank != NULL ? (uint32_t)strtoul(rank, NULL, 10) : UINT32_MAX;
    member->incarnation = strtoull(variables_text(list, "incarnation"), NULL, 10);
    member->pid = atoi(variables_text(list, "pid"));
    snprintf(hello.version, sizeof(hello.version), "%.31s", variables_text(list, "version"));
    snprintf(member->host, sizeof(member->host), "%.255s", variables_text(list, "host"));
    snprintf(member->address, sizeof(member->address), "%.63s", variables_text(list, "address"));
    snprintf(member->seen, sizeof(member->seen), "%.63s", variables_text(list, "seen"));
    snprintf(member->advertised, sizeof(member->advertised), "%.63s",
             variables_text(list, "advertised"));
    return hello;
}
