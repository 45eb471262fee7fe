/*
 * token.h - files with secrets of the page: its token, the key of its certificate.
 */
#ifndef LAUNCH_PAGE_TOKEN_H
#define LAUNCH_PAGE_TOKEN_H

#include <psd/status.h>

#include "launch/page/gate.h"

/*
 * A token: of the file, if one is named, which is made, mode 0600, where there is none; else a new
 * one. A file that others can read is refused. Prometheus takes the same file (credentials_file).
 */
psd_status token_get(const char *file, char token_p[GATE_SECRET_CHARS + 1], struct psd_error *err);

/* Puts text into a new file of mode 0600, in the place of what was there. */
psd_status token_write(const char *file, const char *text, struct psd_error *err);

/* Both files or neither; owned by the caller. */
psd_status token_read_pem(const char *certificate, const char *key, char **certificate_p,
                          char **key_p, struct psd_error *err);

#endif
