/*
 * safetensors.h - the head of a safetensors file, both ways, and the JSON it is made of. Pure.
 *
 * A file is: u64 header length (little-endian), a JSON header, the data. The header names each
 * tensor with its type, shape and place in the data. Heads from elsewhere are read, too: keys in
 * any order, white space, escapes, types we do not use. What is wrong is PSD_ERR_CORRUPT, naming
 * the file.
 */
#ifndef PSI_CLIENT_SAFETENSORS_H
#define PSI_CLIENT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <psd/psd.h>

/* Thread: owned by its caller. */
struct psi_tensor {
    const char *name; /* reading: inside psi_tensors.names; laying out: the caller's */
    psd_dtype dtype;  /* 0: one we have no tables of */
    uint32_t dims;    /* may exceed PSD_DIMS_MAX in files from elsewhere */
    uint64_t shape[PSD_DIMS_MAX];
    uint64_t begin; /* in the data */
    uint64_t end;
    size_t source; /* laying out: the caller's number for it; not in the file */
};

/* The tensors of one file. Thread: owned by its caller. */
struct psi_tensors {
    struct psi_tensor *list; /* after parsing: by name; after laying out: by place */
    size_t count;
    char *names;
    uint64_t data_begin; /* in the file; a multiple of 64 in our own files */
};

enum { PSI_SAFETENSORS_LENGTH_BYTES = 8, PSI_SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000 };

/* Bytes before the data, from the first eight of the file. */
psd_status psi_safetensors_head_bytes(const char *file,
                                      const uint8_t length[PSI_SAFETENSORS_LENGTH_BYTES],
                                      uint64_t file_bytes, size_t *head_bytes_p,
                                      struct psd_error *err);

/* Reads a head: that many bytes from the start of a file. The data must be covered exactly once. */
psd_status psi_safetensors_parse(const char *file, const uint8_t *head, size_t head_bytes,
                                 uint64_t file_bytes, struct psi_tensors *tensors_p,
                                 struct psd_error *err);
void psi_tensors_fini(struct psi_tensors *tensors);

/* By name, in parsed ones; NULL: not there. */
const struct psi_tensor *psi_tensors_find(const struct psi_tensors *tensors, const char *name);

/*
 * Gives every tensor of the list its place and makes the head, a pure function of tensors and step.
 * Wide elements come first, then names rise: so each tensor is aligned to its elements without
 * holes, which the format forbids. The caller frees *head_p.
 */
psd_status psi_safetensors_layout(struct psi_tensors *tensors, uint64_t step, uint8_t **head_p,
                                  size_t *head_bytes_p, struct psd_error *err);

/* Bytes of data of laid out tensors. */
uint64_t psi_tensors_bytes(const struct psi_tensors *tensors);

/* ------------------------------------------------------------------------------------ JSON --- */

/*
 * A place in a JSON text. The first problem is written to err and sticks: every call after it
 * returns false and changes nothing, so that a reader may check once, at its end.
 * Thread: owned by its caller.
 */
struct psi_json {
    const char *file; /* named in errors; borrowed */
    const uint8_t *begin;
    const uint8_t *at;
    const uint8_t *end;
    struct psd_error *err;
    psd_status status; /* PSD_OK, PSD_ERR_CORRUPT or PSD_ERR_NO_MEMORY */
};

void psi_json_init(struct psi_json *json, const char *file, const void *text, size_t bytes,
                   struct psd_error *err);

/* Records "FILE: byte N: PROBLEM" unless there is one already; returns false. */
bool psi_json_fail(struct psi_json *json, const char *problem);

/* The same for a reader that has no memory for what it read. */
bool psi_json_no_memory(struct psi_json *json);

bool psi_json_take(struct psi_json *json, char expected); /* one of []{}:, */

/* Inside [] or {}: is there another item? Takes the comma or the closing character. */
bool psi_json_more(struct psi_json *json, char close, bool *first_p);

/* UTF-8 without NUL, decoded, ended by one. text NULL: of any length, only checked. */
bool psi_json_string(struct psi_json *json, char *text, size_t size);

bool psi_json_number(struct psi_json *json, uint64_t *value_p); /* whole, 0..2^64-1 */
bool psi_json_end(struct psi_json *json);                       /* only white space is left */

/* Writes text as a JSON string. */
void psi_json_put_string(FILE *out, const char *text);

#endif
