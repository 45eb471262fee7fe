/*
 * ssh_test.c - what a person is told when a login fails: every command in it can be pasted.
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
#include <unistd.h>

#include <sys/stat.h>

#include <cmocka.h>

#include "launch/meet/ssh.h"
#include "launch/meet/ssh_options.h"

enum { REFUSED = 255 << 8 };

static const char changed_key[] =
    "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
    "Add correct host key in /home/ann/known hosts to get rid of this message.\r\n"
    "Offending ECDSA key in /home/ann/known hosts:3\r\n"
    "Host key for [127.0.0.1]:22822 has changed and you have requested strict checking.\r\n"
    "Host key verification failed.\r\n";

static void
expect_all_told(const struct ssh_target *target, const char *stderr_tail, const char *printed,
                int status, const char *wanted)
{
    const struct ssh_defaults defaults = {.strict = false};
    char text[900];

    ssh_explain(target, &defaults, stderr_tail, printed, status, text, sizeof(text));
    if (strstr(text, wanted) == NULL) {
        fail_msg("'%s' is not in '%s'", wanted, text);
    }
}

static void
expect_told(const struct ssh_target *target, const char *stderr_tail, const char *wanted)
{
    expect_all_told(target, stderr_tail, "", REFUSED, wanted);
}

/* If this fails, a hint leads to another port, another key or another way than psd_run took. */
static void
test_hints_repeat_the_login(void **state)
{
    char *list[] = {"-J", "gate", "-oUser Known=x"};
    const struct words options = {.list = list, .count = 3};
    const struct ssh_target target = {.host = "h",
                                      .user = "ann",
                                      .port = 22822,
                                      .pem_file = "my keys/cloud.pem",
                                      .options = &options,
                                      .program = "/bin/psd_run"};

    (void)state;
    expect_told(&target, "ssh: connect to host h: Connection refused",
                "run: ssh -i 'my keys/cloud.pem' -p 22822 -J gate '-oUser Known=x' ann@h true");
    expect_told(&target, "ann@h: Permission denied (publickey).",
                "run: ssh-copy-id -i 'my keys/cloud.pem' -p 22822 -oProxyJump=gate "
                "'-oUser Known=x' ann@h");
}

/* If this fails, a key that changed is looked for under another name or in another file. */
static void
test_hint_about_a_changed_key(void **state)
{
    const struct ssh_target target = {.host = "alias", .user = "ann", .program = "/bin/psd_run"};
    const struct ssh_target port = {
        .host = "h", .user = "ann", .port = 2222, .program = "/bin/psd_run"};

    (void)state;
    expect_told(&target, changed_key,
                "run: ssh-keygen -f '/home/ann/known hosts' -R '[127.0.0.1]:22822'");
    expect_told(&port, "REMOTE HOST IDENTIFICATION HAS CHANGED", "run: ssh-keygen -R '[h]:2222'");
    expect_told(&port, "Host key verification failed.", "run: ssh -p 2222 ann@h true");
}

/* If this fails, nobody knows where the name ubuntu comes from. */
static void
test_user_that_nobody_named(void **state)
{
    const struct ssh_target target = {.host = "h", .user = "", .program = "/bin/psd_run"};

    (void)state;
    expect_told(&target, "ubuntu@h: Permission denied (publickey).",
                "h (ssh ubuntu@h; ubuntu because neither \"username\" in the cluster file nor "
                "ssh_config names another user): ");
}

static psd_status
check(const char *first, const char *second)
{
    char *list[] = {(char *)(uintptr_t)first, (char *)(uintptr_t)second, NULL};
    const struct words words = {.list = list, .count = second != NULL ? 2 : 1};
    struct psd_error err = {0};
    const psd_status status = ssh_options_check(&words, &err);

    assert_true(status == PSD_OK || strstr(err.text, "--trust_ssh_options") != NULL);
    return status;
}

