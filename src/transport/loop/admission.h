/*
 * admission.h - how many strangers come, from where, and how fast.
 *
 * Nobody is ever shut out because of others:
 *   - accepting has a pace; who comes faster waits in the kernel's queue, in the order of coming;
 *   - handshakes that may come to nothing have a pace, for each address and for all together;
 *     beyond it only those are tried whose first bytes show the secret (psi_auth_ops.recognises);
 *   - the strangers of one address that are inside are counted. The kernel's loopback is not:
 *     everybody on this machine shares it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_LOOP_ADMISSION_H
#define PSI_TRANSPORT_LOOP_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PSI_ADMISSION_ORIGINS = 512,

    /* How many at once, and then how many a second. 4,096 wait in the kernel's queue at most, so
     * nobody in it waits for longer than 2.1 s. */
    PSI_ADMISSION_ACCEPTS_BURST = 1024,
    PSI_ADMISSION_ACCEPTS_PER_S = 2000,
    PSI_ADMISSION_TRIES_BURST = 512,
    PSI_ADMISSION_TRIES_PER_S = 500,
    PSI_ADMISSION_TRIES_FROM_ONE_BURST = 64,
    PSI_ADMISSION_TRIES_FROM_ONE_PER_S = 100,
};

/* When all that was taken from it will be there again. Thread: owned by the loop. */
struct psi_bucket {
    uint64_t full_ns;
};

/* One more, of `burst` at once and then so many a second? Then it counts. */
bool psi_bucket_take(struct psi_bucket *bucket, uint64_t burst, uint64_t per_s, uint64_t now_ns);

/* Thread: owned by the loop. */
struct psi_admission_origin {
    uint8_t address[16]; /* IPv6: only the first 8 bytes, all that an attacker cannot choose */
    bool used;
    uint32_t strangers;
    struct psi_bucket tries;
};

/* A zeroed one has seen nobody. Thread: owned by the loop. */
struct psi_admission {
    struct psi_bucket accepts;
    struct psi_bucket tries;
    struct psi_admission_origin origins[PSI_ADMISSION_ORIGINS];
};

/* May one more be accepted now? Then it counts. */
bool psi_admission_accepts(struct psi_admission *admission, uint64_t now_ns);

/* It was not there after all. */
void psi_admission_return(struct psi_admission *admission);

/* What is known of the host in "tcp://HOST:PORT". NULL: others who are still here have taken all
 * entries; the limits on all strangers together hold nevertheless. An entry from which nobody is
 * left may go to another host. Every call below takes NULL, too. */
struct psi_admission_origin *psi_admission_find(struct psi_admission *admission, const char *peer);

void psi_admission_enter(struct psi_admission_origin *origin); /* one stranger more */
void psi_admission_leave(struct psi_admission_origin *origin); /* one less: gone, or a member now */

/* May a handshake be tried with somebody from there of whom nothing is known? Then it counts. */
bool psi_admission_tries(struct psi_admission *admission, struct psi_admission_origin *origin,
                         uint64_t now_ns);

#endif
