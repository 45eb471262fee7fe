/*
 * token.h - files with secrets of the page: its token, the key of its certificate.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_TOKEN_H
#define LAUNCH_PAGE_TOKEN_H

#include <psd/status.h>

#include "launch/page/gate.h"

/*
 * Reads the token from the file, or draws a new one if no file is named. A missing file is created,
 * with mode 0600. A file that others can read is refused. Prometheus reads the same file
 * (credentials_file).
 */
psd_status token_get(const char *file, char token_p[GATE_SECRET_CHARS + 1], struct psd_error *err);

/* Puts text into a new file of mode 0600, in the place of what was there. */
psd_status token_write(const char *file, const char *text, struct psd_error *err);

/* Both files or neither; owned by the caller. */
psd_status token_read_pem(const char *certificate, const char *key, char **certificate_p,
                          char **key_p, struct psd_error *err);

#endif
