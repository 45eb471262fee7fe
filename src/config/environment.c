/*
 * environment.c - variables besides the settings: switches, and names that were misspelt.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/environment.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/settings.h"

/* Ours, and no settings; written as settings are. */
static const char *const others[] = {
    "force_tls", "insecure",      "master_address", "master_file", "rank", "reader_key_file",
    "role",      "restart_count", "secret_fd",      "secret_file", "world"};

psd_status
psi_environment_switch(const char *name, bool *on_p, struct psd_error *err)
{
    const char *text = psi_environment(name);

    if (text != NULL && strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        return psi_fail(err, PSD_ERR_INVALID, "%s=%.64s: must be 1 (on) or 0 (off)", name, text);
    }
    *on_p = text != NULL && text[0] == '1';
    return PSD_OK;
}

/* The known name that `word` probably stands for; NULL: none is near. Stricter than an option's
 * hint: other programs may have PSD_ variables too. */
static const char *
nearest_name(const char *word)
{
    struct psi_nearest nearest = {.word = word};

    for (size_t i = 0; i < PSI_KNOBS; i++) {
        psi_nearest_try(&nearest, psi_knobs()[i].name);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        psi_nearest_try(&nearest, others[i]);
    }
    if (nearest.name == NULL || nearest.distance * 4 > strlen(nearest.name)) {
        return NULL;
    }
    return nearest.name;
}

/* "NAME=value" of the environment. Returns whether NAME is a slip, and both names then. */
static bool
is_slip(const char *entry, char written_p[PSI_VARIABLE_BYTES], char meant_p[PSI_VARIABLE_BYTES])
{
    const size_t bytes = strcspn(entry, "=");
    const char *name;
    char word[PSI_VARIABLE_BYTES];

    if (strncmp(entry, PSI_VARIABLE_PREFIX, PSI_VARIABLE_PREFIX_BYTES) != 0 ||
        bytes >= PSI_VARIABLE_BYTES || entry[bytes] == '\0' || entry[bytes + 1] == '\0') {
        return false;
    }
    memcpy(written_p, entry, bytes);
    written_p[bytes] = '\0';
    for (size_t i = PSI_VARIABLE_PREFIX_BYTES; i <= bytes; i++) {
        word[i - PSI_VARIABLE_PREFIX_BYTES] = psi_variable_swap_case(written_p[i], 'A', 'Z');
    }
    name = nearest_name(word);
    if (name == NULL) {
        return false;
    }
    psi_variable_name(name, meant_p);
    return strcmp(written_p, meant_p) != 0;
}

void
psi_environment_slips(void (*tell)(void *owner, const char *written, const char *meant),
                      void *owner)
{
    char written[PSI_VARIABLE_BYTES];
    char meant[PSI_VARIABLE_BYTES];

    for (char *const *entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (is_slip(*entry, written, meant)) {
            tell(owner, written, meant);
        }
    }
}

struct hint {
    const char *name;
    struct psd_error *err;
};

static void
add_hint(void *owner, const char *written, const char *meant)
{
    const struct hint *hint = owner;
    const size_t used = strlen(hint->err->text);

    if (strcmp(meant, hint->name) == 0) {
        snprintf(hint->err->text + used, sizeof(hint->err->text) - used,
                 "; %s is set: did you mean %s?", written, meant);
    }
}

void
psi_environment_hint(const char *name, struct psd_error *err)
{
    struct hint hint = {.name = name, .err = err};

    if (psi_environment(name) == NULL) {
        psi_environment_slips(add_hint, &hint);
    }
}
