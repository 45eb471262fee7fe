/*
 * rendezvous_file.c - what one psd_run tells the others in a shared directory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/rendezvous_file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { VERSION = 1, TOKEN_DIGITS = 16 };

psd_status
rendezvous_write(const struct rendezvous_entry *entry, char text_p[RENDEZVOUS_FILE_BYTES],
                 struct psd_error *err)
{
    json_t *addresses = json_array();
    json_t *root;
    char token[TOKEN_DIGITS + 1];
    char *text;
    psd_status status = PSD_OK;

    for (uint32_t i = 0; i < entry->address_count; i++) {
        json_array_append_new(addresses, json_string(entry->addresses[i]));
    }
    snprintf(token, sizeof(token), "%016" PRIx64, entry->token);
    root = json_pack("{s:i, s:s, s:I, s:I, s:I, s:s, s:I, s:s, s:o, s:I}", "psd_rendezvous",
                     VERSION, "run", entry->run, "rank", (json_int_t)entry->rank, "size",
                     (json_int_t)entry->size, "incarnation", (json_int_t)entry->incarnation,
                     "token", token, "pid", (json_int_t)entry->pid, "host", entry->host,
                     "addresses", addresses, "port", (json_int_t)entry->port);
    text = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (text == NULL || strlen(text) + 2 > RENDEZVOUS_FILE_BYTES) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "rank %u: what is to be told does not fit a file, or is no UTF-8",
                          entry->rank);
    } else {
        snprintf(text_p, RENDEZVOUS_FILE_BYTES, "%s\n", text);
    }
    free(text);
    json_decref(root);
    return status;
}

static bool
take_number(const json_t *root, const char *key, json_int_t max, json_int_t *number_p)
{
    const json_t *value = json_object_get(root, key);

    *number_p = json_integer_value(value);
    return json_is_integer(value) && *number_p >= 0 && *number_p <= max;
}

/* Printable and without blanks: it goes into messages and addresses. */
static bool
take_text(const json_t *value, char *text_p, size_t size)
{
    const char *text = json_string_value(value);
    const size_t bytes = json_string_length(value);

    if (text == NULL || bytes == 0 || bytes >= size || strlen(text) != bytes) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return false;
        }
    }
    memcpy(text_p, text, bytes + 1);
    return true;
}

static bool
take_token(const json_t *root, uint64_t *token_p)
{
    char digits[TOKEN_DIGITS + 1];

    if (!take_text(json_object_get(root, "token"), digits, sizeof(digits)) ||
        strspn(digits, "0123456789abcdef") != TOKEN_DIGITS) {
        return false;
    }
    *token_p = strtoull(digits, NULL, 16);
    return true;
}

static bool
take_addresses(const json_t *list, struct rendezvous_entry *entry)
{
    if (!json_is_array(list) || json_array_size(list) > RENDEZVOUS_ADDRESSES) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!take_text(json_array_get(list, i), entry->addresses[i], sizeof(entry->addresses[i]))) {
            return false;
        }
    }
    entry->address_count = (uint32_t)json_array_size(list);
    return true;
}

static bool
take_entry(const json_t *root, struct rendezvous_entry *entry)
{
    json_int_t version;
    json_int_t rank;
    json_int_t size;
    json_int_t incarnation;
    json_int_t pid;
    json_int_t port;

    if (!take_number(root, "psd_rendezvous", VERSION, &version) || version != VERSION ||
        !take_number(root, "size", UINT32_MAX, &size) ||
        !take_number(root, "rank", size - 1, &rank) ||
        !take_number(root, "incarnation", INT64_MAX, &incarnation) ||
        !take_number(root, "pid", INT32_MAX, &pid) ||
        !take_number(root, "port", UINT16_MAX, &port)) {
        return false;
    }
    entry->rank = (uint32_t)rank;
    entry->size = (uint32_t)size;
    entry->incarnation = (uint64_t)incarnation;
    entry->pid = (uint32_t)pid;
    entry->port = (uint16_t)port;
    return take_text(json_object_get(root, "run"), entry->run, sizeof(entry->run)) &&
           take_text(json_object_get(root, "host"), entry->host, sizeof(entry->host)) &&
           take_token(root, &entry->token) &&
           take_addresses(json_object_get(root, "addresses"), entry);
}

psd_status
rendezvous_read(const char *text, size_t bytes, struct rendezvous_entry *entry_p,
                struct psd_error *err)
{
    struct rendezvous_entry entry = {.port = 0};
    json_t *root = bytes <= RENDEZVOUS_FILE_BYTES
                       ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    const bool good = root != NULL && take_entry(root, &entry);

    json_decref(root);
    if (!good) {
        return psi_fail(err, PSD_ERR_INVALID, "not a whole file of psd_run");
    }
    *entry_p = entry;
    return PSD_OK;
}

psd_status
rendezvous_read_old(const char *text, size_t bytes, struct rendezvous_old *old_p,
                    struct psd_error *err)
{
    struct rendezvous_old old;
    json_t *root = bytes <= RENDEZVOUS_FILE_BYTES ? json_loadb(text, bytes, 0, NULL) : NULL;
    json_int_t index;
    json_int_t port;
    const bool good =
        root != NULL && take_number(root, "worker_idx", UINT32_MAX, &index) &&
        take_number(root, "port", UINT16_MAX, &port) &&
        take_text(json_object_get(root, "task"), old.task, sizeof(old.task)) &&
        take_text(json_object_get(root, "ip_address"), old.address, sizeof(old.address));

    json_decref(root);
    if (!good) {
        return psi_fail(err, PSD_ERR_INVALID, "not a whole .tfcluster file");
    }
    old.index = (uint32_t)index;
    old.port = (uint16_t)port;
    *old_p = old;
    return PSD_OK;
}
