/*
 * network_test.c - the network: its gradients are right, and it learns the drawn digits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulate.h"
#include "network.h"
#include "rng.h"

enum { BATCH = 16, SEED = 3, PROBES = 40 };

struct fixture {
    struct network network;
    float images[BATCH * IMAGE_PIXELS];
    uint8_t labels[BATCH];
};

static double
loss_of(struct fixture *fixture)
{
    const float *input = fixture->images;

    for (uint32_t l = 0; l < fixture->network.layer_count; l++) {
        input = network_forward(&fixture->network, l, input, BATCH);
    }
    return network_loss(&fixture->network, fixture->labels, BATCH);
}

static void
fixture_init(struct fixture *fixture, enum model model)
{
    struct rng rng = rng_stream(SEED, 0);
    struct failure failure;

    print_message("seed %d\n", SEED);
    assert_true(network_init(&fixture->network, model, BATCH, &failure));
    for (uint32_t l = 0; l < fixture->network.layer_count; l++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            struct tensor *tensor = &fixture->network.layers[l].tensors[t];

            for (uint32_t i = 0; i < tensor->rows * tensor->columns; i++) {
                tensor->values[i] = rng_between(&rng, -0.1f, 0.1f);
            }
        }
    }
    for (uint32_t i = 0; i < BATCH * IMAGE_PIXELS; i++) {
        fixture->images[i] = rng_between(&rng, 0.0f, 1.0f);
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        fixture->labels[i] = (uint8_t)rng_below(&rng, CLASSES);
    }
}

/* Compares some of a tensor's gradient with what the loss does when a value is moved a little. */
static void
probe(struct fixture *fixture, struct tensor *tensor, struct rng *rng)
{
    const float move = 1e-3f;

    for (int i = 0; i < PROBES; i++) {
        const uint32_t at = rng_below(rng, tensor->rows * tensor->columns);
        const float value = tensor->values[at];
        const double claimed = (double)tensor->gradient[at];
        double up;
        double down;

        tensor->values[at] = value + move;
        up = loss_of(fixture);
        tensor->values[at] = value - move;
        down = loss_of(fixture);
        tensor->values[at] = value;
        if (fabs((up - down) / (2.0 * (double)move) - claimed) > 2e-3 + 0.02 * fabs(claimed)) {
            fail_msg("%s[%u]: gradient %g, measured %g", tensor->name, at, claimed,
                     (up - down) / (2.0 * (double)move));
        }
    }
}

static void
check_gradients(enum model model)
{
    static struct fixture fixture; /* too big for the stack, no more */
    struct rng rng = rng_stream(SEED, 1);
    struct network *network = &fixture.network;

    fixture_init(&fixture, model);
    loss_of(&fixture);
    for (uint32_t l = network->layer_count; l-- > 0;) {
        network_backward(network, l, fixture.images, BATCH);
    }
    for (uint32_t l = 0; l < network->layer_count; l++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            probe(&fixture, &network->layers[l].tensors[t], &rng);
        }
    }
    network_fini(network);
}

/* If this fails, training goes downhill in a wrong direction. */
static void
test_network_backward_softmax(void **state)
{
    (void)state;
    check_gradients(MODEL_SOFTMAX);
}

/* If this fails, the hidden layer does not learn, or learns nonsense. */
static void
test_network_backward_mlp(void **state)
{
    (void)state;
    check_gradients(MODEL_MLP);
}

/* If this fails, the demonstration without MNIST files does not convince, or two runs differ. */
static void
test_mlp_learns_drawn_digits(void **state)
{
    char *argv[] = {"mnist", "--epochs", "4", NULL};
    struct options options;
    struct failure failure = {""};
    struct dataset dataset;
    double accuracy;

    (void)state;
    assert_true(options_parse(&options, 3, argv, &failure));
    assert_true(dataset_init(&dataset, NULL, &failure));
    accuracy = emulate(&options, &dataset, 2, &failure);
    print_message("mlp, drawn digits, %u epochs: %.4f %s\n", options.epochs, accuracy,
                  failure.text);
    assert_true(accuracy > 0.95);
    assert_true(accuracy == emulate(&options, &dataset, 2, &failure));
    dataset_fini(&dataset);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network_backward_softmax),
        cmocka_unit_test(test_network_backward_mlp),
        cmocka_unit_test(test_mlp_learns_drawn_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
