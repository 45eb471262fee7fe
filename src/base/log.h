/*
 * log.h - lines for people and for grep. Daemons only: libpsd never prints.
 *
 * Levels by volume: error (something is lost), warn (odd, going on), info (one line per event of a
 * life), debug (one per object), trace (one per message). Every line of level info and above has a
 * stable id: "2026-01-31T12:00:00.123 server0 info MEMBER-LOST worker 2 ...".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_LOG_H
#define PSI_BASE_LOG_H

#include <stdint.h>

enum psi_log_level { PSI_LOG_ERROR, PSI_LOG_WARN, PSI_LOG_INFO, PSI_LOG_DEBUG, PSI_LOG_TRACE };

/*
 * Where a core's lines go. The daemons' writes to stderr; the simulator's keeps them for its trace.
 * Thread: write may be called from any thread that runs a core.
 */
struct psi_log {
    void (*write)(void *sink, enum psi_log_level level, const char *id, const char *text);
    void *sink;
    enum psi_log_level level;
};

/* A log with write == NULL swallows everything. */
void psi_log(const struct psi_log *log, enum psi_log_level level, const char *id,
             const char *format, ...) __attribute__((format(printf, 4, 5)));

/* What follows a noun behind its number: "%u worker%s", 1 worker, 2 workers. */
static inline const char *
psi_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* Lines to stderr, each in one write, with a time stamp and `name` ("master", "server0"). Control
 * characters and bytes that are not ASCII are escaped: a peer's text cannot forge a line. */
void psi_log_to_stderr(struct psi_log *log, const char *name, enum psi_log_level level);

#endif
