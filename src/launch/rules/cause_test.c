/*
 * cause_test.c - what ended a job: a table of (event, place) and the cause and code it must have.
 *
 * The job: two servers (slots 1, 2), four workers (slots 3 to 6). Machine 0 has the master and
 * worker 0, machine 1 server 0 and worker 1, machine 2 server 1 and worker 2, machine 3 worker 3.
 *
 * News come in streams that do not wait for each other: what the master tells (with its own end),
 * who ended, which machines answer. Every row is played in every order in which its streams can
 * arrive, and has the same verdict in all of them. A machine that answers has told who ended there.
 *
 *   j5 d5  joined, done             x5:1 x5!9  ended with code 1, by signal 9
 *   c5 b5  cut, back                a          all machines answer that are not named by L
 *   q5 h5  quiet, heard             L1s L1c    machine 1 is lost: silent, its line was closed
 *   l5s    lost: s silent, c closed, g gave up
 *   s1     the master awaits another life of 1, which is started when the last one has ended
 *   r1     1 is killed because it is to be restarted
 *   e70:5s the master ends the job with 70 because of 5; e124:0n: because of nobody
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launch/rules/cause.h"

enum { SERVERS = 2, WORKERS = 4, SLOTS = 7, MACHINES = 4, STREAMS = 3 };

static const uint32_t machine_of[SLOTS] = {0, 1, 2, 0, 1, 2, 3};

struct row {
    const char *what;
    const char *streams[STREAMS]; /* master, ends, machines */
    enum cause_kind kind;
    uint32_t slot;
    int code;
    bool before;
};

struct play {
    struct cause cause;
    const struct row *row;
    bool open;
    bool over;
    struct cause_verdict verdict;
    uint32_t unjoined; /* a worker that never joined; 0: none */
    unsigned orders;   /* tried */
};

static struct psi_tiding
tiding_of(enum psi_tiding_kind kind, uint32_t slot, char loss)
{
    return (struct psi_tiding){.kind = kind,
                               .role = (enum psi_tiding_role)role_of_slot(slot, SERVERS),
                               .rank = role_index(slot, SERVERS),
                               .loss = loss == 's'   ? PSI_LOSS_SILENT
                                       : loss == 'c' ? PSI_LOSS_CLOSED
                                       : loss == 'g' ? PSI_LOSS_GAVE_UP
                                                     : PSI_LOSS_NONE};
}

/* As watch.c does it: the first failure opens the inquest. */
static void
open_inquest(struct play *play)
{
    if (!play->open) {
        play->open = true;
        cause_open(&play->cause, 10000);
    }
}

static void
tell(struct play *play, enum psi_tiding_kind kind, uint32_t slot, char loss)
{
    const struct psi_tiding tiding = tiding_of(kind, slot, loss);

    cause_told(&play->cause, &tiding);
}

/* Machines that no news call lost. */
static void
answer_all(struct play *play)
{
    for (uint32_t i = 0; i < MACHINES; i++) {
        char lost[8];

        snprintf(lost, sizeof(lost), "L%u", i);
        if (strstr(play->row->streams[2], lost) == NULL) {
            cause_answered(&play->cause, i);
        }
    }
}

static void
take_end(struct play *play, const char *word)
{
    struct psi_tiding tiding;
    unsigned slot;
    char loss;
    int code;

    assert_int_equal(sscanf(word, "e%d:%u%c", &code, &slot, &loss), 3);
    tiding = tiding_of(PSI_TIDING_END, slot, loss);
    tiding.code = code;
    cause_told(&play->cause, &tiding);
    open_inquest(play);
}

/* The end of a server is not the job's while the master may await another life of it. */
static bool
is_awaited(const struct play *play, uint32_t slot)
{
    char word[16];

    snprintf(word, sizeof(word), "s%u ", slot);
    return strstr(play->row->streams[0], word) != NULL;
}

