/*
 * safetensors.c - the head of a safetensors file, both ways, and the JSON it is made of.
 *
 * Heads may come from anywhere, so nothing in them is believed: every length is held against the
 * bytes that are there, nesting is as deep as the format and no deeper, and memory is at most a
 * small multiple of the head.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "table/spec.h"
#include "wire/bytes.h"

enum { DATA_ALIGN = 64, DTYPES = 5 };

static const char metadata_key[] = "__metadata__";

static const char *const dtype_names[DTYPES] = {
    [PSD_F32] = "F32", [PSD_F64] = "F64", [PSD_F16] = "F16", [PSD_BF16] = "BF16"};

/* ------------------------------------------------------------------------------------ JSON --- */

void
psi_json_init(struct psi_json *json, const char *file, const void *text, size_t bytes,
              struct psd_error *err)
{
    json->file = file;
    json->begin = text;
    json->at = json->begin;
    json->end = json->begin + bytes;
    json->err = err;
    json->status = PSD_OK;
}

bool
psi_json_fail(struct psi_json *json, const char *problem)
{
    if (json->status == PSD_OK) {
        json->status = psi_fail(json->err, PSD_ERR_CORRUPT, "%s: byte %zu: %s", json->file,
                                (size_t)(json->at - json->begin), problem);
    }
    return false;
}

bool
psi_json_no_memory(struct psi_json *json)
{
    if (json->status == PSD_OK) {
        json->status =
            psi_fail(json->err, PSD_ERR_NO_MEMORY, "%s: no memory for what it holds", json->file);
    }
    return false;
}

/* The next byte that is not white space, -1 when there is none or something failed before. */
static int
peek(struct psi_json *json)
{
    if (json->status != PSD_OK) {
        return -1;
    }
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\n' || *json->at == '\t' || *json->at == '\r')) {
        json->at++;
    }
    return json->at < json->end ? *json->at : -1;
}

bool
psi_json_take(struct psi_json *json, char expected)
{
    const char problem[] = {expected, ' ', 'e', 'x', 'p', 'e', 'c', 't', 'e', 'd', '\0'};

    if (peek(json) != expected) {
        return psi_json_fail(json, problem);
    }
    json->at++;
    return true;
}

bool
psi_json_more(struct psi_json *json, char close, bool *first_p)
{
    const bool first = *first_p;

    *first_p = false;
    if (peek(json) == close) {
        json->at++;
        return false;
    }
    return first ? json->status == PSD_OK : psi_json_take(json, ',');
}

bool
psi_json_number(struct psi_json *json, uint64_t *value_p)
{
    const int begin = peek(json);
    uint64_t value = 0;

    if (begin < '0' || begin > '9') {
        return psi_json_fail(json, "whole number expected");
    }
    if (begin == '0' && json->end - json->at > 1 && json->at[1] >= '0' && json->at[1] <= '9') {
        return psi_json_fail(json, "number with leading zero");
    }
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
        const uint64_t digit = (uint64_t)(*json->at - '0');

        if (value > (UINT64_MAX - digit) / 10) {
            return psi_json_fail(json, "number beyond 64 bits");
        }
        value = value * 10 + digit;
    }
    *value_p = value;
    return true;
}

