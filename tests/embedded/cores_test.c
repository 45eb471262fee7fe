/*
 * cores_test.c - threads that help with large tensors: the same bits with any number of them, none before they
 * are needed, none left behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "bed.h"

enum {
    WORKERS = 2,
    STEPS = 3,
    CHUNK = PSD_CHUNK_ELEMENTS,
    LARGE = 11 * CHUNK + 13, /* elements: almost 3 MiB */
    SHIFT = 7,               /* each step takes its gradient from another place */
    SMALL = 3 * CHUNK,
    HASH_BYTES = 32,
};

/* One run. Thread: immutable, but for the hash, which rank 0 writes. */
struct run {
    struct bed_config config;
    const char *threads; /* setting copy_threads */
    bool lent;           /* gradients in memory that servers read */
    bool viewed;         /* values in the view */
    bool small;
    uint8_t hash[HASH_BYTES]; /* of all values of all steps */
};

static const struct {
    const char *name;
    psd_use use;
    psd_dtype dtype;
} tables[] = {{"rule", PSD_USE_UPDATE, PSD_F32},
              {"sum", PSD_USE_SUM, PSD_F32},
              {"half", PSD_USE_SUM, PSD_F16}};

enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

/* Gradients of both ranks. Thread: immutable once filled. */
static uint8_t *pools[WORKERS][TABLES];

static unsigned
count_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    unsigned count = 0;

    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

static size_t
element_bytes(size_t table)
{
    return tables[table].dtype == PSD_F16 ? 2 : 4;
}

static uint64_t
elements_of(const struct run *run)
{
    return run->small ? SMALL : LARGE;
}

static void *
gradient_memory(struct worker *worker, const struct run *run, size_t bytes)
{
    void *memory = NULL;

    if (!run->lent) {
        return malloc(bytes);
    }
    return psd_alloc(worker->context, bytes, &memory) == PSD_OK ? memory : NULL;
}

static void
drop_gradient(struct worker *worker, const struct run *run, void *memory)
{
    if (run->lent) {
        CHECK_OK(worker, psd_free(worker->context, memory));
    } else {
        free(memory);
    }
}

/* All tables at once: their chunks share the windows. */
static void
run_step(struct worker *worker, psd_table **handles, uint64_t step, uint8_t **gradients,
         uint8_t **values)
{
    const struct run *run = worker->user;
    psd_op *ops[TABLES];

    for (size_t t = 0; t < TABLES; t++) {
        memcpy(gradients[t], pools[worker->rank][t] + step * SHIFT * element_bytes(t),
               elements_of(run) * element_bytes(t));
        CHECK_OK(worker, psd_push_pull(handles[t],
                                       TRANSFER(step, .gradient = gradients[t],
                                                .values = run->viewed ? NULL : values[t],
                                                .flags = run->viewed ? PSD_TRANSFER_VIEW : 0),
                                       &ops[t]));
    }
    for (size_t t = 0; t < TABLES; t++) {
        CHECK_OK(worker, psd_wait(ops[t], PSD_FOREVER));
        psd_op_release(ops[t]);
    }
}

static void
train(struct worker *worker)
{
    struct run *run = worker->user;
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    psd_table *handles[TABLES];
    uint8_t *gradients[TABLES];
    uint8_t *values[TABLES];

    EVP_DigestInit_ex(hash, EVP_sha256(), NULL);
    for (size_t t = 0; t < TABLES; t++) {
        const size_t bytes = elements_of(run) * element_bytes(t);
        const void *view;

        CHECK_OK(
            worker,
            psd_table_open(
                worker->context,
                TABLE(tables[t].name, tables[t].dtype, elements_of(run), .use = tables[t].use,
                      .rule = tables[t].use == PSD_USE_UPDATE ? RULE(.rule = PSD_RULE_ADD) : NULL),
                &handles[t]));
        gradients[t] = gradient_memory(worker, run, bytes);
        values[t] = malloc(bytes);
        CHECK(worker, gradients[t] != NULL && values[t] != NULL);
        if (run->viewed) {
            CHECK_OK(worker, psd_view(handles[t], &view));
            free(values[t]);
            values[t] = (uint8_t *)(uintptr_t)view;
        }
    }
    for (uint64_t step = 0; step < STEPS && worker->failure[0] == '\0'; step++) {
        run_step(worker, handles, step, gradients, values);
        for (size_t t = 0; t < TABLES; t++) {
            EVP_DigestUpdate(hash, values[t], elements_of(run) * element_bytes(t));
        }
    }
    if (worker->rank == 0) {
        EVP_DigestFinal_ex(hash, run->hash, NULL);
    }
    EVP_MD_CTX_free(hash);
    for (size_t t = 0; t < TABLES; t++) {
        drop_gradient(worker, run, gradients[t]);
        if (!run->viewed) {
            free(values[t]);
        }
    }
}

static void
fill_pools(void)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        for (size_t t = 0; t < TABLES; t++) {
            pools[rank][t] = malloc((LARGE + STEPS * SHIFT) * element_bytes(t));
            assert_non_null(pools[rank][t]);
            awkward(tables[t].dtype, rank, t, 0, LARGE + STEPS * SHIFT, pools[rank][t]);
        }
    }
}

