/*
 * ending.c - how an agent ends what it started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/ending.h"

#include <signal.h>
#include <unistd.h>

#include "base/monotonic.h"
#include "launch/agent/filters.h"
#include "launch/agent/tree.h"

enum {
    ROUND_MS = 20,       /* between two rounds of KILL, for those that forked meanwhile ... */
    ROUND_LATE_MS = 200, /* ... when there were many */
    ROUNDS_MS = 1000,
    PATIENT_MS = 500,
    CLOSE_MS = 200, /* from KILL to the end of a pipe; longer: it is held by nobody of ours */
};

static bool
is_reading(const struct child *child)
{
    return !child->alive && printout_is_open(&child->printout);
}

static void
add_pipes(const struct child *child, struct filters_pipes *pipes)
{
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        filters_pipes_add(pipes, child->printout.fds[i]);
    }
}

static void
add_filters(const struct children *children, const struct filters_pipes *pipes,
            struct tree_pids *found)
{
    struct tree_pids leaders = {0};

    for (size_t i = 0; i < children->count; i++) {
        tree_pids_add(&leaders, children->list[i].pid);
    }
    filters_find(getpid(), &leaders, pipes, found);
    tree_pids_fini(&leaders);
}

/* Those whose time has not come. */
static void
find_spared(const struct ending *ending, const struct children *children, uint64_t now_ms,
            struct tree_pids *spared)
{
    struct filters_pipes filtered = {0};
    struct filters_pipes held = {0};

    for (size_t i = 0; i < children->count && !ending->hurried; i++) {
        const struct child *child = &children->list[i];

        if (!printout_is_open(&child->printout) || (child->released && now_ms >= child->kill_ms)) {
            continue;
        }
        if (child->alive || child->asked) {
            add_pipes(child, &filtered);
        } else {
            tree_pids_add(spared, child->pid); /* stands for its session */
            add_pipes(child, &held);
        }
    }
    if (filtered.count > 0) {
        add_filters(children, &filtered, spared);
    }
    if (held.count > 0) {
        filters_find_holders(getpid(), &held, spared);
    }
    filters_pipes_fini(&filtered);
    filters_pipes_fini(&held);
}

static void
signal_all(const struct ending *ending, const struct children *children, uint64_t now_ms,
           int number)
{
    struct tree_pids spared = {0};

    find_spared(ending, children, now_ms, &spared);
    tree_signal(
        &(struct tree_pick){.root = getpid(), .spare = spared.list, .spare_count = spared.count},
        number);
    tree_pids_fini(&spared);
}

/* They say nothing to anybody: psd_run may be elsewhere, and go on with others in their place. Asked to
 * stop, they would end the job for all whom they reach. */
static void
kill_daemons(const struct children *children)
{
    for (size_t i = 0; i < children->count; i++) {
        if (children->list[i].alive && children->list[i].is_daemon) {
            kill(children->list[i].pid, SIGKILL);
        }
    }
}

void
ending_begin(struct ending *ending, struct children *children, uint32_t grace_ms, bool hurried)
{
    const uint64_t now_ms = psi_monotonic_ms();
    const uint64_t kill_ms = now_ms + grace_ms;
    const bool first = !ending->begun;

    if (hurried) {
        kill_daemons(children);
    }
    ending->begun = true;
    ending->hurried = ending->hurried || hurried || grace_ms == 0;
    ending->kill_ms = first || kill_ms < ending->kill_ms ? kill_ms : ending->kill_ms;
    ending->round_ms = ending->kill_ms;
    if (!first) {
        return;
    }
    ending->grace_ms = grace_ms;
    signal_all(ending, children, now_ms, SIGTERM);
    for (size_t i = 0; i < children->count; i++) {
        children->list[i].asked = children->list[i].alive;
    }
}

/* Asks those who were spared for one child. */
static void
release(const struct ending *ending, const struct children *children, struct child *child,
        uint64_t now_ms)
{
    struct filters_pipes pipes = {0};
    struct tree_pids first = {0};
    struct tree_pids pids = {0};

    add_pipes(child, &pipes);
    if (child->asked) {
        add_filters(children, &pipes, &first);
    } else {
        tree_pids_add(&first, child->pid);
        filters_find_holders(getpid(), &pipes, &first);
    }
    for (size_t i = 0; i < first.count; i++) {
        struct tree_pids more = {0};

        tree_list(&(struct tree_pick){.root = getpid(), .leader = first.list[i]}, &more);
        for (size_t k = 0; k < more.count; k++) {
            if (!tree_pids_have(&pids, more.list[k])) { /* nobody is asked twice */
                tree_pids_add(&pids, more.list[k]);
                kill(more.list[k], SIGTERM);
            }
        }
        tree_pids_fini(&more);
    }
    child->released = true;
    child->kill_ms = now_ms + ending->grace_ms;
    tree_pids_fini(&pids);
    tree_pids_fini(&first);
    filters_pipes_fini(&pipes);
}

/* Whether it ended before the end began, and may have left somebody behind. One that never started
 * has no session. */
static bool
has_left(const struct child *child)
{
    return child->pid > 0 && !child->alive && !child->asked && !child->released;
}

/* Releases what was left behind as soon as all is read that can be. */
static void
follow(const struct ending *ending, const struct children *children, struct child *child,
       struct link *link, uint64_t now_ms)
{
    if (!child->released) {
        const enum children_drain drain = children_drain(child, now_ms);

        if (drain == CHILDREN_READS) {
            return;
        }
        children_name_holders(child, drain, link);
        release(ending, children, child, now_ms);
    } else if (now_ms >= child->kill_ms + CLOSE_MS) {
        printout_end(&child->printout, link);
    }
}

bool
ending_reads(const struct ending *ending, const struct children *children)
{
    for (size_t i = 0; i < children->count && !ending->hurried; i++) {
        if (is_reading(&children->list[i])) {
            return true;
        }
    }
    return false;
}

void
ending_turn(struct ending *ending, struct children *children, struct link *link)
{
    const uint64_t now_ms = psi_monotonic_ms();

    if (!ending->begun) {
        return;
    }
    for (size_t i = 0; i < children->count && !ending->hurried; i++) {
        struct child *child = &children->list[i];

        if (is_reading(child) || has_left(child)) {
            follow(ending, children, child, link, now_ms);
        }
    }
    if (ending_reads(ending, children) && now_ms >= ending->patient_ms) {
        ending->patient_ms = now_ms + PATIENT_MS;
        link_send(link, LINK_READING, 0, 0, NULL, 0);
    }
    if (now_ms >= ending->round_ms) {
        ending->round_ms =
            now_ms + (now_ms < ending->kill_ms + ROUNDS_MS ? ROUND_MS : ROUND_LATE_MS);
        signal_all(ending, children, now_ms, SIGKILL);
    }
}

static void
earlier(uint64_t *until_ms, uint64_t ms)
{
    *until_ms = ms < *until_ms ? ms : *until_ms;
}

uint64_t
ending_deadline(const struct ending *ending, const struct children *children)
{
    uint64_t until_ms = UINT64_MAX;

    if (!ending->begun) {
        return until_ms;
    }
    earlier(&until_ms, ending->round_ms);
    for (size_t i = 0; i < children->count && !ending->hurried; i++) {
        const struct child *child = &children->list[i];

        if (is_reading(child)) {
            earlier(&until_ms,
                    child->released ? child->kill_ms + CLOSE_MS : children_drain_deadline(child));
            earlier(&until_ms, ending->patient_ms);
        }
    }
    return until_ms;
}