bool
psi_json_end(struct psi_json *json)
{
    if (peek(json) >= 0) {
        return psi_json_fail(json, "text after the end");
    }
    return json->status == PSD_OK;
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
take_hex4(struct psi_json *json, uint32_t *code_p)
{
    uint32_t code = 0;

    if (json->end - json->at < 4) {
        return psi_json_fail(json, "escape is cut off");
    }
    for (int i = 0; i < 4; i++, json->at++) {
        const uint8_t c = *json->at;
        const uint8_t lower = c | 0x20;

        if (c >= '0' && c <= '9') {
            code = code << 4 | (uint32_t)(c - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            code = code << 4 | (uint32_t)(lower - 'a' + 10);
        } else {
            return psi_json_fail(json, "escape is not hexadecimal");
        }
    }
    *code_p = code;
    return true;
}

/* Behind \u: one code unit, or the two that make a character beyond 16 bits. */
static size_t
take_unicode(struct psi_json *json, uint8_t bytes[4])
{
    uint32_t code;
    uint32_t low;

    if (!take_hex4(json, &code)) {
        return 0;
    }
    if (code >= 0xd800 && code <= 0xdbff) {
        if (json->end - json->at < 2 || json->at[0] != '\\' || json->at[1] != 'u') {
            return psi_json_fail(json, "half a surrogate pair");
        }
        json->at += 2;
        if (!take_hex4(json, &low)) {
            return 0;
        }
        if (low < 0xdc00 || low > 0xdfff) {
            return psi_json_fail(json, "half a surrogate pair");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code == 0 || (code >= 0xdc00 && code <= 0xdfff)) {
        return psi_json_fail(json, code == 0 ? "NUL in a string" : "half a surrogate pair");
    }
    return utf8_encode(code, bytes);
}

static size_t
take_escape(struct psi_json *json, uint8_t bytes[4])
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *known;

    json->at++;
    if (json->at == json->end) {
        return psi_json_fail(json, "string without end");
    }
    if (*json->at == 'u') {
        json->at++;
        return take_unicode(json, bytes);
    }
    known = *json->at == '\0' ? NULL : strchr(from, *json->at);
    if (known == NULL) {
        return psi_json_fail(json, "unknown escape");
    }
    json->at++;
    bytes[0] = (uint8_t)to[known - from];
    return 1;
}

/* One character of a string, decoded; 0 with a failure. */
static size_t
take_character(struct psi_json *json, uint8_t bytes[4])
{
    size_t count = 1;

    if (json->at == json->end) {
        return psi_json_fail(json, "string without end");
    }
    if (*json->at == '\\') {
        return take_escape(json, bytes);
    }
    if (*json->at < 0x20) {
        return psi_json_fail(json, "control character in a string");
    }
    if (*json->at >= 0x80) {
        count = utf8_bytes(json->at, json->end);
        if (count == 0) {
            return psi_json_fail(json, "not UTF-8");
        }
    }
    memcpy(bytes, json->at, count);
    json->at += count;
    return count;
}

bool
psi_json_string(struct psi_json *json, char *text, size_t size)
{
    size_t used = 0;

    psi_assert(text == NULL || size > 0);
    if (!psi_json_take(json, '"')) {
        return false;
    }
    while (json->at == json->end || *json->at != '"') {
        uint8_t bytes[4];
        const size_t count = take_character(json, bytes);

        if (count == 0) {
            return false;
        }
        if (text != NULL) {
            if (count >= size - used) {
                return psi_json_fail(json, "string is too long");
            }
            memcpy(text + used, bytes, count);
            used += count;
        }
    }
    json->at++;
    if (text != NULL) {
        text[used] = '\0';
    }
    return true;
}

void
psi_json_put_string(FILE *out, const char *text)
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

/* --------------------------------------------------------------------------------- reading --- */

/* The values may be of any length: nothing in there matters to us. */
static void
skip_metadata(struct psi_json *json)
{
    psi_json_take(json, '{');
    for (bool first = true; psi_json_more(json, '}', &first);) {
        psi_json_string(json, NULL, 0);
        psi_json_take(json, ':');
        psi_json_string(json, NULL, 0);
    }
}

static void
read_dtype(struct psi_json *json, struct psi_tensor *tensor)
{
    char name[32];

    if (psi_json_string(json, name, sizeof(name))) {
        for (unsigned dtype = PSD_F32; dtype < DTYPES; dtype++) {
            if (strcmp(name, dtype_names[dtype]) == 0) {
                tensor->dtype = (psd_dtype)dtype;
            }
        }
    }
}

static void
read_shape(struct psi_json *json, struct psi_tensor *tensor)
{
    psi_json_take(json, '[');
    for (bool first = true; psi_json_more(json, ']', &first);) {
        uint64_t extent;

        if (psi_json_number(json, &extent)) {
            if (tensor->dims < PSD_DIMS_MAX) {
                tensor->shape[tensor->dims] = extent;
            }
            tensor->dims++;
        }
    }
}

static void
read_offsets(struct psi_json *json, struct psi_tensor *tensor)
{
    psi_json_take(json, '[');
    psi_json_number(json, &tensor->begin);
    psi_json_take(json, ',');
    psi_json_number(json, &tensor->end);
    psi_json_take(json, ']');
}

/* {"dtype":...,"shape":...,"data_offsets":...} in any order, each once. */
static void
read_tensor(struct psi_json *json, struct psi_tensor *tensor)
{
    static const struct {
        const char *key;
        void (*read)(struct psi_json *json, struct psi_tensor *tensor);
    } fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    enum { FIELDS = sizeof(fields) / sizeof(fields[0]), ALL = (1 << FIELDS) - 1 };
    unsigned seen = 0;

    psi_json_take(json, '{');
    for (bool first = true; psi_json_more(json, '}', &first);) {
        char key[32];
        unsigned field = 0;

        if (!psi_json_string(json, key, sizeof(key)) || !psi_json_take(json, ':')) {
            return;
        }
        while (field < FIELDS && strcmp(key, fields[field].key) != 0) {
            field++;
        }
        if (field == FIELDS || (seen & 1u << field) != 0) {
            psi_json_fail(json, field == FIELDS ? "unknown field" : "field given twice");
            return;
        }
        seen |= 1u << field;
        fields[field].read(json, tensor);
    }
    if (json->status == PSD_OK && seen != ALL) {
        psi_json_fail(json, "tensor without dtype, shape or data_offsets");
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
read_header(struct psi_json *json, struct gathered *gathered)
{
    bool metadata_seen = false;

    psi_json_take(json, '{');
    for (bool first = true; psi_json_more(json, '}', &first);) {
        char *name = gathered->tensors.names + gathered->names_used;
        struct psi_tensor *tensor;

        if (!psi_json_string(json, name, gathered->names_size - gathered->names_used) ||
            !psi_json_take(json, ':')) {
            break;
        }
        if (strcmp(name, metadata_key) == 0) {
            if (metadata_seen) {
                psi_json_fail(json, "__metadata__ given twice");
            }
            metadata_seen = true;
            skip_metadata(json);
            continue;
        }
        tensor = next_tensor(gathered);
        if (tensor == NULL) {
            psi_json_no_memory(json);
            return;
        }
        tensor->name = name;
        gathered->names_used += strlen(name) + 1;
        read_tensor(json, tensor);
    }
    psi_json_end(json);
}

static int
by_place(const void *a, const void *b)
{
    const struct psi_tensor *left = a;
    const struct psi_tensor *right = b;

    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    return (left->end > right->end) - (left->end < right->end);
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct psi_tensor *)a)->name, ((const struct psi_tensor *)b)->name);
}

/* Does the shape, in elements of the type, fill exactly the place? */
static psd_status
check_size(const char *file, const struct psi_tensor *tensor, struct psd_error *err)
{
    uint64_t bytes = tensor->dtype == 0 ? 0 : psi_dtype_bytes(tensor->dtype);

    for (uint32_t i = 0; i < tensor->dims && i < PSD_DIMS_MAX; i++) {
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes)) {
            return psi_fail(err, PSD_ERR_CORRUPT, "%s: tensor %s: shape overflows", file,
                            tensor->name);
        }
    }
    if (tensor->dtype != 0 && tensor->dims <= PSD_DIMS_MAX &&
        bytes != tensor->end - tensor->begin) {
        return psi_fail(err, PSD_ERR_CORRUPT,
                        "%s: tensor %s: %llu bytes by its shape, %llu by its data_offsets", file,
                        tensor->name, (unsigned long long)bytes,
                        (unsigned long long)(tensor->end - tensor->begin));
    }
    return PSD_OK;
}

