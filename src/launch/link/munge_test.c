/*
 * munge_test.c - the job's secret by MUNGE, with a munged of our own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/link/munge.h"

enum { NOBODY = 65534, DEADLINE_S = 20 };

/* A munged, its files in a directory of its own. */
struct bed {
    char directory[64];
    char socket[128];
    pid_t munged;
};

static const char *
find_munged(void)
{
    static const char *const paths[] = {"/usr/sbin/munged", "/usr/local/sbin/munged"};

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (access(paths[i], X_OK) == 0) {
            return paths[i];
        }
    }
    return NULL;
}

static void
write_key(const char *path)
{
    uint8_t key[128];
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0 && getrandom(key, sizeof(key), 0) == (ssize_t)sizeof(key));
    assert_int_equal(write(fd, key, sizeof(key)), sizeof(key));
    close(fd);
}

static pid_t
start_munged(const char *program, const struct bed *bed)
{
    static const char *const kinds[] = {"key-file", "pid-file", "log-file", "seed-file"};
    char words[5][160];
    pid_t pid;

    for (size_t i = 0; i < 4; i++) {
        snprintf(words[i], sizeof(words[i]), "--%s=%s/%s", kinds[i], bed->directory, kinds[i]);
    }
    snprintf(words[4], sizeof(words[4]), "--socket=%s", bed->socket);
    pid = fork();
    if (pid == 0) {
        const int nothing = open("/dev/null", O_RDWR);

        dup2(nothing, STDOUT_FILENO);
        dup2(nothing, STDERR_FILENO);
        execl(program, "munged", "--foreground", "--num-threads=2", words[0], words[1], words[2],
              words[3], words[4], (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* munged answers when a credential can be made. */
static void
wait_for_munged(const struct bed *bed)
{
    static const uint8_t secret[PSI_SECRET_BYTES];
    const time_t deadline = time(NULL) + DEADLINE_S;
    struct psd_error err = {0};
    char *credential = NULL;

    while (munge_seal(bed->socket, secret, &credential, &err) != PSD_OK) {
        int status;

        if (time(NULL) > deadline || waitpid(bed->munged, &status, WNOHANG) != 0) {
            fail_msg("munged does not answer: %s", err.text);
        }
        poll(NULL, 0, 10);
    }
    free(credential);
}

static int
set_up(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    const char *program = find_munged();
    char key[128];

    assert_non_null(bed);
    *state = bed;
    if (program == NULL || !munge_is_there()) {
        return 0;
    }
    strcpy(bed->directory, "/tmp/psd-munge-XXXXXX");
    assert_non_null(mkdtemp(bed->directory));
    assert_int_equal(chmod(bed->directory, 0755), 0); /* others must reach the socket */
    snprintf(bed->socket, sizeof(bed->socket), "%s/socket", bed->directory);
    snprintf(key, sizeof(key), "%s/key-file", bed->directory);
    write_key(key);
    bed->munged = start_munged(program, bed);
    assert_true(bed->munged > 0);
    wait_for_munged(bed);
    return 0;
}

static int
tear_down(void **state)
{
    static const char *const files[] = {"key-file",  "pid-file", "log-file",
                                        "seed-file", "socket",   "socket.lock"};
    struct bed *bed = *state;
    char path[128];

    if (bed->munged > 0) {
        kill(bed->munged, SIGTERM);
        waitpid(bed->munged, NULL, 0);
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
            snprintf(path, sizeof(path), "%s/%s", bed->directory, files[i]);
            unlink(path);
        }
        rmdir(bed->directory);
    }
    free(bed);
    return 0;
}

static const struct bed *
need_munged(void **state)
{
    const struct bed *bed = *state;

    if (bed->munged == 0) {
        print_message("skipped: munged or libmunge is not installed (tools/setup.sh test)\n");
        skip();
    }
    return bed;
}

static void
fill(uint8_t secret_p[PSI_SECRET_BYTES])
{
    for (size_t i = 0; i < PSI_SECRET_BYTES; i++) {
        secret_p[i] = (uint8_t)(i * 7 + 1);
    }
}

/* If this fails, tasks of a Slurm step do not get the secret of their job. */
static void
test_every_process_reads_it(void **state)
{
    const struct bed *bed = need_munged(state);
    uint8_t secret[PSI_SECRET_BYTES];
    struct psd_error err = {0};
    char *credential = NULL;

    fill(secret);
    assert_int_equal(munge_seal(bed->socket, secret, &credential, &err), PSD_OK);
    assert_int_equal(strncmp(credential, "MUNGE:", 6), 0);
    for (int process = 0; process < 3; process++) { /* munged calls the second a replay */
        uint8_t got[PSI_SECRET_BYTES] = {0};

        assert_int_equal(munge_unseal(bed->socket, credential, got, &err), PSD_OK);
        assert_memory_equal(got, secret, sizeof(secret));
    }
    free(credential);
}

/* If this fails, whoever sees a credential can damage it unnoticed. */
static void
test_damaged_ones_are_refused(void **state)
{
    const struct bed *bed = need_munged(state);
    uint8_t secret[PSI_SECRET_BYTES];
    uint8_t got[PSI_SECRET_BYTES] = {0};
    const uint8_t nothing[PSI_SECRET_BYTES] = {0};
    struct psd_error err = {0};
    char *credential = NULL;

    fill(secret);
    assert_int_equal(munge_seal(bed->socket, secret, &credential, &err), PSD_OK);
    credential[strlen(credential) / 2] ^= 1;
    assert_int_equal(munge_unseal(bed->socket, credential, got, &err), PSD_ERR_REFUSED);
    assert_int_equal(munge_unseal(bed->socket, "MUNGE:", got, &err), PSD_ERR_REFUSED);
    assert_int_equal(munge_unseal(bed->socket, "", got, &err), PSD_ERR_REFUSED);
    assert_memory_equal(got, nothing, sizeof(got));
    free(credential);
}

/* As another user: what munge_unseal() of a credential says, and one that he made of a secret. */
static psd_status
as_nobody(const struct bed *bed, const char *credential, char **his_p)
{
    uint8_t secret[PSI_SECRET_BYTES] = {0};
    char text[4096] = "";
    int line[2];
    int status = 0;
    pid_t pid;

    assert_int_equal(pipe(line), 0);
    pid = fork();
    if (pid == 0) {
        char *his = NULL;
        psd_status got;

        if (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0 ||
            munge_seal(bed->socket, secret, &his, NULL) != PSD_OK ||
            write(line[1], his, strlen(his)) < 0) {
            _exit(100);
        }
        got = munge_unseal(bed->socket, credential, secret, NULL);
        _exit(-got);
    }
    close(line[1]);
    assert_true(read(line[0], text, sizeof(text) - 1) > 0);
    close(line[0]);
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 100);
    *his_p = strdup(text);
    return (psd_status)-WEXITSTATUS(status);
}

/* If this fails, another user of the cluster reads the secret, or foists his own on us. */
static void
test_other_users_are_refused(void **state)
{
    const struct bed *bed = need_munged(state);
    uint8_t secret[PSI_SECRET_BYTES];
    struct psd_error err = {0};
    char *credential = NULL;
    char *his = NULL;

    if (geteuid() != 0) {
        print_message("skipped: to become another user needs root\n");
        skip();
    }
    fill(secret);
    assert_int_equal(munge_seal(bed->socket, secret, &credential, &err), PSD_OK);
    assert_int_equal(as_nobody(bed, credential, &his), PSD_ERR_REFUSED);
    assert_int_equal(munge_unseal(bed->socket, his, secret, &err), PSD_ERR_REFUSED);
    free(credential);
    free(his);
}

/* If this fails, somebody without munged is left guessing. */
static void
test_no_munged(void **state)
{
    uint8_t secret[PSI_SECRET_BYTES];
    struct psd_error err = {0};
    char *credential = NULL;

    need_munged(state);
    fill(secret);
    assert_int_equal(munge_seal("/nonexistent/socket", secret, &credential, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "is munged running?"));
    assert_null(credential);
    assert_int_equal(munge_unseal("/nonexistent/socket", "MUNGE:x", secret, &err), PSD_ERR_IO);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_process_reads_it),
        cmocka_unit_test(test_damaged_ones_are_refused),
        cmocka_unit_test(test_other_users_are_refused),
        cmocka_unit_test(test_no_munged),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
