/*
 * children.c - the processes that an agent started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/agent/filters.h"
#include "launch/agent/hook.h"
#include "launch/agent/start_order.h"
#include "launch/agent/tree.h"
#include "launch/system/close_fd.h"
#include "launch/system/spawn.h"
#include "launch/text/variables.h"

enum {
    READ_BYTES = 4 << 10,
    PENDING_BYTES_MAX = 256 << 10, /* unsent output; then the processes wait */
    DRAIN_READS_MAX = 64, /* of a dead process's pipe, in case somebody else still fills it */
    POLLS_EACH = LINK_STREAMS + 2,
};

void
children_fini(struct children *children)
{
    for (size_t i = 0; i < children->count; i++) {
        printout_fini(&children->list[i].printout);
        close_fd(&children->list[i].ready);
        close_fd(&children->list[i].heed);
        close_fd(&children->list[i].note);
        free((char *)children->list[i].order.data);
    }
    free(children->list);
    free(children->polls);
    *children = (struct children){0};
}

static struct child *
find_slot(const struct children *children, uint32_t slot)
{
    for (size_t i = 0; i < children->count; i++) {
        if (children->list[i].slot == slot) {
            return &children->list[i];
        }
    }
    return NULL;
}

/* The record of a slot, new if need be. NULL without memory. */
static struct child *
take_slot(struct children *children, uint32_t slot)
{
    struct child *child = find_slot(children, slot);

    if (child == NULL) {
        struct child *list = realloc(children->list, (children->count + 1) * sizeof(*list));

        if (list == NULL) {
            return NULL;
        }
        children->list = list;
        child = &list[children->count++];
        *child = (struct child){.slot = slot, .ready = -1, .heed = -1, .note = -1};
        printout_init(&child->printout, slot);
    }
    return child;
}

/* -------------------------------------------------------------------------------- to start --- */

/* What a master and psd_run say to each other about a job of 1,024 lanes fits into it, even if the other side does
 * not read for a while. */
enum { WORDS_BYTES = 1 << 20 };

/* A pipe whose read end we keep. Returns its write end, or -1. */
static int
open_pipe(int *read_end_p)
{
    int pipes[2];

    close_fd(read_end_p);
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return -1;
    }
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(pipes[0], F_SETPIPE_SZ, WORDS_BYTES); /* where we may */
    *read_end_p = pipes[0];
    return pipes[1];
}

/* A pipe whose write end we keep. Returns its read end, or -1: then the master is told nothing. */
static int
open_stdin(int *write_end_p)
{
    int pipes[2];

    close_fd(write_end_p);
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return -1;
    }
    fcntl(pipes[1], F_SETFL, O_NONBLOCK);
    (void)fcntl(pipes[1], F_SETPIPE_SZ, WORDS_BYTES); /* where we may */
    *write_end_p = pipes[1];
    return pipes[0];
}