/* Returns false if it cannot come now: its next life has not been started. */
static bool
take_exit(struct play *play, const char *word)
{
    unsigned slot;
    char how;
    int number;

    assert_int_equal(sscanf(word, "x%u%c%d", &slot, &how, &number), 3);
    if (play->cause.processes[slot].exit_at != 0) {
        return false;
    }
    cause_exited(&play->cause, slot, how == ':' ? number : 0, how == '!' ? number : 0);
    if (number != 0 && !is_awaited(play, slot)) {
        open_inquest(play);
    }
    return true;
}

static bool
start_again(struct play *play, uint32_t slot)
{
    if (play->cause.processes[slot].exit_at == 0) {
        return false;
    }
    cause_forgive(&play->cause, slot);
    cause_started(&play->cause, slot);
    return true;
}

/* Returns false if it cannot come now: machines are asked once something has failed. */
static bool
take(struct play *play, const char *word)
{
    static const struct {
        char letter;
        enum psi_tiding_kind kind;
    } simple[] = {{'j', PSI_TIDING_JOINED}, {'d', PSI_TIDING_DONE},  {'c', PSI_TIDING_CUT},
                  {'b', PSI_TIDING_BACK},   {'q', PSI_TIDING_QUIET}, {'h', PSI_TIDING_HEARD},
                  {'l', PSI_TIDING_LOST}};
    const uint32_t number = (uint32_t)strtoul(word + 1, NULL, 10);

    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
        if (word[0] == simple[i].letter) {
            tell(play, simple[i].kind, number, word[2]);
            return true;
        }
    }
    switch (word[0]) {
    case 'a':
        if (!play->open) {
            return false;
        }
        answer_all(play);
        break;
    case 'L':
        cause_machine_lost(&play->cause, number, &(struct cause_loss){.silent = word[2] == 's'});
        open_inquest(play);
        break;
    case 'e':
        take_end(play, word);
        break;
    case 'x':
        return take_exit(play, word);
    case 's':
        return start_again(play, number);
    case 'r':
        cause_rolled(&play->cause, number);
        break;
    default:
        fail_msg("%s: no news", word);
    }
    return true;
}

static void
conclude(struct play *play, uint64_t now_ms)
{
    if (!play->over && play->open && cause_settled(&play->cause, now_ms)) {
        play->over = true;
        play->verdict = cause_verdict(&play->cause);
    }
}

/* Plays news in one order. Returns false if that order cannot happen. */
static bool
play_order(struct play *play, char words[][16], size_t count)
{
    bool possible = true;

    play->open = false;
    play->over = false;
    for (uint32_t slot = 1; slot < SLOTS; slot++) {
        cause_started(&play->cause, slot);
        if (slot != play->unjoined) {
            tell(play, PSI_TIDING_JOINED, slot, 'n');
        }
    }
    for (size_t i = 0; i < count && possible && !play->over; i++) {
        possible = take(play, words[i]);
        conclude(play, 10000);
    }
    if (possible && !play->over) {
        conclude(play, cause_deadline(&play->cause));
        conclude(play, cause_deadline(&play->cause)); /* of processes, after that of machines */
    }
    return possible;
}

static void
expect_verdict(struct play *play, char words[][16], size_t count, const struct cause_config *config)
{
    const struct row *row = play->row;
    char order[256] = "";

    assert_true(cause_init(&play->cause, config));
    if (play_order(play, words, count)) {
        play->orders++;
        for (size_t i = 0; i < count; i++) {
            strncat(order, words[i], sizeof(order) - strlen(order) - 1);
            strncat(order, " ", sizeof(order) - strlen(order) - 1);
        }
        if (!play->over || play->verdict.kind != row->kind || play->verdict.slot != row->slot ||
            play->verdict.code != row->code || play->verdict.before != row->before) {
            fail_msg("%s: in the order %s: %s kind %d slot %u code %d%s, not kind %d slot %u code "
                     "%d%s",
                     row->what, order, play->over ? "" : "(not over)", (int)play->verdict.kind,
                     play->verdict.slot, play->verdict.code, play->verdict.before ? " before" : "",
                     (int)row->kind, row->slot, row->code, row->before ? " before" : "");
        }
    }
    cause_fini(&play->cause);
}

