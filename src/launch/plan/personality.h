/*
 * personality.h - scripts written for other systems: what their processes are called, and what each
 * of them is told, by arguments and by variables.
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

#include "launch/text/words.h"

struct plan;
struct plan_seat;

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

/* What the process of a slot is told beside Poseidon's own variables. A plain NAME unsets. */
psd_status personality_environment(const struct plan *plan, uint32_t slot,
                                   const struct plan_seat *seat, struct words *environment,
                                   struct psd_error *err);

/* What stands behind the command. */
psd_status personality_arguments(const struct plan *plan, uint32_t slot,
                                 const struct plan_seat *seat, struct words *argv,
                                 struct psd_error *err);

#endif
