/*
 * pass.c - what tells members from strangers in a few microseconds, before a handshake is begun.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/pass.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include "base/fail.h"

enum {
    NUMBER_DIGITS = 16,
    CODE_BYTES = 16, /* of the 32 that the MAC has */
    LABEL_BYTES_MIN = 5 + 1 + PSI_PASS_DIGITS,
};

static const char label_start[] = "psd1 ";

struct psi_passes {
    uint8_t key[PSI_KEY_BYTES];
    uint64_t used[PSI_PASSES_KEPT]; /* 0: free */
    size_t next;
};

psd_status
psi_passes_create(const struct psi_secret *secret, struct psi_passes **passes_p,
                  struct psd_error *err)
{
    struct psi_passes *passes = calloc(1, sizeof(*passes));
    psd_status status;

    if (passes == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for TLS");
    }
    status = psi_secret_derive(secret, "psd1 pass", passes->key, err);
    if (status != PSD_OK) {
        free(passes);
        return status;
    }
    *passes_p = passes;
    return PSD_OK;
}

void
psi_passes_destroy(struct psi_passes *passes)
{
    if (passes != NULL) {
        OPENSSL_cleanse(passes->key, sizeof(passes->key));
        free(passes);
    }
}

/* The code over the first bytes of a label, as digits. */
static bool
make_code(const struct psi_passes *passes, const char *label, size_t bytes,
          char code_p[2 * CODE_BYTES + 1])
{
    uint8_t mac[EVP_MAX_MD_SIZE];

    if (HMAC(EVP_sha256(), passes->key, sizeof(passes->key), (const uint8_t *)label, bytes, mac,
             NULL) == NULL) {
        return false;
    }
    for (size_t i = 0; i < CODE_BYTES; i++) {
        snprintf(code_p + 2 * i, 3, "%02x", mac[i]);
    }
    return true;
}

static uint64_t
draw_number(void)
{
    uint64_t number = 0;

    return getrandom(&number, sizeof(number), 0) == (ssize_t)sizeof(number) ? number : 0;
}

bool
psi_pass_write(const struct psi_passes *passes, char label[PSI_LABEL_BYTES])
{
    const size_t bytes = strlen(label);
    const uint64_t number = draw_number();

    if (number == 0 || bytes + 1 + PSI_PASS_DIGITS >= PSI_LABEL_BYTES) {
        return false;
    }
    snprintf(label + bytes, PSI_LABEL_BYTES - bytes, " %016llx", (unsigned long long)number);
    return make_code(passes, label, bytes + 1 + NUMBER_DIGITS, label + bytes + 1 + NUMBER_DIGITS);
}

/* Reads sixteen digits; there is one way to write a number. 0: not a number. */
static uint64_t
read_number(const char *digits)
{
    uint64_t number = 0;

    for (size_t i = 0; i < NUMBER_DIGITS; i++) {
        const int digit = (unsigned char)digits[i];

        if (!isdigit(digit) && (digit < 'a' || digit > 'f')) {
            return 0;
        }
        number = number << 4 | (uint64_t)(isdigit(digit) ? digit - '0' : digit - 'a' + 10);
    }
    return number;
}

bool
psi_pass_check(const struct psi_passes *passes, const char *label, uint64_t *number_p)
{
    const size_t bytes = strlen(label);
    const char *digits = label + bytes - PSI_PASS_DIGITS;
    char code[2 * CODE_BYTES + 1];

    if (bytes < LABEL_BYTES_MIN || digits[-1] != ' ') {
        return false;
    }
    *number_p = read_number(digits);
    return *number_p != 0 && make_code(passes, label, bytes - 2 * CODE_BYTES, code) &&
           CRYPTO_memcmp(code, digits + NUMBER_DIGITS, 2 * CODE_BYTES) == 0;
}

static bool
was_used(const struct psi_passes *passes, uint64_t number)
{
    for (size_t i = 0; i < PSI_PASSES_KEPT; i++) {
        if (passes->used[i] == number) {
            return true;
        }
    }
    return false;
}

bool
psi_pass_use(struct psi_passes *passes, uint64_t number)
{
    if (was_used(passes, number)) {
        return false;
    }
    passes->used[passes->next] = number;
    passes->next = (passes->next + 1) % PSI_PASSES_KEPT;
    return true;
}

bool
psi_pass_find(const struct psi_passes *passes, const uint8_t *bytes, size_t count)
{
    const uint8_t *start = memmem(bytes, count, label_start, strlen(label_start));
    char label[PSI_LABEL_BYTES];
    uint64_t number;
    size_t size;

    if (start == NULL || start - bytes < 2) {
        return false;
    }
    size = (size_t)start[-2] << 8 | start[-1];
    if (size >= sizeof(label) || size > count - (size_t)(start - bytes)) {
        return false;
    }
    memcpy(label, start, size);
    label[size] = '\0';
    return psi_pass_check(passes, label, &number) && !was_used(passes, number);
}
