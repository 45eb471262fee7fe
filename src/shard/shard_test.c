/*
 * shard_test.c - balance of placement, and what moves when a server joins.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <psd/psd.h>

#include "shard/shard.h"

enum { SERVERS_MAX = 64, TENSORS_MAX = 8192, CHUNK_BYTES = PSD_CHUNK_ELEMENTS * 4 };

static const uint64_t gigabyte = 1000000000;

/* A list of tensors, in elements of 4 bytes. */
struct model {
    const char *name;
    uint32_t tensors;
    uint64_t count[TENSORS_MAX];
};

/* A model and where every chunk of it is. */
struct layout {
    struct psi_loads loads;
    uint64_t chunks;
    uint16_t *places;
    uint32_t *chunk_bytes;
};

static void
add_tensor(struct model *model, uint64_t count)
{
    assert_true(model->tensors < TENSORS_MAX);
    model->count[model->tensors++] = count;
}

static uint64_t
model_bytes(const struct model *model)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < model->tensors; i++) {
        bytes += model->count[i] * 4;
    }
    return bytes;
}

static void
make_one_table(struct model *model)
{
    *model = (struct model){.name = "one table"};
    add_tensor(model, 256 * 1024 * 1024 + 12345);
}

static void
make_many_tables(struct model *model)
{
    *model = (struct model){.name = "1,000 tables of 1 MB"};
    for (int i = 0; i < 1000; i++) {
        add_tensor(model, 250000);
    }
}

/* Convolution, then scale and shift of the batch normalisation. */
static void
add_convolution(struct model *model, uint64_t in, uint64_t out, uint64_t kernel)
{
    add_tensor(model, in * out * kernel * kernel);
    add_tensor(model, out);
    add_tensor(model, out);
}

static void
make_resnet50(struct model *model, int copies)
{
    static const int blocks[4] = {3, 4, 6, 3};

    *model = (struct model){.name = "ResNet-50"};
    for (int copy = 0; copy < copies; copy++) {
        uint64_t in = 64;

        add_convolution(model, 3, 64, 7);
        for (int stage = 0; stage < 4; stage++) {
            const uint64_t width = (uint64_t)64 << stage;

            for (int block = 0; block < blocks[stage]; block++) {
                add_convolution(model, in, width, 1);
                add_convolution(model, width, width, 3);
                add_convolution(model, width, width * 4, 1);
                if (block == 0) {
                    add_convolution(model, in, width * 4, 1);
                }
                in = width * 4;
            }
        }
        add_tensor(model, 2048 * 1000);
        add_tensor(model, 1000);
    }
}

static void
make_transformer(struct model *model)
{
    const uint64_t width = 1024;

    *model = (struct model){.name = "transformer"};
    add_tensor(model, 50257 * width);
    add_tensor(model, 1024 * width);
    for (int layer = 0; layer < 24; layer++) {
        add_tensor(model, width);
        add_tensor(model, width);
        add_tensor(model, 3 * width * width);
        add_tensor(model, 3 * width);
        add_tensor(model, width * width);
        add_tensor(model, width);
        add_tensor(model, width);
        add_tensor(model, width);
        add_tensor(model, 4 * width * width);
        add_tensor(model, 4 * width);
        add_tensor(model, 4 * width * width);
        add_tensor(model, width);
        add_tensor(model, 1);
    }
}

static void
layout_init(struct layout *layout, const struct model *model, uint32_t servers, uint32_t lanes)
{
    uint32_t lanes_of[SERVERS_MAX];
    uint64_t at = 0;

    for (uint32_t s = 0; s < servers; s++) {
        lanes_of[s] = lanes;
    }
    layout->chunks = 0;
    for (uint32_t i = 0; i < model->tensors; i++) {
        layout->chunks += psi_chunk_count(model->count[i]);
    }
    layout->places = calloc(layout->chunks, sizeof(layout->places[0]));
    layout->chunk_bytes = calloc(layout->chunks, sizeof(layout->chunk_bytes[0]));
    assert_non_null(layout->places);
    assert_non_null(layout->chunk_bytes);
    psi_loads_init(&layout->loads, servers, lanes_of);
    for (uint32_t i = 0; i < model->tensors; i++) {
        psi_shard_place(&layout->loads, model->count[i], 4, &layout->places[at]);
        for (uint64_t chunk = 0; chunk < psi_chunk_count(model->count[i]); chunk++) {
            layout->chunk_bytes[at++] = psi_chunk_elements(model->count[i], chunk) * 4;
        }
    }
}

