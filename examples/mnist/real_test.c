/*
 * real_test.c - the defaults are good for the real MNIST. Skipped where its files are not at hand:
 * in data/mnist, where fetch.sh puts them, or where MNIST_DATA of the environment says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "emulate.h"

enum { EXIT_SKIPPED = 77 }; /* as meson understands it */

static const char *
data_directory(void)
{
    const char *named = getenv("MNIST_DATA");

    return named != NULL ? named : MNIST_DATA;
}

static void
expect_learns(char *model, double accuracy_min)
{
    char *argv[] = {"mnist", "--model", model, NULL};
    struct options options;
    struct failure failure = {""};
    struct dataset dataset;
    double accuracy;

    assert_true(options_parse(&options, 3, argv, &failure));
    if (!dataset_init(&dataset, data_directory(), &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_int_equal(dataset.train.count, 60000);
    assert_int_equal(dataset.test.count, 10000);
    accuracy = emulate(&options, &dataset, 2, &failure);
    print_message("%s, MNIST, %u epochs: %.4f %s\n", model, options.epochs, accuracy, failure.text);
    assert_true(accuracy >= accuracy_min);
    dataset_fini(&dataset);
}

/* If this fails, the default rate or epochs of the one-layer model are no longer good. */
static void
test_softmax_learns_mnist(void **state)
{
    (void)state;
    expect_learns("softmax", 0.92);
}

/* If this fails, the default rate or epochs of the two-layer model are no longer good. */
static void
test_mlp_learns_mnist(void **state)
{
    (void)state;
    expect_learns("mlp", 0.97);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_learns_mnist),
        cmocka_unit_test(test_mlp_learns_mnist),
    };

    if (access(data_directory(), R_OK) != 0) {
        printf("skipped: no MNIST in %s\n", data_directory());
        return EXIT_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
