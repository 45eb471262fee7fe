/*
 * safetensors_test.c - heads of safetensors files, from friends and enemies.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "wire/bytes.h"

/* Parses a header, `count` bytes of text, in front of data_bytes of data. */
static psd_status
parse_bytes(const char *text, size_t count, uint64_t data_bytes, struct psi_tensors *tensors,
            struct psd_error *err)
{
    uint8_t *head = malloc(PSI_SAFETENSORS_LENGTH_BYTES + count);
    const uint64_t file_bytes = PSI_SAFETENSORS_LENGTH_BYTES + count + data_bytes;
    size_t head_bytes = 0;
    psd_status status;

    assert_non_null(head);
    psi_store_u64(head, count);
    memcpy(head + PSI_SAFETENSORS_LENGTH_BYTES, text, count);
    status = psi_safetensors_head_bytes("f.safetensors", head, file_bytes, &head_bytes, err);
    assert_int_equal(status, PSD_OK);
    status = psi_safetensors_parse("f.safetensors", head, head_bytes, file_bytes, tensors, err);
    free(head);
    return status;
}

static psd_status
parse(const char *text, uint64_t data_bytes, struct psi_tensors *tensors, struct psd_error *err)
{
    return parse_bytes(text, strlen(text), data_bytes, tensors, err);
}

/* If this fails, files that other tools wrote cannot be read. */
static void
test_safetensors_reads_what_others_write(void **state)
{
    static const char text[] =
        " {\t\"b\\u00e9\\ud83d\\ude00\\n\\\"\" :\n{ \"shape\" : [ ] , \"data_offsets\" : [ 8, 12 ] "
        ","
        "\r\n \"dtype\" : \"F32\" } , \"__metadata__\" : { \"format\" : \"pt\", \"x\\ty\" : \"\" },"
        " \"a\":{\"data_offsets\":[0,8],\"dtype\":\"I64\",\"shape\":[1]},"
        " \"\":{\"dtype\":\"BF16\",\"shape\":[5,0,7],\"data_offsets\":[8,8]},"
        " \"many\":{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[12,14]}"
        "}    ";
    struct psi_tensors tensors;
    struct psd_error err = {0};
    const struct psi_tensor *tensor;

    (void)state;
    if (parse(text, 14, &tensors, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(tensors.count, 4);
    tensor = psi_tensors_find(&tensors, "b\xc3\xa9\xf0\x9f\x98\x80\n\"");
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, PSD_F32);
    assert_int_equal(tensor->dims, 0);
    assert_int_equal(tensor->begin, 8);
    tensor = psi_tensors_find(&tensors, "a");
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, 0);
    tensor = psi_tensors_find(&tensors, "many");
    assert_non_null(tensor);
    assert_int_equal(tensor->dims, 10);
    assert_non_null(psi_tensors_find(&tensors, ""));
    assert_null(psi_tensors_find(&tensors, "c"));
    psi_tensors_fini(&tensors);

    assert_int_equal(parse("{}", 0, &tensors, &err), PSD_OK);
    assert_null(psi_tensors_find(&tensors, "a"));
    psi_tensors_fini(&tensors);
}

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end \
    "]}"

