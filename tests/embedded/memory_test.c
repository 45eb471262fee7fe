/*
 * memory_test.c - a worker without memory is refused politely, and the job survives it; one with
 * many lanes has memory for those that it uses.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bed.h"

enum { STEP_KIB = 2048, LIMITS = 12, CHILD_TIME_S = 30 };

enum { CHILD_DONE = 0, CHILD_REFUSED = 1, CHILD_WRONG = 2 };

static size_t
address_space_bytes(void)
{
    char text[64] = "";
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    const ssize_t got = read(fd, text, sizeof(text) - 1);

    close(fd);
    return got > 0 ? strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

/* What is short may come back, so the library tries until the deadline. */
static int
verdict(psd_status status)
{
    if (status == PSD_OK) {
        return CHILD_DONE;
    }
    if (status == PSD_ERR_NO_MEMORY || status == PSD_ERR_TIMEOUT) {
        return CHILD_REFUSED;
    }
    fprintf(stderr, "%s: %s\n", psd_status_name(status), psd_last_error()->text);
    return CHILD_WRONG;
}

/* Joins, opens a table, makes steps, and is gone; each with so little memory. */
static int
live_on_little(const char *address, size_t more_bytes)
{
    static float gradient[3 * PSD_CHUNK_ELEMENTS];
    static float values[3 * PSD_CHUNK_ELEMENTS];
    const struct rlimit limit = {.rlim_cur = address_space_bytes() + more_bytes,
                                 .rlim_max = RLIM_INFINITY};
    psd_context *context;
    psd_table *table;
    psd_status status;

    alarm(CHILD_TIME_S);
    setrlimit(RLIMIT_AS, &limit);
    status = psd_open(&(struct psd_open_args){.struct_size = sizeof(struct psd_open_args),
                                              .master_address = address,
                                              .rank = "0",
                                              .open_timeout_ms = 800,
                                              .op_timeout_ms = 2000},
                      &context);
    if (status != PSD_OK) {
        return verdict(status);
    }
    status = psd_table_open(context, TABLE("w", PSD_F32, 3 * PSD_CHUNK_ELEMENTS), &table);
    for (unsigned i = 0; i < 5 && status == PSD_OK; i++) {
        status = push_pull(table, psd_table_step(table), gradient, values);
    }
    psd_abandon(context);
    return verdict(status);
}

/* One worker after the other, each in a process of its own. Tells how each one ended. */
static void
run_workers(int address_fd, int result_fd)
{
    char address[72] = "";

    if (read(address_fd, address, sizeof(address)) != (ssize_t)sizeof(address)) {
        return;
    }
    for (size_t i = 0; i < LIMITS; i++) {
        int how = -1;
        const pid_t child = fork();

        if (child == 0) {
            _exit(live_on_little(address, i * STEP_KIB << 10));
        }
        if (child < 0 || waitpid(child, &how, 0) != child ||
            write(result_fd, &how, sizeof(how)) != (ssize_t)sizeof(how)) {
            return;
        }
    }
}

/* Forked before there are threads: what those leave behind would be memory for the workers. */
static pid_t
start_workers(int address_pipe[2], int result_pipe[2])
{
    pid_t child;

    assert_int_equal(pipe(address_pipe), 0);
    assert_int_equal(pipe(result_pipe), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(result_pipe[0]);
        run_workers(address_pipe[0], result_pipe[1]);
        _exit(0);
    }
    close(result_pipe[1]);
    return child;
}

