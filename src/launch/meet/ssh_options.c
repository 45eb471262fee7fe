/*
 * ssh_options.c - which arguments of ssh a cluster file may give.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/ssh_options.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"

/* Letters without a value, and with one that is a number, an address, or a file to be read. */
static const char plain_letters[] = "46aCkqTvx";
static const char value_letters[] = "bBcimp";

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
                                       "VerifyHostKeyDNS"};

/* ... and these, if they name a machine or a user. */
static const char *const names[] = {"HostKeyAlias", "Hostname", "ProxyJump", "User"};

#define COUNT(list)  (sizeof(list) / sizeof((list)[0]))
#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-@:,/[]%"

/* ssh puts them into command lines for a shell: that of a jump host, or a ProxyCommand with %h, %k
 * or %r of the user's own. */
static bool
is_name(const char *value)
{
    return value[0] != '-' && value[0] != '\0' && value[strspn(value, NAME_LETTERS)] == '\0';
}

/* Nothing that a shell, or ssh itself, reads as more than one value. */
static bool
is_plain(const char *value)
{
    return value[strspn(value, NAME_LETTERS "~+=^*? \t")] == '\0';
}

static bool
is_nowhere(const char *value)
{
    return strcmp(value, "/dev/null") == 0 || strcasecmp(value, "none") == 0;
}

/* Whether the first bytes of a setting are one of the keywords. */
static bool
has_keyword(const char *const *keywords, size_t count, const char *setting, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(keywords[i]) == bytes && strncasecmp(setting, keywords[i], bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* "Keyword=value" or "Keyword value", as ssh reads it. */
static bool
is_harmless_setting(const char *setting)
{
    const size_t bytes = strcspn(setting, "= \t");
    const char *value = setting + bytes + strspn(setting + bytes, " \t");

    value += *value == '=';
    value += strspn(value, " \t");
    if (has_keyword(names, COUNT(names), setting, bytes)) {
        return is_name(value);
    }
    if (bytes == 18 && strncasecmp(setting, "UserKnownHostsFile", bytes) == 0) {
        return is_nowhere(value);
    }
    return has_keyword(harmless, COUNT(harmless), setting, bytes) && is_plain(value);
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
        if (*letter == 'J' || *letter == 'l') {
            return is_name(value);
        }
        return *letter == 'o' ? is_harmless_setting(value)
                              : strchr(value_letters, *letter) != NULL && is_plain(value);
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
