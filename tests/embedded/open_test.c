/*
 * open_test.c - joining and leaving a job: who is let in, what a refusal says, how long it takes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bed.h"

#define OPEN(...)                                                                                  \
    (&(struct psd_open_args){.struct_size = sizeof(struct psd_open_args), __VA_ARGS__})

static void
forget_environment(void)
{
    unsetenv("PSD_MASTER_ADDRESS");
    unsetenv("PSD_RANK");
    unsetenv("PSD_OPEN_TIMEOUT_MS");
}

/* The address of a port nobody listens on: bound, so that nobody else gets it, not listening. */
static int
silent_port(char *address, size_t size)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(name);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &bytes), 0);
    snprintf(address, size, "tcp://127.0.0.1:%d", ntohs(name.sin_port));
    return fd;
}

/* If this fails, a program outside of a job is not told what it lacks. */
static void
test_open_without_address_says_what_to_set(void **state)
{
    psd_context *context = (psd_context *)state;

    forget_environment();
    assert_status(psd_open(NULL, &context), PSD_ERR_INVALID);
    assert_says(psd_last_error()->text, "PSD_MASTER_ADDRESS");
    assert_ptr_equal(context, state);
}

/* If this fails, an error sends people to look for what they have set, by another name. */
static void
test_open_names_misspelt_variables(void **state)
{
    char address[64];
    const int fd = silent_port(address, sizeof(address));
    psd_context *context = NULL;

    (void)state;
    forget_environment();
    setenv("PSD_MASTER_ADRESS", address, 1);
    assert_status(psd_open(NULL, &context), PSD_ERR_INVALID);
    assert_says(psd_last_error()->text,
                "PSD_MASTER_ADRESS is set: did you mean PSD_MASTER_ADDRESS?");
    unsetenv("PSD_MASTER_ADRESS");
    setenv("PSD_OPEN_TIMOUT_MS", "20", 1);
    assert_status(psd_open(OPEN(.master_address = address, .open_timeout_ms = 50), &context),
                  PSD_ERR_TIMEOUT);
    assert_says(psd_last_error()->text,
                "PSD_OPEN_TIMOUT_MS is set: did you mean PSD_OPEN_TIMEOUT_MS?");
    unsetenv("PSD_OPEN_TIMOUT_MS");
    close(fd);
}

/* If this fails, nonsense in an option is found late, or taken for something else. */
static void
test_open_refuses_nonsense(void **state)
{
    static const char *const ranks[] = {"",     "one", "-1", "1x", "99999999999999999999",
                                        "1024", " 1"};
    static const char *const addresses[] = {"",
                                            "127.0.0.1:1",
                                            "tcp://",
                                            "tcp://127.0.0.1",
                                            "tcp://127.0.0.1:70000",
                                            "carrier://pigeon:1"};
    psd_context *context = NULL;
    char longest[200] = "tcp://";

    (void)state;
    forget_environment();
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        assert_status(psd_open(OPEN(.master_address = "tcp://127.0.0.1:1", .rank = ranks[i],
                                    .open_timeout_ms = 50),
                               &context),
                      PSD_ERR_INVALID);
        assert_says(psd_last_error()->text, ranks[i]);
    }
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        assert_status(
            psd_open(OPEN(.master_address = addresses[i], .open_timeout_ms = 50), &context),
            PSD_ERR_INVALID);
    }
    memset(longest + 6, 'a', sizeof(longest) - 7);
    assert_status(psd_open(OPEN(.master_address = longest, .open_timeout_ms = 50), &context),
                  PSD_ERR_INVALID);
    assert_status(psd_open(&(struct psd_open_args){.struct_size = 3}, &context), PSD_ERR_INVALID);
    assert_status(psd_open(OPEN(.master_address = "tcp://127.0.0.1:1"), NULL), PSD_ERR_INVALID);
    assert_null(context);
}

/* If this fails, a bad value in the environment is silently replaced. */
static void
test_open_refuses_bad_environment(void **state)
{
    psd_context *context = NULL;

    (void)state;
    forget_environment();
    setenv("PSD_MASTER_ADDRESS", "tcp://127.0.0.1:1", 1);
    setenv("PSD_RANK", "first", 1);
    assert_status(psd_open(OPEN(.open_timeout_ms = 50), &context), PSD_ERR_INVALID);
    assert_says(psd_last_error()->text, "first");
    setenv("PSD_RANK", "0", 1);
    setenv("PSD_OPEN_TIMEOUT_MS", "soon", 1);
    assert_status(psd_open(NULL, &context), PSD_ERR_INVALID);
    assert_says(psd_last_error()->text, "soon");
    forget_environment();
}