/* If this fails, a worker that runs out of memory crashes, hangs, or takes the job with it. */
static void
test_worker_without_memory(void **state)
{
    int address_pipe[2];
    int result_pipe[2];
    char address[72] = "";
    unsigned ends[2] = {0};
    pid_t child;
    struct bed *bed;
    int how;

    (void)state;
    if (BED_SANITIZED) { /* their shadow memory does not bear a limit of the address space */
        skip();
    }
    child = start_workers(address_pipe, result_pipe);
    bed = bed_start(
        &(struct bed_config){.servers = 2, .policy = PSI_DEATH_WAIT, .lost_grace_ms = 300});
    snprintf(address, sizeof(address), "%s", bed_address(bed));
    assert_int_equal(write(address_pipe[1], address, sizeof(address)), sizeof(address));
    for (size_t i = 0; i < LIMITS; i++) {
        assert_int_equal(read(result_pipe[0], &how, sizeof(how)), sizeof(how));
        if (!WIFEXITED(how) || WEXITSTATUS(how) > CHILD_REFUSED) {
            bed_stop(bed);
            fail_msg("with %zu KiB more: wait status 0x%x", i * STEP_KIB, how);
        }
        ends[WEXITSTATUS(how)]++;
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    print_message("%u done, %u refused\n", ends[CHILD_DONE], ends[CHILD_REFUSED]);
    assert_true(ends[CHILD_DONE] >= 2 && ends[CHILD_REFUSED] >= 2);
    close(address_pipe[0]);
    close(address_pipe[1]);
    close(result_pipe[0]);
    bed_stop(bed);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

/* Some of it is for the few lanes that are connected to at a time: with a thousand it is less for each. */
enum { IDLE_LANE_KIB = 52 };

/* Pages that this process has touched and shares with nobody, in KiB; 0: not known. */
static size_t
touched_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[128];
    size_t kib = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "Anonymous:", 10) == 0) {
            kib = strtoul(line + 10, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

/* Joins, and tells how much memory that took. */
static void
join_and_measure(int address_fd, int result_fd)
{
    char address[72] = "";
    psd_context *context;
    size_t kib = 0;

    if (read(address_fd, address, sizeof(address)) == (ssize_t)sizeof(address)) {
        const size_t before = touched_kib();

        if (psd_open(&(struct psd_open_args){.struct_size = sizeof(struct psd_open_args),
                                             .master_address = address,
                                             .rank = "0"},
                     &context) == PSD_OK) {
            kib = touched_kib() - before;
            psd_close(context);
        }
    }
    (void)!write(result_fd, &kib, sizeof(kib));
}

static size_t
kib_to_join(uint32_t servers, uint32_t lanes)
{
    char address[72] = "";
    int address_pipe[2];
    int result_pipe[2];
    size_t kib = 0;
    struct bed *bed;
    pid_t child;

    assert_int_equal(pipe(address_pipe), 0);
    assert_int_equal(pipe(result_pipe), 0);
    child = fork(); /* before there are threads */
    assert_true(child >= 0);
    if (child == 0) {
        alarm(CHILD_TIME_S);
        join_and_measure(address_pipe[0], result_pipe[1]);
        _exit(0);
    }
    bed = bed_start(&(struct bed_config){.servers = servers, .lanes = lanes});
    snprintf(address, sizeof(address), "%s", bed_address(bed));
    assert_int_equal(write(address_pipe[1], address, sizeof(address)), sizeof(address));
    close(result_pipe[1]);
    assert_int_equal(read(result_pipe[0], &kib, sizeof(kib)), sizeof(kib));
    assert_int_equal(waitpid(child, NULL, 0), child);
    bed_stop(bed);
    close(address_pipe[0]);
    close(address_pipe[1]);
    close(result_pipe[0]);
    return kib;
}

/* If this fails, a worker touches much memory for every lane before the first byte is sent. */
static void
test_idle_lanes_cost_little(void **state)
{
    const size_t one = kib_to_join(1, 1);
    const size_t many = kib_to_join(BED_SERVERS_MAX, BED_LANES_MAX);
    const size_t lanes = BED_SERVERS_MAX * BED_LANES_MAX - 1;

    (void)state;
    if (BED_SANITIZED) { /* they keep what was freed */
        skip();
    }
    print_message("%zu KiB to join, %zu KiB with %zu lanes more\n", one, many, lanes);
    assert_true(one > 0 && many > one);
    assert_true((many - one) / lanes < IDLE_LANE_KIB);
}

/* ---- tables --------------------------------------------------------------------------------- */

enum { MANY = 1000, SMALL_TABLE_BYTES = 24 << 10 };

static void
open_many(struct worker *worker)
{
    size_t *bytes_p = worker->user;
    const size_t before = 1024 * touched_kib();
    char name[32];
    psd_table *table;

    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "small %u", i);
        CHECK_OK(worker, psd_table_open(worker->context, TABLE(name, PSD_F32, 1), &table));
    }
    *bytes_p = 1024 * touched_kib() - before;
}

/* If this fails, tables of one number take much memory, more with every lane: those that have
 * nothing of a table keep nothing for it. Counted is all of the job: this is one process. */
static void
test_small_tables_take_little(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.lanes = 8});
    size_t bytes = 0;

    (void)state;
    bed_run(bed, open_many, &bytes);
    if (!BED_SANITIZED && bytes > (size_t)MANY * SMALL_TABLE_BYTES) {
        fail_msg("%zu bytes for each of %d tables", bytes / MANY, MANY);
    }
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worker_without_memory),
        cmocka_unit_test(test_idle_lanes_cost_little),
        cmocka_unit_test(test_small_tables_take_little),
    };

    bed_begin();
    mallopt(M_PERTURB, 0); /* meson has all written to that malloc gives: it would be touched */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
