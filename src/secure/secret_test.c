/*
 * secret_test.c - the job's secret: made, handed on, and what it is refused for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "secure/source.h"

enum { NOBODY = 65534 };

static const char digits[] = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";
static const char label[] = "psd1 plain worker:3 server:0.1";

/* A directory of its own for every test. */
struct place {
    char directory[64];
    char file[96];
};

static int
make_place(void **state)
{
    struct place *place = calloc(1, sizeof(*place));

    if (place == NULL) {
        return -1;
    }
    strcpy(place->directory, "/tmp/psd_secret_XXXXXX");
    if (mkdtemp(place->directory) == NULL) {
        free(place);
        return -1;
    }
    snprintf(place->file, sizeof(place->file), "%s/secret", place->directory);
    *state = place;
    return 0;
}

static int
clear_place(void **state)
{
    struct place *place = *state;

    if (unlink(place->file) != 0 && errno == EISDIR) {
        rmdir(place->file);
    }
    rmdir(place->directory);
    free(place);
    return 0;
}

static void
write_file(const char *path, const char *text, mode_t mode)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* Refused with that message, and nothing was handed out. */
static void
expect_refusal(const char *path, const char *message)
{
    struct psi_secret *secret = NULL;
    struct psd_error err = {0};

    assert_int_equal(psi_secret_from_file(path, &secret, &err), PSD_ERR_INVALID);
    assert_null(secret);
    if (strstr(err.text, message) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", message, err.text);
    }
}

static void
key_of(const struct psi_secret *secret, uint8_t key_p[PSI_KEY_BYTES])
{
    assert_int_equal(psi_secret_derive(secret, label, key_p, NULL), PSD_OK);
}

static void
expect_same(const struct psi_secret *one, const struct psi_secret *other)
{
    uint8_t keys[2][PSI_KEY_BYTES];

    key_of(one, keys[0]);
    key_of(other, keys[1]);
    assert_memory_equal(keys[0], keys[1], PSI_KEY_BYTES);
}

/* If this fails, keys are not those of RFC 5869: two builds, or another program, cannot meet. */
static void
test_derive_known_answer(void **state)
{
    /* Python: HKDF-SHA256 from hmac and hashlib; secret 00..1f, salt "poseidon-1", info = label. */
    static const uint8_t expected[PSI_KEY_BYTES] = {0x30, 0x40, 0x71, 0x6e, 0x20, 0xd9, 0x14, 0xe1,
                                                    0x0a, 0xb6, 0xc7, 0xf6, 0x1e, 0x94, 0x12, 0x77,
                                                    0xc5, 0x82, 0xb1, 0x90, 0xfa, 0xac, 0x41, 0x2c,
                                                    0xef, 0x00, 0x5a, 0xa7, 0x1d, 0x59, 0x1c, 0x28};
    const struct place *place = *state;
    struct psi_secret *secret;
    uint8_t key[PSI_KEY_BYTES];

    write_file(place->file, digits, 0600);
    assert_int_equal(psi_secret_from_file(place->file, &secret, NULL), PSD_OK);
    key_of(secret, key);
    assert_memory_equal(key, expected, sizeof(expected));
    psi_secret_destroy(secret);
}

/* If this fails, one member's key opens another member's door. */
static void
test_derive_differs_by_label_and_secret(void **state)
{
    static const char *const labels[] = {
        "psd1 plain worker:3 server:0.1",
        "psd1 plain worker:3 server:0.0",
        "psd1 plain worker:4 server:0.1",
        "psd1 tls worker:3 server:0.1",
        "psd1 plain server:0.1 worker:3",
        "psd1 plain worker:3 server:0.10",
        "",
    };
    enum { LABELS = sizeof(labels) / sizeof(labels[0]) };
    uint8_t keys[2 * LABELS][PSI_KEY_BYTES];
    struct psi_secret *secrets[2];

    (void)state;
    for (size_t s = 0; s < 2; s++) {
        assert_int_equal(psi_secret_create(&secrets[s], NULL), PSD_OK);
        for (size_t i = 0; i < LABELS; i++) {
            assert_int_equal(psi_secret_derive(secrets[s], labels[i], keys[s * LABELS + i], NULL),
                             PSD_OK);
        }
        psi_secret_destroy(secrets[s]);
    }
    for (size_t i = 0; i < 2 * LABELS; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_memory_not_equal(keys[i], keys[j], PSI_KEY_BYTES);
        }
    }
}