/* If this fails, a worker with a wrong address waits for ever, or does not say where it knocked. */
static void
test_open_nobody_listens(void **state)
{
    char address[64];
    const int fd = silent_port(address, sizeof(address));
    const uint64_t begin_ms = bed_now_ms();
    psd_context *context = NULL;

    (void)state;
    assert_status(psd_open(OPEN(.master_address = address, .open_timeout_ms = 300), &context),
                  PSD_ERR_TIMEOUT);
    assert_says(psd_last_error()->text, address);
    assert_says(psd_last_error()->text, "300");
    assert_true(bed_now_ms() - begin_ms >= 300);
    assert_true(bed_now_ms() - begin_ms < 5000);
    close(fd);
}

/* If this fails, psd_run's environment does not bring a worker into its job. */
static void
test_open_by_environment(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.servers = 2});
    psd_context *context;

    (void)state;
    setenv("PSD_MASTER_ADDRESS", bed_address(bed), 1);
    setenv("PSD_RANK", "0", 1);
    setenv("PSD_OPEN_TIMEOUT_MS", "15000", 1);
    assert_ok(psd_open(NULL, &context));
    assert_int_equal(psd_rank(context), 0);
    assert_int_equal(psd_size(context), 1);
    assert_int_equal(psd_servers(context), 2);
    assert_int_equal(psd_incarnation(context), 1);
    assert_string_equal(psd_version(), PSD_VERSION);
    forget_environment();
    assert_ok(psd_close(context));
    assert_ok(psd_close(NULL));
    bed_finish(bed);
}

/* If this fails, an explicit option loses against the environment. */
static void
test_open_options_win(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});
    psd_context *context;

    (void)state;
    setenv("PSD_MASTER_ADDRESS", "tcp://127.0.0.1:1", 1);
    setenv("PSD_RANK", "7", 1);
    assert_ok(bed_open(bed, "0", &context));
    forget_environment();
    assert_ok(psd_close(context));
    bed_finish(bed);
}

static void
note_rank(struct worker *worker)
{
    _Atomic uint32_t *ranks = worker->user;

    CHECK(worker, psd_rank(worker->context) == worker->rank);
    CHECK(worker, psd_size(worker->context) == 3);
    *ranks |= 1u << psd_rank(worker->context);
}

/* If this fails, several contexts cannot live in one process, or ranks get mixed up. */
static void
test_open_many_in_one_process(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .lanes = 2});
    _Atomic uint32_t ranks = 0;

    (void)state;
    bed_run(bed, note_rank, &ranks);
    assert_int_equal(ranks, 7);
    bed_finish(bed);
}

struct opener {
    struct bed *bed;
    const char *rank;
    psd_context *context;
    psd_status status;
    struct psd_error error;
};

static void *
open_it(void *argument)
{
    struct opener *opener = argument;

    opener->status = bed_open(opener->bed, opener->rank, &opener->context);
    opener->error = *psd_last_error();
    return NULL;
}

/* If this fails, "auto" gives two workers one rank, or leaves a gap. */
static void
test_open_auto_ranks(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3});
    struct opener openers[3];
    pthread_t threads[3];
    uint32_t seen = 0;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        openers[i] = (struct opener){.bed = bed, .rank = i == 0 ? "auto" : NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, open_it, &openers[i]), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(openers[i].status, PSD_OK);
        seen |= 1u << psd_rank(openers[i].context);
    }
    assert_int_equal(seen, 7);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(psd_close(openers[i].context));
    }
    bed_finish(bed);
}

/* If this fails, two workers can share a rank, or a rank outside of the job is let in. */
static void
test_open_refuses_taken_and_foreign_ranks(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});
    struct opener first = {.bed = bed, .rank = "0"};
    psd_context *context = NULL;
    psd_context *second;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, open_it, &first), 0);
    assert_ok(bed_open(bed, "1", &second));
    pthread_join(thread, NULL);
    assert_int_equal(first.status, PSD_OK);

    assert_status(bed_open(bed, "0", &context), PSD_ERR_REFUSED);
    assert_says(psd_last_error()->text, "rank 0 is taken");
    assert_status(bed_open(bed, "2", &context), PSD_ERR_REFUSED);
    assert_says(psd_last_error()->text, "2 workers");
    assert_status(bed_open(bed, "auto", &context), PSD_ERR_REFUSED);
    assert_null(context);

    assert_ok(psd_close(first.context));
    assert_ok(psd_close(second));
    bed_finish(bed);
}

