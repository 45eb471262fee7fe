/*
 * json_text.h - text that came from elsewhere, as JSON can hold it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JSON_TEXT_H
#define LAUNCH_JSON_TEXT_H

#include <jansson.h>

/* Text of users and processes may be anything, and may have been cut within a character: each byte
 * that is not UTF-8 becomes U+FFFD, and the rest stays as it is. A new reference; NULL: no memory.
 */
json_t *json_text(const char *bytes);

#endif
