/*
 * wait_test.c - two loops that share memory never miss each other's words, whether they look for
 * them or sleep.
 *
 * A wake-up that gets lost is seen as a game that stands still: nothing else would end the wait.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "transport/loop/loop.h"
#include "transport/loop/loop_state.h"

enum {
    PATIENCE_MS = 20000, /* without a single frame: it stands still */
#ifdef PSI_INSTRUMENTED
    ROUNDS = 20000,
#else
    ROUNDS = 200000,
#endif
    FLOOD_FRAMES = ROUNDS / 2,
    FLOOD_BYTES = 700,
    GAME_MS = 15000, /* then a game is over: on busy cores every word waits for its turn to run */
};

/*
 * One end of a game. The number of a frame is in its head.
 *
 * Thread: owned by its loop.
 */
struct player {
    struct psi_conn *conn;
    uint64_t heard;
    uint64_t answer_every; /* 1: every frame is answered; 0: none */
    bool opened;
    bool closed;
    bool wrong;
};

static psd_status
say(struct player *player, uint64_t number, size_t payload_bytes)
{
    static const uint8_t payload[FLOOD_BYTES];
    uint8_t head[PSI_PREFIX_BYTES] = {0};
    const struct psi_outgoing frame = {
        .head = head,
        .head_bytes = sizeof(head),
        .buffers = {{payload, payload_bytes}},
        .buffer_count = payload_bytes > 0 ? 1 : 0,
    };

    memcpy(head, &number, sizeof(number));
    memcpy(head + 8, &(uint64_t){payload_bytes}, 8);
    return player->conn->ops->send(player->conn, &frame);
}

static void
on_open(void *owner, struct psi_conn *conn)
{
    struct player *player = owner;

    player->opened = true;
    player->wrong = player->wrong || !conn->lends;
}

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    uint64_t bytes;

    (void)owner;
    (void)conn;
    (void)err;
    memcpy(&bytes, prefix + 8, sizeof(bytes));
    size_p->payload_bytes = bytes;
    return PSD_OK;
}

static psd_status
on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
        struct psi_sink *sink_p, struct psd_error *err)
{
    (void)owner;
    (void)conn;
    (void)head;
    (void)head_bytes;
    (void)sink_p;
    (void)err;
    return PSD_OK;
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct player *player = owner;
    uint64_t number;

    (void)conn;
    (void)head_bytes;
    (void)payload;
    (void)payload_bytes;
    (void)err;
    memcpy(&number, head, sizeof(number));
    player->wrong = player->wrong || number != player->heard;
    player->heard++;
    if (player->answer_every > 0 && player->heard % player->answer_every == 0) {
        return say(player, player->heard / player->answer_every - 1, 0);
    }
    return PSD_OK;
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct player *player = owner;

    (void)conn;
    (void)reason;
    player->closed = true;
    player->conn = NULL;
}

static const struct psi_conn_events player_events = {
    .on_open = on_open,
    .on_prefix = on_prefix,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_close = on_close,
};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct player *player = owner;

    player->conn = conn;
    *events_p = &player_events;
    *owner_p = player;
    return PSD_OK;
}

static const struct psi_listener_events listener_events = {.on_accept = on_accept};

/* ---- The far end: answers until the near one closes ---- */

struct far_end {
    struct psi_loop *loop;
    struct player player;
    char address[PSI_ADDRESS_BYTES];
};

static psd_status
far_listen(struct far_end *far, uint32_t spin_us)
{
    const struct psi_loop_config config = {.lends = true, .spin_us = spin_us};
    struct psi_listener *listener;
    struct psi_env *env;
    psd_status status = psi_loop_create(&config, &far->loop, NULL);

    if (status != PSD_OK) {
        return status;
    }
    env = psi_loop_env(far->loop);
    return env->ops->listen(env, "tcp://127.0.0.1:0", &listener_events, &far->player, &listener,
                            far->address, NULL);
}