/* Takes the next word of each stream in turn, and so comes to every order. */
static void
interleave(struct play *play, const char *const streams[STREAMS], char words[][16], size_t count,
           const struct cause_config *config)
{
    bool more = false;

    for (int i = 0; i < STREAMS; i++) {
        const char *rest[STREAMS] = {streams[0], streams[1], streams[2]};
        size_t bytes;

        while (*rest[i] == ' ') {
            rest[i]++;
        }
        bytes = strcspn(rest[i], " ");
        if (bytes == 0) {
            continue;
        }
        more = true;
        snprintf(words[count], 16, "%.*s", (int)bytes, rest[i]);
        rest[i] += bytes;
        interleave(play, rest, words, count + 1, config);
    }
    if (!more) {
        expect_verdict(play, words, count, config);
    }
}

static void
expect_all(const struct row *rows, size_t count, const struct cause_config *config)
{
    for (size_t i = 0; i < count; i++) {
        struct play play = {.row = &rows[i]};
        char words[32][16];

        if (strstr(rows[i].what, "never joined") != NULL) {
            play.unjoined = rows[i].slot;
        }
        interleave(&play, rows[i].streams, words, 0, config);
        assert_true(play.orders > 0);
    }
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Over ssh from a machine that takes no part. */
static const struct cause_config plain = {.servers = SERVERS,
                                          .workers = WORKERS,
                                          .machine_of = machine_of,
                                          .machines = MACHINES,
                                          .here = CAUSE_NOWHERE,
                                          .silence_ms = 2000,
                                          .lease_ms = 5000};

/* If this fails, psd_run blames somebody who only died of another's death. */
static void
test_processes(void **state)
{
    static const struct row rows[] = {
        /* Killed: the process itself, with its signal. Who dies of it comes after it. */
        {"worker killed", {"c5 l5c e70:5c x0:70", "x5!9 x3:1 x1:70", "a"}, CAUSE_PROCESS, 5, 137},
        {"server killed", {"c1 l1c e71:1c x0:71", "x1!9 x3:1 x2:71", "a"}, CAUSE_PROCESS, 1, 137},
        {"master killed", {"", "x0!9 x1:72 x3:1 x4:1", "a"}, CAUSE_PROCESS, 0, 137},
        {"worker crashed", {"c6 l6c e70:6c x0:70", "x6!11 x3:1", "a"}, CAUSE_PROCESS, 6, 139},
        {"server crashed", {"c2 l2c e71:2c x0:71", "x2!6 x4:1", "a"}, CAUSE_PROCESS, 2, 134},
        /* Stopped: silent, though the machine answers. Nobody ends but its victims. */
        {"worker stopped", {"q5 l5s e70:5s x0:70", "x3:1 x4:1 x1:70", "a"}, CAUSE_SILENT, 5, 70},
        {"worker stopped, later killed by us",
         {"q5 l5s e70:5s x0:70", "x3:1 x5!9", "a"},
         CAUSE_SILENT,
         5,
         70},
        {"server stopped", {"q1 l1s e71:1s x0:71", "x3:1 x4:1 x2:71", "a"}, CAUSE_SILENT, 1, 71},
        {"master stopped", {"", "x1:72 x3:1 x2:72 x4:1", "a"}, CAUSE_SILENT, 0, 72},
        {"master stopped, workers first", {"", "x3:1 x4:1 x1:72", "a"}, CAUSE_SILENT, 0, 72},
        /* Its own error keeps its own code. */
        {"worker's error", {"c5 l5c e70:5c x0:70", "x5:3 x3:1 x1:70", "a"}, CAUSE_PROCESS, 5, 3},
        {"worker gave up", {"c5 l5g e70:5g x0:70", "x5:1 x3:1 x1:70", "a"}, CAUSE_PROCESS, 5, 1},
        {"worker's error, seen by a silent master", {"", "x5:3", "a"}, CAUSE_PROCESS, 5, 3},
        {"worker ended with 0, unclosed",
         {"c5 l5c e70:5c x0:70", "x5:0 x3:1 x1:70", "a"},
         CAUSE_UNCLOSED,
         5,
         70},
        {"worker fails after its goodbye", {"d5", "x5:3", "a"}, CAUSE_PROCESS, 5, 3},
        {"worker that never joined", {"", "x5:2", "a"}, CAUSE_PROCESS, 5, 2},
        {"two workers: the master saw 6 first",
         {"c6 c5 l5c e70:5c", "x5:1 x6:3", "a"},
         CAUSE_PROCESS,
         6,
         3},
        {"server's error", {"c2 e71:2c x0:71", "x2:76 x3:1", "a"}, CAUSE_PROCESS, 2, 76},
        {"sums not finite", {"e74:1g x0:74", "x1:74 x2:74 x3:1", "a"}, CAUSE_VERDICT, 1, 74},
        {"server asked to stop", {"e143:1g x0:143", "x1:143 x2:143", "a"}, CAUSE_VERDICT, 1, 143},
        {"master asked to stop", {"e143:0n x0:143", "x1:143 x3:1", "a"}, CAUSE_VERDICT, 0, 143},
        {"not gathered", {"e124:0n x0:124", "x1:124 x2:124", "a"}, CAUSE_VERDICT, 0, 124},
        {"master crashed", {"", "x0:76 x1:72 x3:1", "a"}, CAUSE_PROCESS, 0, 76},
        /* Alive, yet not for the master. */
        {"worker disconnected",
         {"c5 l5c e70:5c x0:70", "x3:1 x1:70", "a"},
         CAUSE_DISCONNECTED,
         5,
         70},
        {"cut and back: another's error",
         {"c5 b5 c6 l6c e70:6c", "x6:3 x3:1", "a"},
         CAUSE_PROCESS,
         6,
         3},
        /* A worker that did not want to wait for a silent server. */
        {"server stopped, worker impatient",
         {"q1 c5 l5g e70:5g x0:70", "x5:1 x3:1 x2:70", "a"},
         CAUSE_SILENT,
         1,
         71},
        {"server slow, worker's error",
         {"q1 h1 c5 l5g e70:5g x0:70", "x5:1 x3:1 x2:70", "a"},
         CAUSE_PROCESS,
         5,
         1},
    };

    (void)state;
    expect_all(rows, COUNT(rows), &plain);
}

/* If this fails, psd_run says of a server that was killed that it runs, waits in vain for its end, or blames the
 * next life of it, which the master sent away because the job was over. */
static void
test_the_next_life_was_on_its_way(void **state)
{
    static const struct row rows[] = {
        {"a server, and what it had",
         {"c1 l1c s1 e71:1c x0:71", "x1!9 x3:1", "a"},
         CAUSE_PROCESS,
         1,
         137,
         true},
        {"a server and its copy",
         {"c2 c1 l2c s2 l1c s1 e71:1c x0:71", "x2!9 x1!9 x3:1", "a"},
         CAUSE_PROCESS,
         1,
         137,
         true},
        {"next lives are sent away",
         {"c2 l2c s2 c1 l1c s1 e71:1c x0:71", "x2!9 x1!9 x2:73 x1:73", "a"},
         CAUSE_PROCESS,
         1,
         137,
         true},
        {"a life that did not get in is followed by another",
         {"c1 l1c s1 s1 e71:1c x0:71", "x1!9 x1:75", "a"},
         CAUSE_PROCESS,
         1,
         137,
         true},
        {"its own code", {"c1 l1c s1 e71:1c x0:71", "x1:76 x3:1", "a"}, CAUSE_PROCESS, 1, 76, true},
        {"a next life that cannot start",
         {"c1 l1c x1!9 s1 x1:3 e71:1c x0:71", "x3:1", "a"},
         CAUSE_PROCESS,
         1,
         3},
        {"a next life that was let in",
         {"c1 l1c x1!9 s1 j1 x1!6 c1 l1c e71:1c x0:71", "x3:1", "a"},
         CAUSE_PROCESS,
         1,
         134},
        {"restarted on purpose",
         {"r1 c1 l1c x1!9 s1 e71:1c x0:71", "x3:1", "a"},
         CAUSE_VERDICT,
         1,
         71},
        {"silent, and killed by us",
         {"q1 l1s s1 e71:1s x0:71", "x1!9 x3:1", "a"},
         CAUSE_SILENT,
         1,
         71,
         true},
    };
    struct psi_tiding end = tiding_of(PSI_TIDING_END, 1, 'c');
    const struct psi_tiding joined = tiding_of(PSI_TIDING_JOINED, 1, 'n');

    (void)state;
    expect_all(rows, COUNT(rows), &plain);
    end.code = 71;
    for (int started = 0; started < 2; started++) {
        struct cause_verdict verdict;
        struct cause cause;

        assert_true(cause_init(&cause, &plain));
        cause_told(&cause, &joined);
        cause_exited(&cause, 1, 0, SIGKILL);
        cause_forgive(&cause, 1);
        if (started == 1) { /* else some time later */
            cause_started(&cause, 1);
        }
        cause_told(&cause, &end);
        cause_open(&cause, 0);
        for (uint32_t machine = 0; machine < MACHINES; machine++) {
            cause_answered(&cause, machine);
        }
        assert_true(cause_settled(&cause, 0)); /* nothing is waited for */
        verdict = cause_verdict(&cause);
        assert_int_equal(verdict.kind, CAUSE_PROCESS);
        assert_int_equal(verdict.code, 137);
        assert_int_equal(verdict.before, started == 1);
        cause_fini(&cause);
    }
}

/* If this fails, a next life of a server that was told to stand by is blamed for what the last one took along. */
static void
test_the_next_life_stood_by(void **state)
{
    struct psi_tiding joined = tiding_of(PSI_TIDING_JOINED, 1, 'n');
    struct psi_tiding end = tiding_of(PSI_TIDING_END, 1, 'c');

    (void)state;
    end.code = 71;
    for (int is_over = 0; is_over < 2; is_over++) {
        struct cause_verdict verdict;
        struct cause cause;

        assert_true(cause_init(&cause, &plain));
        joined.life = end.life = 5;
        cause_told(&cause, &joined);
        cause_exited(&cause, 1, 0, SIGKILL);
        cause_forgive(&cause, 1);
        cause_started(&cause, 1);
        joined.life = 6;
        cause_told(&cause, &joined);
        cause_told(&cause, &end);
        if (is_over == 1) {
            cause_exited(&cause, 1, 71, 0);
        }
        cause_open(&cause, 0);
        for (uint32_t machine = 0; machine < MACHINES; machine++) {
            cause_answered(&cause, machine);
        }
        assert_true(cause_settled(&cause, 0)); /* nothing is waited for */
        verdict = cause_verdict(&cause);
        assert_int_equal(verdict.kind, CAUSE_PROCESS);
        assert_int_equal(verdict.slot, 1);
        assert_int_equal(verdict.code, 137);
        assert_true(verdict.before);
        cause_fini(&cause);
    }
}

/* If this fails, a machine that was cut off or lost its power looks like a failing script. */
static void
test_machines(void **state)
{
    static const struct row rows[] = {
        /* Cut and power-off are the same from outside: silence, and victims elsewhere. */
        {"cut: workers", {"q6 l6s e70:6s x0:70", "x3:1 x4:1 x1:70", "a L3s"}, CAUSE_MACHINE, 3, 70},
        {"cut: a server",
         {"q1 l1s e71:1s x0:71", "x3:1 x5:1 x2:71", "a L1s"},
         CAUSE_MACHINE,
         1,
         71},
        {"cut: the worker is missed before the server",
         {"q4 l4s e70:4s x0:70", "x3:1 x5:1 x2:70", "a L1s"},
         CAUSE_MACHINE,
         1,
         71},
        {"cut: the master", {"", "x1:72 x4:1 x2:72 x6:1", "a L0s"}, CAUSE_MACHINE, 0, 72},
        {"cut: the master, workers first", {"", "x4:1 x6:1 x1:72", "a L0s"}, CAUSE_MACHINE, 0, 72},
        /* An agent that was killed: all its processes with it. */
        {"agent of workers", {"c6 l6c e70:6c x0:70", "x3:1 x1:70", "a L3c"}, CAUSE_MACHINE, 3, 70},
        {"agent of a server", {"c1 c4 l1c e71:1c", "x3:1 x2:71", "a L1c"}, CAUSE_MACHINE, 1, 71},
        {"agent of the master", {"", "x1:72 x4:1", "a L0c"}, CAUSE_MACHINE, 0, 72},
        {"agent stopped", {"", "", "L1s a"}, CAUSE_MACHINE, 1, 71},
        /* The keeper above an agent: the agent asks its processes to stop, and they say so. */
        {"keeper of workers", {"c6 l6g e70:6g x0:70", "x3:1 x1:70", "a L3c"}, CAUSE_MACHINE, 3, 70},
        {"keeper of a server", {"e143:1g x0:143", "x2:143 x3:1", "a L1c"}, CAUSE_MACHINE, 1, 71},
        {"keeper of the master", {"", "x1:143 x2:143 x4:1", "a L0c"}, CAUSE_MACHINE, 0, 72},
        /* Several at once count by the first role that was lost. */
        {"a switch fails", {"q6 l6s e70:6s", "x3:1 x4:1", "L3s L2s a"}, CAUSE_MACHINE, 3, 71},
        /* All: it is ours that is cut off. */
        {"all others", {"", "", "L1s L2s L3s L0s"}, CAUSE_CUT_OFF, 1, 72},
        {"all others, not silently", {"", "", "L1c L2c L3c L0c"}, CAUSE_MACHINE, 1, 72},
    };

    (void)state;
    expect_all(rows, COUNT(rows), &plain);
}

/* If this fails, a launcher that is part of the job does not see that it is the one that is cut
 * off. */
static void
test_launcher_among_the_machines(void **state)
{
    static const struct row rows[] = {
        {"cut off", {"q1 l1s e71:1s x0:71", "x3:1", "a L2s L1s L3s"}, CAUSE_CUT_OFF, 2, 72},
        {"two of three", {"q1 l1s e71:1s x0:71", "x3:1", "a L1s L2s"}, CAUSE_MACHINE, 1, 71},
        {"agent here killed", {"", "x1:72 x4:1", "a L0c"}, CAUSE_MACHINE, 0, 72},
    };
    struct cause_config config = plain;

    (void)state;
    config.here = 0;
    expect_all(rows, COUNT(rows), &config);
}

/* If this fails, ranks that share a computer take the launcher for cut off when that one is lost.
 */
static void
test_machines_of_one_computer(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct cause_config config = plain;
        struct cause cause;

        config.here = 0;
        assert_true(cause_init(&cause, &config));
        cause_answered(&cause, 0);
        for (uint32_t machine = 1; machine < MACHINES; machine++) {
            cause_place(&cause, machine, shared == 1 ? 1 : machine);
            cause_machine_lost(&cause, machine, &(struct cause_loss){.silent = true});
        }
        cause_open(&cause, 0);
        assert_int_equal(cause_verdict(&cause).kind, shared == 1 ? CAUSE_MACHINE : CAUSE_CUT_OFF);
        assert_int_equal(cause_verdict(&cause).code, shared == 1 ? 71 : 72);
        cause_fini(&cause);
    }
}

