/*
 * ssh_options.c - which arguments of ssh a cluster file may give.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/ssh_options.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"

/* Letters without a value, and with one that is a number, a name, or a file to be read. */
static const char plain_letters[] = "46aCkqTvx";
static const char value_letters[] = "bBcilmp";

/* What -o may set. UserKnownHostsFile is none of them: ssh writes what it learns into it. */
static const char *const harmless[] = {"AddressFamily",
                                       "BatchMode",
                                       "BindAddress",
                                       "BindInterface",
                                       "CASignatureAlgorithms",
                                       "CertificateFile",
                                       "CheckHostIP",
                                       "Ciphers",
                                       "Compression",
                                       "ConnectionAttempts",
                                       "ConnectTimeout",
                                       "FingerprintHash",
                                       "GlobalKnownHostsFile",
                                       "GSSAPIAuthentication",
                                       "HashKnownHosts",
                                       "HostbasedAcceptedAlgorithms",
                                       "HostbasedAuthentication",
                                       "HostKeyAlgorithms",
                                       "HostKeyAlias",
                                       "Hostname",
                                       "IdentitiesOnly",
                                       "IdentityFile",
                                       "IPQoS",
                                       "KbdInteractiveAuthentication",
                                       "KexAlgorithms",
                                       "LogLevel",
                                       "MACs",
                                       "NumberOfPasswordPrompts",
                                       "PasswordAuthentication",
                                       "Port",
                                       "PreferredAuthentications",
                                       "PubkeyAcceptedAlgorithms",
                                       "PubkeyAcceptedKeyTypes",
                                       "PubkeyAuthentication",
                                       "RekeyLimit",
                                       "RequiredRSASize",
                                       "ServerAliveCountMax",
                                       "ServerAliveInterval",
                                       "StrictHostKeyChecking",
                                       "TCPKeepAlive",
                                       "User",
                                       "VerifyHostKeyDNS"};

/* Of a jump host ssh makes a command line of its own: only what names a machine may be in it. */
static bool
is_jump(const char *value)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-@:,/[]%";

    return value[0] != '-' && value[0] != '\0' && value[strspn(value, letters)] == '\0';
}

static bool
is_nowhere(const char *value)
{
    return strcmp(value, "/dev/null") == 0 || strcasecmp(value, "none") == 0;
}

/* "Keyword=value" or "Keyword value", as ssh reads it. */
static bool
is_harmless_setting(const char *setting)
{
    const size_t bytes = strcspn(setting, "= \t");
    const char *value = setting + bytes + strspn(setting + bytes, " \t");

    value += *value == '=';
    value += strspn(value, " \t");
    if (strpbrk(setting, "\r\n") != NULL) {
        return false;
    }
    if (bytes == 9 && strncasecmp(setting, "ProxyJump", bytes) == 0) {
        return is_jump(value);
    }
    if (bytes == 18 && strncasecmp(setting, "UserKnownHostsFile", bytes) == 0) {
        return is_nowhere(value);
    }
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
        if (strlen(harmless[i]) == bytes && strncasecmp(setting, harmless[i], bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* The letters of one word. *next_p: it takes the next word as a value, which is `next`. */
static bool
is_harmless(const char *word, const char *next, bool *next_p)
{
    *next_p = false;
    if (word[0] != '-' || word[1] == '\0') {
        return false; /* ssh would take it for the machine */
    }
    for (const char *letter = word + 1; *letter != '\0'; letter++) {
        const char *value = letter[1] != '\0' ? letter + 1 : next;

        if (strchr(plain_letters, *letter) != NULL) {
            continue;
        }
        *next_p = letter[1] == '\0';
        if (value == NULL) {
            return false;
        }
        return strchr(value_letters, *letter) != NULL || (*letter == 'J' && is_jump(value)) ||
               (*letter == 'o' && is_harmless_setting(value));
    }
    return true;
}

psd_status
ssh_options_check(const struct words *options, struct psd_error *err)
{
    for (size_t i = 0; i < options->count; i++) {
        const char *word = options->list[i];
        bool next;

        if (!is_harmless(word, i + 1 < options->count ? options->list[i + 1] : NULL, &next)) {
            return psi_fail(err, PSD_ERR_REFUSED,
                            "\"ssh_options\": \"%.100s%s%.100s\" is not among those that are known "
                            "to run nothing and write nothing on this machine; put it into "
                            "~/.ssh/config, or read the file and, if you trust it, add "
                            "--trust_ssh_options",
                            word, next && i + 1 < options->count ? " " : "",
                            next && i + 1 < options->count ? options->list[i + 1] : "");
        }
        i += next;
    }
    return PSD_OK;
}