/* The data is covered once, without overlap or hole; leaves the list sorted by place. */
static psd_status
check_places(const char *file, struct psi_tensors *tensors, uint64_t data_bytes,
             struct psd_error *err)
{
    uint64_t covered = 0;

    if (tensors->count > 1) {
        qsort(tensors->list, tensors->count, sizeof(tensors->list[0]), by_place);
    }
    for (size_t i = 0; i < tensors->count; i++) {
        const struct psi_tensor *tensor = &tensors->list[i];
        psd_status status;

        if (tensor->begin != covered || tensor->end < tensor->begin || tensor->end > data_bytes) {
            return psi_fail(err, PSD_ERR_CORRUPT,
                            "%s: tensor %s: data_offsets %llu to %llu, expected from %llu within "
                            "%llu bytes",
                            file, tensor->name, (unsigned long long)tensor->begin,
                            (unsigned long long)tensor->end, (unsigned long long)covered,
                            (unsigned long long)data_bytes);
        }
        status = check_size(file, tensor, err);
        if (status != PSD_OK) {
            return status;
        }
        covered = tensor->end;
    }
    if (covered != data_bytes) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s: %llu bytes of data belong to no tensor", file,
                        (unsigned long long)(data_bytes - covered));
    }
    return PSD_OK;
}

/* Leaves the list sorted by name, as psi_tensors_find() wants it. */
static psd_status
check_names(const char *file, struct psi_tensors *tensors, struct psd_error *err)
{
    if (tensors->count > 1) {
        qsort(tensors->list, tensors->count, sizeof(tensors->list[0]), by_name);
    }
    for (size_t i = 1; i < tensors->count; i++) {
        if (strcmp(tensors->list[i - 1].name, tensors->list[i].name) == 0) {
            return psi_fail(err, PSD_ERR_CORRUPT, "%s: tensor %s is there twice", file,
                            tensors->list[i].name);
        }
    }
    return PSD_OK;
}

