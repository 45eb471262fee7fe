/*
 * life_journal.c - a file that counts the lives of a job's master.
 *
 * Lines of one length, so that a damaged one still counts, by its place:
 *
 *   poseidon life 2 port 5555 workers 4 servers 2 crc32c 1c1b9d3e          (padded with blanks)
 *
 * The file is only ever appended to. A line that was torn by a crash is filled up and left there:
 * the life whose line it is let nobody in, and to leave a number out does no harm.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/life_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "view/view.h"

enum {
    LINE_BYTES = 80,
    LINES_MAX =
        3 * PSI_TERM_MAX, /* of jobs that are over the lines are gone when the next begins */
    WORD_LIFE = 0,
    WORD_OVER = 1,
};

static const char *const words[] = {"life", "over"};

/* What one line says. */
struct line {
    uint32_t word;
    uint32_t term;
    uint32_t port;
    uint32_t workers;
    uint32_t servers;
};

struct life_journal {
    char *path;
    int fd;
    const struct psi_log *log;
    struct line now; /* of this life */
};

/* ---------------------------------------------------------------------------------- a line --- */

static void
line_write(const struct line *line, char text[LINE_BYTES + 1])
{
    const int bytes =
        snprintf(text, LINE_BYTES + 1, "poseidon %s %u port %u workers %u servers %u crc32c ",
                 words[line->word], line->term, line->port, line->workers, line->servers);
    const uint32_t crc = psi_crc32c(0, text, (size_t)bytes);

    snprintf(text + bytes, (size_t)(LINE_BYTES + 1 - bytes), "%08" PRIx32 "%*s\n", crc,
             LINE_BYTES - 1 - bytes - 8, "");
}

/* A line is whole if it is what would be written for what it says. */
static bool
line_read(const char *text, struct line *line_p)
{
    char copy[LINE_BYTES + 1];
    char again[LINE_BYTES + 1];
    char word[5];

    memcpy(copy, text, LINE_BYTES);
    copy[LINE_BYTES] = '\0';
    if (sscanf(copy,
               "poseidon %4s %" SCNu32 " port %" SCNu32 " workers %" SCNu32 " servers %" SCNu32,
               word, &line_p->term, &line_p->port, &line_p->workers, &line_p->servers) != 5 ||
        line_p->term == 0 || line_p->term > PSI_TERM_MAX || line_p->port > UINT16_MAX) {
        return false;
    }
    line_p->word = strcmp(word, words[WORD_OVER]) == 0 ? WORD_OVER : WORD_LIFE;
    line_write(line_p, again);
    return memcmp(copy, again, LINE_BYTES) == 0;
}

/* In one call: under the sandbox that is all a master may still do to a file. */
static psd_status
append(const struct life_journal *journal, const char *bytes, size_t count, struct psd_error *err)
{
    const ssize_t written = write(journal->fd, bytes, count);

    if (written < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "write to the journal %s", journal->path);
    }
    if ((size_t)written < count) {
        return psi_fail(err, PSD_ERR_IO, "write to the journal %s: the disk is full",
                        journal->path);
    }
    return PSD_OK;
}

static psd_status
append_line(const struct life_journal *journal, const struct line *line, struct psd_error *err)
{
    char text[LINE_BYTES + 1];

    line_write(line, text);
    return append(journal, text, LINE_BYTES, err);
}

/* -------------------------------------------------------------------------------- the file --- */

static psd_status
open_file(struct life_journal *journal, struct psd_error *err)
{
    struct stat about;

    journal->fd =
        open(journal->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
             S_IRUSR | S_IWUSR);
    if (journal->fd < 0) {
        return errno == ELOOP
                   ? psi_fail(err, PSD_ERR_IO,
                              "open the journal %s: it is a symbolic link; "
                              "name the file itself",
                              journal->path)
                   : psi_fail_errno(err, PSD_ERR_IO, "open the journal %s", journal->path);
    }
    if (fstat(journal->fd, &about) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "look at the journal %s", journal->path);
    }
    if (!S_ISREG(about.st_mode)) {
        return psi_fail(err, PSD_ERR_IO, "the journal %s is not a file", journal->path);
    }
    if (about.st_uid != geteuid() || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return psi_fail(err, PSD_ERR_IO,
                        "the journal %s can be written by others; it must belong to you, mode 0600",
                        journal->path);
    }
    if (flock(journal->fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK
                   ? psi_fail(err, PSD_ERR_STATE,
                              "the journal %s is in use: another ps_master of this job is running. "
                              "End it first, or give another job another file",
                              journal->path)
                   : psi_fail_errno(err, PSD_ERR_IO, "lock the journal %s", journal->path);
    }
    return PSD_OK;
}

