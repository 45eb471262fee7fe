/*
 * pack.c - one field after the other, into a body and out of one.
 *
 * Invariants
 *   - pack: used <= capacity, and nothing is written behind an overflow;
 *   - unpack: at + left is always the end of the body; nothing is read once status is an error.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "wire/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "wire/bytes.h"

void
psi_pack_init(struct psi_pack *pack, void *bytes, size_t capacity)
{
    *pack = (struct psi_pack){.bytes = bytes, .capacity = capacity};
}

/* Room for `bytes` more; NULL when there is none. */
static uint8_t *
reserve(struct psi_pack *pack, size_t bytes)
{
    uint8_t *at;

    if (pack->overflow || bytes > pack->capacity - pack->used) {
        pack->overflow = true;
        return NULL;
    }
    at = pack->bytes + pack->used;
    pack->used += bytes;
    return at;
}

void
psi_pack_u8(struct psi_pack *pack, uint8_t value)
{
    uint8_t *at = reserve(pack, 1);

    if (at != NULL) {
        *at = value;
    }
}

void
psi_pack_bool(struct psi_pack *pack, bool value)
{
    psi_pack_u8(pack, value ? 1 : 0);
}

void
psi_pack_u16(struct psi_pack *pack, uint16_t value)
{
    uint8_t *at = reserve(pack, 2);

    if (at != NULL) {
        psi_store_u16(at, value);
    }
}

void
psi_pack_u32(struct psi_pack *pack, uint32_t value)
{
    uint8_t *at = reserve(pack, 4);

    if (at != NULL) {
        psi_store_u32(at, value);
    }
}

void
psi_pack_u64(struct psi_pack *pack, uint64_t value)
{
    uint8_t *at = reserve(pack, 8);

    if (at != NULL) {
        psi_store_u64(at, value);
    }
}

void
psi_pack_f32(struct psi_pack *pack, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    psi_pack_u32(pack, bits);
}

void
psi_pack_f64(struct psi_pack *pack, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    psi_pack_u64(pack, bits);
}

void
psi_pack_string(struct psi_pack *pack, const char *text, size_t capacity)
{
    const size_t length = strnlen(text, capacity);
    uint8_t *at;

    psi_assert(length < capacity); /* our own string: it ends inside its array */
    psi_assert(length <= UINT16_MAX);
    psi_pack_u16(pack, (uint16_t)length);
    at = reserve(pack, length);
    if (at != NULL) {
        memcpy(at, text, length);
    }
}

void
psi_unpack_init(struct psi_unpack *unpack, const char *message, const uint8_t *bytes, size_t size,
                struct psd_error *err)
{
    *unpack = (struct psi_unpack){
        .at = bytes, .left = size, .message = message, .status = PSD_OK, .err = err};
}

void
psi_unpack_refuse(struct psi_unpack *unpack, const char *field, const char *format, ...)
{
    char reason[sizeof(unpack->err->text)]; /* quotes names, and says what is wrong behind them */
    va_list args;

    if (unpack->status != PSD_OK) {
        return;
    }
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    unpack->status =
        psi_fail(unpack->err, PSD_ERR_PROTOCOL, "%s: %s: %s", unpack->message, field, reason);
}

/* The next `bytes` of the body; NULL when it ends before, or was refused earlier. */
static const uint8_t *
take(struct psi_unpack *unpack, const char *field, size_t bytes)
{
    const uint8_t *at = unpack->at;

    if (unpack->status != PSD_OK) {
        return NULL;
    }
    if (bytes > unpack->left) {
        psi_unpack_refuse(unpack, field, "%zu bytes left, expected %zu", unpack->left, bytes);
        return NULL;
    }
    unpack->at += bytes;
    unpack->left -= bytes;
    return at;
}

/* value if it is within the range; else 0, and the body is refused. */
static uint32_t
within(struct psi_unpack *unpack, const char *field, uint32_t value, uint32_t min, uint32_t max)
{
    if (value < min || value > max) {
        psi_unpack_refuse(unpack, field, "%" PRIu32 ", expected %" PRIu32 "..%" PRIu32, value, min,
                          max);
        return 0;
    }
    return value;
}

uint8_t
psi_unpack_u8(struct psi_unpack *unpack, const char *field, uint8_t min, uint8_t max)
{
    const uint8_t *at = take(unpack, field, 1);

    return at == NULL ? 0 : (uint8_t)within(unpack, field, *at, min, max);
}

bool
psi_unpack_bool(struct psi_unpack *unpack, const char *field)
{
    return psi_unpack_u8(unpack, field, 0, 1) == 1;
}

uint16_t
psi_unpack_u16(struct psi_unpack *unpack, const char *field, uint16_t min, uint16_t max)
{
    const uint8_t *at = take(unpack, field, 2);

    return at == NULL ? 0 : (uint16_t)within(unpack, field, psi_load_u16(at), min, max);
}

uint32_t
psi_unpack_u32(struct psi_unpack *unpack, const char *field, uint32_t min, uint32_t max)
{
    const uint8_t *at = take(unpack, field, 4);

    return at == NULL ? 0 : within(unpack, field, psi_load_u32(at), min, max);
}

int32_t
psi_unpack_i32(struct psi_unpack *unpack, const char *field, int32_t min, int32_t max)
{
    const uint8_t *at = take(unpack, field, 4);
    int32_t value;

    if (at == NULL) {
        return 0;
    }
    value = (int32_t)psi_load_u32(at);
    if (value < min || value > max) {
        psi_unpack_refuse(unpack, field, "%" PRId32 ", expected %" PRId32 "..%" PRId32, value, min,
                          max);
        return 0;
    }
    return value;
}

uint64_t
psi_unpack_u64(struct psi_unpack *unpack, const char *field)
{
    const uint8_t *at = take(unpack, field, 8);

    return at == NULL ? 0 : psi_load_u64(at);
}

float
psi_unpack_f32(struct psi_unpack *unpack, const char *field)
{
    const uint32_t bits = psi_unpack_u32(unpack, field, 0, UINT32_MAX);
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

double
psi_unpack_f64(struct psi_unpack *unpack, const char *field)
{
    const uint64_t bits = psi_unpack_u64(unpack, field);
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

void
psi_unpack_string(struct psi_unpack *unpack, const char *field, char *text, size_t capacity)
{
    const uint16_t length = psi_unpack_u16(unpack, field, 0, (uint16_t)(capacity - 1));
    const uint8_t *at = take(unpack, field, length);

    memset(text, 0, capacity);
    if (at == NULL) {
        return;
    }
    if (memchr(at, 0, length) != NULL) {
        psi_unpack_refuse(unpack, field, "a NUL inside %u bytes of text", length);
        return;
    }
    memcpy(text, at, length);
}

void
psi_unpack_skip(struct psi_unpack *unpack, const char *field, size_t bytes)
{
    take(unpack, field, bytes);
}

void
psi_pack_tail(struct psi_pack *pack, bool value)
{
    psi_pack_bool(pack, value); /* also if it is false: what is appended next stands behind it */
}

bool
psi_unpack_tail(struct psi_unpack *unpack, const char *field)
{
    return unpack->left > 0 && psi_unpack_bool(unpack, field);
}
