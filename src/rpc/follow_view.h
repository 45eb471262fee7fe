/*
 * follow_view.h - views as they arrive: decoded, compared with the one that is held, taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_RPC_FOLLOW_VIEW_H
#define PSI_RPC_FOLLOW_VIEW_H

#include <stddef.h>

#include "view/view.h"

/* A newer view is in force. `now` also has what was decided with it. Neither outlives the call. */
typedef psd_status (*psi_on_view)(void *owner, const struct psi_view *old,
                                  const struct psi_view *now, struct psd_error *err);

/*
 * The body of a VIEW_COMMIT. One that is newer than *held, which has room for the job's workers,
 * takes its place, and on_view is told; an older one was repeated, and nothing happens. *id_p is
 * its number either way.
 */
psd_status psi_follow_view(struct psi_view *held, const void *body, size_t bytes,
                           psi_on_view on_view, void *owner, uint32_t *id_p, struct psd_error *err);

#endif