/* The caller frees *text_p. */
static psd_status
read_file(const struct life_journal *journal, char **text_p, size_t *bytes_p, struct psd_error *err)
{
    const size_t bytes_max = (size_t)LINES_MAX * LINE_BYTES;
    char *text = malloc(bytes_max + 1);
    size_t bytes = 0;
    ssize_t got = 1;

    if (text == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "read the journal %s: out of memory",
                        journal->path);
    }
    while (got > 0 && bytes <= bytes_max) {
        got = pread(journal->fd, text + bytes, bytes_max + 1 - bytes, (off_t)bytes);
        if (got < 0 && errno != EINTR) {
            free(text);
            return psi_fail_errno(err, PSD_ERR_IO, "read the journal %s", journal->path);
        }
        bytes += got > 0 ? (size_t)got : 0;
    }
    *text_p = text;
    *bytes_p = bytes;
    return PSD_OK;
}

/* What the file says of the lives so far. */
struct history {
    struct line last; /* the last line that is whole */
    uint32_t whole;
    uint32_t damaged;
    uint32_t behind; /* damaged lines after the last whole one */
};

static struct history
read_history(const char *text, size_t bytes)
{
    struct history history = {0};
    struct line line;

    for (size_t at = 0; at < bytes; at += LINE_BYTES) {
        if (bytes - at >= LINE_BYTES && line_read(text + at, &line)) {
            history.last = line;
            history.whole++;
            history.behind = 0;
        } else {
            history.damaged++;
            history.behind++;
        }
    }
    return history;
}

static psd_status
check(const struct life_journal *journal, const struct history *history, size_t bytes,
      struct psd_error *err)
{
    const struct line *last = &history->last;

    if ((bytes > 0 && history->whole == 0) || bytes > (size_t)LINES_MAX * LINE_BYTES) {
        return psi_fail(
            err, PSD_ERR_STATE,
            "%s is not the journal of a master, or nothing of it is left. If its job is "
            "over, remove it; if not, the job cannot be taken over",
            journal->path);
    }
    if (history->whole > 0 && last->word == WORD_LIFE &&
        (last->workers != journal->now.workers || last->servers != journal->now.servers)) {
        return psi_fail(
            err, PSD_ERR_STATE,
            "the journal %s is of a job of %u worker%s and %u server%s, and this one has "
            "%u and %u. If that job is over, remove the file",
            journal->path, last->workers, psi_plural(last->workers), last->servers,
            psi_plural(last->servers), journal->now.workers, journal->now.servers);
    }
    if (last->term + history->behind >= PSI_TERM_MAX) {
        return psi_fail(err, PSD_ERR_STATE,
                        "the journal %s: a job has at most %d lives of its master", journal->path,
                        PSI_TERM_MAX);
    }
    return PSD_OK;
}

/* A job that is over leaves nothing that the next one has to know. */
static psd_status
take_up(struct life_journal *journal, const struct history *history, size_t bytes,
        struct psd_error *err)
{
    const bool is_over = history->last.word == WORD_OVER && history->behind == 0;
    const size_t torn = bytes % LINE_BYTES;
    char fill[LINE_BYTES];

