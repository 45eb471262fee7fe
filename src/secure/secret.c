/*
 * secret.c - the job's secret: made, handed on, kept out of sight.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/secret.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "base/fail.h"

static_assert((int)PSI_SECRET_BYTES == (int)PSI_KEY_BYTES, "a derived key can be a secret");

enum {
    PAGE_BYTES = 4096,
    FILE_DIGITS = 2 * PSI_SECRET_BYTES,
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL,
};

struct psi_secret {
    uint8_t bytes[PSI_SECRET_BYTES];
};

static psd_status
allocate(struct psi_secret **secret_p, struct psd_error *err)
{
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "a page for the job's secret");
    }
    (void)mlock(page,
                PAGE_BYTES); /* an unprivileged user may have no right to lock: swap is theirs */
    (void)madvise(page, PAGE_BYTES, MADV_DONTDUMP);
    (void)madvise(page, PAGE_BYTES,
                  MADV_WIPEONFORK); /* children get it by descriptor or not at all */
    *secret_p = page;
    return PSD_OK;
}

void
psi_secret_destroy(struct psi_secret *secret)
{
    if (secret != NULL) {
        OPENSSL_cleanse(secret, sizeof(*secret));
        munmap(secret, PAGE_BYTES);
    }
}

psd_status
psi_secret_create(struct psi_secret **secret_p, struct psd_error *err)
{
    struct psi_secret *secret;
    const psd_status status = allocate(&secret, err);

    if (status != PSD_OK) {
        return status;
    }
    if (getrandom(secret->bytes, sizeof(secret->bytes), 0) != (ssize_t)sizeof(secret->bytes)) {
        psi_secret_destroy(secret);
        return psi_fail_errno(err, PSD_ERR_INTERNAL, "draw the job's secret");
    }
    *secret_p = secret;
    return PSD_OK;
}

/* Wrappers do that: Python's subprocess, sudo, docker run. */
static psd_status
refuse_closed(int fd, const char *what, struct psd_error *err)
{
    return psi_fail(
        err, PSD_ERR_INVALID,
        "descriptor %d (PSD_SECRET_FD), by which psd_run hands the job's secret down, %s: "
        "what started this process has closed it, or it was taken for something else. "
        "Let it pass that on (Python's subprocess: pass_fds=[int(os.environ['PSD_SECRET_FD'])]; "
        "sudo: -C %d); or use a file: psd_run "
        "--secret_file FILE "
        "(psd_run secret FILE makes it), and PSD_SECRET_FILE=FILE for this process",
        fd, what, fd + 1);
}

/* Only what psi_secret_to_fd() makes: some other descriptor that happens to have the number, an
 * open file for instance, must not become a secret that others know. */
static psd_status
check_descriptor(int fd, struct psd_error *err)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;

    if (seals < 0 || fstat(fd, &info) != 0) {
        return refuse_closed(fd, errno == EBADF ? "is not open" : "is some other file", err);
    }
    if ((seals & SEALS) != SEALS) {
        return refuse_closed(fd, "is not sealed, so it is something else", err);
    }
    if (info.st_size != PSI_SECRET_BYTES) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "descriptor %d (PSD_SECRET_FD): %lld bytes, expected %d", fd,
                        (long long)info.st_size, PSI_SECRET_BYTES);
    }
    return PSD_OK;
}

psd_status
psi_secret_from_fd(int fd, struct psi_secret **secret_p, struct psd_error *err)
{
    struct psi_secret *secret = NULL;
    psd_status status = check_descriptor(fd, err);

    if (status == PSD_OK) {
        status = allocate(&secret, err);
    }
    if (status == PSD_OK &&
        pread(fd, secret->bytes, sizeof(secret->bytes), 0) != (ssize_t)sizeof(secret->bytes)) {
        status = psi_fail_errno(err, PSD_ERR_INVALID, "read descriptor %d (PSD_SECRET_FD)", fd);
    }
    if (status != PSD_OK) {
        psi_secret_destroy(secret);
        return status;
    }
    *secret_p = secret;
    return PSD_OK;
}

static psd_status
check_file(int fd, const char *path, struct psd_error *err)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return psi_fail_errno(err, PSD_ERR_INVALID, "secret file %s", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return psi_fail(err, PSD_ERR_INVALID, "secret file %s: not a plain file", path);
    }
    if (info.st_uid != geteuid()) {
        return psi_fail(err, PSD_ERR_INVALID, "secret file %s: belongs to user %u, not to %u", path,
                        (unsigned)info.st_uid, (unsigned)geteuid());
    }
    if ((info.st_mode & 077) != 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "secret file %s: others may read it (mode %04o); run: chmod 600 %s", path,
                        (unsigned)info.st_mode & 07777, path);
    }
    return PSD_OK;
}

