/*
 * plan.c - which jobs are started, with tensors of which sizes, and who takes part.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan.h"

#include "base/fail.h"

#define BIT SUBJECT_BIT

/* Sets of subjects that belong together. */
#define IN_PLACE    BIT(SUBJECT_IN_PLACE)
#define ORDINARY    BIT(SUBJECT_ORDINARY)
#define BLOCKING    BIT(SUBJECT_BLOCKING)
#define BOTH        (IN_PLACE | ORDINARY)
#define SHM_USES    (BOTH | BIT(SUBJECT_STREAMED) | BIT(SUBJECT_SUM))
#define TCP_USES    (BOTH | BIT(SUBJECT_SUM))
#define TCP_FORMATS (BIT(SUBJECT_SCANNED) | BIT(SUBJECT_HALF))
#define COPIES                                                                                     \
    (IN_PLACE | BIT(SUBJECT_MOMENTUM) | BIT(SUBJECT_ADAM) | BIT(SUBJECT_COPIED) |                  \
     BIT(SUBJECT_COPIED_MOMENTUM) | BIT(SUBJECT_COPIED_ADAM))
#define SUMS        (BIT(SUBJECT_SUM) | BIT(SUBJECT_SUM_OFF))
#define HELD        (BIT(SUBJECT_SUM_HELD) | BIT(SUBJECT_SUM_HELD_OFF))
#define TENSORS     (BIT(SUBJECT_TENSORS) | BIT(SUBJECT_SUM_HELD))
#define TRAIN       (TENSORS | BIT(SUBJECT_TRAIN) | BIT(SUBJECT_TRAIN_MPI) | BIT(SUBJECT_TRAIN_GLOO))
#define URGENT      (BIT(SUBJECT_URGENT) | BIT(SUBJECT_URGENT_EQUAL))
#define FULL        BIT(SUBJECT_FULL)
#define COPYIN      (BIT(SUBJECT_COPY_NT) | BIT(SUBJECT_COPY_LIBC))
#define MEMORY      (FULL | COPYIN | BIT(SUBJECT_BLOCKED) | BIT(SUBJECT_FUSED))
#define BLOCKERS    BIT(SUBJECT_SOCKETS)
#define SOCKETS     (BLOCKERS | BIT(SUBJECT_SOCKETS_SPIN))
#define THREADS     BIT(SUBJECT_SOCKETS_THREADS)
#define TLS_PAIRS   BIT(SUBJECT_TLS_THREADS)
#define RELAY       BIT(SUBJECT_PING_RELAY)
#define ONE_SERVER  (BIT(SUBJECT_SOCKETS) | BIT(SUBJECT_SOCKETS_ONE_SERVER))
#define PING_MEMORY (BIT(SUBJECT_PING_MEMORY) | BIT(SUBJECT_PING_MEMORY_SPIN))
#define PING_TCP    (BIT(SUBJECT_PING_TCP) | BIT(SUBJECT_PING_TCP_SPIN))
#define PING_UNIX   (BIT(SUBJECT_PING_UNIX) | BIT(SUBJECT_PING_UNIX_SPIN))
#define MPI         BIT(SUBJECT_MPI)
#define PEERS       (MPI | BIT(SUBJECT_GLOO) | BIT(SUBJECT_RPC))
#define PEERS_TCP   (BIT(SUBJECT_MPI_TCP) | BIT(SUBJECT_GLOO) | BIT(SUBJECT_RPC_TCP))
#define PEERS_TUNED                                                                                \
    (BIT(SUBJECT_MPI_TCP_TUNED) | BIT(SUBJECT_GLOO_TUNED) | BIT(SUBJECT_RPC_TCP_TUNED))
#define ALL_PEERS                                                                                  \
    (PEERS | PEERS_TCP | PEERS_TUNED | BIT(SUBJECT_TRAIN_MPI) | BIT(SUBJECT_TRAIN_GLOO))

enum {
    IN_ALL = 1,
    IN_SUITE = 2,
    IN_QUICK = 4,
    IN_CEILINGS = 8,
    IN_SURVIVAL = 16,
    IN_TRAIN = 32,
    IN_QUICK_TRAIN = 64,
    IN_CORES = 128
};

struct entry {
    unsigned when;
    enum transport transport;
    uint32_t workers;
    uint32_t servers;
    const char *sizes;
    uint64_t subjects;
};

#define SHM TRANSPORT_SHM
#define TCP TRANSPORT_TCP
#define TLS TRANSPORT_TLS

