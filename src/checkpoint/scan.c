/*
 * scan.c - a strict reader of the JSON in a checkpoint's files, and the writer of its strings.
 *
 * Texts may come from anywhere, so nothing in them is believed: every byte is looked at within its
 * bounds, and nesting is as deep as the caller asks and no deeper. Nothing is allocated.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/scan.h"

#include <string.h>

#include "base/fail.h"

void
psi_scan_init(struct psi_scan *scan, const char *file, const void *text, size_t bytes,
              struct psd_error *err)
{
    scan->file = file;
    scan->begin = text;
    scan->at = scan->begin;
    scan->end = scan->begin + bytes;
    scan->err = err;
    scan->status = PSD_OK;
}

bool
psi_scan_fail(struct psi_scan *scan, const char *problem)
{
    if (scan->status == PSD_OK) {
        scan->status = psi_fail(scan->err, PSD_ERR_CORRUPT, "%s: byte %zu: %s", scan->file,
                                (size_t)(scan->at - scan->begin), problem);
    }
    return false;
}

bool
psi_scan_no_memory(struct psi_scan *scan)
{
    if (scan->status == PSD_OK) {
        scan->status =
            psi_fail(scan->err, PSD_ERR_NO_MEMORY, "%s: no memory for what it holds", scan->file);
    }
    return false;
}

/* The next byte that is not white space, -1 when there is none or something failed before. */
static int
peek(struct psi_scan *scan)
{
    if (scan->status != PSD_OK) {
        return -1;
    }
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r')) {
        scan->at++;
    }
    return scan->at < scan->end ? *scan->at : -1;
}

bool
psi_scan_take(struct psi_scan *scan, char expected)
{
    const char problem[] = {expected, ' ', 'e', 'x', 'p', 'e', 'c', 't', 'e', 'd', '\0'};

    if (peek(scan) != expected) {
        return psi_scan_fail(scan, problem);
    }
    scan->at++;
    return true;
}

bool
psi_scan_more(struct psi_scan *scan, char close, bool *first_p)
{
    const bool first = *first_p;

    *first_p = false;
    if (peek(scan) == close) {
        scan->at++;
        return false;
    }
    return first ? scan->status == PSD_OK : psi_scan_take(scan, ',');
}

bool
psi_scan_number(struct psi_scan *scan, uint64_t *value_p)
{
    const int begin = peek(scan);
    uint64_t value = 0;

    if (begin < '0' || begin > '9') {
        return psi_scan_fail(scan, "whole number expected");
    }
    if (begin == '0' && scan->end - scan->at > 1 && scan->at[1] >= '0' && scan->at[1] <= '9') {
        return psi_scan_fail(scan, "number with leading zero");
    }
    for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++) {
        const uint64_t digit = (uint64_t)(*scan->at - '0');

        if (value > (UINT64_MAX - digit) / 10) {
            return psi_scan_fail(scan, "number beyond 64 bits");
        }
        value = value * 10 + digit;
    }
    *value_p = value;
    return true;
}

bool
psi_scan_end(struct psi_scan *scan)
{
    if (peek(scan) >= 0) {
        return psi_scan_fail(scan, "text after the end");
    }
    return scan->status == PSD_OK;
}

/* Bytes of the UTF-8 character at `at`, which is not beyond 0x7f in its first byte; 0: none. */
static size_t
utf8_bytes(const uint8_t *at, const uint8_t *end)
{
    const size_t bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    uint32_t code = at[0] & (0x7fu >> bytes);

    if (at[0] < 0xc2 || at[0] > 0xf4 || (size_t)(end - at) < bytes) {
        return 0;
    }
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (at[i] & 0x3f);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return 0;
    }
    return code >= (bytes == 2 ? 0x80u : bytes == 3 ? 0x800u : 0x10000u) ? bytes : 0;
}