/* If this fails, a launcher that was cut off blames the machine that it lost last, because the job was about
 * to go on without the first; or it thinks so of machines that were lost hours apart. */
static void
test_cut_off_while_going_on(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct cause_config config = plain;
        struct cause cause;

        config.here = CAUSE_NOWHERE;
        assert_true(cause_init(&cause, &config));
        for (uint32_t machine = 0; machine < MACHINES; machine++) {
            const bool first = machine == 0;
            const struct cause_loss loss = {
                .silent = true, .movable = first, .now_ms = apart == 1 && !first ? 3600000 : 1000};

            cause_place(&cause, machine, first ? 0 : 1); /* the others are one computer */
            cause_machine_lost(&cause, machine, &loss);
            if (first) {
                cause_forgive_machine(&cause, machine);
            }
        }
        cause_open(&cause, 0);
        assert_int_equal(cause_verdict(&cause).kind, apart == 1 ? CAUSE_MACHINE : CAUSE_CUT_OFF);
        assert_int_equal(cause_verdict(&cause).code, apart == 1 ? 71 : 72);
        cause_fini(&cause);
    }
}

/* If this fails, jobs without a master wait for its word. */
static void
test_foreign_jobs(void **state)
{
    static const struct row rows[] = {
        {"worker's error", {"", "x5:3 x3:1", "a"}, CAUSE_PROCESS, 5, 3},
        {"server's error", {"", "x1:70 x3:1", "a"}, CAUSE_PROCESS, 1, 70},
        {"cut", {"", "x5:3 x3:1", "a L1s"}, CAUSE_MACHINE, 1, 71},
    };
    struct cause_config config = plain;

    (void)state;
    config.foreign = true;
    expect_all(rows, COUNT(rows), &config);
}

