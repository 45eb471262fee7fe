/*
 * fuzz_rendezvous.c - what may lie in a directory that others can write to.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/fail.h"
#include "fuzz.h"
#include "launch/meet/rendezvous_file.h"

/* What is believed is in range, and reads the same when it is written again. */
static void
check_entry(const struct rendezvous_entry *entry)
{
    struct rendezvous_entry again;
    char text[RENDEZVOUS_FILE_BYTES];

    psi_assert(entry->rank < entry->size);
    psi_assert(entry->address_count <= RENDEZVOUS_ADDRESSES);
    if (rendezvous_write(entry, text, NULL) != PSD_OK) {
        return; /* short as it was, it may be longer with all its blanks */
    }
    psi_assert(rendezvous_read(text, strlen(text), &again, NULL) == PSD_OK);
    psi_assert(memcmp(&again, entry, sizeof(again)) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rendezvous_entry entry;
    struct rendezvous_old old;

    if (rendezvous_read((const char *)data, size, &entry, NULL) == PSD_OK) {
        check_entry(&entry);
    }
    if (rendezvous_read_old((const char *)data, size, &old, NULL) == PSD_OK) {
        psi_assert(old.task[0] != '\0' && old.address[0] != '\0');
    }
    return 0;
}