/* If this fails, a secret that was written cannot be read, or is open to others. */
static void
test_file_there_and_back(void **state)
{
    const struct place *place = *state;
    struct psi_secret *written;
    struct psi_secret *read_back;
    struct stat info;
    const mode_t old = umask(0);

    assert_int_equal(psi_secret_create(&written, NULL), PSD_OK);
    assert_int_equal(psi_secret_to_file(written, place->file, NULL), PSD_OK);
    umask(old);
    assert_int_equal(stat(place->file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(info.st_size, 65);
    assert_int_equal(psi_secret_from_file(place->file, &read_back, NULL), PSD_OK);
    expect_same(written, read_back);
    psi_secret_destroy(written);
    psi_secret_destroy(read_back);
}

/* If this fails, a job's secret is lost under a new one, or written where a link points. */
static void
test_to_file_overwrites_nothing(void **state)
{
    const struct place *place = *state;
    struct psi_secret *secret;
    struct psd_error err = {0};
    struct stat info;
    char target[128];

    assert_int_equal(psi_secret_create(&secret, NULL), PSD_OK);
    write_file(place->file, digits, 0600);
    assert_int_equal(psi_secret_to_file(secret, place->file, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "File exists"));
    assert_int_equal(stat(place->file, &info), 0);
    assert_int_equal(info.st_size, 64);
    unlink(place->file);

    snprintf(target, sizeof(target), "%s/elsewhere", place->directory);
    assert_int_equal(symlink(target, place->file), 0);
    assert_int_equal(psi_secret_to_file(secret, place->file, &err), PSD_ERR_IO);
    assert_int_equal(access(target, F_OK), -1);
    psi_secret_destroy(secret);
}

/* If this fails, others on the machine read the secret, and nobody is told how to stop that. */
static void
test_file_that_others_may_read(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0660, 0644, 0666, 0610, 0601, 0620};
    const struct place *place = *state;
    char hint[160];

    snprintf(hint, sizeof(hint), "run: chmod 600 %s", place->file);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        write_file(place->file, digits, modes[i]);
        expect_refusal(place->file, hint);
    }
}

/* If this fails, a person who may only read the own secret is refused. */
static void
test_file_that_only_we_may_read(void **state)
{
    const struct place *place = *state;
    struct psi_secret *secret;

    write_file(place->file, digits, 0400);
    assert_int_equal(psi_secret_from_file(place->file, &secret, NULL), PSD_OK);
    psi_secret_destroy(secret);
}

/* If this fails, somebody else's file, or what a link leads to, is taken for the secret. */
static void
test_file_of_the_wrong_kind(void **state)
{
    const struct place *place = *state;
    char real[128];

    snprintf(real, sizeof(real), "%s/real", place->directory);
    expect_refusal(place->file, "No such file or directory");

    write_file(real, digits, 0600);
    assert_int_equal(symlink(real, place->file), 0);
    expect_refusal(place->file, "is a symbolic link: refused");
    unlink(place->file);
    unlink(real);

    assert_int_equal(mkdir(place->file, 0700), 0);
    expect_refusal(place->file, "not a plain file");
    rmdir(place->file);

    assert_int_equal(mkfifo(place->file, 0600), 0);
    expect_refusal(place->file, "not a plain file");
}

/* If this fails, another user can plant a secret that this job then uses. */
static void
test_file_of_another_owner(void **state)
{
    const struct place *place = *state;

    if (geteuid() != 0) {
        print_message("not root: cannot give a file away\n");
        skip();
    }
    write_file(place->file, digits, 0600);
    assert_int_equal(chown(place->file, NOBODY, NOBODY), 0);
    expect_refusal(place->file, "belongs to user 65534");
}

/* If this fails, a damaged or cut secret is used, and members with the whole one are refused. */
static void
test_file_with_wrong_contents(void **state)
{
    const struct place *place = *state;
    char text[200];

    write_file(place->file, "", 0600);
    expect_refusal(place->file, "0 characters, expected 64");
    write_file(place->file, digits + 1, 0600);
    expect_refusal(place->file, "63 characters, expected 64");
    snprintf(text, sizeof(text), "%s0\n", digits);
    write_file(place->file, text, 0600);
    expect_refusal(place->file, "65 characters, expected 64");
    snprintf(text, sizeof(text), "%s\n%s\n", digits, digits);
    write_file(place->file, text, 0600);
    expect_refusal(place->file, "characters, expected 64");
    strcpy(text, digits);
    text[17] = 'g';
    write_file(place->file, text, 0600);
    expect_refusal(place->file, "not a hexadecimal digit near column 17");
    snprintf(text, sizeof(text), "%s\r\n \n", digits);
    write_file(place->file, text, 0600);
    {
        struct psi_secret *secret;

        assert_int_equal(psi_secret_from_file(place->file, &secret, NULL), PSD_OK);
        psi_secret_destroy(secret);
    }
}

/* If this fails, children do not get the secret, or can change it for the others. */
static void
test_descriptor_there_and_back(void **state)
{
    struct psi_secret *made;
    struct psi_secret *again;
    char buffer = 0;
    int fd;

    (void)state;
    assert_int_equal(psi_secret_create(&made, NULL), PSD_OK);
    fd = psi_secret_to_fd(made, NULL);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(psi_secret_from_fd(fd, &again, NULL), PSD_OK);
        expect_same(made, again);
        psi_secret_destroy(again);
    }
    assert_int_equal(pwrite(fd, &buffer, 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fd, 64), -1);
    assert_ptr_equal(mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    close(fd);
    psi_secret_destroy(made);
}

