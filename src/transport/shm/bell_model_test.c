/*
 * bell_model_test.c - bell.h and ring.c on a processor that may look before it is seen.
 *
 * The code under test is the code that runs, compiled here with atomic operations of a model: a
 * store first lies in its processor's buffer, where only that processor sees it, and reaches the
 * others at any later time, in order; a fence waits for that. The buffered half of a
 * read-modify-write may be passed by later loads, too, as on Arm, so that the fences show that
 * x86 does without. Every order of two processors' steps and of these arrivals is tried, one run
 * each, depth first: what no run on any one machine can be made to show.
 *
 * The model knows only the words that a promise is about; all others change at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t model_load(const volatile void *word, size_t bytes);
static void model_store(volatile void *word, size_t bytes, uint64_t value);
static void model_fence(void);

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_thread_fence
#undef atomic_fetch_add
#undef atomic_fetch_sub
#define atomic_load_explicit(word, order)         model_load(word, sizeof(*(word)))
#define atomic_store_explicit(word, value, order) model_store(word, sizeof(*(word)), (value))
#define atomic_thread_fence(order)                model_fence()
#define atomic_fetch_add(word, by)                                                                 \
    model_store(word, sizeof(*(word)), model_load(word, sizeof(*(word))) + (by))
#define atomic_fetch_sub(word, by)                                                                 \
    model_store(word, sizeof(*(word)), model_load(word, sizeof(*(word))) - (by))

#include "transport/shm/bell.h"
#include "transport/shm/ring.c"

/* ---- two processors ------------------------------------------------------------------------ */

enum { PROCESSORS = 2, BUFFER_MAX = 16, WORDS_MAX = 8, DEPTH_MAX = 256, NOBODY = PROCESSORS };

struct buffered {
    volatile void *word;
    size_t bytes;
    uint64_t value;
};

/* Thread: its own while it has the turn, the scheduler's otherwise. */
struct processor {
    void (*program)(void);
    pthread_t thread;
    sem_t turn;
    bool over;
    struct buffered buffer[BUFFER_MAX]; /* oldest first */
    unsigned count;
};

/* Which of the possible moves was made at every step of this run; the next run differs in the last
 * that has another. */
struct path {
    unsigned move[DEPTH_MAX];
    unsigned moves[DEPTH_MAX];
    unsigned depth;
    unsigned used;
};

static struct processor processors[PROCESSORS];
static unsigned running = NOBODY; /* who has the turn; nobody: set-up, all at once */
static sem_t stopped;
static const volatile void *words[WORDS_MAX];
static unsigned word_count;
static struct path path;

static bool
is_watched(const volatile void *word)
{
    for (unsigned i = 0; i < word_count; i++) {
        if (words[i] == word) {
            return running != NOBODY;
        }
    }
    return false;
}

static uint64_t
read_word(const volatile void *word, size_t bytes)
{
    return bytes == 4 ? *(const volatile uint32_t *)word : *(const volatile uint64_t *)word;
}

static void
write_word(volatile void *word, size_t bytes, uint64_t value)
{
    if (bytes == 4) {
        *(volatile uint32_t *)word = (uint32_t)value;
    } else {
        *(volatile uint64_t *)word = value;
    }
}

/* Gives the turn away, before something that others may come before. */
static void
pause_here(void)
{
    struct processor *self = &processors[running];

    sem_post(&stopped);
    sem_wait(&self->turn);
}

static void
arrive(struct processor *processor)
{
    const struct buffered oldest = processor->buffer[0];

    write_word(oldest.word, oldest.bytes, oldest.value);
    processor->count--;
    memmove(processor->buffer, processor->buffer + 1,
            processor->count * sizeof(processor->buffer[0]));
}

static uint64_t
model_load(const volatile void *word, size_t bytes)
{
    if (is_watched(word)) {
        pause_here();

        const struct processor *self = &processors[running];

        for (unsigned i = self->count; i-- > 0;) {
            if (self->buffer[i].word == word) {
                return self->buffer[i].value;
            }
        }
    }
    return read_word(word, bytes);
}

static void
model_store(volatile void *word, size_t bytes, uint64_t value)
{
    if (!is_watched(word)) {
        write_word(word, bytes, value);
        return;
    }

    struct processor *self = &processors[running];

    assert_true(self->count < BUFFER_MAX); /* nobody sees it yet: no turn is given away */
    self->buffer[self->count++] = (struct buffered){word, bytes, value};
}

static void
model_fence(void)
{
    while (running != NOBODY && processors[running].count > 0) {
        pause_here();
        if (processors[running].count > 0) {
            arrive(&processors[running]);
        }
    }
}

static void *
run_program(void *argument)
{
    struct processor *self = argument;

    sem_wait(&self->turn);
    self->program();
    self->over = true;
    sem_post(&stopped);
    return NULL;
}

/* Move i: processor i goes on, or, from PROCESSORS on, its oldest store arrives. */
static bool
may_move(unsigned move)
{
    return move < PROCESSORS ? !processors[move].over : processors[move - PROCESSORS].count > 0;
}

/* The move of this step: as in the run before, as far as that goes, then the first there is. */
static unsigned
choose(void)
{
    unsigned possible[2 * PROCESSORS];
    unsigned count = 0;

    for (unsigned move = 0; move < 2 * PROCESSORS; move++) {
        if (may_move(move)) {
            possible[count++] = move;
        }
    }
    if (count == 0) {
        return NOBODY + PROCESSORS;
    }
    assert_true(path.used < DEPTH_MAX);
    if (path.used == path.depth) {
        path.move[path.depth++] = 0;
    }
    path.moves[path.used] = count;
    return possible[path.move[path.used++]];
}

