/*
 * pack.h - one field after the other, into a body (psi_pack) and out of one (psi_unpack).
 *
 * Both remember the first thing that went wrong and do nothing from then on, so that a message is a
 * plain list of fields and one look at the end. Reading names each field and, for small numbers,
 * its range: what is refused is refused in the words "HELLO: lane: 70, expected 0..63".
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_WIRE_PACK_H
#define PSI_WIRE_PACK_H

#include "wire/message.h"

void psi_pack_u8(struct psi_pack *pack, uint8_t value);
void psi_pack_bool(struct psi_pack *pack, bool value);
void psi_pack_u16(struct psi_pack *pack, uint16_t value);
void psi_pack_u32(struct psi_pack *pack, uint32_t value);
void psi_pack_u64(struct psi_pack *pack, uint64_t value);
void psi_pack_f32(struct psi_pack *pack, float value);
void psi_pack_f64(struct psi_pack *pack, double value);

/* u16 length, bytes, no NUL. `capacity` is that of the array text stands in. */
void psi_pack_string(struct psi_pack *pack, const char *text, size_t capacity);

/* Thread: owned by the function that reads. */
struct psi_unpack {
    const uint8_t *at; /* borrowed */
    size_t left;
    const char *message; /* "HELLO": for texts */
    psd_status status;   /* PSD_OK, or that of the first field refused */
    struct psd_error *err;
};

void psi_unpack_init(struct psi_unpack *unpack, const char *message, const uint8_t *bytes,
                     size_t size, struct psd_error *err);

/* Marks the body as refused, as PSD_ERR_PROTOCOL: "MESSAGE: field: reason". The first one wins. */
void psi_unpack_refuse(struct psi_unpack *unpack, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Each gives 0 once anything was refused. */
uint8_t psi_unpack_u8(struct psi_unpack *unpack, const char *field, uint8_t min, uint8_t max);
bool psi_unpack_bool(struct psi_unpack *unpack, const char *field);
uint16_t psi_unpack_u16(struct psi_unpack *unpack, const char *field, uint16_t min, uint16_t max);
uint32_t psi_unpack_u32(struct psi_unpack *unpack, const char *field, uint32_t min, uint32_t max);
int32_t psi_unpack_i32(struct psi_unpack *unpack, const char *field, int32_t min, int32_t max);
uint64_t psi_unpack_u64(struct psi_unpack *unpack, const char *field);
float psi_unpack_f32(struct psi_unpack *unpack, const char *field);
double psi_unpack_f64(struct psi_unpack *unpack, const char *field);

/* Fills all of text[capacity], with NULs behind the string. Refuses what does not fit with its NUL
 * and a NUL inside. */
void psi_unpack_string(struct psi_unpack *unpack, const char *field, char *text, size_t capacity);

/* A field that was appended to a message within a version. A body that ends before it reads as
 * false. */
void psi_pack_tail(struct psi_pack *pack, bool value);
bool psi_unpack_tail(struct psi_unpack *unpack, const char *field);

/* Steps over what follows without looking at it. */
void psi_unpack_skip(struct psi_unpack *unpack, const char *field, size_t bytes);

#endif