/* If this fails, a death that the job survived is its cause an hour later. */
static void
test_forgiven(void **state)
{
    struct cause cause;
    struct cause_verdict verdict;
    struct psi_tiding end = tiding_of(PSI_TIDING_END, 1, 'c');

    (void)state;
    assert_true(cause_init(&cause, &plain));
    for (uint32_t slot = 1; slot < SLOTS; slot++) {
        const struct psi_tiding joined = tiding_of(PSI_TIDING_JOINED, slot, 'n');

        cause_told(&cause, &joined);
    }
    cause_exited(&cause, 5, 3, 0);
    cause_forgive(&cause, 5);
    cause_machine_lost(&cause, 3, &(struct cause_loss){.silent = true});
    cause_forgive_machine(&cause, 3);
    cause_exited(&cause, 1, 0, 9);
    end.code = 71;
    cause_told(&cause, &end);
    cause_open(&cause, 0);
    for (uint32_t machine = 0; machine < 3; machine++) {
        assert_false(cause_settled(&cause, 0));
        cause_answered(&cause, machine);
    }
    assert_true(cause_settled(&cause, 0));
    verdict = cause_verdict(&cause);
    assert_int_equal(verdict.kind, CAUSE_PROCESS);
    assert_int_equal(verdict.slot, 1);
    assert_int_equal(verdict.code, 137);
    cause_fini(&cause);
}