static void
run_once(void)
{
    unsigned move;

    path.used = 0;
    for (unsigned i = 0; i < PROCESSORS; i++) {
        processors[i].over = false;
        assert_int_equal(pthread_create(&processors[i].thread, NULL, run_program, &processors[i]),
                         0);
    }
    while ((move = choose()) != NOBODY + PROCESSORS) {
        if (move >= PROCESSORS) {
            arrive(&processors[move - PROCESSORS]);
            continue;
        }
        running = move;
        sem_post(&processors[move].turn);
        sem_wait(&stopped);
    }
    running = NOBODY;
    for (unsigned i = 0; i < PROCESSORS; i++) {
        pthread_join(processors[i].thread, NULL);
    }
}

/* False: all have been tried. */
static bool
next_path(void)
{
    while (path.depth > 0 && path.move[path.depth - 1] + 1 == path.moves[path.depth - 1]) {
        path.depth--;
    }
    if (path.depth == 0) {
        return false;
    }
    path.move[path.depth - 1]++;
    return true;
}

/* Tries every order of two programs. Returns how many there are. */
static unsigned
try_all(void (*first)(void), void (*second)(void), void (*prepare)(void), bool (*holds)(void))
{
    unsigned runs = 0;

    memset(&path, 0, sizeof(path));
    processors[0].program = first;
    processors[1].program = second;
    sem_init(&stopped, 0, 0);
    for (unsigned i = 0; i < PROCESSORS; i++) {
        sem_init(&processors[i].turn, 0, 0);
    }
    do {
        prepare();
        run_once();
        runs++;
        if (!holds()) {
            fail_msg("neither noticed, in run %u", runs);
        }
    } while (next_path());
    for (unsigned i = 0; i < PROCESSORS; i++) {
        sem_destroy(&processors[i].turn);
    }
    sem_destroy(&stopped);
    return runs;
}

/* ---- a writer and a reader ----------------------------------------------------------------- */

static struct psi_ring_side sides[2]; /* the writer's, the reader's */
static struct psi_ring writer;
static struct psi_ring reader;
static struct psi_bell bell;
static bool told;
static bool noticed;

static void
watch(const volatile void *word)
{
    assert_true(word_count < WORDS_MAX);
    words[word_count++] = word;
}

static void
prepare_empty(void)
{
    for (unsigned i = 0; i < 2; i++) {
        memset(&sides[i], 0, offsetof(struct psi_ring_side, data));
    }
    memset(&bell, 0, sizeof(bell));
    psi_ring_init(&writer, &sides[0], &sides[1]);
    psi_ring_init(&reader, &sides[1], &sides[0]);
    told = false;
    noticed = false;
    word_count = 0;
    watch(&bell.sleepers);
    watch(&sides[0].tail);
}

static void
prepare_full(void)
{
    psd_status status;

    prepare_empty();
    while (psi_ring_reserve(&writer, PSI_RING_RECORD_MAX, &status) != NULL) {
        psi_ring_commit(&writer, false);
    }
    assert_int_equal(status, PSD_OK);
    atomic_init(&sides[0].starved, 0);
    word_count = 0;
    watch(&bell.sleepers);
    watch(&sides[1].head);
    watch(&sides[0].starved);
}

static void
prepare_full_and_awake(void)
{
    prepare_full();
    bell.sleepers = 1; /* another thread of its process sleeps */
}

static bool
one_noticed(void)
{
    return told || noticed;
}

static void
write_record(void)
{
    psd_status status;

    (void)psi_ring_reserve(&writer, 8, &status);
    psi_ring_commit(&writer, true);
    told = psi_bell_peer_sleeps(&bell);
}

static void
sleep_as_reader(void)
{
    psi_bell_lie_down(&bell);
    noticed = psi_ring_is_ready(&reader);
}

/* If this fails, a reader sleeps on a record, and its writer does not wake it. */
static void
test_news_are_noticed(void **state)
{
    const unsigned runs = try_all(write_record, sleep_as_reader, prepare_empty, one_noticed);

    (void)state;
    print_message("%u orders\n", runs);
    assert_true(runs > 20);
}

static void
read_record(void)
{
    const uint8_t *record;
    size_t bytes;

    if (psi_ring_peek(&reader, &record, &bytes) == PSD_OK) {
        psi_ring_consume(&reader);
    }
    told = psi_bell_peer_sleeps(&bell) &&
           atomic_load_explicit(&reader.theirs->starved, memory_order_relaxed) != 0;
}

static void
write_without_room(void)
{
    psd_status status;

    noticed = psi_ring_reserve(&writer, PSI_RING_RECORD_MAX, &status) != NULL;
}

static void
sleep_without_room(void)
{
    write_without_room();
    if (!noticed) {
        psi_bell_lie_down(&bell);
        noticed = psi_ring_is_ready(&writer);
    }
}

/* If this fails, a writer sleeps although there is room again, and its reader does not wake it. */
static void
test_room_is_noticed(void **state)
{
    const unsigned runs = try_all(read_record, sleep_without_room, prepare_full, one_noticed);

    (void)state;
    print_message("%u orders\n", runs);
    assert_true(runs > 100);
}

/* If this fails, a writer that finds no room is not heard, although it looked once more. */
static void
test_want_of_room_is_heard(void **state)
{
    const unsigned runs =
        try_all(read_record, write_without_room, prepare_full_and_awake, one_noticed);

    (void)state;
    print_message("%u orders\n", runs);
    assert_true(runs > 20);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_news_are_noticed),
        cmocka_unit_test(test_room_is_noticed),
        cmocka_unit_test(test_want_of_room_is_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