psd_status
psi_safetensors_head_bytes(const char *file, const uint8_t length[PSI_SAFETENSORS_LENGTH_BYTES],
                           uint64_t file_bytes, size_t *head_bytes_p, struct psd_error *err)
{
    const uint64_t bytes = psi_load_u64(length);

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
    struct psi_json json;
    psd_status status;

    psi_assert(head_bytes >= PSI_SAFETENSORS_LENGTH_BYTES && head_bytes <= file_bytes);
    psi_json_init(&json, file, head + PSI_SAFETENSORS_LENGTH_BYTES,
                  head_bytes - PSI_SAFETENSORS_LENGTH_BYTES, err);
    tensors->names = malloc(gathered.names_size);
    tensors->data_begin = head_bytes;
    if (tensors->names == NULL) {
        psi_json_no_memory(&json);
    } else {
        read_header(&json, &gathered);
    }
    status = json.status;
    if (status == PSD_OK) {
        status = check_places(file, tensors, file_bytes - head_bytes, err);
    }
    if (status == PSD_OK) {
        status = check_names(file, tensors, err);
    }
    if (status != PSD_OK) {
        psi_tensors_fini(tensors);
        return status;
    }
    *tensors_p = *tensors;
    return PSD_OK;
}

void
psi_tensors_fini(struct psi_tensors *tensors)
{
    free(tensors->list);
    free(tensors->names);
    memset(tensors, 0, sizeof(*tensors));
}

const struct psi_tensor *
psi_tensors_find(const struct psi_tensors *tensors, const char *name)
{
    const struct psi_tensor wanted = {.name = name};

    return tensors->count == 0
               ? NULL
               : bsearch(&wanted, tensors->list, tensors->count, sizeof(tensors->list[0]), by_name);
}

/* --------------------------------------------------------------------------------- writing --- */

static int
by_layout(const void *a, const void *b)
{
    const size_t left = psi_dtype_bytes(((const struct psi_tensor *)a)->dtype);
    const size_t right = psi_dtype_bytes(((const struct psi_tensor *)b)->dtype);

    return left != right ? (left < right) - (left > right) : by_name(a, b);
}

static psd_status
place_tensors(struct psi_tensors *tensors, struct psd_error *err)
{
    uint64_t used = 0;

    if (tensors->count > 1) {
        qsort(tensors->list, tensors->count, sizeof(tensors->list[0]), by_layout);
    }
    for (size_t i = 0; i < tensors->count; i++) {
        struct psi_tensor *tensor = &tensors->list[i];

        if (strcmp(tensor->name, metadata_key) == 0) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "save table %s: the name has another meaning in safetensors files",
                            tensor->name);
        }
        tensor->begin = used;
        used += psi_dtype_bytes(tensor->dtype);
        for (uint32_t dim = 0; dim < tensor->dims; dim++) {
            const uint64_t bytes = used - tensor->begin;

            used = tensor->begin + bytes * tensor->shape[dim];
        }
        tensor->end = used;
    }
    return PSD_OK;
}

static void
put_tensor(FILE *out, const struct psi_tensor *tensor)
{
    fputc(',', out);
    psi_json_put_string(out, tensor->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_names[tensor->dtype]);
    for (uint32_t dim = 0; dim < tensor->dims; dim++) {
        fprintf(out, "%s%llu", dim > 0 ? "," : "", (unsigned long long)tensor->shape[dim]);
    }
    fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)tensor->begin,
            (unsigned long long)tensor->end);
}

psd_status
psi_safetensors_layout(struct psi_tensors *tensors, uint64_t step, uint8_t **head_p,
                       size_t *head_bytes_p, struct psd_error *err)
{
    const psd_status status = place_tensors(tensors, err);
    char *head = NULL;
    size_t bytes = 0;
    bool failed;
    FILE *out;

    if (status != PSD_OK) {
        return status;
    }
    out = open_memstream(&head, &bytes);
    if (out == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save: no memory for a file header");
    }
    fprintf(out, "%*s{\"%s\":{\"format\":\"poseidon\",\"step\":\"%llu\"}",
            PSI_SAFETENSORS_LENGTH_BYTES, "", metadata_key, (unsigned long long)step);
    for (size_t i = 0; i < tensors->count; i++) {
        put_tensor(out, &tensors->list[i]);
    }
    fputc('}', out);
    fflush(out); /* sets bytes */
    fprintf(out, "%*s", (int)((DATA_ALIGN - bytes % DATA_ALIGN) % DATA_ALIGN), "");
    failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    if (failed || bytes > PSI_SAFETENSORS_HEADER_MAX) {
        free(head);
        return psi_fail(err, failed ? PSD_ERR_NO_MEMORY : PSD_ERR_TOO_BIG,
                        "save: a file header of %zu tensors does not fit", tensors->count);
    }
    psi_store_u64((uint8_t *)head, bytes - PSI_SAFETENSORS_LENGTH_BYTES);
    tensors->data_begin = bytes;
    *head_p = (uint8_t *)head;
    *head_bytes_p = bytes;
    return PSD_OK;
}

uint64_t
psi_tensors_bytes(const struct psi_tensors *tensors)
{
    return tensors->count == 0 ? 0 : tensors->list[tensors->count - 1].end;
}