static void
layout_fini(struct layout *layout)
{
    free(layout->places);
    free(layout->chunk_bytes);
}

/* Bytes of each server, counted from the places, which must agree with the loads. */
static void
count_servers(const struct layout *layout, uint64_t *server_bytes)
{
    static uint64_t bytes[PSI_PLACES_MAX];

    memset(bytes, 0, sizeof(bytes));
    memset(server_bytes, 0, (SERVERS_MAX + 1) * sizeof(server_bytes[0]));
    for (uint64_t chunk = 0; chunk < layout->chunks; chunk++) {
        const uint16_t place = layout->places[chunk];

        assert_true(place < layout->loads.places);
        bytes[place] += layout->chunk_bytes[chunk];
    }
    for (uint32_t server = 0; server < layout->loads.servers; server++) {
        for (uint32_t place = layout->loads.first_place[server];
             place < layout->loads.first_place[server + 1]; place++) {
            assert_int_equal(bytes[place], layout->loads.bytes[place]);
            server_bytes[server] += bytes[place];
        }
    }
}

/* Fullest over mean, and difference between fullest and emptiest. */
static double
imbalance(const struct layout *layout, uint64_t *difference_p)
{
    uint64_t bytes[SERVERS_MAX + 1];
    uint64_t most = 0;
    uint64_t least = UINT64_MAX;
    uint64_t total = 0;

    count_servers(layout, bytes);
    for (uint32_t s = 0; s < layout->loads.servers; s++) {
        most = bytes[s] > most ? bytes[s] : most;
        least = bytes[s] < least ? bytes[s] : least;
        total += bytes[s];
    }
    *difference_p = most - least;
    return (double)most * (double)layout->loads.servers / (double)total;
}

static void
check_balance(const struct model *model)
{
    double worst = 0;

    for (uint32_t servers = 1; servers <= SERVERS_MAX; servers++) {
        struct layout layout;
        uint64_t difference;
        double over;

        layout_init(&layout, model, servers, 1 + servers % 3);
        over = imbalance(&layout, &difference);
        worst = over > worst ? over : worst;
        assert_true(difference <= CHUNK_BYTES);
        if (model_bytes(model) >= gigabyte) {
            assert_true(over <= 1.10);
        }
        layout_fini(&layout);
    }
    printf("%s, %.2f GB, %u tensors: fullest server at most %.3f of the mean\n", model->name,
           (double)model_bytes(model) / 1e9, model->tensors, worst);
}

/* If this fails, one server becomes the bottleneck of every step. */
static void
test_place_balances_every_model(void **state)
{
    struct model *model = malloc(sizeof(*model));

    (void)state;
    assert_non_null(model);
    make_one_table(model);
    check_balance(model);
    make_many_tables(model);
    check_balance(model);
    make_resnet50(model, 10);
    assert_true(model_bytes(model) >= gigabyte);
    check_balance(model);
    make_resnet50(model, 1);
    check_balance(model);
    make_transformer(model);
    assert_true(model_bytes(model) >= gigabyte);
    check_balance(model);
    free(model);
}

/* If this fails, one lane of a server works while the others wait. */
static void
test_place_balances_lanes(void **state)
{
    const uint32_t lanes[3] = {1, 4, 7};
    struct psi_loads loads;

    (void)state;
    psi_loads_init(&loads, 3, lanes);
    psi_shard_place(&loads, 1000 * (uint64_t)PSD_CHUNK_ELEMENTS, 4, NULL);
    for (uint32_t s = 0; s < 3; s++) {
        uint64_t most = 0;
        uint64_t least = UINT64_MAX;

        for (uint32_t p = loads.first_place[s]; p < loads.first_place[s + 1]; p++) {
            most = loads.bytes[p] > most ? loads.bytes[p] : most;
            least = loads.bytes[p] < least ? loads.bytes[p] : least;
        }
        assert_true(most - least <= CHUNK_BYTES);
    }
}

/* The rule as the header says it, without a heap. */
static uint16_t
place_slowly(struct psi_loads *loads, uint64_t bytes)
{
    uint32_t server = 0;
    uint32_t place;
    uint64_t fewest = UINT64_MAX;

    for (uint32_t s = 0; s < loads->servers; s++) {
        uint64_t sum = 0;

        for (uint32_t p = loads->first_place[s]; p < loads->first_place[s + 1]; p++) {
            sum += loads->bytes[p];
        }
        if (sum < fewest) {
            fewest = sum;
            server = s;
        }
    }
    place = loads->first_place[server];
    for (uint32_t p = place; p < loads->first_place[server + 1]; p++) {
        if (loads->bytes[p] < loads->bytes[place]) {
            place = p;
        }
    }
    loads->bytes[place] += bytes;
    return (uint16_t)place;
}

