/*
 * mailbox.c - bytes in memory that two processes share, announced by a counter.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "mailbox.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

static void
futex(atomic_uint *word, int operation, unsigned value, const struct timespec *timeout)
{
    (void)syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

struct mailbox *
mailboxes_create(size_t count)
{
    void *memory = mmap(NULL, count * sizeof(struct mailbox), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void
mailboxes_destroy(struct mailbox *mailboxes, size_t count)
{
    if (mailboxes != NULL) {
        munmap(mailboxes, count * sizeof(*mailboxes));
    }
}

void
mailbox_post(struct mailbox *mailbox, const void *data, size_t bytes, bool wake)
{
    memcpy(mailbox->data, data, bytes);
    atomic_fetch_add_explicit(&mailbox->letters, 1, memory_order_release);
    if (wake) {
        futex(&mailbox->letters, FUTEX_WAKE, 1, NULL);
    }
}

void
mailbox_fetch(struct mailbox *mailbox, unsigned wanted, void *data, size_t bytes,
              enum ceiling_wait wait)
{
    static const struct timespec nap = {.tv_nsec = 20 * 1000 * 1000};
    struct spin spin = {0};
    unsigned letters;

    while ((letters = atomic_load_explicit(&mailbox->letters, memory_order_acquire)) != wanted) {
        if (wait == CEILING_SPIN && spin_more(&spin)) {
            spin_pause();
        } else {
            futex(&mailbox->letters, FUTEX_WAIT, letters, &nap);
        }
    }
    memcpy(data, mailbox->data, bytes);
}

void
mailbox_exchange(struct mailbox_pair *pair, const struct ceiling_worker *worker,
                 enum ceiling_wait wait)
{
    mailbox_post(pair->out, worker->gradient, worker->bytes,
                 worker->waking || wait == CEILING_BLOCK);
    pair->letters++;
    mailbox_fetch(pair->in, pair->letters, worker->values, worker->bytes, wait);
}