static void
free_pools(void)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        for (size_t t = 0; t < TABLES; t++) {
            free(pools[rank][t]);
        }
    }
}

static void
run_it(struct run *run)
{
    struct bed *bed;

    run->config.workers = WORKERS;
    run->config.flat = true;
    setenv("PSD_COPY_THREADS", run->threads, 1);
    bed = bed_start(&run->config);
    bed_run(bed, train, run);
    bed_finish(bed);
}

/* If this fails, a tensor that several threads copied or sent differs from what one thread makes of it. */
static void
test_bits_do_not_depend_on_threads(void **state)
{
    struct run reference = {.config = {.servers = 1}, .threads = "1"};
    struct run others[] = {
        {.config = {.servers = 1}, .threads = "2"},
        {.config = {.servers = 1, .lanes = 4}, .threads = "4"},
        {.config = {.servers = 2, .lanes = 2}, .threads = "8"},
        {.config = {.servers = 1, .lanes = 2}, .threads = "4", .lent = true},
        {.config = {.servers = 1, .lanes = 2}, .threads = "4", .viewed = true},
        {.config = {.servers = 1, .pool_bytes = 1 << 20}, .threads = "4"},
        {.config = {.servers = 2, .policy = PSI_DEATH_WAIT}, .threads = "4"},
        {.config = {.servers = 1, .lanes = 2, .security = BED_SEALED}, .threads = "4"},
        {.config = {.servers = 2, .elsewhere = true}, .threads = "4"},
    };

    (void)state;
    fill_pools();
    run_it(&reference);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        run_it(&others[i]);
        if (memcmp(reference.hash, others[i].hash, HASH_BYTES) != 0) {
            fail_msg("run %zu differs", i);
        }
    }
    free_pools();
}

/* ---- When there are how many ---- */

struct count {
    unsigned before;
    unsigned small;
    unsigned large;
    unsigned after;
};

static void
move(struct worker *worker, psd_table *table, uint64_t step, float *memory, uint64_t elements)
{
    psd_op *op;

    CHECK_OK(worker,
             psd_push_pull(table,
                           TRANSFER(step, .count = elements, .gradient = memory, .values = memory),
                           &op));
    CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
    psd_op_release(op);
}

static void
move_small_then_large(struct worker *worker)
{
    struct count *count = worker->user;
    psd_table *small;
    psd_table *large;
    float *memory = calloc(LARGE, sizeof(*memory));

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("small", PSD_F32, SMALL, .use = PSD_USE_SUM), &small));
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("large", PSD_F32, LARGE, .use = PSD_USE_SUM), &large));
    count->before = count_threads();
    for (uint64_t step = 0; step < 5; step++) {
        move(worker, small, step, memory, SMALL);
    }
    count->small = count_threads();
    move(worker, large, 0, memory, LARGE);
    count->large = count_threads();
    CHECK(worker, psd_close(worker->context) == PSD_OK);
    worker->context = NULL;
    count->after = count_threads();
    free(memory);
}

/* If this fails, a worker with small tensors has threads it has no use for, or they outlive its context. */
static void
test_threads_come_when_needed_and_go(void **state)
{
    struct count count = {0};
    struct bed *bed;

    (void)state;
    setenv("PSD_COPY_THREADS", "4", 1);
    bed = bed_start(&(struct bed_config){.workers = 1, .lanes = 2});
    bed_run(bed, move_small_then_large, &count);
    bed_finish(bed);
    assert_int_equal(count.small, count.before);
    assert_int_equal(count.large, count.before + 3);
    assert_true(count.after <
                count.before); /* the context's own is gone, too, and those of the job */
}

static void
fork_while_they_help(struct worker *worker)
{
    psd_table *table;
    float *memory = calloc(LARGE, sizeof(*memory));
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("large", PSD_F32, LARGE, .use = PSD_USE_SUM), &table));
    for (uint64_t step = 0; step < 5 && worker->failure[0] == '\0'; step++) {
        int how = -1;
        pid_t child;

        CHECK_OK(worker,
                 psd_push_pull(table, TRANSFER(step, .gradient = memory, .values = memory), &op));
        child = fork();
        CHECK(worker, child >= 0);
        if (child == 0) {
            alarm(20);
            _exit(psd_wait(op, PSD_FOREVER) == PSD_ERR_FORKED &&
                          psd_close(worker->context) == PSD_ERR_FORKED
                      ? 0
                      : 1);
        }
        CHECK(worker, waitpid(child, &how, 0) == child);
        CHECK(worker, WIFEXITED(how) && WEXITSTATUS(how) == 0);
        CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
        psd_op_release(op);
    }
    free(memory);
}

/* If this fails, data loaders that fork while a large tensor moves hang, or spoil their parent's training. */
static void
test_fork_while_threads_help(void **state)
{
    struct bed *bed;

    (void)state;
    setenv("PSD_COPY_THREADS", "4", 1);
    bed = bed_start(&(struct bed_config){.workers = 1, .lanes = 2});
    bed_run(bed, fork_while_they_help, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests_of_cores[] = {
        cmocka_unit_test(test_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_threads_come_when_needed_and_go),
        cmocka_unit_test(test_fork_while_threads_help),
    };

    bed_begin();
    return cmocka_run_group_tests(tests_of_cores, NULL, NULL);
}
