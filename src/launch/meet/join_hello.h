/*
 * join_hello.h - what a psd_run says of itself when it joins: JOIN_HELLO, KEY=value each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOIN_HELLO_H
#define LAUNCH_JOIN_HELLO_H

#include "launch/meet/join_member.h"
#include "launch/text/words.h"

struct join_hello {
    struct join_member member;
    uint32_t size;    /* of the job, as it thinks */
    char version[32]; /* of psd_run */
};

void join_hello_write(const struct join_hello *hello, struct words *words);

/* What is not said is zero, a rank that is not said UINT32_MAX. */
struct join_hello join_hello_read(const struct words *words);

#endif