/* If this fails, nobody learns which process kept a job from starting. */
static void
test_open_names_who_is_missing(void **state)
{
    struct bed *bed =
        bed_start(&(struct bed_config){.workers = 3, .servers = 2, .servers_absent = 1});
    psd_context *context = NULL;

    (void)state;
    assert_status(
        psd_open(OPEN(.master_address = bed_address(bed), .rank = "1", .open_timeout_ms = 500),
                 &context),
        PSD_ERR_TIMEOUT);
    assert_null(context);
    assert_says(psd_last_error()->text, "server 1");
    assert_says(psd_last_error()->text, "worker 0");
    assert_says(psd_last_error()->text, "worker 2");
    bed_stop(bed);
}

/* If this fails, a worker that gave up waiting keeps its rank from the next one. */
static void
test_open_again_after_a_timeout(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});
    struct opener other = {.bed = bed, .rank = "1"};
    psd_context *context = NULL;
    pthread_t thread;

    (void)state;
    assert_status(
        psd_open(OPEN(.master_address = bed_address(bed), .rank = "0", .open_timeout_ms = 200),
                 &context),
        PSD_ERR_TIMEOUT);
    assert_int_equal(pthread_create(&thread, NULL, open_it, &other), 0);
    assert_ok(bed_open(bed, "0", &context));
    pthread_join(thread, NULL);
    assert_int_equal(other.status, PSD_OK);
    assert_ok(psd_close(context));
    assert_ok(psd_close(other.context));
    bed_finish(bed);
}

/* If this fails, a NULL handle crashes the caller instead of being an error. */
static void
test_null_handles(void **state)
{
    psd_table *table = NULL;
    psd_op *op = NULL;
    uint64_t step;
    size_t count;

    (void)state;
    assert_status(psd_table_open(NULL, TABLE("w", PSD_F32, 4), &table), PSD_ERR_INVALID);
    assert_status(psd_push(NULL, TRANSFER(0), &op), PSD_ERR_INVALID);
    assert_status(psd_wait(NULL, 0), PSD_ERR_INVALID);
    assert_status(psd_wait_any(NULL, 0, &op), PSD_ERR_INVALID);
    assert_status(psd_barrier(NULL, 0), PSD_ERR_INVALID);
    assert_status(psd_global_step(NULL, 1, &step), PSD_ERR_INVALID);
    assert_status(psd_report(NULL, 0, "loss", 0), PSD_ERR_INVALID);
    assert_status(psd_nodes(NULL, NULL, sizeof(struct psd_node), 0, &count), PSD_ERR_INVALID);
    assert_status(psd_nodes_at(NULL, 1, NULL, sizeof(struct psd_node), 0, &count), PSD_ERR_INVALID);
    assert_status(psd_save(NULL, "/tmp", 0), PSD_ERR_INVALID);
    assert_status(psd_load(NULL, "/tmp", &step), PSD_ERR_INVALID);
    assert_status(psd_state_publish(NULL, 0, NULL, sizeof(struct psd_state), 0), PSD_ERR_INVALID);
    assert_status(psd_state_fetch(NULL, 0, NULL, sizeof(struct psd_state), 0), PSD_ERR_INVALID);
    assert_int_equal(psd_fd(NULL), -1);
    psd_op_release(NULL);
    psd_abandon(NULL);
    assert_null(table);
    assert_null(op);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_without_address_says_what_to_set),
        cmocka_unit_test(test_open_names_misspelt_variables),
        cmocka_unit_test(test_open_refuses_nonsense),
        cmocka_unit_test(test_open_refuses_bad_environment),
        cmocka_unit_test(test_open_nobody_listens),
        cmocka_unit_test(test_open_by_environment),
        cmocka_unit_test(test_open_options_win),
        cmocka_unit_test(test_open_many_in_one_process),
        cmocka_unit_test(test_open_auto_ranks),
        cmocka_unit_test(test_open_refuses_taken_and_foreign_ranks),
        cmocka_unit_test(test_open_names_who_is_missing),
        cmocka_unit_test(test_open_again_after_a_timeout),
        cmocka_unit_test(test_null_handles),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