/* Runs until the game is over, or stands still. Returns NULL if all went well. */
static void *
far_run(void *context)
{
    struct far_end *far = context;
    uint64_t heard = 0;
    uint64_t deadline_ms = psi_monotonic_ms() + PATIENCE_MS;

    while (!far->player.closed && psi_monotonic_ms() < deadline_ms) {
        if (psi_loop_run_once(far->loop, PATIENCE_MS, NULL) != PSD_OK) {
            break;
        }
        if (far->player.heard > heard) {
            heard = far->player.heard;
            deadline_ms = psi_monotonic_ms() + PATIENCE_MS;
        }
    }
    return far->player.closed && !far->player.wrong ? NULL : far;
}

/* ---- The near end ---- */

struct near_end {
    struct psi_loop *loop;
    struct player player;
};

/* Waits for the player to have heard so many frames. */
static void
near_wait(struct near_end *near, uint64_t heard)
{
    uint64_t seen = near->player.heard;
    uint64_t deadline_ms = psi_monotonic_ms() + PATIENCE_MS;

    while (near->player.heard < heard || !near->player.opened) {
        assert_false(near->player.closed);
        assert_true(psi_monotonic_ms() < deadline_ms);
        assert_int_equal(psi_loop_run_once(near->loop, PATIENCE_MS, NULL), PSD_OK);
        if (near->player.heard > seen) {
            seen = near->player.heard;
            deadline_ms = psi_monotonic_ms() + PATIENCE_MS;
        }
    }
    assert_false(near->player.wrong);
}

static void
near_open(struct near_end *near, const char *address, uint32_t spin_us)
{
    const struct psi_loop_config config = {.lends = true, .spin_us = spin_us};
    struct psi_env *env;

    memset(near, 0, sizeof(*near));
    assert_int_equal(psi_loop_create(&config, &near->loop, NULL), PSD_OK);
    env = psi_loop_env(near->loop);
    assert_int_equal(env->ops->connect(env, address, "", &player_events, &near->player,
                                       &near->player.conn, NULL),
                     PSD_OK);
    near_wait(near, 0);
}

static void
near_close(struct near_end *near)
{
    near->player.conn->ops->close(near->player.conn);
    psi_loop_destroy(near->loop);
}

/* One word each way at a time: whoever waits has nothing else to be woken by. */
static void
play_ping_pong(const char *address, uint32_t spin_us)
{
    const uint64_t end_ms = psi_monotonic_ms() + GAME_MS;
    struct near_end near;

    near_open(&near, address, spin_us);
    for (uint64_t i = 0; i < ROUNDS && psi_monotonic_ms() < end_ms; i++) {
        assert_int_equal(say(&near.player, i, 0), PSD_OK);
        near_wait(&near, i + 1);
    }
    near_close(&near);
}

/* Many words one way and few back: the ring is full again and again. */
static void
play_flood(const char *address, uint32_t spin_us)
{
    const uint64_t end_ms = psi_monotonic_ms() + GAME_MS;
    struct near_end near;

    near_open(&near, address, spin_us);
    for (uint64_t frames = 0; frames < FLOOD_FRAMES && psi_monotonic_ms() < end_ms;) {
        for (uint64_t end = frames + FLOOD_FRAMES / 10; frames < end; frames++) {
            assert_int_equal(say(&near.player, frames, FLOOD_BYTES), PSD_OK);
        }
        near_wait(&near, frames / 1000);
    }
    near_close(&near);
}

/* ---- Two threads, two processes ---- */

struct game {
    uint64_t answer_every;
    void (*play)(const char *address, uint32_t spin_us);
};

static const struct game ping_pong = {1, play_ping_pong};
static const struct game flood = {1000, play_flood};

