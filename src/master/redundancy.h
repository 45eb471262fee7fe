/*
 * redundancy.h - whether servers need copies, and who has which part. For src/master only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_REDUNDANCY_H
#define MASTER_REDUNDANCY_H

#include <stdbool.h>

struct master;

/* Has the job anything that workers could not make anew: such a table, or its global step? */
bool master_needs_copies(struct master *master);

/* Who started the job hears what has changed of who has which server's part, and of the copies. */
void master_redundancy_tell(struct master *master);

#endif
