/*
 * fuzz_life_journal.c - a master's journal, whatever is in the file. What is accepted gives the next
 * life a number, and the one after it a higher one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "fuzz.h"
#include "master/life_journal.h"
#include "view/view.h"

enum { WORKERS = 3, SERVERS = 2, PORT = 5555 };

static const struct psi_log quiet = {.write = NULL};

static char path[] = "/tmp/psd-fuzz-journal-XXXXXX";

static void
remove_file(void)
{
    unlink(path);
}

/* One file for all inputs of this process. */
static void
fill_file(const uint8_t *data, size_t size)
{
    static int fd = -1;

    if (fd < 0) {
        fd = mkstemp(path);
        psi_assert(fd >= 0);
        atexit(remove_file);
    }
    psi_assert(ftruncate(fd, 0) == 0);
    psi_assert(pwrite(fd, data, size, 0) == (ssize_t)size);
}

/* 0: refused. */
static uint32_t
live(void)
{
    struct life_journal *journal;
    struct psd_error err;
    uint32_t term;

    if (life_journal_open(path, WORKERS, SERVERS, &quiet, &journal, &err) != PSD_OK) {
        return 0;
    }
    term = life_journal_term(journal);
    psi_assert(term >= 1 && term <= PSI_TERM_MAX);
    psi_assert(life_journal_begin(journal, PORT, &err) == PSD_OK);
    life_journal_close(journal);
    return term;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t term;

    fill_file(data, size);
    term = live();
    if (term > 0 && term < PSI_TERM_MAX) {
        psi_assert(live() == term + 1);
    }
    return 0;
}
