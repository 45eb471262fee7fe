/*
 * fuzz.h - what every target looks like, to libFuzzer and to replay.c.
 *
 * A target decodes what it is given and checks what must hold for any input. It keeps nothing
 * between calls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