/* If this fails, a job that waited in vain for a worker to be replaced says that the worker lives.
 */
static void
test_not_replaced(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct psi_tiding end = tiding_of(PSI_TIDING_END, 6, 's');
        struct cause_verdict verdict;
        struct cause cause;

        assert_true(cause_init(&cause, &plain));
        if (lost == 1) { /* with its machine, which did not come back */
            cause_machine_lost(&cause, 3, &(struct cause_loss){.silent = true});
            cause_forgive_machine(&cause, 3);
        } else { /* alone: it is being restarted */
            cause_forgive(&cause, 6);
        }
        end.code = 70;
        cause_told(&cause, &end);
        cause_open(&cause, 0);
        for (uint32_t machine = 0; machine < 4u - (uint32_t)lost; machine++) {
            cause_answered(&cause, machine);
        }
        assert_true(cause_settled(&cause, 0));
        verdict = cause_verdict(&cause);
        assert_int_equal(verdict.kind, lost == 1 ? CAUSE_MACHINE : CAUSE_VERDICT);
        assert_int_equal(verdict.slot, lost == 1 ? 3 : 6);
        assert_int_equal(verdict.code, 70);
        cause_fini(&cause);
    }
}

/* If this fails, a job that failed waits for ever for somebody to say why. */
static void
test_every_wait_ends(void **state)
{
    const struct psi_tiding joined = tiding_of(PSI_TIDING_JOINED, 5, 'n');
    struct cause cause;

    (void)state;
    assert_true(cause_init(&cause, &plain));
    assert_true(cause_deadline(&cause) == UINT64_MAX);
    cause_told(&cause, &joined);
    cause_exited(&cause, 5, 3, 0);
    cause_open(&cause, 1000);
    assert_int_equal(cause_deadline(&cause), 1000 + 5000 + 1000); /* nobody answers */
    assert_false(cause_settled(&cause, 6999));
    assert_true(cause_settled(&cause, 7000));
    for (uint32_t machine = 0; machine < MACHINES; machine++) {
        cause_answered(&cause, machine);
    }
    assert_int_equal(cause_deadline(&cause), 1000 + 2000 + 1000); /* the master says nothing */
    assert_false(cause_settled(&cause, 3999));
    assert_true(cause_settled(&cause, 4000));
    cause_fini(&cause);
}