static void
on_two_threads(const struct game *game, uint32_t near_us, uint32_t far_us)
{
    struct far_end far = {.player = {.answer_every = game->answer_every}};
    pthread_t thread;
    void *failed;

    assert_int_equal(far_listen(&far, far_us), PSD_OK);
    assert_int_equal(pthread_create(&thread, NULL, far_run, &far), 0);
    game->play(far.address, near_us);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    psi_loop_destroy(far.loop);
}

static void
run_child(const struct game *game, uint32_t spin_us, int address_fd)
{
    struct far_end far = {.player = {.answer_every = game->answer_every}};

    if (far_listen(&far, spin_us) != PSD_OK ||
        write(address_fd, far.address, sizeof(far.address)) != sizeof(far.address)) {
        _exit(1);
    }
    if (far_run(&far) != NULL) {
        _exit(2);
    }
    psi_loop_destroy(far.loop);
    _exit(0);
}

static void
in_two_processes(const struct game *game, uint32_t near_us, uint32_t far_us)
{
    char address[PSI_ADDRESS_BYTES];
    int fds[2];
    pid_t child;
    int status;

    assert_int_equal(pipe(fds), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run_child(game, far_us, fds[1]);
    }
    assert_int_equal(read(fds[0], address, sizeof(address)), sizeof(address));
    game->play(address, near_us);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(fds[0]);
    close(fds[1]);
}

/* If this fails, a word is written while its reader falls asleep, and nobody wakes it. */
static void
test_ping_pong_asleep(void **state)
{
    (void)state;
    in_two_processes(&ping_pong, 0, 0);
}

/* If this fails, likewise, between looking and sleeping. */
static void
test_ping_pong_looking(void **state)
{
    (void)state;
    on_two_threads(&ping_pong, 50, 50);
    in_two_processes(&ping_pong, 50, 50);
}

/* If this fails, likewise, when one side looks for so short that it nearly always just misses. */
static void
test_ping_pong_unlike(void **state)
{
    (void)state;
    on_two_threads(&ping_pong, 2, 50);
    in_two_processes(&ping_pong, 50, 0);
}

/* If this fails, a writer that waits for room is not told that there is some. */
static void
test_flood(void **state)
{
    static const uint32_t spins[] = {0, 2, 50};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        on_two_threads(&flood, spins[i], spins[2 - i]);
        in_two_processes(&flood, spins[i], spins[i]);
    }
}

/* How often it has looked in vain, in a wait in which nothing comes. */
static uint32_t
looks_of(const struct psi_loop_config *config, bool sleeps)
{
    struct psd_error err = {0};
    struct psi_loop_ready ready;
    struct psi_loop *loop;
    uint32_t looks;

    assert_int_equal(psi_loop_create(config, &loop, &err), PSD_OK);
    assert_int_equal(sleeps ? psi_loop_sleep(loop, 1, &ready, &err)
                            : psi_loop_wait(loop, 1, &ready, &err),
                     PSD_OK);
    assert_int_equal(ready.count, 0);
    looks = atomic_load(&loop->misses);
    psi_loop_destroy(loop);
    return looks;
}

/* If this fails, threads that look for work take the cores from those that have some: of a process more of them look than
 * may, or one that works behind others does. */
static void
test_not_everybody_looks(void **state)
{
    struct psi_lookers lookers = {.most = 1};
    const struct psi_loop_config config = {.spin_us = 2, .lookers = &lookers};

    (void)state;
    assert_int_equal(looks_of(&config, false), 1);
    assert_int_equal(looks_of(&config, true), 0);
    assert_int_equal(atomic_load(&lookers.now), 0); /* it is told when somebody has looked */
    atomic_store(&lookers.now, 1);
    assert_int_equal(looks_of(&config, false), 0);
    assert_int_equal(atomic_load(&lookers.now), 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ping_pong_asleep),    cmocka_unit_test(test_ping_pong_looking),
        cmocka_unit_test(test_ping_pong_unlike),    cmocka_unit_test(test_flood),
        cmocka_unit_test(test_not_everybody_looks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
