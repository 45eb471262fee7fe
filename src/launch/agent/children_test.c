/*
 * children_test.c - whom an agent kills, whom it asks to stop, and where it logs, with real
 * processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "launch/agent/children.h"
#include "launch/agent/ending.h"

enum { GRACE_MS = 60000, MASTER = 0, WORKER = 2 };

/* An agent with the record of one dead process, and a process that is somebody else's. */
struct scene {
    struct children children;
    struct link link;
    int line; /* the other end of the link */
    pid_t other;
    int told; /* a byte for each signal that it got */
};

/* Says which signals it gets. Of those that wait, the system hands out the lowest first. */
static void
tell_of_signals(int out)
{
    sigset_t all;
    int number;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (write(out, ".", 1) != 1) {
        _exit(1);
    }
    while (sigwait(&all, &number) == 0) {
        const char letter = number == SIGTERM ? 't' : 'x';

        if (write(out, &letter, 1) != 1 || number != SIGTERM) {
            _exit(0);
        }
    }
    _exit(1);
}

static char
hear(const struct scene *scene)
{
    char byte;

    assert_int_equal(read(scene->told, &byte, 1), 1);
    return byte;
}

static void
add_child(struct scene *scene, uint32_t slot, pid_t pid, bool alive)
{
    struct child *child;

    scene->children.list =
        realloc(scene->children.list, (scene->children.count + 1) * sizeof(*child));
    assert_non_null(scene->children.list);
    child = &scene->children.list[scene->children.count++];
    *child = (struct child){
        .slot = slot, .pid = pid, .alive = alive, .ready = -1, .heed = -1, .note = -1};
    printout_init(&child->printout, slot);
}

static int
set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    int pipes[2];
    int line[2];

    assert_int_equal(pipe(pipes), 0);
    scene->other = fork();
    assert_true(scene->other >= 0);
    if (scene->other == 0) {
        tell_of_signals(pipes[1]);
    }
    close(pipes[1]);
    scene->told = pipes[0];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
    link_init(&scene->link, line[0], line[0]);
    scene->line = line[1];
    assert_int_equal(hear(scene), '.');
    *state = scene;
    return 0;
}

static int
tear_down(void **state)
{
    struct scene *scene = *state;

    kill(scene->other, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    close(scene->told);
    close(scene->line);
    link_fini(&scene->link);
    children_fini(&scene->children);
    free(scene);
    return 0;
}

static void
start_worker(struct scene *scene, struct setup *setup)
{
    static const char words[] = "worker\0worker.log\0"
                                "0,0\0true";
    const struct link_message order = {
        .kind = LINK_START, .slot = WORKER, .number = 1, .bytes = sizeof(words), .data = words};
    char *path = NULL;
    pid_t pid;

    assert_int_equal(children_start(&scene->children, setup, &order, &pid, &path), 0);
    assert_true(pid > 0);
    free(path);
}

static void
start_again(struct scene *scene)
{
    struct setup setup;

    setup_init(&setup, environ);
    start_worker(scene, &setup);
    setup_fini(&setup);
}

/* If this fails, a restart kills a process that got the number of the one that died. */
static void
test_number_that_another_has(void **state)
{
    struct scene *scene = *state;

    add_child(scene, WORKER, scene->other, false);
    start_again(scene);
    kill(scene->other, SIGUSR1);
    assert_int_equal(hear(scene), 'x');
}

/* If this fails, a restart kills another worker that got the number of the one that died. */
static void
test_number_that_another_worker_has(void **state)
{
    struct scene *scene = *state;
    const pid_t leader = fork();
    int status = 0;

    if (leader == 0) {
        setsid();
        kill(scene->other, SIGTERM); /* heard, it says that the session is there */
        pause();
        _exit(0);
    }
    assert_int_equal(hear(scene), 't');
    add_child(scene, WORKER, leader, false);
    add_child(scene, WORKER + 1, leader, true);
    start_again(scene);
    kill(leader, SIGUSR1);
    assert_int_equal(waitpid(leader, &status, 0), leader);
    assert_int_equal(WTERMSIG(status), SIGUSR1);
}

/* If this fails, a process that could not be started has all others asked to stop twice. */
static void
test_everybody_is_asked_once(void **state)
{
    struct scene *scene = *state;
    struct ending ending = {0};

    add_child(scene, WORKER, 0, false);
    add_child(scene, WORKER + 1, scene->other, true);
    ending_begin(&ending, &scene->children, GRACE_MS, false);
    assert_int_equal(hear(scene), 't');
    ending_turn(&ending, &scene->children, &scene->link);
    kill(scene->other, SIGRTMIN);
    assert_int_equal(hear(scene), 'x');
}

/* If this fails, whoever owns a directory above the logs has them written where they like. */
static void
test_directory_of_logs_that_was_exchanged(void **state)
{
    struct scene *scene = *state;
    char top[] = "/tmp/psd_logs_XXXXXX";
    struct words orders = {0};
    struct words answers = {0};
    struct setup setup;

    assert_non_null(mkdtemp(top));
    assert_int_equal(chdir(top), 0);
    setup_init(&setup, environ);
    words_add(&orders, "logs=logs");
    setup_follow(&setup, &orders, &answers);
    assert_int_equal(answers.count, 0);
    assert_int_equal(rename("logs", "moved"), 0);
    assert_int_equal(mkdir("theirs", 0755), 0);
    assert_int_equal(symlink("theirs", "logs"), 0);
    start_worker(scene, &setup);
    assert_int_equal(rmdir("theirs"), 0); /* it is empty */
    assert_int_equal(unlink("moved/worker.log"), 0);
    setup_fini(&setup);
    words_fini(&orders);
    words_fini(&answers);
    rmdir("moved");
    unlink("logs");
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(top), 0);
}

