/*
 * lookup_test.c - a resolver that does not answer holds up nobody but whoever asked.
 *
 * The system's resolver is real, but for one name: for that it waits until the test lets it go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bed.h"
#include "transport/loop/loop.h"

static const char slow_host[] = "slow.psd.test";

/* Thread: guarded by lock. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_open;
    unsigned asked; /* questions that had to wait */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static void
gate_set(bool is_open)
{
    pthread_mutex_lock(&gate.lock);
    gate.is_open = is_open;
    gate.asked = is_open ? gate.asked : 0;
    pthread_cond_broadcast(&gate.opened);
    pthread_mutex_unlock(&gate.lock);
}

static unsigned
gate_asked(void)
{
    unsigned asked;

    pthread_mutex_lock(&gate.lock);
    asked = gate.asked;
    pthread_mutex_unlock(&gate.lock);
    return asked;
}

static void
gate_pass(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.asked += !gate.is_open;
    while (!gate.is_open) {
        pthread_cond_wait(&gate.opened, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
}

/* In front of the system's. */
int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
            struct addrinfo **list_p)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");

    memcpy(&real, &symbol, sizeof(real));
    if (node != NULL && strcmp(node, slow_host) == 0 && (hints->ai_flags & AI_NUMERICHOST) == 0) {
        gate_pass();
        node = "127.0.0.1";
    }
    return real(node, service, hints, list_p);
}

static void
pause_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool
becomes_true(const _Atomic bool *flag, uint64_t within_ms)
{
    const uint64_t deadline_ms = bed_now_ms() + within_ms;

    while (!atomic_load(flag) && bed_now_ms() < deadline_ms) {
        pause_a_little();
    }
    return atomic_load(flag);
}

static bool
somebody_asks(void)
{
    const uint64_t deadline_ms = bed_now_ms() + 10000;

    while (gate_asked() == 0 && bed_now_ms() < deadline_ms) {
        pause_a_little();
    }
    return gate_asked() > 0;
}

/* A worker that knows the master by name. */
static psd_status
open_by_name(const struct bed *bed, uint32_t open_timeout_ms, psd_context **context_p)
{
    char address[128];

    snprintf(address, sizeof(address), "tcp://%s%s", slow_host, strrchr(bed_address(bed), ':'));
    return psd_open(&(struct psd_open_args){.struct_size = sizeof(struct psd_open_args),
                                            .master_address = address,
                                            .rank = "0",
                                            .open_timeout_ms = open_timeout_ms},
                    context_p);
}

/* ---- a running job -------------------------------------------------------------------------- */

struct pusher {
    psd_table *table;
    pthread_t thread;
    psd_status status;
    _Atomic bool ended;
};

static void *
push_some(void *argument)
{
    struct pusher *pusher = argument;
    const float gradient[4] = {1, 2, 3, 4};
    float values[4];

    for (uint64_t step = 0; step < 10 && pusher->status == PSD_OK; step++) {
        pusher->status = push_pull(pusher->table, step, gradient, values);
    }
    atomic_store(&pusher->ended, true);
    return NULL;
}

/* If this fails, every call of a worker waits while its master's name is looked up again. */
static void
test_calls_do_not_wait_for_a_name(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});
    struct pusher pusher = {.status = PSD_OK};
    psd_context *context;
    bool in_time;

    (void)state;
    gate_set(true);
    assert_ok(open_by_name(bed, 20000, &context));
    assert_ok(psd_table_open(context, TABLE("w", PSD_F32, 4), &pusher.table));
    gate_set(false);
    bed_kill_master(bed); /* its server goes on for a while */
    assert_true(somebody_asks());
    assert_int_equal(pthread_create(&pusher.thread, NULL, push_some, &pusher), 0);
    in_time = becomes_true(&pusher.ended, 8000);
    gate_set(true);
    pthread_join(pusher.thread, NULL);
    assert_true(in_time);
    assert_int_equal(pusher.status, PSD_OK);
    psd_abandon(context);
    bed_stop(bed);
}