    if (history->damaged > 0) {
        psi_log(journal->log, PSI_LOG_WARN, "JOURNAL",
                "%s: %u of %u lines are damaged; each counts as a life of the master",
                journal->path, history->damaged, history->damaged + history->whole);
    }
    if (history->whole == 0 || is_over) {
        journal->now.term = 1;
        return ftruncate(journal->fd, 0) == 0
                   ? PSD_OK
                   : psi_fail_errno(err, PSD_ERR_IO, "empty the journal %s", journal->path);
    }
    journal->now.term =
        (history->last.word == WORD_OVER ? 0 : history->last.term) + history->behind + 1;
    journal->now.port = history->last.port;
    if (torn == 0) {
        return PSD_OK;
    }
    memset(fill, '#', sizeof(fill));
    return append(journal, fill, LINE_BYTES - torn, err);
}

psd_status
life_journal_open(const char *path, uint32_t workers, uint32_t servers, const struct psi_log *log,
                  struct life_journal **journal_p, struct psd_error *err)
{
    struct life_journal *journal = calloc(1, sizeof(*journal));
    struct history history;
    char *text = NULL;
    size_t bytes = 0;
    psd_status status;

    if (journal == NULL || (journal->path = strdup(path)) == NULL) {
        free(journal);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "open the journal %s: out of memory", path);
    }
    journal->log = log;
    journal->fd = -1;
    journal->now = (struct line){.workers = workers, .servers = servers};
    status = open_file(journal, err);
    if (status == PSD_OK) {
        status = read_file(journal, &text, &bytes, err);
    }
    if (status == PSD_OK) {
        history = read_history(text, bytes);
        status = check(journal, &history, bytes, err);
    }
    if (status == PSD_OK) {
        status = take_up(journal, &history, bytes, err);
    }
    free(text);
    if (status != PSD_OK) {
        life_journal_close(journal);
        return status;
    }
    *journal_p = journal;
    return PSD_OK;
}

void
life_journal_close(struct life_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    if (journal->fd >= 0) {
        close(journal->fd);
    }
    free(journal->path);
    free(journal);
}

/* --------------------------------------------------------------------------------- a life --- */

uint32_t
life_journal_term(const struct life_journal *journal)
{
    return journal->now.term;
}

uint16_t
life_journal_port(const struct life_journal *journal)
{
    return (uint16_t)journal->now.port;
}

/* The file's name must last, too. */
static psd_status
sync_directory(const struct life_journal *journal, struct psd_error *err)
{
    const char *slash = strrchr(journal->path, '/');
    char *directory =
        slash == NULL ? strdup(".") : strndup(journal->path, (size_t)(slash - journal->path) + 1);
    const int fd = directory == NULL ? -1 : open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = fd >= 0 && fsync(fd) == 0;

    if (!done) {
        psi_fail_errno(err, PSD_ERR_IO, "sync the directory of the journal %s", journal->path);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(directory);
    return done ? PSD_OK : PSD_ERR_IO;
}

psd_status
life_journal_begin(struct life_journal *journal, uint16_t port, struct psd_error *err)
{
    psd_status status;

    journal->now.word = WORD_LIFE;
    journal->now.port = port;
    status = append_line(journal, &journal->now, err);
    if (status == PSD_OK && fdatasync(journal->fd) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "sync the journal %s", journal->path);
    }
    return status == PSD_OK && journal->now.term == 1 ? sync_directory(journal, err) : status;
}

/* If this line is lost, the next master looks for members of a job that is over, finds none, and
 * gathers. */
void
life_journal_over(struct life_journal *journal)
{
    struct psd_error err = {0};

    journal->now.word = WORD_OVER;
    if (append_line(journal, &journal->now, &err) != PSD_OK) {
        psi_log(journal->log, PSI_LOG_WARN, "JOURNAL", "%s; remove it before the next job",
                err.text);
    }
}

void
life_journal_catch_up(struct life_journal *journal, uint32_t term)
{
    struct psd_error err = {0};

    journal->now.word = WORD_LIFE;
    journal->now.term = term;
    if (append_line(journal, &journal->now, &err) != PSD_OK) {
        psi_log(journal->log, PSI_LOG_ERROR, "JOURNAL", "%s", err.text);
        return;
    }
    psi_log(
        journal->log, PSI_LOG_WARN, "JOURNAL",
        "%s had lost lines: members know of life %u. It says so now; start ps_master again, and it "
        "takes the job over",
        journal->path, term);
}
