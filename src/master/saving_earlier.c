/*
 * saving_earlier.c - what of a checkpoint lies in earlier generations, as lanes tell.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "master/disk.h"
#include "master/state.h"

psd_status
master_on_earlier(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct saving *saving = &session->master->saving;
    struct saving_place *place = &saving->place[place_of(session->master, session->member)];
    struct psi_refers refers = {.bytes = malloc(PSI_EARLIER_MAX * sizeof(*refers.bytes))};
    psd_status status;

    if (refers.bytes == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "EARLIER: no memory");
    }
    status = psi_refers_decode(body, bytes, &refers, err);
    if (status == PSD_OK && saving->stage == SAVING_ORDERED && saving->any_tables &&
        session->guest.inbox.frame.seq == saving->number &&
        refers.first == place->earlier[refers.file]) { /* else it is said once more */
        struct psi_manifest_file *sums = &saving->generation->sums[refers.file];

        for (uint32_t i = 0; i < refers.count && status == PSD_OK; i++) {
            const struct psi_range range = {refers.bytes[i].generation, refers.bytes[i].begin,
                                            refers.bytes[i].end};

            if (saving->after == 0 || range.generation == 0 ||
                range.generation >= saving->generation_number || range.begin >= range.end ||
                range.end > sums->bytes) {
                status =
                    psi_fail(err, PSD_ERR_PROTOCOL,
                             "EARLIER: bytes %" PRIu64 " to %" PRIu64 " of generation %" PRIu64
                             " of %" PRIu64,
                             range.begin, range.end, range.generation, saving->generation_number);
            } else if (!psi_ranges_add(&sums->earlier, range)) {
                status = psi_fail(err, PSD_ERR_NO_MEMORY, "EARLIER: no memory");
            }
        }
        place->earlier[refers.file] += status == PSD_OK ? refers.count : 0;
    }
    free(refers.bytes);
    return status;
}