/* clang-format off */
static const struct entry entries[] = {
    /* the same host: what users train with, beside all that can be compared */
    {IN_ALL | IN_SUITE, SHM, 2, 1, "4k,64k,1M,4M,32M,64M",  SHM_USES | MEMORY | RELAY | PEERS},
    {IN_ALL | IN_SUITE, SHM, 4, 1, "1M,4M,32M,64M",         IN_PLACE | FULL | MPI},
    {IN_ALL | IN_SUITE, SHM, 1, 1, "64,4k",                 IN_PLACE | BLOCKING | PING_MEMORY},
    {IN_ALL,            SHM, 1, 1, "64k,1M,4M,32M,256M",    IN_PLACE | FULL},
    {IN_ALL,            SHM, 2, 1, "64,256M",               BOTH | FULL},
    {IN_ALL,            SHM, 3, 1, "4k,4M",                 IN_PLACE},
    {IN_ALL,            SHM, 4, 1, "4k",                    IN_PLACE},
    {IN_ALL,            SHM, 2, 2, "4M,32M",                IN_PLACE},
    {IN_ALL,            SHM, 2, 4, "4M,32M",                IN_PLACE},
    {IN_ALL | IN_SUITE, SHM, 1, 1, "256M",                  URGENT},

    /* between processes over tcp */
    {IN_ALL | IN_SUITE, TCP, 1, 1, "64,4k",                 IN_PLACE | BLOCKING | SOCKETS},
    {IN_ALL | IN_SUITE, TCP, 1, 1, "4M,32M",                BOTH | TCP_FORMATS | SOCKETS},
    {IN_ALL | IN_SUITE, TCP, 2, 2, "4M,32M",                ORDINARY | ONE_SERVER},
    {IN_ALL,            TCP, 1, 1, "64k,1M,256M",           ORDINARY | SOCKETS},
    {IN_ALL,            TCP, 2, 1, "4k,64k,1M,4M,32M",      TCP_USES | BLOCKERS | PEERS_TCP | PEERS_TUNED},
    {IN_ALL,            TCP, 3, 1, "4k,4M",                 IN_PLACE},
    {IN_ALL,            TCP, 4, 1, "4k,4M",                 IN_PLACE},
    {IN_ALL,            TCP, 4, 4, "4M,32M",                IN_PLACE},
    {IN_ALL | IN_SUITE, TCP, 1, 1, "256M",                  URGENT},

    /* what it costs that servers may die */
    {IN_SURVIVAL | IN_SUITE | IN_ALL, SHM, 2, 2, "4M,64M",                COPIES | SUMS},
    {IN_SURVIVAL | IN_SUITE | IN_ALL, TCP, 2, 2, "4M,32M",                COPIES | SUMS | HELD},
    {IN_SURVIVAL | IN_SUITE | IN_ALL, SHM, 8, 2, "16M",                   COPIES},
    {IN_SURVIVAL | IN_SUITE | IN_ALL, TCP, 8, 2, "8M",                    COPIES},
    {IN_QUICK,          SHM, 2, 2, "64k,1M",                COPIES | SUMS},

    /* the gradients of whole models: MODELS_NARROW_BYTES, MODELS_RESNET50_BYTES,
       MODELS_GPT2_BYTES, MODELS_TINY_BYTES */
    {IN_TRAIN | IN_ALL, SHM, 2, 1, "659456,102228128",      TRAIN},
    {IN_TRAIN | IN_ALL, TCP, 2, 1, "659456,102228128",      TRAIN},
    {IN_TRAIN,          SHM, 2, 1, "497759232",             TRAIN},
    {IN_QUICK | IN_QUICK_TRAIN, SHM, 2, 1, "345104",         TRAIN},

    /* many cores: as many threads beside ours as we have */
    {IN_CORES,          SHM, 2, 1, "4k",                    IN_PLACE | RELAY | MPI},
    {IN_CORES,          SHM, 2, 1, "32M,64M",               SHM_USES | FULL | COPYIN | BIT(SUBJECT_BLOCKED)},
    {IN_CORES | IN_SUITE | IN_ALL, SHM, 2, 1, "256M",       ORDINARY | COPYIN},
    {IN_CORES | IN_SUITE, SHM, 2, 1, "102228128",           TENSORS},
    {IN_CORES | IN_SUITE | IN_ALL, TCP, 2, 2, "64M,256M",   ORDINARY | THREADS},
    {IN_CORES | IN_SUITE | IN_ALL, TLS, 1, 1, "64M",        ORDINARY | TLS_PAIRS},
    {IN_CORES | IN_SUITE | IN_ALL, TLS, 2, 2, "64M",        ORDINARY | TLS_PAIRS},

    {IN_QUICK,          SHM, 2, 1, "64,256k,1M",            SHM_USES | MEMORY | RELAY | PEERS},
    {IN_QUICK,          SHM, 1, 1, "64,64k",                IN_PLACE | BLOCKING | PING_MEMORY},
    {IN_QUICK,          TCP, 2, 2, "4k,1M",                 TCP_USES | TCP_FORMATS | ONE_SERVER | THREADS},
    {IN_QUICK,          TCP, 1, 1, "4k",                    IN_PLACE | BLOCKING | SOCKETS | PING_TCP | PING_UNIX},
    {IN_QUICK,          TCP, 1, 1, "256M",                  URGENT},

    {IN_CEILINGS,       SHM, 2, 1, "1M,4M,32M,64M",         MEMORY},
    {IN_CEILINGS,       TCP, 1, 1, "64,4k",                 SOCKETS | PING_MEMORY | PING_TCP | PING_UNIX},
    {IN_CEILINGS,       TCP, 1, 1, "64k,1M,4M,32M",         SOCKETS},
    {IN_CEILINGS,       TCP, 2, 1, "4M,32M",                BLOCKERS},
};
/* clang-format on */

