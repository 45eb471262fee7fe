/*
 * manifest_text.h - what the reader and the writer of a manifest's text share. Pure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_MANIFEST_TEXT_H
#define PSI_CHECKPOINT_MANIFEST_TEXT_H

#include "checkpoint/manifest.h"

enum {
    PSI_MANIFEST_VERSION = 5,
    PSI_MANIFEST_VERSION_READ = 1,    /* and all since; 1 does not tell a table's moment */
    PSI_MANIFEST_VERSION_MOMENT = 2,  /* the first that does */
    PSI_MANIFEST_VERSION_PARTS = 3,   /* the first with parts of workers */
    PSI_MANIFEST_VERSION_EARLIER = 4, /* the first whose files refer to earlier ones */
    PSI_MANIFEST_VERSION_ROWS = 5,    /* the first with rows of sparse tables */
    PSI_MANIFEST_TAIL_BYTES = 21,
};

extern const char psi_manifest_format_name[];
extern const char *const psi_manifest_moments[]; /* by enum psi_manifest_moment */

/* Its last field: the checksum of what comes before. */
void psi_manifest_tail(char tail[PSI_MANIFEST_TAIL_BYTES + 1], const char *text, size_t bytes);

#endif
