/*
 * safetensors.c - the head of a safetensors file, both ways.
 *
 * Heads may come from anywhere, so nothing in them is believed: every length is held against the
 * bytes that are there, and memory is at most a small multiple of the head.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/safetensors.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/scan.h"

enum { DATA_ALIGN = 64, DTYPES = 5, STEP_DIGITS_MAX = 20 };

static const char metadata_key[] = "__metadata__";

static const char *const dtype_names[DTYPES] = {
    [PSD_F32] = "F32", [PSD_F64] = "F64", [PSD_F16] = "F16", [PSD_BF16] = "BF16"};

/* --------------------------------------------------------------------------------- reading --- */

/* The values may be of any length: nothing in there matters to us. */
static void
skip_metadata(struct psi_scan *scan)
{
    psi_scan_take(scan, '{');
    for (bool first = true; psi_scan_more(scan, '}', &first);) {
        psi_scan_string(scan, NULL, 0);
        psi_scan_take(scan, ':');
        psi_scan_string(scan, NULL, 0);
    }
}

static void
read_dtype(struct psi_scan *scan, struct psi_tensor *tensor)
{
    char name[32];

    if (psi_scan_string(scan, name, sizeof(name))) {
        for (unsigned dtype = PSD_F32; dtype < DTYPES; dtype++) {
            if (strcmp(name, dtype_names[dtype]) == 0) {
                tensor->dtype = (psd_dtype)dtype;
            }
        }
    }
}

static void
read_shape(struct psi_scan *scan, struct psi_tensor *tensor)
{
    psi_scan_take(scan, '[');
    for (bool first = true; psi_scan_more(scan, ']', &first);) {
        uint64_t extent;

        if (psi_scan_number(scan, &extent)) {
            if (tensor->dims < PSD_DIMS_MAX) {
                tensor->shape[tensor->dims] = extent;
            }
            tensor->dims++;
        }
    }
}

static void
read_offsets(struct psi_scan *scan, struct psi_tensor *tensor)
{
    psi_scan_take(scan, '[');
    psi_scan_number(scan, &tensor->begin);
    psi_scan_take(scan, ',');
    psi_scan_number(scan, &tensor->end);
    psi_scan_take(scan, ']');
}

/* {"dtype":...,"shape":...,"data_offsets":...} in any order, each once. */
static void
read_tensor(struct psi_scan *scan, struct psi_tensor *tensor)
{
    static const struct {
        const char *key;
        void (*read)(struct psi_scan *scan, struct psi_tensor *tensor);
    } fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    enum { FIELDS = sizeof(fields) / sizeof(fields[0]), ALL = (1 << FIELDS) - 1 };
    unsigned seen = 0;

    psi_scan_take(scan, '{');
    for (bool first = true; psi_scan_more(scan, '}', &first);) {
        char key[32];
        unsigned field = 0;

        if (!psi_scan_string(scan, key, sizeof(key)) || !psi_scan_take(scan, ':')) {
            return;
        }
        while (field < FIELDS && strcmp(key, fields[field].key) != 0) {
            field++;
        }
        if (field == FIELDS || (seen & 1u << field) != 0) {
            psi_scan_fail(scan, field == FIELDS ? "unknown field" : "field given twice");
            return;
        }
        seen |= 1u << field;
        fields[field].read(scan, tensor);
    }
    if (scan->status == PSD_OK && seen != ALL) {
        psi_scan_fail(scan, "tensor without dtype, shape or data_offsets");
    }
}

/* A list that grows, and the names packed into one block as long as the header. */
struct gathered {
    struct psi_tensors tensors;
    size_t capacity;
    size_t names_size;
    size_t names_used;
};

static struct psi_tensor *
next_tensor(struct gathered *gathered)
{
    struct psi_tensors *tensors = &gathered->tensors;

    if (tensors->count == gathered->capacity) {
        const size_t capacity = gathered->capacity * 2 + 16;
        struct psi_tensor *list = reallocarray(tensors->list, capacity, sizeof(*list));

        if (list == NULL) {
            return NULL;
        }
        tensors->list = list;
        gathered->capacity = capacity;
    }
    memset(&tensors->list[tensors->count], 0, sizeof(tensors->list[0]));
    return &tensors->list[tensors->count++];
}

static void
read_header(struct psi_scan *scan, struct gathered *gathered)
{
    bool metadata_seen = false;

    psi_scan_take(scan, '{');
    for (bool first = true; psi_scan_more(scan, '}', &first);) {
        char *name = gathered->tensors.names + gathered->names_used;
        struct psi_tensor *tensor;

        if (!psi_scan_string(scan, name, gathered->names_size - gathered->names_used) ||
            !psi_scan_take(scan, ':')) {
            break;
        }
        if (strcmp(name, metadata_key) == 0) {
            if (metadata_seen) {
                psi_scan_fail(scan, "__metadata__ given twice");
            }
            metadata_seen = true;
            skip_metadata(scan);
            continue;
        }
        tensor = next_tensor(gathered);
        if (tensor == NULL) {
            psi_scan_no_memory(scan);
            return;
        }
        tensor->name = name;
        gathered->names_used += strlen(name) + 1;
        read_tensor(scan, tensor);
    }
    psi_scan_end(scan);
}

