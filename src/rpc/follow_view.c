/*
 * follow_view.c - views as they arrive.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/follow_view.h"

#include "base/fail.h"
#include "wire/message.h"

static psd_status
take(struct psi_view *held, const struct psi_view *next, psi_on_view on_view, void *owner,
     struct psd_error *err)
{
    struct psi_view old;
    psd_status status;

    if (next->workers != held->workers) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "view %u: %u workers, expected %u", next->id,
                        next->workers, held->workers);
    }
    if (next->id <= held->id) {
        return PSD_OK;
    }
    status = psi_view_take(held, next, &old);
    if (status != PSD_OK) {
        return psi_fail(err, status, "no memory for view %u", next->id);
    }
    status = on_view(owner, &old, next, err);
    psi_view_fini(&old);
    return status;
}

psd_status
psi_follow_view(struct psi_view *held, const void *body, size_t bytes, psi_on_view on_view,
                void *owner, uint32_t *id_p, struct psd_error *err)
{
    struct psi_view next;
    psd_status status = psi_view_decode_new(body, bytes, &next, err);

    if (status != PSD_OK) {
        return status;
    }
    *id_p = next.id;
    status = take(held, &next, on_view, owner, err);
    psi_view_fini(&next);
    return status;
}