/* If this fails, ssh runs what the writer of a cluster file likes, on the user's own machine. */
static void
test_options_that_run_something(void **state)
{
    static const char *const bad[] = {
        "-oProxyCommand=evil",
        "-oproxycommand evil",
        "-o ProxyCommand=evil",
        "-oLocalCommand=evil",
        "-oPermitLocalCommand=yes",
        "-oKnownHostsCommand=evil",
        "-oRemoteCommand=evil",
        "-oInclude=evil",
        "-oMatch=exec evil",
        "-oPKCS11Provider=evil.so",
        "-oSecurityKeyProvider=evil.so",
        "-oXAuthLocation=evil",
        "-oControlPath=/tmp/evil",
        "-oUserKnownHostsFile=~/.bashrc",
        "-oLocalForward=1 h:2",
        "-oSendEnv=*",
        "-oForwardAgent=yes",
        "-o\"ProxyCommand\" evil",
        "-oUser=x\nProxyCommand=evil",
        "-oProxyJump=x -oProxyCommand=evil",
        "-oProxyJump=-evil",
        "-Jx;evil",
        "-oHostname=x$(>evil)",
        "-oHostname=\"x'$(>evil)'\"",
        "-oHostname=-evil",
        "-oHostname=",
        "-oHostKeyAlias=`>evil`",
        "-oHostKeyAlias=*",
        "-oUser=$(>evil)",
        "-l$(>evil)",
        "-oIdentityFile=x;evil",
        "-p1\nevil",
        "-Fevil",
        "-Eevil",
        "-Ievil.so",
        "-Sevil",
        "-L1:h:2",
        "-D1",
        "-W h:1",
        "-vFevil",
        "-A",
        "-X",
        "--",
        "-",
        "host",
        "-o",
    };
    static const char *const good[] = {
        "-4",
        "-qC",
        "-p22",
        "-vp22",
        "-lann",
        "-i/home/ann/key",
        "-Jgate,b:22",
        "-oUser=ann",
        "-oHostname=%h.example.com",
        "-oHostKeyAlias=node-1",
        "-oCiphers=-aes128-cbc",
        "-oRekeyLimit=1G 1h",
        "-oProxyJump=ann@gate:22,[::1]:22",
        "-oport 22",
        "-oIdentityFile = ~/.ssh/key",
        "-oConnectTimeout=3",
        "-oStrictHostKeyChecking=yes",
        "-oUserKnownHostsFile=/dev/null",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(check(bad[i], NULL), PSD_ERR_REFUSED);
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(check(good[i], NULL), PSD_OK);
    }
    assert_int_equal(check("-o", "ProxyCommand=evil"), PSD_ERR_REFUSED);
    assert_int_equal(check("-o", "Port=22"), PSD_OK);
    assert_int_equal(check("-J", "gate"), PSD_OK);
    assert_int_equal(check("-4", "-oProxyCommand=evil"), PSD_ERR_REFUSED);
    assert_int_equal(check("-p", "-oProxyCommand=evil"), PSD_OK); /* the value of -p: no port */
}

/* If this fails, an account that is not for logins is reported as a silent ssh, or a greeting on
 * the way to another failure hides it. */
static void
test_what_the_login_printed(void **state)
{
    static const char closed[] = "This account is currently not available.\r\n";
    const struct ssh_target target = {.host = "h", .user = "ann", .program = "/bin/psd_run"};

    (void)state;
    expect_all_told(&target, "Warning: Permanently added 'h' to the list of known hosts.\r\n",
                    closed, 1 << 8,
                    "h (ssh ann@h): the login printed \"This account is currently not available.\" "
                    "and ended with code 1; its shell must run commands (no nologin, no menu)");
    expect_all_told(&target, "", "Welcome!\n\033[1mchoose: \n\n", 0,
                    "the login printed \"?[1mchoose: \" and ended with code 0");
    expect_all_told(&target, "bash: line 1: psd_run: command not found\n", "Welcome!\n", 127 << 8,
                    "psd_run: command not found; psd_run is not there");
    expect_all_told(&target, "", "\n \n", 9, "ssh said nothing and was killed by signal 9");
}

static void
expect_key_told(const char *content, const char *wanted)
{
    char path[] = "/tmp/psd-key-XXXXXX";
    const int fd = mkstemp(path);
    const struct ssh_target target = {
        .host = "h", .user = "ann", .pem_file = path, .program = "/bin/psd_run"};

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    close(fd);
    expect_told(&target, "ann@h: Permission denied (publickey).", wanted);
    unlink(path);
}

