/*
 * ssh_key.c - what is wrong with a file that should hold a private key.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/ssh_key.h"

#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096 }; /* the kind of a key and its cipher stand at the beginning */

void
ssh_key_path(const char *pem_file, char *path_p, size_t size)
{
    const bool home = pem_file[0] == '~' && pem_file[1] == '/';
    const struct passwd *entry = home ? getpwuid(getuid()) : NULL;

    snprintf(path_p, size, "%s%s", entry != NULL ? entry->pw_dir : "",
             home ? pem_file + 1 : pem_file);
}

/* In OpenSSH's own format the cipher is inside: base64 of "openssh-key-v1\0", 4, "none", 0. */
static bool
is_sealed_openssh(const char *text)
{
    static const char head[] = "-----BEGIN OPENSSH PRIVATE KEY-----";
    static const char open[] = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUA";
    const char *begin = strstr(text, head);

    if (begin == NULL) {
        return false;
    }
    begin += sizeof(head) - 1;
    begin += strspn(begin, "\r\n");
    return strncmp(begin, open, sizeof(open) - 1) != 0;
}

const char *
ssh_key_flaw(const char *pem_file)
{
    char path[4096];
    char text[HEAD_BYTES + 1];
    size_t bytes;
    FILE *file;

    ssh_key_path(pem_file, path, sizeof(path));
    file = fopen(path, "re");
    if (file == NULL) {
        return NULL; /* ssh says so itself */
    }
    bytes = fread(text, 1, HEAD_BYTES, file);
    fclose(file);
    text[bytes] = '\0';
    if (strncmp(text, "PuTTY-User-Key-File", 19) == 0) {
        return "is a key of PuTTY; to convert it, run: puttygen KEY.ppk -O private-openssh -o "
               "KEY.pem";
    }
    if (strncmp(text, "ssh-", 4) == 0 || strncmp(text, "ecdsa-", 6) == 0 ||
        strstr(text, "PUBLIC KEY-----") != NULL) {
        return "is a public key; name the private key that belongs to it";
    }
    if (strstr(text, "PRIVATE KEY-----") == NULL) {
        return "is no private key: it must begin with -----BEGIN ... PRIVATE KEY-----";
    }
    if (strstr(text, "ENCRYPTED") != NULL || is_sealed_openssh(text)) {
        return "needs a passphrase, and psd_run never asks for one; give the key to your ssh agent "
               "(ssh-add), or take the passphrase off a copy of it (ssh-keygen -p)";
    }
    return NULL;
}