static int
make_memory(const char *bytes, size_t count, int seals)
{
    const int fd = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void
expect_no_secret(int fd, const char *why)
{
    struct psi_secret *secret = NULL;
    struct psd_error err = {0};

    assert_int_equal(psi_secret_from_fd(fd, &secret, &err), PSD_ERR_INVALID);
    assert_null(secret);
    assert_non_null(strstr(err.text, "(PSD_SECRET_FD)"));
    if (strstr(err.text, why) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", why, err.text);
    }
    close(fd);
}

/* If this fails, a descriptor that is none, or something else, gives a secret of zeros or of bytes
 * that others know. */
static void
test_descriptor_that_is_none(void **state)
{
    enum { WRITE = F_SEAL_WRITE, SIZE = F_SEAL_SHRINK | F_SEAL_GROW, SEAL = F_SEAL_SEAL };
    char path[] = "/tmp/psd_secret_test.XXXXXX";
    int pipe_fds[2];
    int file;

    (void)state;
    expect_no_secret(987654, "is not open: what started this process has closed it");
    expect_no_secret(make_memory(digits, 31, SIZE | WRITE | SEAL), "31 bytes, expected 32");
    expect_no_secret(make_memory(digits, 33, SIZE | WRITE | SEAL), "33 bytes, expected 32");
    expect_no_secret(make_memory(digits, 0, SIZE | WRITE | SEAL), "0 bytes, expected 32");
    expect_no_secret(make_memory(digits, 32, 0), "is not sealed");
    expect_no_secret(make_memory(digits, 32, SIZE | WRITE), "is not sealed");
    expect_no_secret(make_memory(digits, 32, SIZE | SEAL), "is not sealed");
    expect_no_secret(make_memory(digits, 32, WRITE | SEAL), "is not sealed");
    assert_int_equal(pipe(pipe_fds), 0);
    expect_no_secret(pipe_fds[0], "is some other file: what started this process has closed it");
    close(pipe_fds[1]);
    file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, digits, 32), 32);
    unlink(path);
    /* Where /tmp is in memory, its files can be sealed as well, and are not. */
    expect_no_secret(file, fcntl(file, F_GET_SEALS) < 0
                               ? "is some other file: what started this process has closed it"
                               : "is not sealed");
    expect_no_secret(open("/dev/zero", O_RDONLY | O_CLOEXEC),
                     "is some other file: what started this process has closed it");
}

/* If this fails, a typing error in the environment is taken for "no secret". */
static void
test_find_takes_what_is_named(void **state)
{
    static const char *const wrong[] = {"", "three", "3x", "-1", "99999999999999999999"};
    const struct place *place = *state;
    struct psi_secret *secret = (void *)1;
    struct psi_secret_source source = {0};
    struct psd_error err = {0};

    assert_int_equal(psi_secret_find(&source, &secret, &err), PSD_OK);
    assert_null(secret);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        source.fd = wrong[i];
        assert_int_equal(psi_secret_find(&source, &secret, &err), PSD_ERR_INVALID);
        assert_null(secret);
    }
    write_file(place->file, digits, 0600);
    source.file = place->file; /* goes before the descriptor, wrong as that is */
    assert_int_equal(psi_secret_find(&source, &secret, &err), PSD_OK);
    psi_secret_destroy(secret);
    write_file(place->file, digits, 0644);
    assert_int_equal(psi_secret_find(&source, &secret, &err), PSD_ERR_INVALID);
}

/* If this fails, a program that a worker starts has the secret in its memory. */
static void
test_child_does_not_inherit_the_memory(void **state)
{
    uint8_t ours[PSI_KEY_BYTES];
    struct psi_secret *secret;
    int status = -1;
    pid_t child;

    (void)state;
    assert_int_equal(psi_secret_create(&secret, NULL), PSD_OK);
    key_of(secret, ours);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint8_t theirs[PSI_KEY_BYTES] = {0};

        _exit(psi_secret_derive(secret, label, theirs, NULL) == PSD_OK &&
                      memcmp(ours, theirs, sizeof(ours)) == 0
                  ? 1
                  : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    psi_secret_destroy(secret);
}

int
main(void)
{
#define SECRET_TEST(function) cmocka_unit_test_setup_teardown(function, make_place, clear_place)
    const struct CMUnitTest tests[] = {
        SECRET_TEST(test_derive_known_answer),
        SECRET_TEST(test_derive_differs_by_label_and_secret),
        SECRET_TEST(test_file_there_and_back),
        SECRET_TEST(test_to_file_overwrites_nothing),
        SECRET_TEST(test_file_that_others_may_read),
        SECRET_TEST(test_file_that_only_we_may_read),
        SECRET_TEST(test_file_of_the_wrong_kind),
        SECRET_TEST(test_file_of_another_owner),
        SECRET_TEST(test_file_with_wrong_contents),
        SECRET_TEST(test_descriptor_there_and_back),
        SECRET_TEST(test_descriptor_that_is_none),
        SECRET_TEST(test_find_takes_what_is_named),
        SECRET_TEST(test_child_does_not_inherit_the_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
