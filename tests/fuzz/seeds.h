/*
 * seeds.h - what the files of fuzz_seeds share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FUZZ_SEEDS_H
#define FUZZ_SEEDS_H

#include <stddef.h>
#include <stdint.h>

/* DIRECTORY/TARGET/seed-NAME; stops the program when it cannot be written. */
void write_seed(const char *directory, const char *target, const char *name, const uint8_t *bytes,
                size_t size);

/* seeds_handshake.c */
void write_handshake_seeds(const char *directory);

/* seeds_pieces.c */
void write_pieces_seeds(const char *directory);

/* seeds_shm.c */
void write_shm_seeds(const char *directory);

/* seeds_world.c */
void write_lane_seeds(const char *directory);
void write_master_seeds(const char *directory);
void write_client_seeds(const char *directory);

#endif
