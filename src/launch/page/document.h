/*
 * document.h - the page itself, one HTML document that needs nothing else: the build puts it together
 * from assets/ (tools/embed_page.py). Served live, or written as a file with the data inside.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_DOCUMENT_H
#define LAUNCH_PAGE_DOCUMENT_H

#include <psd/status.h>

/* The page, owned by the caller; NULL: no memory. json: a whole snapshot, for a file that needs no
 * server; NULL: the page asks for /events. */
char *document_text(const char *json);

/* The Content-Security-Policy under which its scripts run, and no others. */
const char *document_policy(void);

/* The page with its data, as a file. */
psd_status document_write(const char *path, const char *json, struct psd_error *err);

#endif