/* If this fails, what the master says late about a worker that died is held against the one that
 * was started in its place. */
static void
test_late_news_of_a_life_before(void **state)
{
    static const enum psi_tiding_kind late[] = {PSI_TIDING_CUT, PSI_TIDING_QUIET, PSI_TIDING_LOST};
    struct cause_verdict verdict;
    struct cause cause;

    (void)state;
    assert_true(cause_init(&cause, &plain));
    for (uint32_t slot = 4; slot <= 5; slot++) {
        const struct psi_tiding joined = tiding_of(PSI_TIDING_JOINED, slot, 'n');

        cause_told(&cause, &joined);
    }
    cause_exited(&cause, 5, 0, SIGKILL);
    cause_started(&cause, 5);
    for (size_t i = 0; i < sizeof(late) / sizeof(late[0]); i++) {
        const struct psi_tiding news = tiding_of(late[i], 5, 's');

        cause_told(&cause, &news);
    }
    cause_exited(&cause, 4, 0, SIGKILL);
    cause_open(&cause, 1000);
    for (uint32_t machine = 0; machine < MACHINES; machine++) {
        cause_answered(&cause, machine);
    }
    assert_true(cause_settled(&cause, 1000));
    verdict = cause_verdict(&cause);
    assert_int_equal(verdict.kind, CAUSE_PROCESS);
    assert_int_equal(verdict.slot, 4);
    cause_fini(&cause);
}

