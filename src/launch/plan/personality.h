/*
 * personality.h - kinds of scripts: those of other systems, too. What their processes are told is
 * in personality_words.h.
 *
 * A personality without Poseidon's daemons is foreign: the servers, where it has any, run the
 * user's command as the workers do.
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

enum { PERSONALITY_TF1_PORT = 2222 }; /* where scripts of that kind expect each other */

/* "torch,mpi"; NULL: poseidon. PSD_ERR_INVALID: no such one, or two that cannot be had together. */
psd_status personality_parse(const char *list, unsigned *set_p, struct psd_error *err);

bool personality_is_foreign(unsigned set);
bool personality_is_tensorflow(unsigned set);
bool personality_has_servers(unsigned set); /* processes of that role */
bool personality_has_master(unsigned set);  /* ps_master, or a scheduler */

/* How many servers there are where nobody says; and whether so many can be. `list` is what the user
 * calls the set. */
uint32_t personality_usual_servers(unsigned set);
psd_status personality_check_servers(unsigned set, const char *list, uint32_t servers,
                                     struct psd_error *err);

/* Calls back for each variable that one of the set tells. */
void personality_each(unsigned set, void (*tell)(void *owner, const char *variable), void *owner);

#endif
