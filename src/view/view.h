/*
 * view.h - who is in the job, by number: members, their lives, and where the servers' lanes are.
 *
 * Pure: no I/O, no time. The master numbers views; everybody else takes them one after the other.
 * Each core holds the view it has, and when a newer one comes it is told of both, on_view(old,
 * new), and asks here what is different. A view without a number (id 0) is the one before the
 * first: nobody is in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_VIEW_VIEW_H
#define PSI_VIEW_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

enum {
    PSI_ADDRESS_MAX = 72, /* with its NUL */
    PSI_VIEW_TERM_BITS = 12,
    PSI_VIEW_COUNT_BITS = 32 - PSI_VIEW_TERM_BITS,
    PSI_TERM_MAX = (1 << PSI_VIEW_TERM_BITS) - 1,
};

/*
 * A view's number is the term of the master that made it, and a count. The two are compared as one
 * number. A term is one life of the job's master; the process that starts the master counts them.
 * So every view of a later life is higher than any view of an earlier one, even one that the earlier
 * life had told only to some before it died.
 */
static inline uint32_t
psi_view_term(uint32_t id)
{
    return id >> PSI_VIEW_COUNT_BITS;
}

/* The number of the view behind `id` that a master of that term makes. */
static inline uint32_t
psi_view_next_id(uint32_t id, uint32_t term)
{
    return term > psi_view_term(id) ? term << PSI_VIEW_COUNT_BITS | 1 : id + 1;
}

/* A worker, as a view knows it. */
struct psi_view_worker {
    uint32_t incarnation;
    bool member;                   /* false: left or lost, or has not come yet */
    uint64_t host;                 /* as in its HELLO */
    char address[PSI_ADDRESS_MAX]; /* likewise */
    uint64_t counts_from;          /* of psd_members(): the first step that it counts in, ... */
    uint64_t counts_until;         /* ... and the first that it no longer does (roster.h) */
};

/* A lane of a server. */
struct psi_view_place {
    uint32_t server;
    uint32_t lane;
    uint32_t incarnation; /* of the server's life there: a later one has nothing of what it had */
    char address[PSI_ADDRESS_MAX];
    uint64_t process; /* in which it is, as in its HELLO; 0: not known */
    uint32_t since; /* the view that brought it; 0: there from the start. Each core counts it itself
                       (psi_view_take), views do not carry it */
};

/* How a rank that leaves, joins or is replaced counts in one table. */
struct psi_view_table {
    uint32_t id;
    uint64_t left_at; /* first step without it; of a replacement, or one that joins: its first */
    bool drop;        /* what it gave of that step and later is taken back where still open */
};

/* What was decided with a view. */
enum psi_view_change {
    PSI_VIEW_FIRST,           /* everybody is here */
    PSI_VIEW_WORKER_LEFT,     /* it is done, or lost */
    PSI_VIEW_WORKER_REPLACED, /* by a new incarnation */
    PSI_VIEW_SERVER_BACK,     /* a server that was lost has another life, and nothing in it */
    PSI_VIEW_WORKER_JOINED,   /* a rank that nobody has had before */
    PSI_VIEW_CHANGES,
};

/* Also the body of VIEW_COMMIT. Its lists are their owner's: see psi_view_take, psi_view_fini. */
struct psi_view {
    uint32_t id;
    uint32_t workers;
    struct psi_view_worker *worker; /* by rank */
    uint32_t places;
    struct psi_view_place *place;
    uint32_t changes; /* how often a worker joined or left */

    /* A view that a core holds has none of it. */
    enum psi_view_change change;
    uint32_t who; /* rank of the worker, or index of the server */
    uint32_t tables;
    struct psi_view_table *table; /* PSI_VIEW_WORKER_LEFT, _REPLACED, _JOINED */
};

/* The view before the first, with room for so many ranks. PSD_ERR_NO_MEMORY, then it has none. */
psd_status psi_view_init(struct psi_view *view, uint32_t workers);
void psi_view_fini(struct psi_view *view);

/*
 * Copies members and places of `next`, which follows `view` (and nothing of what was decided);
 * places that were there before keep their `since`. The old view is left in *old_p, for on_view()
 * and then psi_view_fini(). PSD_ERR_NO_MEMORY: `view` is as it was.
 */
psd_status psi_view_take(struct psi_view *view, const struct psi_view *next,
                         struct psi_view *old_p);

/* What a view makes of a rank. */
enum psi_rank_change {
    PSI_RANK_STAYS,    /* a member as before, or none as before */
    PSI_RANK_JOINS,    /* a member now */
    PSI_RANK_LEAVES,   /* no longer one */
    PSI_RANK_REPLACED, /* a member as before, in another life */
};

enum psi_rank_change psi_view_rank(const struct psi_view *before, const struct psi_view *after,
                                   uint32_t rank);

/* The lane of that server; NULL: not in the view. */
const struct psi_view_place *psi_view_place(const struct psi_view *view, uint32_t server,
                                            uint32_t lane);

/* Is this life of the rank the one that the view has as a member? */
bool psi_view_has(const struct psi_view *view, uint32_t rank, uint32_t incarnation);

/* Nothing more from any life of the rank, until the next view says which. */
void psi_view_fence(struct psi_view *view, uint32_t rank);

/* Who says it, by which view: the stamp of a frame. */
struct psi_stamp {
    uint32_t rank;
    uint32_t incarnation;
    uint32_t view;
};

/* May a frame of that stamp be heard? Its sender is the life that the view has; and knows of the
 * view since which we have what it is about. */
static inline bool
psi_view_admits(const struct psi_view *view, const struct psi_stamp *stamp, uint32_t since)
{
    return stamp->rank < view->workers &&
           view->worker[stamp->rank].incarnation == stamp->incarnation && stamp->view >= since;
}

#endif
