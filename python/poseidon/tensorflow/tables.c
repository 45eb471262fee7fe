/*
 * tables.c - the tables that operations of a graph name, and libpsd as Python has loaded it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tables.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ready.h"

#define EXPORT __attribute__((visibility("default")))

/* Called by Python (ops.py). */
EXPORT const char *poseidon_ops_use(const char *libpsd);
EXPORT void poseidon_ops_enter(psd_context *context);
EXPORT int poseidon_ops_add(const char *name, psd_table *table, const char *group);
EXPORT void poseidon_ops_forget(void);

/* Thread: guarded by lock. */
struct entry {
    struct entry *next;
    psd_table *table;
    struct ready *ready; /* gradients that are ready together; NULL: it is of none */
    uint32_t number;     /* ... among them */
    char name[PSD_NAME_MAX + 1];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;
static struct library library; /* written once, before the first table is added */

const struct library *
tables_library(void)
{
    return &library;
}

const char *
poseidon_ops_use(const char *libpsd)
{
    const struct {
        const char *name;
        void *place;
    } wanted[] = {
        {"psd_push", &library.push},
        {"psd_pull", &library.pull},
        {"psd_push_pull", &library.push_pull},
        {"psd_table_step", &library.step},
        {"psd_table_count", &library.count},
        {"psd_table_element_bytes", &library.element_bytes},
        {"psd_last_error", &library.last_error},
        {"psd_op_error", &library.op_error},
        {"psd_op_release", &library.op_release},
        {"psd_mark", &library.mark},
    };
    void *handle = dlopen(libpsd, RTLD_NOW | RTLD_NOLOAD); /* kept: kernels live on */

    if (handle == NULL) {
        return "libpsd";
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *found = dlsym(handle, wanted[i].name);

        if (found == NULL) {
            return wanted[i].name;
        }
        memcpy(wanted[i].place, &found, sizeof(found));
    }
    return NULL;
}

static struct entry *
find_locked(const char *name)
{
    struct entry *entry = entries;

    while (entry != NULL && strcmp(entry->name, name) != 0) {
        entry = entry->next;
    }
    return entry;
}

void
poseidon_ops_enter(psd_context *context)
{
    pthread_mutex_lock(&lock);
    ready_tell(context, library.mark);
    pthread_mutex_unlock(&lock);
}

/* group: of gradients that one backward computes in a graph; NULL: it is no such gradient. */
int
poseidon_ops_add(const char *name, psd_table *table, const char *group)
{
    struct entry *entry;

    pthread_mutex_lock(&lock);
    entry = find_locked(name);
    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        if (entry != NULL) {
            snprintf(entry->name, sizeof(entry->name), "%s", name);
            entry->next = entries;
            entries = entry;
        }
    }
    if (entry != NULL && group != NULL && entry->ready == NULL) {
        entry->ready = ready_of(group);
        entry->number = entry->ready != NULL ? ready_join(entry->ready) : 0;
    }
    if (entry != NULL) {
        entry->table = table;
    }
    pthread_mutex_unlock(&lock);
    return entry != NULL ? 0 : -1;
}

void
poseidon_ops_forget(void)
{
    pthread_mutex_lock(&lock);
    while (entries != NULL) {
        struct entry *entry = entries;

        entries = entry->next;
        free(entry);
    }
    ready_forget();
    pthread_mutex_unlock(&lock);
}

static bool
start_locked(const char *name, enum verb verb, size_t bytes, struct psd_transfer *transfer,
             struct psd_error *why)
{
    const struct entry *entry = find_locked(name);
    psd_op *op = NULL; /* released by whoever ends it: transfer->done gets it */
    size_t table_bytes;
    psd_status status;

    if (entry == NULL) {
        snprintf(why->text, sizeof(why->text),
                 "table %s is not open in this process: the job is over, or the graph was made in "
                 "another one",
                 name);
        return false;
    }
    table_bytes = library.count(entry->table) * library.element_bytes(entry->table);
    if (table_bytes != bytes) {
        snprintf(why->text, sizeof(why->text),
                 "table %s has %zu bytes, the tensor has %zu: its shape changed since the graph "
                 "was made",
                 name, table_bytes, bytes);
        return false;
    }
    transfer->struct_size = sizeof(*transfer);
    transfer->step = library.step(entry->table);
    if (entry->ready != NULL) {
        ready_came(entry->ready, entry->number, transfer->step);
    }
    status = verb == VERB_PUSH   ? library.push(entry->table, transfer, &op)
             : verb == VERB_PULL ? library.pull(entry->table, transfer, &op)
                                 : library.push_pull(entry->table, transfer, &op);
    if (status != PSD_OK) {
        *why = *library.last_error();
    }
    return status == PSD_OK;
}

bool
tables_start(const char *name, enum verb verb, size_t bytes, struct psd_transfer *transfer,
             struct psd_error *why)
{
    bool started;

    /* The step is read and used as one: two nodes of one table may run at the same time. */
    pthread_mutex_lock(&lock);
    started = start_locked(name, verb, bytes, transfer, why);
    pthread_mutex_unlock(&lock);
    return started;
}