/* If this fails, people install a key that ssh never offered. */
static void
test_files_that_are_no_usable_key(void **state)
{
    (void)state;
    expect_key_told("hello\n", "is no private key: it must begin with");
    expect_key_told("", "is no private key");
    expect_key_told("ssh-ed25519 AAAAC3Nz ann@laptop\n", "is a public key; name the private key");
    expect_key_told("PuTTY-User-Key-File-3: ssh-ed25519\n", "run: puttygen");
    expect_key_told("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
                    "needs a passphrase, and psd_run never asks for one");
    expect_key_told("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n", "needs a passphrase");
    expect_key_told("-----BEGIN RSA PRIVATE KEY-----\nMIIF\n", "run: ssh-copy-id -i ");
}

static void
write_program(const char *directory, const char *says, char path_p[96])
{
    FILE *file;

    snprintf(path_p, 96, "%s/psd_run", directory);
    file = fopen(path_p, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\necho %s $1\n", says);
    fclose(file);
    assert_int_equal(chmod(path_p, 0755), 0);
}

/* Runs what the login shell of the other machine would. */
static void
expect_run(const char *line, const char *wanted)
{
    char said[64] = "";
    FILE *stream = popen(line, "r");

    assert_non_null(stream);
    assert_non_null(fgets(said, sizeof(said), stream));
    pclose(stream);
    assert_string_equal(said, wanted);
}

/* If this fails, whoever puts a psd_run into /tmp on a node becomes whoever has one there here. */
static void
test_program_of_somebody_else(void **state)
{
    char there[] = "/tmp/psd_ssh_XXXXXX";
    char other[] = "/tmp/psd_ssh_XXXXXX";
    char mine[] = "/tmp/psd_ssh_XXXXXX";
    char *path = strdup(getenv("PATH"));
    char *longer = malloc(strlen(path) + sizeof(other) + 2);
    char program[96];
    char in_path[96];
    char linked[96];
    struct ssh_target target = {.host = "h", .user = "ann", .program = program};
    const struct ssh_defaults defaults = {.strict = false};
    struct words argv = {0};

    (void)state;
    if (geteuid() != 0) { /* who alone can give a file away */
        skip();
    }
    assert_non_null(mkdtemp(there));
    assert_non_null(mkdtemp(other));
    assert_non_null(mkdtemp(mine));
    write_program(there, "there", program);
    write_program(other, "in PATH", in_path);
    sprintf(longer, "%s:%s", other, path);
    setenv("PATH", longer, 1);
    assert_int_equal(ssh_arguments(&target, &defaults, &argv, NULL), PSD_OK);
    expect_run(argv.list[argv.count - 1], "there --agent\n");
    assert_int_equal(chown(program, 12345, 12345), 0);
    expect_run(argv.list[argv.count - 1], "in PATH --agent\n");
    words_fini(&argv);
    assert_int_equal(ssh_arguments(&target, &defaults, &argv, NULL), PSD_OK); /* as it is here */
    expect_run(argv.list[argv.count - 1], "there --agent\n");
    words_fini(&argv);
    assert_int_equal(chown(program, 0, 0), 0);
    assert_int_equal(ssh_arguments(&target, &defaults, &argv, NULL), PSD_OK);
    assert_int_equal(chown(there, 12345, 12345), 0); /* who may exchange it at any time */
    expect_run(argv.list[argv.count - 1], "in PATH --agent\n");
    unlink(program);
    rmdir(there);
    write_program(mine, "through a link", linked);
    assert_int_equal(symlink(mine, there), 0); /* to a program of ours, until it is another */
    assert_int_equal(lchown(there, 12345, 12345), 0);
    expect_run(argv.list[argv.count - 1], "in PATH --agent\n");
    words_fini(&argv);
    setenv("PATH", path, 1);
    unlink(there);
    unlink(linked);
    unlink(in_path);
    rmdir(mine);
    rmdir(other);
    free(longer);
    free(path);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_login_printed),
        cmocka_unit_test(test_files_that_are_no_usable_key),
        cmocka_unit_test(test_hints_repeat_the_login),
        cmocka_unit_test(test_hint_about_a_changed_key),
        cmocka_unit_test(test_user_that_nobody_named),
        cmocka_unit_test(test_options_that_run_something),
        cmocka_unit_test(test_program_of_somebody_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
