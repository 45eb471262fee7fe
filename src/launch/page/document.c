/*
 * document.c - the page itself.
 *
 * The data of a file stands in an element that holds JSON, before the scripts. There "</script" would end
 * it: every '<' of the data is written as \u003c, which JSON reads as the same.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/document.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "launch/page/document_bytes.h"
#include "launch/system/whole_file.h"

const char *
document_policy(void)
{
    return document_policy_text;
}

static char *
append(char *end, const char *text)
{
    const size_t bytes = strlen(text);

    memcpy(end, text, bytes);
    return end + bytes;
}

static size_t
count_of(const char *text, char wanted)
{
    size_t count = 0;

    for (; *text != '\0'; text++) {
        count += *text == wanted;
    }
    return count;
}

char *
document_text(const char *json)
{
    static const char less[] = "\\u003c";
    const char *data = json != NULL ? json : "";
    char *text = malloc(strlen(document_head) + strlen(document_tail) + strlen(data) +
                        count_of(data, '<') * (sizeof(less) - 1) + 1);
    char *end;

    if (text == NULL) {
        return NULL;
    }
    end = append(text, document_head);
    for (; *data != '\0'; data++) {
        if (*data == '<') {
            end = append(end, less);
        } else {
            *end++ = *data;
        }
    }
    end = append(end, document_tail);
    *end = '\0';
    return text;
}

psd_status
document_write(const char *path, const char *json, struct psd_error *err)
{
    char *text = document_text(json);
    const psd_status status = text != NULL
                                  ? whole_file_write(AT_FDCWD, path, text, err)
                                  : psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %s", path);

    free(text);
    return status;
}
