/*
 * copies.c - memory for the copies that wait for the disk.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/copies.h"

#include <stdlib.h>

#include <sys/mman.h>

struct copy {
    struct copy *next;
    size_t bytes;
    void *memory;
};

static void
push(struct copy **list, struct copy *copy)
{
    copy->next = *list;
    *list = copy;
}

static struct copy *
pop(struct copy **list)
{
    struct copy *copy = *list;

    if (copy != NULL) {
        *list = copy->next;
    }
    return copy;
}

void
copies_expect(struct copies *copies, uint64_t bytes, uint64_t room, size_t copy_bytes)
{
    copies->coming = bytes;
    copies->room = room;
    if (copies->copy_bytes != copy_bytes) {
        while (copies->ready != NULL) {
            push(&copies->idle, pop(&copies->ready));
        }
        copies->ready_bytes = 0;
        copies->copy_bytes = copy_bytes;
    }
}

void
copies_expect_nothing(struct copies *copies)
{
    copies->coming = 0;
}

struct copy *
copies_take(struct copies *copies, size_t bytes, size_t *made_bytes_p)
{
    struct copy *copy = bytes <= copies->copy_bytes ? pop(&copies->ready) : NULL;

    copies->coming -= bytes < copies->coming ? bytes : copies->coming;
    *made_bytes_p = bytes <= copies->copy_bytes ? copies->copy_bytes : bytes;
    copies->used_bytes += *made_bytes_p;
    if (copy != NULL) {
        copies->ready_bytes -= copy->bytes;
    }
    return copy;
}

void
copies_not_made(struct copies *copies, size_t made_bytes)
{
    copies->used_bytes -= made_bytes;
}

void
copies_give(struct copies *copies, struct copy *copy)
{
    copies->used_bytes -= copy->bytes;
    copies_add(copies, copy);
}

void
copies_add(struct copies *copies, struct copy *copy)
{
    if (copy->bytes != copies->copy_bytes) {
        push(&copies->idle, copy);
        return;
    }
    push(&copies->ready, copy);
    copies->ready_bytes += copy->bytes;
}

size_t
copies_wants(const struct copies *copies)
{
    const bool fits = copies->ready_bytes + copies->used_bytes + copies->copy_bytes <= copies->room;

    return copies->ready_bytes < copies->coming && fits ? copies->copy_bytes : 0;
}

struct copy *
copies_take_idle(struct copies *copies)
{
    struct copy *copy = pop(&copies->idle);

    if (copy == NULL && copies->ready != NULL && copies->ready_bytes > copies->coming) {
        copy = pop(&copies->ready);
        copies->ready_bytes -= copy->bytes;
    }
    return copy;
}

struct copy *
copy_make(size_t bytes, bool touch)
{
    struct copy *copy = malloc(sizeof(*copy));
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (touch ? MAP_POPULATE : 0), -1, 0);

    if (copy == NULL || memory == MAP_FAILED) {
        free(copy);
        if (memory != MAP_FAILED) {
            (void)munmap(memory, bytes);
        }
        return NULL;
    }
    *copy = (struct copy){.bytes = bytes, .memory = memory};
    return copy;
}

void
copy_free(struct copy *copy)
{
    if (copy != NULL) {
        (void)munmap(copy->memory, copy->bytes);
        free(copy);
    }
}

void *
copy_memory(struct copy *copy)
{
    return copy->memory;
}