/* If this fails, a master that did not hear one word takes what it has heard for all there is. */
static void
test_no_word_comes_behind_one_that_is_lost(void **state)
{
    struct scene *scene = *state;
    char word[] = "gone\n";
    const struct link_message message = {.slot = MASTER, .data = word, .bytes = sizeof(word) - 1};
    char heard[sizeof(word)];
    int pipes[2];

    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    add_child(scene, MASTER, getpid(), true);
    scene->children.list[0].heed = pipes[1];
    children_tell(&scene->children, &message);
    assert_int_equal(read(pipes[0], heard, sizeof(heard)), message.bytes);
    while (write(pipes[1], word, 1) == 1) {
    }
    children_tell(&scene->children, &message);
    assert_int_equal(scene->children.list[0].heed, -1);
    children_tell(&scene->children, &message); /* nobody is told */
    scene->children.list[0].alive = false;
    close(pipes[0]);
}

/* If this fails, psd_run obeys what a master has said that it has followed by another. */
static void
test_nothing_is_heard_of_a_master_behind_its_end(void **state)
{
    struct scene *scene = *state;
    char words[10000];
    struct link_message message;
    struct setup setup;
    struct link link;
    size_t heard = 0;
    int pipes[2];
    int result;

    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    memset(words, 'w', sizeof(words));
    assert_int_equal(write(pipes[1], words, sizeof(words)), sizeof(words));
    add_child(scene, MASTER, 0, false);
    scene->children.list[0].ready = pipes[0];
    scene->children.list[0].unreported = true;
    setup_init(&setup, environ);
    children_report(&scene->children, &setup, &scene->link);
    link_flush(&scene->link);
    link_init(&link, scene->line, scene->line);
    assert_int_equal(link_read(&link), 1);
    while ((result = link_next(&link, &message)) == 1 && message.kind == LINK_READY) {
        heard += message.bytes;
    }
    assert_int_equal(result, 1);
    assert_int_equal(message.kind, LINK_EXITED);
    assert_int_equal(heard, sizeof(words));
    assert_int_equal(scene->children.list[0].ready, -1);
    close(pipes[1]);
    link.in = link.out = -1; /* the scene's */
    link_fini(&link);
    setup_fini(&setup);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_number_that_another_has, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_number_that_another_worker_has, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_everybody_is_asked_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_word_comes_behind_one_that_is_lost, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_is_heard_of_a_master_behind_its_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_directory_of_logs_that_was_exchanged, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
