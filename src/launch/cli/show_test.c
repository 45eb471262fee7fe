/*
 * show_test.c - what a job tells to programs is JSON, whatever names it holds; what is not known is not shown.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "launch/cli/show.h"

/* What comes back of a name. */
static void
expect(const char *name, const char *wanted)
{
    struct psd_node node = {.role = PSD_ROLE_WORKER, .state = PSD_NODE_RUNNING};
    char *document = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&document, &bytes);
    json_t *nodes;

    snprintf(node.value_name, sizeof(node.value_name), "%s", name);
    show_json(stream, &node, 1);
    fclose(stream);
    nodes = json_loads(document, 0, NULL);
    assert_non_null(nodes);
    assert_string_equal(json_string_value(json_object_get(json_array_get(nodes, 0), "value_name")),
                        wanted);
    json_decref(nodes);
    free(document);
}

/* If this fails, a name that is not English comes out as nonsense. */
static void
test_names(void **state)
{
    (void)state;
    expect("loss", "loss");
    expect("Größe", "Größe");
    expect("損失", "損失");
    expect("loss 😀", "loss 😀");
    expect("a\"b\\c\n\x01", "a\"b\\c\n\x01");
    expect("Gr\xf6\xdf"
           "e",
           "Gr\ufffd\ufffde");                      /* Latin-1 */
    expect("Größe \xe6\x90", "Größe \ufffd\ufffd"); /* cut within a character */
    expect(
        "\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \x80", /* too long, half a pair, too big, stray */
        "\ufffd\ufffd \ufffd\ufffd\ufffd \ufffd\ufffd\ufffd\ufffd \ufffd");
}

/* If this fails, a worker of which a restarted master has not heard yet is shown at step 0. */
static void
test_a_step_that_is_not_known(void **state)
{
    const struct psd_node node = {
        .role = PSD_ROLE_WORKER, .state = PSD_NODE_RUNNING, .steps_per_s = NAN};
    char *document = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&document, &bytes);
    json_t *nodes;

    (void)state;
    show_json(stream, &node, 1);
    fclose(stream);
    nodes = json_loads(document, 0, NULL);
    assert_true(json_is_null(json_object_get(json_array_get(nodes, 0), "step")));
    assert_true(json_is_null(json_object_get(json_array_get(nodes, 0), "steps_per_s")));
    json_decref(nodes);
    free(document);
    stream = open_memstream(&document, &bytes);
    show_table(stream, &node, 1);
    fclose(stream);
    assert_non_null(strstr(document, "running    -       -"));
    assert_null(strstr(document, "nan"));
    free(document);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_a_step_that_is_not_known)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
