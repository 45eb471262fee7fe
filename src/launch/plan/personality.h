/*
 * personality.h - kinds of scripts: those of other systems, too. What their processes are told is
 * in personality_words.h.
 *
 * A personality without Poseidon's daemons is foreign: the servers, where it has any, run the
 * user's command as the workers do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PERSONALITY_H
#define LAUNCH_PERSONALITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

/* A set of them is the sum. */
enum personality {
    PERSONALITY_POSEIDON = 1,
    PERSONALITY_TF1 = 2,
    PERSONALITY_TF_CONFIG = 4,
    PERSONALITY_TORCH = 8,
    PERSONALITY_DMLC = 16,
    PERSONALITY_MPI = 32,
};

/* What a kind has besides its words. A set has what one of its kinds has. */
enum personality_trait {
    PERSONALITY_HAS_DAEMONS = 1,   /* ps_master and ps_servers */
    PERSONALITY_HAS_SERVERS = 2,   /* processes of that role */
    PERSONALITY_HAS_MASTER = 4,    /* ps_master, or a scheduler */
    PERSONALITY_HAS_SCHEDULER = 8, /* as its master, whose address all are told */
    PERSONALITY_HAS_TASKS = 16,    /* of TensorFlow: ps, worker; none needs a ps */
    PERSONALITY_HAS_CHIEF = 32,    /* and an evaluator, who are workers */
    PERSONALITY_HAS_FLAGS = 64,    /* that name ps and workers alone */
    PERSONALITY_HAS_STORE = 128,   /* on a port of its own, with rank 0 */
};

bool personality_has(unsigned set, enum personality_trait trait);

/* "torch,mpi"; NULL: poseidon. PSD_ERR_INVALID: no such one, or two that cannot be had together. */
psd_status personality_parse(const char *list, unsigned *set_p, struct psd_error *err);

bool personality_is_foreign(unsigned set);    /* no daemons */
bool personality_is_tensorflow(unsigned set); /* has tasks */
bool personality_has_servers(unsigned set);
bool personality_has_master(unsigned set);

/* Where scripts of such a kind expect each other, if they can; 0: anywhere. */
uint16_t personality_port(unsigned set);

/* How many servers there are where nobody says; and whether so many can be. `list` is what the user
 * calls the set. */
uint32_t personality_usual_servers(unsigned set);
psd_status personality_check_servers(unsigned set, const char *list, uint32_t servers,
                                     struct psd_error *err);

/* Calls back for each variable that one of the set tells. */
void personality_each(unsigned set, void (*tell)(void *owner, const char *variable), void *owner);

#endif