/* If this fails, the heaps choose another place than the rule, or break ties otherwise. */
static void
test_place_follows_the_rule(void **state)
{
    struct psi_loads fast;
    struct psi_loads slow;
    unsigned seed = 20240607;

    (void)state;
    printf("seed %u\n", seed);
    for (int round = 0; round < 50; round++) {
        uint32_t lanes[16];
        const uint32_t servers = 1 + (uint32_t)rand_r(&seed) % 16;

        for (uint32_t s = 0; s < servers; s++) {
            lanes[s] = 1 + (uint32_t)rand_r(&seed) % 5;
        }
        psi_loads_init(&fast, servers, lanes);
        psi_loads_init(&slow, servers, lanes);
        for (int table = 0; table < 20; table++) {
            const uint64_t count = 1 + (uint64_t)rand_r(&seed) % (12 * PSD_CHUNK_ELEMENTS);
            const size_t element = (size_t)2 << (rand_r(&seed) % 3);
            uint16_t places[12];

            psi_shard_place(&fast, count, element, places);
            for (uint64_t chunk = 0; chunk < psi_chunk_count(count); chunk++) {
                const uint64_t bytes = psi_chunk_elements(count, chunk) * element;

                assert_int_equal(places[chunk], place_slowly(&slow, bytes));
            }
            assert_memory_equal(&fast, &slow, sizeof(fast));
        }
    }
}

static void
check_grow(struct layout *layout, uint32_t lanes)
{
    const uint32_t joined = layout->loads.servers;
    const uint32_t old_places = layout->loads.places;
    uint16_t *before = malloc(layout->chunks * sizeof(before[0]));
    uint64_t bytes[SERVERS_MAX + 1];
    uint64_t total = 0;
    uint64_t difference;
    uint64_t moved = 0;
    uint64_t returned;
    double part;

    assert_non_null(before);
    memcpy(before, layout->places, layout->chunks * sizeof(before[0]));
    returned =
        psi_shard_grow(&layout->loads, lanes, layout->places, layout->chunk_bytes, layout->chunks);
    assert_int_equal(layout->loads.servers, joined + 1);
    for (uint64_t chunk = 0; chunk < layout->chunks; chunk++) {
        if (layout->places[chunk] != before[chunk]) {
            assert_true(layout->places[chunk] >= old_places);
            moved++;
        }
    }
    assert_int_equal(moved, returned);
    count_servers(layout, bytes);
    for (uint32_t s = 0; s <= joined; s++) {
        total += bytes[s];
    }
    part = (double)bytes[joined] / (double)total * (double)(joined + 1);
    assert_true(part <= 1.2);
    assert_true(part >= 0.8);
    assert_true(imbalance(layout, &difference) <= 1.10);
    free(before);
}

/* If this fails, a server that joins gets too much, too little, or moves what could stay. */
static void
test_grow_by_one_from_any_size(void **state)
{
    struct model *model = malloc(sizeof(*model));

    (void)state;
    assert_non_null(model);
    make_transformer(model);
    for (uint32_t servers = 1; servers < SERVERS_MAX; servers++) {
        struct layout layout;

        layout_init(&layout, model, servers, 1 + servers % 2);
        check_grow(&layout, 1 + servers % 2);
        layout_fini(&layout);
    }
    free(model);
}

/* If this fails, growing again and again wears the balance down. */
static void
test_grow_from_1_to_64(void **state)
{
    struct model *model = malloc(sizeof(*model));
    struct layout layout;

    (void)state;
    assert_non_null(model);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 0) {
            make_one_table(model);
        } else if (kind == 1) {
            make_many_tables(model);
        } else {
            make_resnet50(model, 10);
        }
        layout_init(&layout, model, 1, 2);
        for (uint32_t servers = 1; servers < SERVERS_MAX; servers++) {
            check_grow(&layout, 2);
        }
        layout_fini(&layout);
    }
    free(model);
}

/* If this fails, the new server holds one end of the model and idles for most of a step. */
static void
test_grow_takes_from_everywhere(void **state)
{
    struct model *model = malloc(sizeof(*model));
    struct layout layout;

    (void)state;
    assert_non_null(model);
    make_one_table(model);
    layout_init(&layout, model, 3, 1);
    check_grow(&layout, 1);
    for (uint64_t first = 0; first + 64 <= layout.chunks; first += 64) {
        int mine = 0;

        for (uint64_t chunk = first; chunk < first + 64; chunk++) {
            mine += layout.places[chunk] == 3;
        }
        assert_in_range(mine, 10, 22);
    }
    layout_fini(&layout);
    free(model);
}

