/*
 * life_journal.h - a file that counts the lives of a job's master, for masters that no psd_run
 * starts.
 *
 * What a master has to know it hears from the lanes (rebuild.c); the one thing that nobody can tell
 * it is which life this is. So the file holds one line for each life, written and synchronised
 * before anybody is let in, and one when the job is over. It is locked for as long as a master
 * has it: two of them cannot count at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_LIFE_JOURNAL_H
#define MASTER_LIFE_JOURNAL_H

#include <stdint.h>

#include <psd/status.h>

#include "base/log.h"

/* Thread: owned by the thread that opened it. */
struct life_journal;

/*
 * Opens the file, or makes it, and says which life comes next: 1 if there is none in it, or its last
 * job is over. A line that is damaged counts as a life, for it was one; `log` hears of it.
 *
 * PSD_ERR_STATE: another master has it, it is of a job of another size, or not a journal at all.
 * PSD_ERR_IO: it cannot be read or written, or belongs to somebody else.
 */
psd_status life_journal_open(const char *path, uint32_t workers, uint32_t servers,
                             const struct psi_log *log, struct life_journal **journal_p,
                             struct psd_error *err);
void life_journal_close(struct life_journal *journal); /* NULL is allowed */

/* Which life is to begin. */
uint32_t life_journal_term(const struct life_journal *journal);

/* Where members look for it: the port of the last life; 0: there was none. */
uint16_t life_journal_port(const struct life_journal *journal);

/* Writes down that this life begins, on the disk when it returns. Let nobody in before. */
psd_status life_journal_begin(struct life_journal *journal, uint16_t port, struct psd_error *err);

/* The job has ended: the next master begins another one. */
void life_journal_over(struct life_journal *journal);

/* Members know of a later life than the file does: it has lost lines. The next master goes on behind
 * that life. */
void life_journal_catch_up(struct life_journal *journal, uint32_t term);

#endif
