/*
 * codec_test.c - what every codec keeps to.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"

enum { COUNT = 1000 };

static const psd_dtype dtypes[] = {PSD_F32, PSD_F64, PSD_F16, PSD_BF16};

/* If this fails, a frame's codec is taken for another one, or for one that is not there. */
static void
test_codecs_are_found_by_their_number(void **state)
{
    (void)state;
    for (unsigned id = 0; id < 256; id++) {
        const struct psi_codec *codec = psi_codec_find((uint8_t)id);

        assert_int_equal(codec != NULL, id < PSI_CODECS);
        if (codec != NULL) {
            assert_int_equal(codec->id, id);
            assert_true(codec->name[0] != '\0');
        }
    }
}

/* If this fails, a chunk does not fit the memory that was made for it, or a whole one is refused. */
static void
test_encoded_numbers_fit_the_bound(void **state)
{
    static uint64_t numbers[COUNT];
    static uint64_t room[COUNT];

    (void)state;
    for (unsigned id = 0; id < PSI_CODECS; id++) {
        for (unsigned i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
            const struct psi_codec *codec = psi_codecs[id];
            const uint64_t bound = codec->bound(dtypes[i], COUNT);
            const struct psi_encoded made = codec->encode(dtypes[i], numbers, COUNT, room);

            assert_true(made.size <= bound && bound <= sizeof(room));
            assert_true(psi_codec_fits(codec, dtypes[i], COUNT, made.size));
            assert_false(psi_codec_fits(codec, dtypes[i], COUNT, bound + 1));
            assert_int_equal(psi_codec_fits(codec, dtypes[i], COUNT, bound - 1), !codec->exact);
            assert_int_equal(codec->bound(dtypes[i], 0), 0);
            assert_non_null(codec->decode(dtypes[i], made, COUNT, room).numbers);
        }
    }
}

/* If this fails, plain gradients are copied or converted once more on their way. */
static void
test_identity_touches_nothing(void **state)
{
    static const uint8_t numbers[COUNT * 8];
    const struct psi_codec *identity = &psi_codec_identity;

    (void)state;
    for (unsigned i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        const struct psi_encoded made = identity->encode(dtypes[i], numbers, COUNT, NULL);
        const struct psi_decoded read = identity->decode(dtypes[i], made, COUNT, NULL);

        assert_ptr_equal(made.bytes, numbers);
        assert_int_equal(made.size, COUNT * psi_dtype_bytes(dtypes[i]));
        assert_ptr_equal(read.numbers, numbers);
        assert_false(read.is_real);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codecs_are_found_by_their_number),
        cmocka_unit_test(test_encoded_numbers_fit_the_bound),
        cmocka_unit_test(test_identity_touches_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