static size_t
utf8_encode(uint32_t code, uint8_t bytes[4])
{
    if (code < 0x80) {
        bytes[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        bytes[0] = (uint8_t)(0xc0 | code >> 6);
        bytes[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        bytes[0] = (uint8_t)(0xe0 | code >> 12);
        bytes[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    bytes[0] = (uint8_t)(0xf0 | code >> 18);
    bytes[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    bytes[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    bytes[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

/* The four digits of \uXXXX. */
static bool
take_hex4(struct psi_scan *scan, uint32_t *code_p)
{
    uint32_t code = 0;

    if (scan->end - scan->at < 4) {
        return psi_scan_fail(scan, "escape is cut off");
    }
    for (int i = 0; i < 4; i++, scan->at++) {
        const uint8_t c = *scan->at;
        const uint8_t lower = c | 0x20;

        if (c >= '0' && c <= '9') {
            code = code << 4 | (uint32_t)(c - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            code = code << 4 | (uint32_t)(lower - 'a' + 10);
        } else {
            return psi_scan_fail(scan, "escape is not hexadecimal");
        }
    }
    *code_p = code;
    return true;
}

/* Behind \u: one code unit, or the two that make a character beyond 16 bits. */
static size_t
take_unicode(struct psi_scan *scan, uint8_t bytes[4])
{
    uint32_t code;
    uint32_t low;

    if (!take_hex4(scan, &code)) {
        return 0;
    }
    if (code >= 0xd800 && code <= 0xdbff) {
        if (scan->end - scan->at < 2 || scan->at[0] != '\\' || scan->at[1] != 'u') {
            return psi_scan_fail(scan, "half a surrogate pair");
        }
        scan->at += 2;
        if (!take_hex4(scan, &low)) {
            return 0;
        }
        if (low < 0xdc00 || low > 0xdfff) {
            return psi_scan_fail(scan, "half a surrogate pair");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code == 0 || (code >= 0xdc00 && code <= 0xdfff)) {
        return psi_scan_fail(scan, code == 0 ? "NUL in a string" : "half a surrogate pair");
    }
    return utf8_encode(code, bytes);
}

static size_t
take_escape(struct psi_scan *scan, uint8_t bytes[4])
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *known;

    scan->at++;
    if (scan->at == scan->end) {
        return psi_scan_fail(scan, "string without end");
    }
    if (*scan->at == 'u') {
        scan->at++;
        return take_unicode(scan, bytes);
    }
    known = *scan->at == '\0' ? NULL : strchr(from, *scan->at);
    if (known == NULL) {
        return psi_scan_fail(scan, "unknown escape");
    }
    scan->at++;
    bytes[0] = (uint8_t)to[known - from];
    return 1;
}

/* One character of a string, decoded; 0 with a failure. */
static size_t
take_character(struct psi_scan *scan, uint8_t bytes[4])
{
    size_t count = 1;

    if (scan->at == scan->end) {
        return psi_scan_fail(scan, "string without end");
    }
    if (*scan->at == '\\') {
        return take_escape(scan, bytes);
    }
    if (*scan->at < 0x20) {
        return psi_scan_fail(scan, "control character in a string");
    }
    if (*scan->at >= 0x80) {
        count = utf8_bytes(scan->at, scan->end);
        if (count == 0) {
            return psi_scan_fail(scan, "not UTF-8");
        }
    }
    memcpy(bytes, scan->at, count);
    scan->at += count;
    return count;
}

bool
psi_scan_string(struct psi_scan *scan, char *text, size_t size)
{
    size_t used = 0;

    psi_assert(text == NULL || size > 0);
    if (!psi_scan_take(scan, '"')) {
        return false;
    }
    while (scan->at == scan->end || *scan->at != '"') {
        uint8_t bytes[4];
        const size_t count = take_character(scan, bytes);

        if (count == 0) {
            return false;
        }
        if (text != NULL) {
            if (count >= size - used) {
                return psi_scan_fail(scan, "string is too long");
            }
            memcpy(text + used, bytes, count);
            used += count;
        }
    }
    scan->at++;
    if (text != NULL) {
        text[used] = '\0';
    }
    return true;
}

void
psi_scan_quote(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;

        if (c < 0x20) {
            fprintf(out, "\\u%04x", c);
        } else {
            if (c == '"' || c == '\\') {
                fputc('\\', out);
            }
            fputc(c, out);
        }
    }
    fputc('"', out);
}
