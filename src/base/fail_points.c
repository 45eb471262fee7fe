/*
 * fail_points.c - which point is armed, and what happens there. Only in test builds.
 *
 * A board has a slot for each point of the map, in its order. It is the process's own, armed by
 * PSD_FAIL_POINT, or the file that PSD_FAIL_BOARD names, mapped by all processes of a job: it is
 * mapped before the process gives up its right to open files, so a test arms a point in the middle of
 * a run, in one process or in whichever comes there first, and sees how often each was passed.
 *
 * Thread: slots are atomic. The rest is written once, before main() begins.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail_points.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/monotonic.h"

enum { BOARD_MAGIC = 0x42465350, ACTION_KILL = 0, ACTION_STOP = 1 };

/* Of one point. What tests/prove/board.py writes and reads. */
struct slot {
    _Atomic uint32_t left;     /* passings until it happens; 0: not armed */
    _Atomic uint32_t action;   /* ACTION_ */
    _Atomic uint32_t only;     /* the process that is meant, as it knows itself; 0: any */
    _Atomic uint32_t fired;    /* the process to which it happened last */
    _Atomic uint64_t passes;   /* in all processes */
    _Atomic uint64_t fired_ns; /* when that was, by CLOCK_MONOTONIC */
};

struct board {
    uint32_t magic;
    uint32_t points;
    uint8_t unused[56];
    struct slot slot[PSI_FAIL_POINTS_COUNT];
};

_Static_assert(sizeof(struct slot) == 32, "as board.py has it");

static const char *const names[PSI_FAIL_POINTS_COUNT] = {
#define PSI_FAIL_POINT_NAME(name, text) #name,
    PSI_FAIL_POINT_MAP(PSI_FAIL_POINT_NAME)
#undef PSI_FAIL_POINT_NAME
};

static struct board own;
static struct board *board = &own;

static void __attribute__((noreturn)) complain(const char *what, const char *text)
{
    fprintf(stderr, "fail points: %s: %s\n", what, text);
    _exit(2);
}

static void
arm(const char *text)
{
    const size_t length = strcspn(text, ":");
    char word[8] = "kill";
    unsigned left = 1;

    for (unsigned point = 0; point < PSI_FAIL_POINTS_COUNT; point++) {
        if (strlen(names[point]) == length && strncmp(names[point], text, length) == 0) {
            if (text[length] == ':' &&
                (sscanf(text + length, ":%u:%4s", &left, word) < 1 || left == 0)) {
                complain(text, "expected NAME[:N[:kill|stop]]");
            }
            atomic_store(&own.slot[point].action,
                         strcmp(word, "stop") == 0 ? ACTION_STOP : ACTION_KILL);
            atomic_store(&own.slot[point].left, left);
            return;
        }
    }
    complain(text, "no such point: psd_points lists them");
}

static void
map(const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    struct board *shared;

    if (fd < 0 || fstat(fd, &status) != 0 || status.st_size < (off_t)sizeof(*shared)) {
        complain(path, "no board of this build");
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED || shared->magic != BOARD_MAGIC ||
        shared->points != PSI_FAIL_POINTS_COUNT) {
        complain(path, "no board of this build");
    }
    board = shared;
}

/* Before main(), and so before the process locks itself in. */
static void __attribute__((constructor)) begin(void)
{
    const char *text = getenv("PSD_FAIL_POINT");
    const char *path = getenv("PSD_FAIL_BOARD");

    if (text != NULL && text[0] != '\0') {
        arm(text);
    } else if (path != NULL && path[0] != '\0') {
        map(path);
    }
}

/* One line, at once and whole: nothing is left to write it later. tgkill to itself is the one way to
 * send a signal that a locked-in daemon has. */
static void
happen(enum psi_fail_point point, uint32_t action)
{
    char line[160];
    const int length =
        snprintf(line, sizeof(line), "FAIL-POINT %s: process %d %s\n", names[point], (int)getpid(),
                 action == ACTION_STOP ? "stops itself" : "kills itself");

    if (write(STDERR_FILENO, line, (size_t)length) < 0) {
        /* nobody reads it: what was asked for happens all the same */
    }
    (void)syscall(SYS_tgkill, getpid(), syscall(SYS_gettid),
                  action == ACTION_STOP ? SIGSTOP : SIGKILL);
}

void
psi_fail_point_pass(enum psi_fail_point point)
{
    struct slot *slot = &board->slot[point];
    uint32_t left = atomic_load_explicit(&slot->left, memory_order_acquire);
    uint32_t only;

    atomic_fetch_add_explicit(&slot->passes, 1, memory_order_relaxed);
    if (left == 0) {
        return;
    }
    only = atomic_load(&slot->only);
    if (only != 0 && only != (uint32_t)getpid()) {
        return;
    }
    while (left > 0 && !atomic_compare_exchange_weak(&slot->left, &left, left - 1)) {
    }
    if (left == 1) {
        atomic_store(&slot->fired_ns, psi_monotonic_ns());
        atomic_store(&slot->fired, (uint32_t)getpid());
        happen(point, atomic_load(&slot->action));
    }
}
