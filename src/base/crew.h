/*
 * crew.h - a few threads that lend a hand to whoever has much to do at once.
 *
 * Work comes as tasks of several parts. Any thread may begin tasks; it then finishes each of them:
 * does the parts that nobody has taken, and waits for those that somebody has. So a task is done when
 * psi_crew_finish() returns, whether or not there was any help, and what its parts did is seen.
 *
 * No thread is started before there is so much to do at once that it is worth it. Threads that find
 * nothing look on for a while, then sleep. They run on the cores that the crew's maker might use when it made
 * the crew, wherever it went since. If one of them is kept from its core by others while
 * somebody waits for it, cores are not free: for a while nobody is asked for help.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_CREW_H
#define PSI_BASE_CREW_H

#include <stdbool.h>
#include <stdint.h>

struct psi_crew;

enum {
    PSI_CREW_THREADS_MAX = 64,
    PSI_CREW_TASKS_MAX = 64, /* begun and not finished */
    PSI_CREW_PARTS_MAX = 64, /* of one task */
};

/* Work of this many bytes, moved or read, is worth starting or waking a thread. */
#define PSI_CREW_WORTH_BYTES (UINT64_C(1) << 20)

/* `threads`: as many are at work together, whoever finishes tasks is one of them; at least 2.
 * spin_us: how long a thread looks for more. NULL: no memory. */
struct psi_crew *psi_crew_create(uint32_t threads, uint32_t spin_us);

/* No task is under way. NULL is allowed. */
void psi_crew_destroy(struct psi_crew *crew);

/* One task; its owner has the memory. */
struct psi_crew_task {
    void (*run)(void *object, uint32_t part); /* parts in any order, and at the same time */
    void *object;
    uint32_t parts;
    uint64_t bytes; /* of all parts: what it weighs */
    uint32_t place; /* the crew's */
};

/* False: nobody would help, and nothing was begun. */
bool psi_crew_begin(struct psi_crew *crew, struct psi_crew_task *task);

/* The task was begun, and is done when this returns. */
void psi_crew_finish(struct psi_crew *crew, const struct psi_crew_task *task);

/* Both at once, with help or without; crew NULL: without. */
void psi_crew_do(struct psi_crew *crew, struct psi_crew_task *task);

/* Threads that were started so far. Any thread. */
uint32_t psi_crew_started(const struct psi_crew *crew);

#endif