static void
add_row(struct plan *plan, enum transport transport, uint32_t workers, uint32_t servers,
        const struct bench_sizes *sizes, uint64_t subjects)
{
    psi_assert(plan->count < PLAN_ROWS_MAX);
    plan->rows[plan->count++] = (struct plan_row){.transport = transport,
                                                  .workers = workers,
                                                  .servers = servers,
                                                  .sizes = *sizes,
                                                  .subjects = subjects};
}

static void
add_entries(struct plan *plan, unsigned when)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        struct bench_sizes sizes;

        if ((entries[i].when & when) != 0) {
            const psd_status status = bench_sizes_parse(entries[i].sizes, &sizes, NULL);

            psi_assert(status == PSD_OK);
            add_row(plan, entries[i].transport, entries[i].workers, entries[i].servers, &sizes,
                    entries[i].subjects);
        }
    }
}

/* One kind of job, and everybody that can be compared with it. */
static void
add_chosen(struct plan *plan, const struct bench_options *options)
{
    const bool ceilings = options->what == BENCH_CEILINGS;
    const uint32_t workers = options->workers != 0 ? options->workers : 1;
    const uint32_t servers = options->servers != 0 ? options->servers : 1;
    /* the check of a Gloo sum that grows needs powers of two */
    const uint64_t peers = (workers & (workers - 1)) == 0 && workers > 1 ? ALL_PEERS : 0;
    uint64_t shm = SHM_USES | MEMORY | RELAY | (peers & PEERS);
    uint64_t tcp =
        TCP_USES | TCP_FORMATS | BLOCKERS | THREADS | (peers & (PEERS_TCP | PEERS_TUNED));

    if (options->sealed) {
        add_row(plan, TRANSPORT_TLS, workers, servers, &options->sizes,
                ORDINARY | BIT(SUBJECT_SCANNED) | TLS_PAIRS |
                    (workers == 1 ? BIT(SUBJECT_TLS) : 0));
        return;
    }
    if (options->launch != NULL) {
        add_row(plan, TCP, workers, servers, &options->sizes, ORDINARY);
        return;
    }
    if (workers == 1) {
        shm |= BLOCKING | PING_MEMORY;
        tcp |= BLOCKING | SOCKETS | PING_TCP | PING_UNIX; /* more than cores must not spin */
    }
    if (options->shm) {
        add_row(plan, SHM, workers, servers, &options->sizes,
                ceilings ? shm & (MEMORY | PING_MEMORY | RELAY) : shm);
    }
    if (options->tcp) {
        add_row(plan, TCP, workers, servers, &options->sizes,
                ceilings ? tcp & (SOCKETS | THREADS | PING_TCP | PING_UNIX) : tcp);
    }
}

void
plan_make(const struct bench_options *options, struct plan *plan_p)
{
    const bool sized = options->workers != 0 || options->sizes_chosen;

    plan_p->count = 0;
    if (options->what == BENCH_CHOSEN || (options->what == BENCH_CEILINGS && sized)) {
        add_chosen(plan_p, options);
    } else if (options->what == BENCH_CEILINGS) {
        add_entries(plan_p, IN_CEILINGS);
    } else if (options->what == BENCH_SURVIVAL) {
        add_entries(plan_p, IN_SURVIVAL);
    } else if (options->what == BENCH_CORES) {
        add_entries(plan_p, IN_CORES);
    } else if (options->what == BENCH_TRAIN) {
        add_entries(plan_p, options->quick ? IN_QUICK_TRAIN : IN_TRAIN);
    } else if (options->quick) {
        add_entries(plan_p, IN_QUICK);
    } else {
        add_entries(plan_p, options->what == BENCH_SUITE ? IN_SUITE : IN_ALL);
    }
    for (size_t i = 0; options->alone && i < plan_p->count; i++) {
        plan_p->rows[i].subjects &= ~(uint64_t)ALL_PEERS;
    }
}
