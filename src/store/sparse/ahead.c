/*
 * ahead.c - touches memory for rows before the lane wants it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/ahead.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* MARGIN_BYTES: slabs are whole, and so is what is touched for indexes. */
enum { SMALL_BYTES = 16 << 20, PART = 8, AHEAD_BYTES_MAX = 32 << 20, MARGIN_BYTES = 8 << 20 };

struct ahead {
    struct sparse *store;
    uint64_t noted; /* bytes that the table had when the thread was last asked; the lane's own */
    bool started;   /* the lane's own */
    bool failed;    /* there is no thread to be had; the lane's own */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t asked;
    uint64_t wanted; /* bytes; guarded, as all below */
    bool over;
};

struct ahead *
ahead_create(struct sparse *store)
{
    struct ahead *ahead = calloc(1, sizeof(*ahead));

    if (ahead != NULL) {
        ahead->store = store;
        pthread_mutex_init(&ahead->mutex, NULL);
        pthread_cond_init(&ahead->asked, NULL);
    }
    return ahead;
}

void
ahead_destroy(struct ahead *ahead)
{
    if (ahead == NULL) {
        return;
    }
    if (ahead->started) {
        pthread_mutex_lock(&ahead->mutex);
        ahead->over = true;
        pthread_cond_signal(&ahead->asked);
        pthread_mutex_unlock(&ahead->mutex);
        pthread_join(ahead->thread, NULL);
    }
    pthread_cond_destroy(&ahead->asked);
    pthread_mutex_destroy(&ahead->mutex);
    free(ahead);
}

/* A lane may keep to one core, and so would a thread that it starts: this one takes those that the
 * process has. */
static void
leave_the_lane(void)
{
    cpu_set_t cores;

    if (sched_getaffinity(getpid(), sizeof(cores), &cores) == 0) {
        (void)sched_setaffinity(0, sizeof(cores), &cores);
    }
}

static void *
run(void *context)
{
    struct ahead *ahead = context;

    leave_the_lane();
    pthread_mutex_lock(&ahead->mutex);
    while (!ahead->over) {
        const uint64_t bytes = ahead->wanted;

        if (bytes == 0) {
            pthread_cond_wait(&ahead->asked, &ahead->mutex); /* until the table grows, or goes */
            continue;
        }
        ahead->wanted = 0;
        pthread_mutex_unlock(&ahead->mutex);
        (void)sparse_touch_ahead(ahead->store, bytes);
        pthread_mutex_lock(&ahead->mutex);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

/* Signals are the daemon's business: this thread takes none. */
static bool
start(struct ahead *ahead)
{
    sigset_t all;
    sigset_t old;

    if (!ahead->started && !ahead->failed) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        ahead->started = pthread_create(&ahead->thread, NULL, run, ahead) == 0;
        ahead->failed = !ahead->started;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    return ahead->started;
}

static uint64_t
bytes_for(const struct sparse_memory *memory)
{
    const uint64_t bytes = memory->slab_bytes / PART;
    const uint64_t spare =
        memory->spare_bytes > MARGIN_BYTES ? memory->spare_bytes - MARGIN_BYTES : 0;
    const uint64_t bounded = bytes < spare ? bytes : spare;

    return bounded < AHEAD_BYTES_MAX ? bounded : AHEAD_BYTES_MAX;
}

void
ahead_note(struct ahead *ahead)
{
    struct sparse_memory memory;
    uint64_t bytes;

    sparse_memory(ahead->store, &memory);
    bytes = bytes_for(&memory);
    if (memory.slab_bytes < SMALL_BYTES || memory.slab_bytes == ahead->noted || bytes == 0 ||
        !start(ahead) || pthread_mutex_trylock(&ahead->mutex) != 0) {
        return;
    }
    ahead->noted = memory.slab_bytes;
    ahead->wanted = bytes;
    pthread_cond_signal(&ahead->asked);
    pthread_mutex_unlock(&ahead->mutex);
}