/* Headers in front of 8 bytes of data, and what must be said about them. */
static const struct {
    const char *text;
    const char *word;
} bad_headers[] = {
    {"", "{ expected"},
    {"[]", "{ expected"},
    {"{", "\" expected"},
    {"{}", "belong to no tensor"},
    {"{} {", "after the end"},
    {"{" TENSOR("a", "F32", "2", "0", "8"), ", expected"},
    {"{" TENSOR("a", "F32", "2", "0", "8") ",}", "\" expected"},
    {"{" TENSOR("a", "F32", "1", "0", "4") " " TENSOR("b", "F32", "1", "4", "8") "}", ", expected"},
    {"{" TENSOR("a", "F32", "2", "0", "8") "," TENSOR("b", "F32", "1", "4", "8") "}", "tensor b"},
    {"{" TENSOR("a", "F32", "1", "4", "8") "}", "expected from 0"},
    {"{" TENSOR("a", "F32", "1", "0", "4") "}", "4 bytes of data belong to no tensor"},
    {"{" TENSOR("a", "F32", "4", "0", "16") "}", "within 8 bytes"},
    {"{" TENSOR("a", "F32", "2", "8", "0") "}", "data_offsets 8 to 0"},
    {"{" TENSOR("a", "F32", "3", "0", "8") "}", "12 bytes by its shape"},
    {"{" TENSOR("a", "F32", "4294967296,4294967296", "0", "8") "}", "shape overflows"},
    {"{" TENSOR("a", "F32", "1", "0", "4") "," TENSOR("a", "F32", "1", "4", "8") "}", "twice"},
    {"{" TENSOR("a", "F32", "1", "0", "4") "," TENSOR("\\u0061", "F32", "1", "4", "8") "}",
     "twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", "__metadata__ given twice"},
    {"{\"__metadata__\":{\"a\":1}}", "\" expected"},
    {"{\"__metadata__\":[]}", "{ expected"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "field given twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "without"},
    {"{\"a\":{\"dtype\":\"F32\",\"offset\":0}}", "unknown field"},
    {"{\"a\":{\"dtype\":4}}", "\" expected"},
    {"{\"a\":{\"dtype\":\""
     "0123456789012345678901234567890123456789"
     "\"}}",
     "too long"},
    {"{\"a\":{\"data_offsets\":[0]}}", ", expected"},
    {"{\"a\":{\"data_offsets\":[0,4,8]}}", "] expected"},
    {"{" TENSOR("a", "F32", "-2", "0", "8") "}", "whole number"},
    {"{" TENSOR("a", "F32", "2.0", "0", "8") "}", ", expected"},
    {"{" TENSOR("a", "F32", "02", "0", "8") "}", "leading zero"},
    {"{" TENSOR("a", "F32", "2", "0", "18446744073709551616") "}", "64 bits"},
    {"{" TENSOR("a", "F32", "[2]", "0", "8") "}", "whole number"},
    {"{\"\xff\":{}}", "not UTF-8"},
    {"{\"\xc0\xaf\":{}}", "not UTF-8"},
    {"{\"\xe0\x80\xaf\":{}}", "not UTF-8"},
    {"{\"\xf0\x80\x80\xaf\":{}}", "not UTF-8"},
    {"{\"\xed\xa0\x80\":{}}", "not UTF-8"},
    {"{\"\xf4\x90\x80\x80\":{}}", "not UTF-8"},
    {"{\"\xe2\x82\":{}}", "not UTF-8"},
    {"{\"\xe2\x82", "not UTF-8"},
    {"{\"a\nb\":{}}", "control character"},
    {"{\"\\u0000\":{}}", "NUL"},
    {"{\"\\ud800\":{}}", "surrogate"},
    {"{\"\\ud800\\u0061\":{}}", "surrogate"},
    {"{\"\\udc00\":{}}", "surrogate"},
    {"{\"\\ud800\\u12", "cut off"},
    {"{\"\\u12g4\":{}}", "hexadecimal"},
    {"{\"\\u12", "cut off"},
    {"{\"\\x41\":{}}", "unknown escape"},
    {"{\"\\", "without end"},
    {"{\"a", "without end"},
};

/* If this fails, a hostile or broken header is believed. */
static void
test_safetensors_refuses_nonsense(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_headers) / sizeof(bad_headers[0]); i++) {
        struct psi_tensors tensors;
        struct psd_error err = {0};
        const psd_status status = parse(bad_headers[i].text, 8, &tensors, &err);

        if (status != PSD_ERR_CORRUPT || strstr(err.text, bad_headers[i].word) == NULL ||
            strstr(err.text, "f.safetensors") == NULL) {
            fail_msg("%s: expected %s, got: %s", bad_headers[i].text, bad_headers[i].word,
                     err.text);
        }
    }
}