/* If this fails, psd_run looks again and again without a pause, or never, when a machine has not
 * answered and the silence of a process takes longer than that of a machine. */
static void
test_deadline_is_when_all_is_settled(void **state)
{
    const struct psi_tiding joined = tiding_of(PSI_TIDING_JOINED, 5, 'n');
    struct cause_config slow = plain;
    struct cause cause;

    (void)state;
    slow.silence_ms = 20000;
    assert_true(cause_init(&cause, &slow));
    cause_open(&cause, 1000);
    assert_int_equal(cause_deadline(&cause), 7000); /* nothing but the machines is waited for */
    assert_true(cause_settled(&cause, 7000));
    cause_told(&cause, &joined);
    cause_exited(&cause, 5, 3, 0);
    assert_false(cause_settled(&cause, 7000));
    assert_int_equal(cause_deadline(&cause), 22000);
    assert_true(cause_settled(&cause, 22000));
    cause_machine_lost(&cause, 0, &(struct cause_loss){.silent = true});
    assert_int_equal(cause_deadline(&cause), 7000); /* it is the cause, whatever else is said */
    assert_true(cause_settled(&cause, 7000));
    cause_fini(&cause);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_the_next_life_was_on_its_way),
        cmocka_unit_test(test_the_next_life_stood_by),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_launcher_among_the_machines),
        cmocka_unit_test(test_machines_of_one_computer),
        cmocka_unit_test(test_cut_off_while_going_on),
        cmocka_unit_test(test_foreign_jobs),
        cmocka_unit_test(test_forgiven),
        cmocka_unit_test(test_not_replaced),
        cmocka_unit_test(test_late_news_of_a_life_before),
        cmocka_unit_test(test_every_wait_ends),
        cmocka_unit_test(test_deadline_is_when_all_is_settled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