/* ---- joining -------------------------------------------------------------------------------- */

struct opener {
    const struct bed *bed;
    pthread_t thread;
    psd_status status;
    char text[512];
    _Atomic bool ended;
};

static void *
open_in_vain(void *argument)
{
    struct opener *opener = argument;
    psd_context *context;

    opener->status = open_by_name(opener->bed, 300, &context);
    snprintf(opener->text, sizeof(opener->text), "%s", psd_last_error()->text);
    atomic_store(&opener->ended, true);
    return NULL;
}

/* If this fails, joining waits for the resolver beyond its deadline, or does not say for what. */
static void
test_deadline_holds_while_a_name_is_looked_up(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});
    struct opener opener = {.bed = bed};
    bool in_time;

    (void)state;
    gate_set(false);
    assert_int_equal(pthread_create(&opener.thread, NULL, open_in_vain, &opener), 0);
    in_time = becomes_true(&opener.ended, 8000);
    gate_set(true);
    pthread_join(opener.thread, NULL);
    assert_true(in_time);
    assert_int_equal(opener.status, PSD_ERR_TIMEOUT);
    assert_says(opener.text, slow_host);
    bed_stop(bed);
}

/* ---- attempt after attempt ------------------------------------------------------------------ */

struct attempts {
    unsigned failed;
    unsigned opened;
    char text[512];
};

static void
note_open(void *owner, struct psi_conn *conn)
{
    (void)conn;
    ((struct attempts *)owner)->opened++;
}

static void
note_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct attempts *attempts = owner;

    (void)conn;
    attempts->failed++;
    snprintf(attempts->text, sizeof(attempts->text), "%s", reason->text);
}

static psd_status
refuse_all(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
           void **owner_p)
{
    (void)owner;
    (void)conn;
    (void)events_p;
    (void)owner_p;
    return PSD_ERR_REFUSED;
}

/* If this fails, every attempt asks a slow resolver anew: threads pile up, and none ever gets the
 * answer. */
static void
test_next_attempt_goes_on_with_the_question(void **state)
{
    static const struct psi_conn_events events = {.on_open = note_open, .on_close = note_close};
    static const struct psi_listener_events doors = {.on_accept = refuse_all};
    const struct psi_loop_config config = {.auth_ms = 50};
    const uint64_t deadline_ms = bed_now_ms() + 20000;
    struct attempts attempts = {0};
    char bound[PSI_ADDRESS_BYTES];
    char address[128];
    struct psi_listener *listener;
    struct psi_loop *loop;
    struct psi_env *env;
    unsigned begun = 0;
    struct psi_conn *conn;
    struct psd_error err;

    (void)state;
    gate_set(false);
    assert_int_equal(psi_loop_create(&config, &loop, &err), PSD_OK);
    env = psi_loop_env(loop);
    assert_int_equal(
        env->ops->listen(env, "tcp://127.0.0.1:0", &doors, NULL, &listener, bound, &err), PSD_OK);
    snprintf(address, sizeof(address), "tcp://%s%s", slow_host, strrchr(bound, ':'));
    while (attempts.opened == 0 && bed_now_ms() < deadline_ms) {
        if (begun == attempts.failed) {
            begun++;
            assert_int_equal(env->ops->connect(env, address, NULL, &events, &attempts, &conn, &err),
                             PSD_OK);
        }
        if (attempts.failed == 3) {
            assert_says(attempts.text, slow_host);
            assert_int_equal(gate_asked(), 1);
            gate_set(true);
        }
        assert_int_equal(psi_loop_run_once(loop, 20, &err), PSD_OK);
    }
    assert_int_equal(attempts.opened, 1);
    psi_loop_destroy(loop);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_do_not_wait_for_a_name),
        cmocka_unit_test(test_deadline_holds_while_a_name_is_looked_up),
        cmocka_unit_test(test_next_attempt_goes_on_with_the_question),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