/* If this fails, a header length from a file makes us allocate or read beyond it. */
static void
test_safetensors_refuses_wild_lengths(void **state)
{
    static const struct {
        uint64_t length;
        uint64_t file_bytes;
        bool good;
    } cases[] = {
        {2, 10, true},
        {3, 10, false},
        {UINT64_MAX, 10, false},
        {0, 7, false},
        {UINT64_MAX - 7, 0, false},
        {100000001, UINT64_MAX, false},
        {100000000, UINT64_MAX, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t length[PSI_SAFETENSORS_LENGTH_BYTES];
        struct psd_error err = {0};
        size_t bytes = 0;

        psi_store_u64(length, cases[i].length);
        assert_int_equal(psi_safetensors_head_bytes("f", length, cases[i].file_bytes, &bytes, &err),
                         cases[i].good ? PSD_OK : PSD_ERR_CORRUPT);
        assert_int_equal(bytes, cases[i].good ? cases[i].length + 8 : 0);
    }
}

/* If this fails, some cut or flipped header reads outside its bytes; sanitizers see it. */
static void
test_safetensors_survives_mutation(void **state)
{
    static const char text[] = "{" TENSOR("\\u00e9\xc3\xa9", "F32", "2", "0", "8") "}";

    (void)state;
    for (size_t cut = 0; cut < sizeof(text) - 1; cut++) {
        struct psi_tensors tensors;
        struct psd_error err = {0};

        assert_int_equal(parse_bytes(text, cut, 8, &tensors, &err), PSD_ERR_CORRUPT);
        for (unsigned byte = 0; byte < 256; byte++) {
            char changed[sizeof(text)];

            memcpy(changed, text, sizeof(text));
            changed[cut] = (char)byte;
            if (parse_bytes(changed, sizeof(text) - 1, 8, &tensors, &err) == PSD_OK) {
                assert_int_equal(tensors.count, 1);
                psi_tensors_fini(&tensors);
            }
        }
    }
}

/* If this fails, files of the same tables differ from version to version, or are not aligned. */
static void
test_safetensors_layout(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"poseidon\",\"step\":\"12\"},"
        "\"z\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"b\\\\\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
        "\"a\":{\"dtype\":\"F16\",\"shape\":[3,1],\"data_offsets\":[12,18]},"
        "\"c\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[18,20]}}";
    struct psi_tensor list[] = {
        {.name = "c", .dtype = PSD_BF16, .dims = 1, .shape = {1}, .source = 0},
        {.name = "a", .dtype = PSD_F16, .dims = 2, .shape = {3, 1}, .source = 1},
        {.name = "b\\", .dtype = PSD_F32, .dims = 1, .shape = {1}, .source = 2},
        {.name = "z", .dtype = PSD_F64, .dims = 1, .shape = {1}, .source = 3},
    };
    struct psi_tensors tensors = {.list = list, .count = 4};
    struct psd_error err = {0};
    uint8_t *head = NULL;
    size_t bytes = 0;

    (void)state;
    assert_int_equal(psi_safetensors_layout(&tensors, 12, &head, &bytes, &err), PSD_OK);
    assert_int_equal(bytes % 64, 0);
    assert_int_equal(tensors.data_begin, bytes);
    assert_int_equal(psi_load_u64(head), bytes - 8);
    assert_memory_equal(head + 8, header, strlen(header));
    for (size_t i = 8 + strlen(header); i < bytes; i++) {
        assert_int_equal(head[i], ' ');
    }
    assert_int_equal(psi_tensors_bytes(&tensors), 20);
    assert_int_equal(list[0].source, 3);
    free(head);

    list[0].name = "__metadata__";
    assert_int_equal(psi_safetensors_layout(&tensors, 12, &head, &bytes, &err), PSD_ERR_INVALID);
    tensors.count = 0;
    assert_int_equal(psi_safetensors_layout(&tensors, 12, &head, &bytes, &err), PSD_OK);
    assert_int_equal(psi_tensors_bytes(&tensors), 0);
    free(head);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors_reads_what_others_write),
        cmocka_unit_test(test_safetensors_refuses_nonsense),
        cmocka_unit_test(test_safetensors_refuses_wild_lengths),
        cmocka_unit_test(test_safetensors_survives_mutation),
        cmocka_unit_test(test_safetensors_layout),
    };

    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
