/*
 * ssh_defaults_test.c - what the user told ssh counts: in options, in files, within bounds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/stat.h>

#include <cmocka.h>

#include "launch/meet/ssh.h"

enum { MANY = 40 };

static char config[] = "/tmp/psd_ssh_XXXXXX";

static void
write_config(const char *text)
{
    const int fd = open(config, O_WRONLY | O_TRUNC);

    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static int
make_config(void **state)
{
    const int fd = mkstemp(config);

    (void)state;
    return fd < 0 || close(fd) != 0;
}

static int
remove_config(void **state)
{
    (void)state;
    return unlink(config);
}

static void
ask(const struct words *options, struct ssh_defaults *defaults_p)
{
    const struct ssh_target target = {
        .host = "node1", .user = "", .options = options, .program = "/bin/psd_run"};

    ssh_ask_defaults(&(struct ssh_question){&target, defaults_p}, 1);
}

static double
seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* If this fails, psd_run logs in as somebody else, or takes a key that the user wants checked. */
static void
test_options_count(void **state)
{
    char *list[] = {"-F", config, "-oUser=alice", "-o", "StrictHostKeyChecking=yes", NULL};
    const struct words options = {.list = list, .count = 5};
    const struct words file_alone = {.list = list, .count = 2};
    struct ssh_defaults defaults;

    (void)state;
    write_config("Host node1\n    User bob\n");
    ask(&options, &defaults);
    assert_string_equal(defaults.user, "alice");
    assert_true(defaults.strict && !defaults.unanswered);
    ask(&file_alone, &defaults);
    assert_string_equal(defaults.user, "bob");
    assert_false(defaults.strict);
    write_config("");
    ask(&file_alone, &defaults);
    assert_string_equal(defaults.user, "");
}

static size_t
place_of(const struct words *argv, const char *word)
{
    for (size_t i = 0; i < argv->count; i++) {
        if (strcmp(argv->list[i], word) == 0) {
            return i;
        }
    }
    fail_msg("no %s among the arguments", word);
    return 0;
}

/* If this fails, ssh hears psd_run's opinion before the user's, and takes the first. */
static void
test_options_go_first(void **state)
{
    char *list[] = {"-oStrictHostKeyChecking=no", "-oUser=alice", NULL};
    const struct words options = {.list = list, .count = 2};
    const struct ssh_target target = {
        .host = "node1", .user = "", .options = &options, .program = "/bin/psd_run"};
    const struct ssh_defaults nothing = {.strict = false};
    struct words argv = {0};

    (void)state;
    assert_int_equal(ssh_arguments(&target, &nothing, &argv, NULL), PSD_OK);
    assert_int_equal(place_of(&argv, list[0]), 1);
    assert_int_equal(place_of(&argv, list[1]), 2);
    assert_true(place_of(&argv, "-oStrictHostKeyChecking=accept-new") > 2);
    assert_true(place_of(&argv, "-lubuntu") > 2);
    words_fini(&argv);
}

/* What a shell makes of the remote command when psd_run is not in the PATH. */
static void
run_remote(const char *program, char *said_p, size_t size)
{
    const struct ssh_target target = {.host = "node1", .user = "ann", .program = program};
    const struct ssh_defaults nothing = {.strict = false};
    struct words argv = {0};
    FILE *stream;

    assert_int_equal(ssh_arguments(&target, &nothing, &argv, NULL), PSD_OK);
    stream = popen(argv.list[argv.count - 1], "r");
    assert_non_null(stream);
    if (fgets(said_p, (int)size, stream) == NULL) {
        said_p[0] = '\0';
    }
    pclose(stream);
    words_fini(&argv);
}

