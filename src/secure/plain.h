/*
 * plain.h - a member without a secret meets one that has one.
 *
 * Who has a secret begins with a TLS record, who does without (--insecure) with a frame. Each
 * recognises the other's first bytes and says so, instead of "not TLS" and "not a frame": that is
 * all that is understood of them. Neither gives anything up by it: the side with the secret still
 * refuses, in words that are always the same.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SECURE_PLAIN_H
#define PSI_SECURE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PSI_PLAIN_BYTES = 4 }; /* of a frame, to know it by */

bool psi_plain_is_frame(const uint8_t bytes[PSI_PLAIN_BYTES]);

/* The REFUSE frame for whoever sent one; returns its bytes, 0: out is too small. */
size_t psi_plain_refusal(uint8_t *out, size_t capacity);

#endif
