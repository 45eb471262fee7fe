/*
 * tree.c - the descendants of a process, and signals to them.
 *
 * /proc is not read at one instant: a process that forks meanwhile can be missed. Whoever wants
 * everybody dead repeats the call until nobody is left.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    FORK_LOOKS = 50, /* at a process that may be about to start another one ... */
    FORK_NS = 2000000,
};

struct entry {
    pid_t pid;
    pid_t parent;
    pid_t session;
    char state;
    bool inside;  /* a descendant of root */
    bool belongs; /* ... and one of those that were meant */
};

struct table {
    struct entry *entries;
    size_t count;
    size_t capacity;
};

/* "pid (name) state ppid pgrp session ...": the name may hold anything, so read from its last ')'.
 */
static bool
read_entry(const char *pid, struct entry *entry_p)
{
    char path[64];
    char text[512];
    const char *rest;
    ssize_t bytes;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bytes = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (bytes <= 0) {
        return false;
    }
    text[bytes] = '\0';
    rest = strrchr(text, ')');
    *entry_p = (struct entry){.pid = (pid_t)strtol(pid, NULL, 10)};
    return rest != NULL && sscanf(rest, ") %c %d %*d %d", &entry_p->state, &entry_p->parent,
                                  &entry_p->session) == 3;
}

static bool
add_entry(struct table *table, const struct entry *entry)
{
    if (table->count == table->capacity) {
        const size_t capacity = table->capacity == 0 ? 256 : table->capacity * 2;
        struct entry *entries = realloc(table->entries, capacity * sizeof(*entries));

        if (entries == NULL) {
            return false;
        }
        table->entries = entries;
        table->capacity = capacity;
    }
    table->entries[table->count++] = *entry;
    return true;
}

/* What could not be read is gone or not ours. */
static void
read_table(struct table *table)
{
    DIR *directory = opendir("/proc");
    struct dirent *item;
    struct entry entry;

    *table = (struct table){0};
    if (directory == NULL) {
        return;
    }
    while ((item = readdir(directory)) != NULL) {
        if (item->d_name[0] >= '1' && item->d_name[0] <= '9' && read_entry(item->d_name, &entry) &&
            !add_entry(table, &entry)) {
            break;
        }
    }
    closedir(directory);
}

static const struct entry *
find(const struct table *table, pid_t pid)
{
    for (size_t i = 0; i < table->count; i++) {
        if (table->entries[i].pid == pid) {
            return &table->entries[i];
        }
    }
    return NULL;
}

static bool
is_spared(const struct tree_pick *pick, const struct entry *entry)
{
    for (size_t i = 0; i < pick->spare_count; i++) {
        if (pick->spare[i] == entry->pid || pick->spare[i] == entry->session) {
            return true;
        }
    }
    return false;
}

/* Marks generation by generation: as many passes as the tree is deep. */
static void
mark(struct table *table, const struct tree_pick *pick)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (size_t i = 0; i < table->count; i++) {
            struct entry *entry = &table->entries[i];
            const struct entry *parent = find(table, entry->parent);
            const bool inside =
                (entry->parent == pick->root || (parent != NULL && parent->inside)) &&
                !is_spared(pick, entry);
            const bool belongs =
                inside && (pick->leader == 0 || (entry->pid == pick->leader && !pick->gone) ||
                           entry->session == pick->leader || (parent != NULL && parent->belongs));

            changed = changed || inside != entry->inside || belongs != entry->belongs;
            entry->inside = inside;
            entry->belongs = belongs;
        }
    }
}

/* The masks of signals in /proc/PID/status, which are those of the first thread; its state, as 'S'. */
struct masks {
    unsigned long long caught;
    unsigned long long blocked;
    char state;
};

static struct masks
read_masks(pid_t pid)
{
    struct masks masks = {0};
    char path[64];
    char line[256];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "State: %c", &masks.state);
        (void)sscanf(line, "SigCgt: %llx", &masks.caught);
        (void)sscanf(line, "SigBlk: %llx", &masks.blocked);
    }
    if (file != NULL) {
        fclose(file);
    }
    return masks;
}

/* A process that is about to start another one blocks all signals for a moment. Who waits for them
 * sleeps. */
static bool
may_be_forking(const struct masks *masks)
{
    const unsigned long long any = 1ull << (SIGINT - 1) | 1ull << (SIGTERM - 1) |
                                   1ull << (SIGUSR1 - 1) | 1ull << (SIGUSR2 - 1);

    return (masks->blocked & any) == any && masks->state != 'S';
}

/* Whether a process catches a signal, or blocks it to read it from a signalfd. sigwait() cannot be
 * seen: the kernel takes its signals out of the mask. */
static bool
handles(pid_t pid, int number)
{
    struct masks masks = read_masks(pid);

    for (unsigned look = 1; look < FORK_LOOKS && may_be_forking(&masks); look++) {
        nanosleep(&(struct timespec){.tv_nsec = FORK_NS}, NULL);
        masks = read_masks(pid);
    }
    return ((masks.caught | masks.blocked) >> (number - 1) & 1) != 0;
}

void
tree_pids_fini(struct tree_pids *pids)
{
    free(pids->list);
    *pids = (struct tree_pids){0};
}

void
tree_pids_add(struct tree_pids *pids, pid_t pid)
{
    pid_t *list = realloc(pids->list, (pids->count + 1) * sizeof(*list));

    if (list != NULL) {
        pids->list = list;
        pids->list[pids->count++] = pid;
    }
}

bool
tree_pids_have(const struct tree_pids *pids, pid_t pid)
{
    for (size_t i = 0; i < pids->count; i++) {
        if (pids->list[i] == pid) {
            return true;
        }
    }
    return false;
}

void
tree_list(const struct tree_pick *pick, struct tree_pids *pids)
{
    struct table table;

    read_table(&table);
    mark(&table, pick);
    for (size_t i = 0; i < table.count; i++) {
        const struct entry *entry = &table.entries[i];

        if (entry->belongs && entry->state != 'Z' &&
            (pick->spare_session == 0 || entry->session != pick->spare_session)) {
            tree_pids_add(pids, entry->pid);
        }
    }
    free(table.entries);
}

size_t
tree_signal(const struct tree_pick *pick, int number)
{
    struct tree_pids pids = {0};
    size_t count = 0;

    tree_list(pick, &pids);
    for (size_t i = 0; i < pids.count; i++) {
        if (!pick->handling || handles(pids.list[i], number)) {
            kill(pids.list[i], number);
            count++;
        }
    }
    tree_pids_fini(&pids);
    return count;
}