/* If this fails, a directory's name is run as a command on every machine. */
static void
test_path_of_psd_run_is_no_script(void **state)
{
    static const char *const names[] = {"plain", "a b", "a\"b", "$(touch x)", "`touch x`", "it's"};
    char directory[] = "/tmp/psd_odd_XXXXXX";
    char path[128];
    char said[128];
    char wanted[192];

    (void)state;
    assert_non_null(mkdtemp(directory));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        file = fopen(path, "w");
        assert_non_null(file);
        fputs("#!/bin/sh\necho \"$0 $1\"\n", file);
        fchmod(fileno(file), 0700);
        fclose(file);
        run_remote(path, said, sizeof(said));
        unlink(path);
        snprintf(wanted, sizeof(wanted), "%s --agent\n", path);
        assert_string_equal(said, wanted);
    }
    assert_int_equal(rmdir(directory), 0);
}

static size_t
count_descriptors(void)
{
    size_t count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* If this fails, an ssh_config that hangs makes psd_run hang, once for every machine. */
static void
test_no_answer(void **state)
{
    char *list[] = {"-F", config, NULL};
    const struct words options = {.list = list, .count = 2};
    const struct ssh_target target = {
        .host = "node1", .user = "", .options = &options, .program = "/bin/psd_run"};
    struct ssh_defaults defaults[3];
    struct ssh_question questions[3];
    struct psd_error err = {0};
    struct words argv = {0};
    const size_t before = count_descriptors();
    const double began = seconds();

    (void)state;
    write_config("Match exec \"sleep 1000\"\n    User bob\n");
    for (size_t i = 0; i < 3; i++) {
        questions[i] = (struct ssh_question){&target, &defaults[i]};
    }
    ssh_ask_defaults(questions, 3);
    assert_true(seconds() - began < 10);
    for (size_t i = 0; i < 3; i++) {
        assert_true(defaults[i].unanswered);
    }
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(ssh_arguments(&target, &defaults[0], &argv, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "run: ssh -G node1"));
}

/* If this fails, Ctrl-C waits until ssh has answered for every machine. */
static void
test_called_off(void **state)
{
    char *list[] = {"-F", config, NULL};
    const struct words options = {.list = list, .count = 2};
    const struct timespec none = {0};
    struct ssh_defaults defaults;
    const double began = seconds();
    sigset_t set;
    sigset_t old;

    (void)state;
    write_config("Match exec \"sleep 1000\"\n    User bob\n");
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGINT);
    ask(&options, &defaults);
    assert_int_equal(sigtimedwait(&set, NULL, &none), SIGINT); /* left for the loop */
    sigprocmask(SIG_SETMASK, &old, NULL);
    assert_true(seconds() - began < 4);
    assert_true(defaults.strict && !defaults.unanswered);
}

/* If this fails, machines beyond the first few are not asked about, or get another's answer. */
static void
test_many(void **state)
{
    char *list[] = {"-F", config, NULL};
    const struct words options = {.list = list, .count = 2};
    struct ssh_target targets[MANY];
    struct ssh_defaults defaults[MANY];
    struct ssh_question questions[MANY];
    char names[MANY][16];
    char text[MANY * 48] = "";

    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        const size_t used = strlen(text);

        snprintf(names[i], sizeof(names[i]), "node%zu", i);
        snprintf(text + used, sizeof(text) - used, "Host node%zu\n    User u%zu\n", i, i);
        targets[i] = (struct ssh_target){.host = names[i], .user = "", .options = &options};
        questions[i] = (struct ssh_question){&targets[i], &defaults[i]};
    }
    write_config(text);
    ssh_ask_defaults(questions, MANY);
    for (size_t i = 0; i < MANY; i++) {
        char wanted[16];

        snprintf(wanted, sizeof(wanted), "u%zu", i);
        assert_string_equal(defaults[i].user, wanted);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_count),
        cmocka_unit_test(test_options_go_first),
        cmocka_unit_test(test_path_of_psd_run_is_no_script),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_called_off),
        cmocka_unit_test(test_many),
    };

    return cmocka_run_group_tests(tests, make_config, remove_config);
}