/* If this fails, two processes compute different places and talk to the wrong server. */
static void
test_places_are_deterministic(void **state)
{
    struct model *model = malloc(sizeof(*model));
    struct layout a;
    struct layout b;

    (void)state;
    assert_non_null(model);
    make_transformer(model);
    layout_init(&a, model, 5, 3);
    layout_init(&b, model, 5, 3);
    psi_shard_grow(&a.loads, 2, a.places, a.chunk_bytes, a.chunks);
    psi_shard_grow(&b.loads, 2, b.places, b.chunk_bytes, b.chunks);
    assert_memory_equal(&a.loads, &b.loads, sizeof(a.loads));
    assert_memory_equal(a.places, b.places, a.chunks * sizeof(a.places[0]));
    layout_fini(&a);
    layout_fini(&b);
    free(model);
}

/* If this fails, the last elements of a table are lost or belong to two chunks. */
static void
test_chunk_edges(void **state)
{
    const uint64_t grid = PSD_CHUNK_ELEMENTS;

    (void)state;
    assert_int_equal(psi_chunk_count(0), 0);
    assert_int_equal(psi_chunk_count(1), 1);
    assert_int_equal(psi_chunk_elements(1, 0), 1);
    assert_int_equal(psi_chunk_count(grid), 1);
    assert_int_equal(psi_chunk_elements(grid, 0), grid);
    assert_int_equal(psi_chunk_count(grid + 1), 2);
    assert_int_equal(psi_chunk_elements(grid + 1, 0), grid);
    assert_int_equal(psi_chunk_elements(grid + 1, 1), 1);
    assert_int_equal(psi_chunk_first(0), 0);
    assert_int_equal(psi_chunk_first(3), 3 * grid);
    assert_int_equal(psi_chunk_count(UINT64_MAX), UINT64_MAX / grid + 1);
}

/* If this fails, a table of one element or an empty job breaks placement or growth. */
static void
test_smallest_tables(void **state)
{
    const uint32_t lanes[2] = {1, 1};
    const uint32_t chunk_bytes[1] = {4};
    struct psi_loads loads;
    uint16_t place = 99;

    (void)state;
    psi_loads_init(&loads, 2, lanes);
    assert_int_equal(psi_shard_grow(&loads, 1, NULL, NULL, 0), 0);
    psi_shard_place(&loads, 0, 4, &place);
    assert_int_equal(place, 99);
    psi_shard_place(&loads, 1, 4, &place);
    assert_int_equal(place, 0);
    assert_int_equal(loads.bytes[0], 4);
    assert_int_equal(psi_shard_grow(&loads, 1, &place, chunk_bytes, 1), 0);
    assert_int_equal(place, 0);
    psi_shard_place(&loads, 1, 4, &place);
    assert_int_equal(place, 1);
}

/* If this fails, by taking for ever, opening a table of 100 GB stalls the job. */
static void
test_place_a_huge_table(void **state)
{
    const uint64_t chunks = 400000;
    uint32_t lanes[SERVERS_MAX];
    struct psi_loads loads;
    uint16_t *places = malloc(chunks * sizeof(places[0]));

    (void)state;
    assert_non_null(places);
    for (uint32_t s = 0; s < SERVERS_MAX; s++) {
        lanes[s] = 16;
    }
    psi_loads_init(&loads, SERVERS_MAX, lanes);
    psi_shard_place(&loads, chunks * PSD_CHUNK_ELEMENTS, 4, places);
    assert_int_equal(loads.bytes[0], (chunks / PSI_PLACES_MAX + 1) * CHUNK_BYTES);
    assert_int_equal(places[0], 0);
    assert_int_equal(places[1], 16);
    free(places);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_balances_every_model),
        cmocka_unit_test(test_place_balances_lanes),
        cmocka_unit_test(test_place_follows_the_rule),
        cmocka_unit_test(test_grow_by_one_from_any_size),
        cmocka_unit_test(test_grow_from_1_to_64),
        cmocka_unit_test(test_grow_takes_from_everywhere),
        cmocka_unit_test(test_places_are_deterministic),
        cmocka_unit_test(test_chunk_edges),
        cmocka_unit_test(test_smallest_tables),
        cmocka_unit_test(test_place_a_huge_table),
    };

    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
