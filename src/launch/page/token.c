/*
 * token.c - files with secrets of the page.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/token.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/fail.h"

enum { PEM_BYTES_MAX = 256 << 10 };

/* Opens a file that only its owner, who we are, can read. Returns -1: errno, or 0 and err. */
static int
open_private(const char *file, const char *option, struct psd_error *err)
{
    struct stat info;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & 077) != 0 ||
        (info.st_uid != geteuid() && info.st_uid != 0)) {
        psi_fail(err, PSD_ERR_INVALID,
                 "%s %.200s: it is not a file that only you can read (chmod 600 makes it one)",
                 option, file);
        close(fd);
        errno = 0;
        return -1;
    }
    return fd;
}

/* At most max bytes of a file, NUL-terminated, owned by the caller; NULL: it cannot be read. */
static char *
read_all(int fd, size_t max)
{
    char *text = malloc(max + 1);
    size_t used = 0;
    ssize_t count = 0;

    while (text != NULL && used < max && (count = read(fd, text + used, max - used)) > 0) {
        used += (size_t)count;
    }
    if (text == NULL || count < 0) {
        free(text);
        return NULL;
    }
    text[used] = '\0';
    return text;
}

static psd_status
read_token(int fd, const char *file, char token_p[GATE_SECRET_CHARS + 1], struct psd_error *err)
{
    char *text = read_all(fd, 2 * GATE_SECRET_CHARS);
    size_t bytes = text != NULL ? strcspn(text, "\r\n") : 0;

    for (size_t i = 0; i < bytes; i++) {
        bytes = isalnum((unsigned char)text[i]) ? bytes : 0;
    }
    if (bytes < 16 || bytes > GATE_SECRET_CHARS) {
        free(text);
        return psi_fail(err, PSD_ERR_INVALID,
                        "--page_token %.200s: a token is 16 to %d letters and digits; psd_run "
                        "makes one where there is no file",
                        file, GATE_SECRET_CHARS);
    }
    memcpy(token_p, text, bytes);
    token_p[bytes] = '\0';
    explicit_bzero(text, bytes);
    free(text);
    return PSD_OK;
}

psd_status
token_write(const char *file, const char *text, struct psd_error *err)
{
    char path[4096];
    const size_t bytes = strlen(text);
    int fd;

    snprintf(path, sizeof(path), "%.4000s.%ld", file, (long)getpid());
    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, text, bytes) != (ssize_t)bytes || rename(path, file) != 0) {
        const psd_status status = psi_fail_errno(err, PSD_ERR_INVALID, "write %.400s", file);

        if (fd >= 0) {
            close(fd);
            unlink(path);
        }
        return status;
    }
    close(fd);
    return PSD_OK;
}

psd_status
token_get(const char *file, char token_p[GATE_SECRET_CHARS + 1], struct psd_error *err)
{
    char line[GATE_SECRET_CHARS + 2];
    psd_status status;
    int fd;

    if (file != NULL && (fd = open_private(file, "--page_token", err)) >= 0) {
        status = read_token(fd, file, token_p, err);
        close(fd);
        return status;
    }
    if (file != NULL && errno != ENOENT) {
        return errno == 0 ? PSD_ERR_INVALID
                          : psi_fail_errno(err, PSD_ERR_INVALID, "--page_token %.200s", file);
    }
    if (!gate_draw(token_p)) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "draw a token for the job's page");
    }
    snprintf(line, sizeof(line), "%s\n", token_p);
    return file == NULL ? PSD_OK : token_write(file, line, err);
}

static char *
read_pem(const char *file, bool is_private, struct psd_error *err)
{
    const int fd = is_private ? open_private(file, "--page_key", err)
                              : open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text;

    if (fd < 0) {
        if (errno != 0) {
            psi_fail_errno(err, PSD_ERR_INVALID, "--page_%s %.200s", is_private ? "key" : "cert",
                           file);
        }
        return NULL;
    }
    text = read_all(fd, PEM_BYTES_MAX);
    if (text == NULL) {
        psi_fail_errno(err, PSD_ERR_INVALID, "read %.200s", file);
    }
    close(fd);
    return text;
}

psd_status
token_read_pem(const char *certificate, const char *key, char **certificate_p, char **key_p,
               struct psd_error *err)
{
    char *first;
    char *second;

    if (certificate == NULL || key == NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--page_cert and --page_key belong together: one is missing");
    }
    first = read_pem(certificate, false, err);
    second = first != NULL ? read_pem(key, true, err) : NULL;
    if (second == NULL) {
        free(first);
        return PSD_ERR_INVALID;
    }
    *certificate_p = first;
    *key_p = second;
    return PSD_OK;
}