psd_status
psi_safetensors_head_bytes(const char *file, const uint8_t length[PSI_SAFETENSORS_LENGTH_BYTES],
                           uint64_t file_bytes, size_t *head_bytes_p, struct psd_error *err)
{
    uint64_t bytes;

    memcpy(&bytes, length, sizeof(bytes));
    bytes = le64toh(bytes);
    if (file_bytes < PSI_SAFETENSORS_LENGTH_BYTES || bytes > PSI_SAFETENSORS_HEADER_MAX ||
        bytes > file_bytes - PSI_SAFETENSORS_LENGTH_BYTES) {
        return psi_fail(
            err, PSD_ERR_CORRUPT, "%s: header of %llu bytes in a file of %llu, at most %d", file,
            (unsigned long long)bytes, (unsigned long long)file_bytes, PSI_SAFETENSORS_HEADER_MAX);
    }
    *head_bytes_p = PSI_SAFETENSORS_LENGTH_BYTES + (size_t)bytes;
    return PSD_OK;
}

psd_status
psi_safetensors_parse(const char *file, const uint8_t *head, size_t head_bytes, uint64_t file_bytes,
                      struct psi_tensors *tensors_p, struct psd_error *err)
{
    struct gathered gathered = {.names_size = head_bytes};
    struct psi_tensors *tensors = &gathered.tensors;
    struct psi_scan scan;
    psd_status status;

    psi_assert(head_bytes >= PSI_SAFETENSORS_LENGTH_BYTES && head_bytes <= file_bytes);
    psi_scan_init(&scan, file, head + PSI_SAFETENSORS_LENGTH_BYTES,
                  head_bytes - PSI_SAFETENSORS_LENGTH_BYTES, err);
    tensors->names = malloc(gathered.names_size);
    tensors->data_begin = head_bytes;
    if (tensors->names == NULL) {
        psi_scan_no_memory(&scan);
    } else {
        read_header(&scan, &gathered);
    }
    status = scan.status;
    if (status == PSD_OK) {
        status = psi_tensors_check(tensors, file, file_bytes - head_bytes, err);
    }
    if (status != PSD_OK) {
        psi_tensors_fini(tensors);
        return status;
    }
    *tensors_p = *tensors;
    return PSD_OK;
}

/* --------------------------------------------------------------------------------- writing --- */

static psd_status
check_reserved(const struct psi_tensors *tensors, struct psd_error *err)
{
    for (size_t i = 0; i < tensors->count; i++) {
        if (strcmp(tensors->list[i].name, metadata_key) == 0) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "save table %s: the name has another meaning in safetensors files",
                            metadata_key);
        }
    }
    return PSD_OK;
}

static void
put_tensor(FILE *out, const struct psi_tensor *tensor)
{
    fputc(',', out);
    psi_scan_quote(out, tensor->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_names[tensor->dtype]);
    for (uint32_t dim = 0; dim < tensor->dims; dim++) {
        fprintf(out, "%s%llu", dim > 0 ? "," : "", (unsigned long long)tensor->shape[dim]);
    }
    fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)tensor->begin,
            (unsigned long long)tensor->end);
}

/* With room for the length in front. As long as that of any other step: where the data begins is
 * known before the step is. */
static void
put_header(FILE *out, const struct psi_tensors *tensors, uint64_t step)
{
    const int digits = snprintf(NULL, 0, "%llu", (unsigned long long)step);

    fprintf(out, "%*s{\"%s\":{\"format\":\"poseidon\",\"step\":\"%llu\"}",
            PSI_SAFETENSORS_LENGTH_BYTES, "", metadata_key, (unsigned long long)step);
    for (size_t i = 0; i < tensors->count; i++) {
        put_tensor(out, &tensors->list[i]);
    }
    fprintf(out, "}%*s", STEP_DIGITS_MAX - digits, "");
}

psd_status
psi_safetensors_layout(struct psi_tensors *tensors, uint64_t step, uint8_t **head_p,
                       size_t *head_bytes_p, struct psd_error *err)
{
    const psd_status status = check_reserved(tensors, err);
    char *head = NULL;
    size_t bytes = 0;
    uint64_t length;
    bool failed;
    FILE *out;

    if (status != PSD_OK) {
        return status;
    }
    psi_tensors_place(tensors);
    out = open_memstream(&head, &bytes);
    failed = out == NULL;
    if (out != NULL) {
        put_header(out, tensors, step);
        fflush(out); /* sets bytes */
        fprintf(out, "%*s", (int)((DATA_ALIGN - bytes % DATA_ALIGN) % DATA_ALIGN), "");
        failed = ferror(out) != 0;
        failed = fclose(out) != 0 || failed;
    }
    if (failed || bytes > PSI_SAFETENSORS_HEADER_MAX) {
        free(head);
        return psi_fail(err, failed ? PSD_ERR_NO_MEMORY : PSD_ERR_TOO_BIG,
                        "save: a file header of %zu tensors does not fit", tensors->count);
    }
    length = htole64(bytes - PSI_SAFETENSORS_LENGTH_BYTES);
    memcpy(head, &length, sizeof(length));
    tensors->data_begin = bytes;
    *head_p = (uint8_t *)head;
    *head_bytes_p = bytes;
    return PSD_OK;
}