/* A pipe for notes, named in the environment. Returns its write end; -1: the worker has none. */
static int
open_note(struct child *child, struct start_order *order)
{
    int pipe_end = open_pipe(&child->note);
    const int fd = pipe_end < 0 ? -1 : fcntl(pipe_end, F_DUPFD_CLOEXEC, SPAWN_EXTRA_FD + 1);

    close_fd(&pipe_end);
    notes_init(&child->notes);
    if (fd >= 0 && hook_name_note(fd, &order->environment, NULL) != PSD_OK) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A container passes the first descriptor alone. */
static bool
wants_low_secret(const struct start_order *order)
{
    const char *wanted = variables_get(order->environment.list, "PSD_SECRET_FD");

    return strcmp(order->role, "worker") == 0 && wanted != NULL &&
           strtol(wanted, NULL, 10) == SPAWN_EXTRA_FD;
}

/* Nothing of the last life of a process may share the rank with the next. */
static void
kill_last_life(const struct children *children, const struct child *child)
{
    const struct tree_pick pick = {.root = getpid(), .leader = child->pid, .gone = !child->alive};

    for (size_t i = 0; i < children->count; i++) {
        const struct child *other = &children->list[i];

        if (other != child && other->alive && other->pid == child->pid) {
            return; /* its number was free again: nothing of it is left */
        }
    }
    if (child->pid > 0) {
        tree_signal(&pick, SIGKILL);
    }
}

static int
start_child(struct child *child, const struct setup *setup, struct start_order *order)
{
    struct spawn_args args = {.path = order->path,
                              .argv = order->argv,
                              .input_fd = -1,
                              .extra_fd = -1,
                              .secret_fd = setup->secret_fd,
                              .note_fd = -1};
    int ends[LINK_STREAMS] = {-1, -1};
    int code;

    code = printout_begin(&child->printout, setup->log_directory, order->log, ends);
    args.output_fd = ends[0];
    args.error_fd = ends[1];
    if (strcmp(order->role, "master") == 0) {
        args.extra_fd = open_pipe(&child->ready);
        args.input_fd = open_stdin(&child->heed);
    } else if (wants_low_secret(order)) {
        args.extra_fd = fcntl(setup->secret_fd, F_DUPFD_CLOEXEC, 0);
        args.secret_fd = -1;
    }
    if (strcmp(order->role, "worker") == 0 &&
        hook_is_on(setup->hook_directory, &order->environment)) {
        args.note_fd = open_note(child, order);
    }
    args.environment = order->environment.list;
    code = code != 0 ? code : spawn_start(&args, &child->pid);
    close_fd(&ends[0]);
    close_fd(&ends[1]);
    close_fd(&args.extra_fd);
    close_fd(&args.input_fd);
    close_fd(&args.note_fd);
    child->alive = code == 0;
    child->is_daemon = strcmp(order->role, "worker") != 0;
    child->drains = 0;
    child->released = false;
    return code;
}

/* The ports are its own from now on. */
static void
take_ports(struct child *child, struct setup *setup, const char *list)
{
    for (unsigned i = 0; i < CHILD_PORTS; i++) {
        char *end;

        child->ports[i] = (uint16_t)strtoul(list, &end, 10);
        ports_release(&setup->ports, child->ports[i]);
        list = *end == ',' ? end + 1 : end;
    }
}

int
children_start(struct children *children, struct setup *setup, const struct link_message *message,
               pid_t *pid_p, char **path_p)
{
    struct start_order order = {.role = ""};
    struct child *child = take_slot(children, message->slot);
    int code = child == NULL ? ENOMEM : start_order_read(&order, setup, message);

    if (code == 0) {
        kill_last_life(children, child);
        take_ports(child, setup, order.ports);
        code = start_child(child, setup, &order);
    }
    *pid_p = code == 0 ? child->pid : 0;
    *path_p = order.path;
    order.path = NULL;
    start_order_fini(&order);
    return code;
}

/* ------------------------------------------------------------------------ to start again --- */

bool
children_keep_order(struct children *children, const struct link_message *message)
{
    struct child *child = find_slot(children, message->slot);
    char *data;

    if (child == NULL || child->alive || !printout_is_open(&child->printout)) {
        return false;
    }
    data = malloc(message->bytes + 1);
    if (data == NULL) {
        return false;
    }
    memcpy(data, message->data, message->bytes);
    child->order = *message;
    child->order.data = data;
    return true;
}

bool
children_next_order(struct children *children, struct link *link, struct link_message *message_p)
{
    for (size_t i = 0; i < children->count; i++) {
        struct child *child = &children->list[i];
        enum children_drain drain;

        if (child->order.kind == 0) {
            continue;
        }
        drain = children_drain(child, psi_monotonic_ms());
        if (drain != CHILDREN_READS) {
            children_name_holders(child, drain, link);
            printout_end(&child->printout, link);
            *message_p = child->order;
            child->order = (struct link_message){0};
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------- to signal --- */

/* A signal that tells something, and is not meant to end anybody: whoever does not know it would
 * die of it, or stop. */
static bool
is_news(int number)
{
    return number == SIGUSR1 || number == SIGUSR2 || number == SIGTSTP;
}

/* The group at once, so that nobody slips through by forking; then those in sessions of their own.
 */
static void
signal_everybody(const struct child *child, int number)
{
    kill(-child->pid, number);
    tree_signal(
        &(struct tree_pick){.root = getpid(), .leader = child->pid, .spare_session = child->pid},
        number);
}

/* Shorter than PIPE_BUF: it is written whole, or not at all if the master hangs. Then it hears nothing more, or the
 * word that it has heard all would come behind one that it has not; it finds out otherwise, a little later. */
void
children_tell(const struct children *children, const struct link_message *message)
{
    struct child *child = find_slot(children, message->slot);

    if (child != NULL && child->alive && child->heed >= 0 &&
        write(child->heed, message->data, message->bytes) < 0) {
        close_fd(&child->heed);
    }
}

void
children_signal(const struct children *children, uint32_t slot, int number)
{
    const struct child *child = find_slot(children, slot);
    struct filters_pipes pipes = {0};
    struct tree_pids filters = {0};
    struct tree_pids leader = {0};

    if (child == NULL || !child->alive) {
        return;
    }
    tree_pids_add(&leader, child->pid);
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        filters_pipes_add(&pipes, child->printout.fds[i]);
    }
    filters_find(getpid(), &leader, &pipes, &filters);
    if (filters.count == 0 && !is_news(number)) {
        signal_everybody(child, number);
    } else {
        tree_signal(&(struct tree_pick){.root = getpid(),
                                        .leader = child->pid,
                                        .spare = filters.list,
                                        .spare_count = filters.count,
                                        .handling = is_news(number)},
                    number);
    }
    tree_pids_fini(&leader);
    tree_pids_fini(&filters);
    filters_pipes_fini(&pipes);
}

/* -------------------------------------------------------------------------------- to print --- */

/* Reads once and hands it on. Returns false when there was nothing. */
static bool
pass_on_ready(struct child *child, struct link *link)
{
    char bytes[READ_BYTES];
    const ssize_t count = child->ready >= 0 ? read(child->ready, bytes, sizeof(bytes)) : 0;

    if (count > 0) {
        link_send(link, LINK_READY, child->slot, 0, bytes, (size_t)count);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_fd(&child->ready);
    }
    return count > 0;
}

struct note_way {
    const struct child *child;
    struct link *link;
};

static void
send_note(void *context, const char *line, size_t bytes)
{
    const struct note_way *way = context;

    link_send(way->link, LINK_NOTE, way->child->slot, 0, line, bytes);
}

/* Reads once. Returns false when there was nothing. */
static bool
pass_on_notes(struct child *child, struct link *link)
{
    struct note_way way = {.child = child, .link = link};
    char bytes[READ_BYTES];
    const ssize_t count = child->note >= 0 ? read(child->note, bytes, sizeof(bytes)) : 0;

    if (count > 0) {
        notes_take(&child->notes, bytes, (size_t)count, send_note, &way);
        return true;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_fd(&child->note);
        notes_end(&child->notes, send_note, &way);
    }
    return false;
}

struct pollfd *
children_polls(struct children *children, size_t pending_bytes, size_t reserved)
{
    const size_t count = reserved + POLLS_EACH * children->count;
    struct pollfd *polls = realloc(children->polls, count * sizeof(*polls));

    psi_assert(polls != NULL); /* some hundred bytes: without them nothing can go on */
    children->polls = polls;
    children->poll_count = POLLS_EACH * children->count;
    for (size_t i = 0; i < children->count; i++) {
        const struct child *child = &children->list[i];
        const bool room = pending_bytes < PENDING_BYTES_MAX;
        struct pollfd *poll = polls + reserved + POLLS_EACH * i;

        for (unsigned stream = 0; stream < LINK_STREAMS; stream++) {
            *poll++ =
                (struct pollfd){.fd = room ? child->printout.fds[stream] : -1, .events = POLLIN};
        }
        *poll++ = (struct pollfd){.fd = child->ready, .events = POLLIN};
        *poll++ = (struct pollfd){.fd = child->note, .events = POLLIN};
    }
    return polls;
}

void
children_read(struct children *children, struct link *link, const struct pollfd *polls)
{
    const bool congested = link_pending(link) >= PENDING_BYTES_MAX;

    for (size_t i = 0; POLLS_EACH * i < children->poll_count; i++) {
        struct child *child = &children->list[i];
        const struct pollfd *poll = polls + POLLS_EACH * i;

        for (unsigned stream = 0; stream < LINK_STREAMS; stream++, poll++) {
            if (poll->fd >= 0 && poll->revents != 0) {
                printout_read(&child->printout, stream, link);
            }
        }
        printout_tick(&child->printout, link);
        child->died_ms = congested ? psi_monotonic_ms() : child->died_ms; /* its pipe has to wait */
        if (poll[0].fd >= 0 && poll[0].revents != 0) {
            (void)pass_on_ready(child, link);
        }
        if (poll[1].fd >= 0 && poll[1].revents != 0) {
            pass_on_notes(child, link);
        }
    }
}

/* ---------------------------------------------------------------------------------- to end --- */

void
children_reap(struct children *children, struct unpack *unpack)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        unpack_died(unpack, pid, status);
        for (size_t i = 0; i < children->count; i++) {
            struct child *child = &children->list[i];

            if (child->alive && child->pid == pid) {
                child->alive = false;
                child->unreported = true;
                child->status = status;
                child->died_ms = psi_monotonic_ms();
            }
        }
    }
}

void
children_finish(struct children *children, struct link *link)
{
    for (size_t i = 0; i < children->count; i++) {
        struct printout *printout = &children->list[i].printout;

        for (unsigned stream = 0; stream < LINK_STREAMS; stream++) {
            for (int k = 0; k < DRAIN_READS_MAX && printout_read(printout, stream, link); k++) {
            }
        }
        printout_end(printout, link);
    }
}

uint64_t
children_deadline(const struct children *children)
{
    uint64_t until_ms = UINT64_MAX;

    for (size_t i = 0; i < children->count; i++) {
        const struct child *child = &children->list[i];
        const uint64_t ms = printout_deadline(&child->printout);

        until_ms = ms < until_ms ? ms : until_ms;
        if (child->order.kind != 0 && children_drain_deadline(child) < until_ms) {
            until_ms = children_drain_deadline(child);
        }
    }
    return until_ms;
}

bool
children_busy(const struct children *children)
{
    for (size_t i = 0; i < children->count; i++) {
        if (children->list[i].unreported) {
            return true;
        }
    }
    return false;
}

/*
 * The next to report. The system does not tell in which order those that died together did so, and
 * who died of whom: a process killed by a signal did not die of another's death, and services (low
 * slots) die of workers rather than the reverse.
 */
static struct child *
next_dead(const struct children *children)
{
    struct child *next = NULL;

    for (size_t i = 0; i < children->count; i++) {
        struct child *child = &children->list[i];

        if (child->unreported &&
            (next == NULL || WIFSIGNALED(child->status) > WIFSIGNALED(next->status) ||
             (WIFSIGNALED(child->status) == WIFSIGNALED(next->status) &&
              child->slot > next->slot))) {
            next = child;
        }
    }
    return next;
}

/* Hands on what a dead process left in its pipes. Returns false when there is no room for it now. */
static bool
drain(struct child *child, struct link *link)
{
    bool any;

    do {
        if (link_pending(link) >= PENDING_BYTES_MAX) {
            return false;
        }
        any = printout_read(&child->printout, 0, link);
        any = printout_read(&child->printout, 1, link) || any;
        any = pass_on_ready(child, link) || any;
    } while (any && child->drains++ < DRAIN_READS_MAX);
    return true;
}

void
children_report(struct children *children, const struct setup *setup, struct link *link)
{
    struct child *child;

    while ((child = next_dead(children)) != NULL && drain(child, link)) {
        close_fd(&child->ready); /* psd_run obeys the next life alone from now on */
        for (int i = 0; i < DRAIN_READS_MAX && pass_on_notes(child, link); i++) {
        }
        child->unreported = false;
        for (unsigned i = 0; i < CHILD_PORTS && child->status != 0; i++) {
            if (ports_is_taken(&setup->ports, child->ports[i])) {
                link_send(link, LINK_PORT_TAKEN, child->slot, child->ports[i], NULL, 0);
            }
        }
        link_send(link, LINK_EXITED, child->slot, child->status, NULL, 0);
    }
}
