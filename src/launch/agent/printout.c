/*
 * printout.c - what a child of an agent prints.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/printout.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/monotonic.h"
#include "launch/system/close_fd.h"
#include "launch/system/log_file.h"

enum { READ_BYTES = 32 << 10 };

void
printout_init(struct printout *printout, uint32_t slot)
{
    *printout = (struct printout){.slot = slot, .fds = {-1, -1}, .log = -1};
    merge_init(&printout->merge);
}

void
printout_fini(struct printout *printout)
{
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        close_fd(&printout->fds[i]);
    }
    close_fd(&printout->log);
    merge_fini(&printout->merge);
}

int
printout_begin(struct printout *printout, int log_directory, const char *log_name,
               int write_ends_p[LINK_STREAMS])
{
    int pipes[LINK_STREAMS][2];

    printout_fini(printout);
    printout_init(printout, printout->slot);
    if (pipe2(pipes[0], O_CLOEXEC) != 0) {
        return errno;
    }
    if (pipe2(pipes[1], O_CLOEXEC) != 0) {
        const int code = errno;

        close(pipes[0][0]);
        close(pipes[0][1]);
        return code;
    }
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
        printout->fds[i] = pipes[i][0];
        write_ends_p[i] = pipes[i][1];
    }
    if (log_directory >= 0) {
        printout->log = log_file_open_at(log_directory, log_name);
        printout->log_error = printout->log < 0 ? errno : 0;
    }
    return 0;
}

bool
printout_is_open(const struct printout *printout)
{
    return printout->fds[0] >= 0 || printout->fds[1] >= 0;
}

/* A full disk costs the log, not the job. */
static void
write_log(struct printout *printout, const char *bytes, size_t count)
{
    const ssize_t written = printout->log >= 0 ? write(printout->log, bytes, count) : 0;

    if (printout->log >= 0 && written != (ssize_t)count) {
        printout->log_error = written < 0 ? errno : ENOSPC;
        close_fd(&printout->log);
    }
}

struct way {
    struct printout *printout;
    struct link *link;
};

static void
pass_on(void *context, unsigned stream, bool broken, const char *bytes, size_t count)
{
    const struct way *way = context;
    struct printout *printout = way->printout;

    link_send(way->link, LINK_OUTPUT, printout->slot,
              (int32_t)stream | (broken ? LINK_OUTPUT_BROKEN : 0), bytes, count);
    if (broken) {
        write_log(printout, "\n", 1);
    }
    write_log(printout, bytes, count);
    if (printout->log_error != 0) {
        link_send(way->link, LINK_LOG_FAILED, printout->slot, printout->log_error, NULL, 0);
        printout->log_error = 0;
    }
}

bool
printout_read(struct printout *printout, unsigned stream, struct link *link)
{
    struct way way = {.printout = printout, .link = link};
    int *fd = &printout->fds[stream];
    char bytes[READ_BYTES];
    const ssize_t count = *fd >= 0 ? read(*fd, bytes, sizeof(bytes)) : 0;

    if (count > 0) {
        printout->read_ms = psi_monotonic_ms();
        merge_take(&printout->merge, stream, bytes, (size_t)count, printout->read_ms, pass_on,
                   &way);
        return true;
    }
    if (*fd >= 0 && (count == 0 || (errno != EAGAIN && errno != EINTR))) {
        close_fd(fd);
        merge_end(&printout->merge, stream, pass_on, &way);
    }
    return false;
}

void
printout_tick(struct printout *printout, struct link *link)
{
    merge_tick(&printout->merge, psi_monotonic_ms(), pass_on,
               &(struct way){.printout = printout, .link = link});
}

uint64_t
printout_deadline(const struct printout *printout)
{
    return merge_deadline(&printout->merge);
}

void
printout_end(struct printout *printout, struct link *link)
{
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        close_fd(&printout->fds[i]);
        merge_end(&printout->merge, i, pass_on, &(struct way){.printout = printout, .link = link});
    }
}
