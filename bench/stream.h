/*
 * stream.h - all bytes of a message over a socket, waited for as a ceiling waits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_STREAM_H
#define BENCH_STREAM_H

#include "ceiling.h"

/* False: the other end has gone. */
bool stream_receive(int fd, void *into, size_t bytes, enum ceiling_wait wait);
bool stream_send(int fd, const void *from, size_t bytes, enum ceiling_wait wait);

#endif