static int
digit_value(int digit)
{
    if (!isxdigit(digit)) {
        return -1;
    }
    return isdigit(digit) ? digit - '0' : tolower(digit) - 'a' + 10;
}

/* 64 hexadecimal digits, and at most a line's end behind them. */
static psd_status
parse_digits(const char *text, size_t size, const char *path, uint8_t *bytes_p,
             struct psd_error *err)
{
    size_t used = size;

    while (used > 0 && isspace((unsigned char)text[used - 1])) {
        used--;
    }
    if (used != FILE_DIGITS) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "secret file %s: %zu characters, expected %d hexadecimal digits", path,
                        used, FILE_DIGITS);
    }
    for (size_t i = 0; i < PSI_SECRET_BYTES; i++) {
        const int high = digit_value((unsigned char)text[2 * i]);
        const int low = digit_value((unsigned char)text[2 * i + 1]);

        if (high < 0 || low < 0) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "secret file %s: not a hexadecimal digit near column %zu", path,
                            2 * i + 1);
        }
        bytes_p[i] = (uint8_t)(high << 4 | low);
    }
    return PSD_OK;
}

psd_status
psi_secret_from_file(const char *path, struct psi_secret **secret_p, struct psd_error *err)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK); /* a FIFO: no wait */
    char text[FILE_DIGITS + 16];
    struct psi_secret *secret = NULL;
    psd_status status;
    ssize_t got;

    if (fd < 0 && errno == ELOOP) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "secret file %s: is a symbolic link: refused; name the file itself", path);
    }
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_INVALID, "secret file %s", path);
    }
    status = check_file(fd, path, err);
    if (status == PSD_OK) {
        status = allocate(&secret, err);
    }
    if (status == PSD_OK) {
        got = read(fd, text, sizeof(text));
        status = got < 0 ? psi_fail_errno(err, PSD_ERR_INVALID, "read secret file %s", path)
                         : parse_digits(text, (size_t)got, path, secret->bytes, err);
    }
    OPENSSL_cleanse(text, sizeof(text));
    close(fd);
    if (status != PSD_OK) {
        psi_secret_destroy(secret);
        return status;
    }
    *secret_p = secret;
    return PSD_OK;
}

psd_status
psi_secret_to_file(const struct psi_secret *secret, const char *path, struct psd_error *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    char text[FILE_DIGITS + 2];
    ssize_t written;

    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "create secret file %s", path);
    }
    for (size_t i = 0; i < PSI_SECRET_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", secret->bytes[i]);
    }
    text[FILE_DIGITS] = '\n';
    written = write(fd, text, FILE_DIGITS + 1);
    OPENSSL_cleanse(text, sizeof(text));
    if (close(fd) != 0 || written != FILE_DIGITS + 1) {
        unlink(path);
        return psi_fail_errno(err, PSD_ERR_IO, "write secret file %s", path);
    }
    return PSD_OK;
}

int
psi_secret_to_fd(const struct psi_secret *secret, struct psd_error *err)
{
    const int fd = memfd_create("psd-secret", MFD_ALLOW_SEALING);

    if (fd < 0) {
        psi_fail_errno(err, PSD_ERR_NO_MEMORY, "a descriptor for the job's secret");
        return -1;
    }
    if (write(fd, secret->bytes, sizeof(secret->bytes)) != (ssize_t)sizeof(secret->bytes) ||
        fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        psi_fail_errno(err, PSD_ERR_NO_MEMORY, "a descriptor for the job's secret");
        close(fd);
        return -1;
    }
    return fd;
}

psd_status
psi_secret_derive(const struct psi_secret *secret, const char *label, uint8_t key_p[PSI_KEY_BYTES],
                  struct psd_error *err)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf == NULL ? NULL : EVP_KDF_CTX_new(kdf);
    char digest[] = "SHA256";
    char salt[] = "poseidon-1";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret->bytes,
                                          sizeof(secret->bytes)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof(salt) - 1),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)label,
                                          strlen(label)),
        OSSL_PARAM_construct_end(),
    };
    const int done = context != NULL ? EVP_KDF_derive(context, key_p, PSI_KEY_BYTES, params) : 0;

    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    if (done != 1) {
        return psi_fail(err, PSD_ERR_INTERNAL, "derive a key: OpenSSL refused");
    }
    return PSD_OK;
}

psd_status
psi_secret_for_readers(const struct psi_secret *secret, struct psi_secret **readers_p,
                       struct psd_error *err)
{
    struct psi_secret *readers = NULL;
    psd_status status = allocate(&readers, err);

    if (status != PSD_OK) {
        return status;
    }
    status = psi_secret_derive(secret, "psd1 readers", readers->bytes, err);
    if (status != PSD_OK) {
        psi_secret_destroy(readers);
        return status;
    }
    *readers_p = readers;
    return PSD_OK;
}
