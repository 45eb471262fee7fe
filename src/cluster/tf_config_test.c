/*
 * tf_config_test.c - TF_CONFIG: what it may say, how it is refused, what is written.
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
#include <unistd.h>

#include <cmocka.h>

#include "cluster/tf_config.h"

static psd_status
parse(const char *text, struct psi_tf_config *config, struct psd_error *err)
{
    return psi_tf_config_parse(text, strlen(text), "t.json", config, err);
}

static void
expect_parsed(const char *text, struct psi_tf_config *config)
{
    struct psd_error err = {0};

    if (parse(text, config, &err) != PSD_OK) {
        fail_msg("%s: %s", text, err.text);
    }
}

/* The text is refused with this message, and nothing is written. */
static void
expect_refused(const char *text, const char *message)
{
    struct psi_tf_config config;
    struct psi_tf_config before;
    struct psd_error err = {0};

    memset(&config, 0x5a, sizeof(config));
    memset(&before, 0x5a, sizeof(before));
    assert_int_equal(parse(text, &config, &err), PSD_ERR_INVALID);
    assert_string_equal(err.text, message);
    assert_memory_equal(&config, &before, sizeof(config));
}

/* What is written of a configuration, for one task. */
static void
expect_text(const struct psi_tf_config *config, enum psi_tf_type type, uint32_t index,
            const char *want)
{
    char *text = psi_tf_config_text(config, type, index);

    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

/* If this fails, TensorFlow's own examples are not understood, or change on the way. */
static void
test_whole_cluster(void **state)
{
    struct psi_tf_config config;
    char *hosts;

    (void)state;
    expect_parsed("{\"cluster\": {\"chief\": [\"h0:1\"], \"worker\": [\"h1:2\", \"h2:3\"],\n"
                  "\"ps\": [\"[fd00::1]:4\"]}, \"task\": {\"type\": \"worker\", \"index\": 1},\n"
                  "\"rpc_layer\": \"grpc\", \"environment\": \"cloud\"}",
                  &config);
    assert_true(config.has_task);
    assert_int_equal(config.type, PSI_TF_WORKER);
    assert_int_equal(config.index, 1);
    assert_string_equal(psi_tf_config_address(&config, PSI_TF_WORKER, 1), "h2:3");
    assert_string_equal(psi_tf_config_address(&config, PSI_TF_PS, 0), "[fd00::1]:4");
    assert_null(psi_tf_config_address(&config, PSI_TF_WORKER, 2));
    assert_null(psi_tf_config_address(&config, PSI_TF_EVALUATOR, 0));
    expect_text(&config, PSI_TF_EVALUATOR, 0,
                "{\"cluster\": {\"chief\": [\"h0:1\"], \"worker\": [\"h1:2\", \"h2:3\"], "
                "\"ps\": [\"[fd00::1]:4\"]}, \"task\": {\"type\": \"evaluator\", \"index\": 0}, "
                "\"environment\": \"cloud\", \"rpc_layer\": \"grpc\"}");
    hosts = psi_tf_job_text(&config.jobs[PSI_TF_WORKER]);
    assert_string_equal(hosts, "h1:2,h2:3");
    free(hosts);
    psi_tf_config_free(&config);
}

/* If this fails, the old name of the chief, or a task without an index, is refused. */
static void
test_old_names_and_defaults(void **state)
{
    struct psi_tf_config config;

    (void)state;
    expect_parsed("{\"task\": {\"type\": \"master\"}, \"cluster\": {\"master\": [\"a:1\"]}}",
                  &config);
    assert_int_equal(config.type, PSI_TF_CHIEF);
    assert_int_equal(config.index, 0);
    assert_string_equal(psi_tf_config_address(&config, PSI_TF_CHIEF, 0), "a:1");
    psi_tf_config_free(&config);
    expect_parsed("{\"cluster\": {\"ps\": [\"a:1\"]}}", &config);
    assert_false(config.has_task);
    psi_tf_config_free(&config);
}

/* If this fails, maps of workers that come and go are refused, or written as lists with holes. */
static void
test_sparse_maps(void **state)
{
    struct psi_tf_config config;

    (void)state;
    expect_parsed("{\"cluster\": {\"worker\": {\"10\": \"c:1\", \"1\": \"b:1\", \"0\": \"a:1\"}}}",
                  &config);
    assert_false(psi_tf_job_is_full(&config.jobs[PSI_TF_WORKER]));
    assert_string_equal(psi_tf_config_address(&config, PSI_TF_WORKER, 10), "c:1");
    expect_text(&config, PSI_TF_WORKER, 1,
                "{\"cluster\": {\"worker\": {\"0\": \"a:1\", \"1\": \"b:1\", \"10\": \"c:1\"}}, "
                "\"task\": {\"type\": \"worker\", \"index\": 1}, \"environment\": \"cloud\"}");
    psi_tf_config_free(&config);
    expect_parsed("{\"cluster\": {\"worker\": {\"1\": \"b:1\", \"0\": \"a:1\"}}}", &config);
    expect_text(&config, PSI_TF_WORKER, 0,
                "{\"cluster\": {\"worker\": [\"a:1\", \"b:1\"]}, "
                "\"task\": {\"type\": \"worker\", \"index\": 0}, \"environment\": \"cloud\"}");
    psi_tf_config_free(&config);
}

/* If this fails, a worker that knows only itself is refused, or taken for the first. */
static void
test_task_beyond_the_list(void **state)
{
    struct psi_tf_config config;

    (void)state;
    expect_parsed("{\"cluster\": {\"ps\": [\"p:1\"], \"worker\": [\"me:1\"]},"
                  "\"task\": {\"type\": \"worker\", \"index\": 5}}",
                  &config);
    assert_string_equal(psi_tf_config_address(&config, PSI_TF_WORKER, 5), "me:1");
    psi_tf_config_free(&config);
}

/* If this fails, a mistake in a hand-made file is found by TensorFlow, minutes later. */
static void
test_refusals(void **state)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"{", "t.json:1:1: string or '}' expected near end of file"},
        {"[]", "t.json:1:1: TF_CONFIG must be an object, not an array"},
        {"{\"rpc_layer\": \"a b\"}",
         "t.json:1:15: \"rpc_layer\" has letters that it cannot have, or too many"},
        {"{\"session_master\": 1}", "t.json:1:20: session_master must be a string, not an integer"},
        {"{}", "t.json:1:1: no \"cluster\" with an address in it"},
        {"{\"cluster\": []}", "t.json:1:13: \"cluster\" must be an object, not an array"},
        {"{\"cluster\": {\"wroker\": []}}",
         "t.json:1:14: \"wroker\" is no type of task: there are chief (its old name is master), "
         "worker, ps"},
        {"{\"cluster\": {\"evaluator\": [\"a:1\"]}}",
         "t.json:1:14: an evaluator is a task, but not listed in the cluster"},
        {"{\"cluster\": {\"chief\": [\"a:1\"], \"master\": [\"b:1\"]}}",
         "t.json:1:32: \"chief\" and \"master\" are two names of the same task"},
        {"{\"cluster\": {\"chief\": [\"a:1\", \"b:1\"]}}",
         "t.json:1:31: a second chief: there is one at most"},
        {"{\"cluster\": {\"worker\": \"a:1\"}}",
         "t.json:1:24: \"worker\" must be an array of addresses, or an object with one for each "
         "index, not a string"},
        {"{\"cluster\": {\"worker\": [1]}}",
         "t.json:1:25: an address must be a string, not an integer"},
        {"{\"cluster\": {\"worker\": [\"a\"]}}", "t.json:1:25: address \"a\" must be host:port"},
        {"{\"cluster\": {\"worker\": [\"a:70000\"]}}",
         "t.json:1:25: address \"a:70000\" has a port that is not a number from 1 to 65535"},
        {"{\"cluster\": {\"worker\": [\"u@a:1\"]}}",
         "t.json:1:25: address \"u@a:1\" must be host:port"},
        {"{\"cluster\": {\"worker\": [\"a:1\"], \"ps\": [\"a:1\"]}}",
         "t.json:1:40: ps 0 is a:1, and so is worker 0"},
        {"{\"cluster\": {\"worker\": {\"x\": \"a:1\"}}}",
         "t.json:1:25: \"x\" is no index: must be 0 to 65535"},
        {"{\"cluster\": {\"worker\": {\"1\": \"a:1\", \"01\": \"b:1\"}}}",
         "t.json:1:43: worker 1 is a:1, and b:1 as well"},
        {"{\"cluster\": {\"worker\": {\"1\": \"a:1\", \"1\": \"b:1\"}}}",
         "t.json:1:39: duplicate object key near '\"1\"'"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"index\": 0}}",
         "t.json:1:38: the task has no \"type\""},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"boss\"}}",
         "t.json:1:47: \"boss\" is no type of task: there are chief (its old name is master), "
         "worker, ps, evaluator"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"ps\", \"index\": -1}}",
         "t.json:1:62: index -1: must be 0 to 65535"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"ps\", \"index\": \"0\"}}",
         "t.json:1:62: \"index\" must be an integer, not a string"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"evaluator\", \"index\": 1}}",
         "t.json:1:38: evaluator 1: there is one at most"},
        {"{\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 2}}",
         "t.json:1:1: the task is worker 2, and the cluster has no worker"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_refused(cases[i].text, cases[i].message);
    }
}

/* If this fails, a cluster without bounds is read into memory. */
static void
test_bounds(void **state)
{
    struct psi_tf_config config = {0};
    struct psd_error err = {0};
    char *text = malloc(PSI_TF_BYTES_MAX + 1);
    char address[32];

    (void)state;
    assert_non_null(text);
    memset(text, ' ', PSI_TF_BYTES_MAX + 1);
    assert_int_equal(psi_tf_config_parse(text, PSI_TF_BYTES_MAX + 1, "t.json", &config, &err),
                     PSD_ERR_INVALID);
    assert_string_equal(err.text, "t.json:1:1: larger than 1 MiB");
    free(text);
    for (uint32_t i = 0; i < PSI_TF_TASKS_MAX; i++) {
        snprintf(address, sizeof(address), "h%u:1", i);
        assert_int_equal(psi_tf_config_add(&config, PSI_TF_WORKER, i, address, &err), PSD_OK);
    }
    assert_int_equal(psi_tf_config_add(&config, PSI_TF_PS, 0, "p:1", &err), PSD_ERR_INVALID);
    assert_int_equal(config.jobs[PSI_TF_PS].count, 0);
    psi_tf_config_free(&config);
}

/* If this fails, two halves of a cluster that do not fit are taken for one. */
static void
test_merge(void **state)
{
    struct psi_tf_config one;
    struct psi_tf_config other;
    struct psi_tf_config alone;
    struct psd_error err = {0};

    (void)state;
    expect_parsed("{\"cluster\": {\"ps\": [\"p:1\"], \"worker\": [\"a:1\"]}}", &one);
    expect_parsed("{\"cluster\": {\"ps\": [\"p:1\"], \"worker\": [\"a:1\", \"b:1\"]}}", &other);
    expect_parsed("{\"cluster\": {\"ps\": [\"p:1\"], \"worker\": [\"c:1\"]},"
                  "\"task\": {\"type\": \"worker\", \"index\": 3}}",
                  &alone);
    assert_int_equal(psi_tf_config_merge(&one, "one", &other, "other", &err), PSD_OK);
    assert_string_equal(psi_tf_config_address(&one, PSI_TF_WORKER, 1), "b:1");
    assert_int_equal(psi_tf_config_merge(&one, "one", &alone, "alone", &err), PSD_OK);
    psi_tf_config_free(&other);
    expect_parsed("{\"cluster\": {\"ps\": [\"p:2\"]}}", &other);
    assert_int_equal(psi_tf_config_merge(&one, "one", &other, "other", &err), PSD_ERR_INVALID);
    assert_string_equal(err.text, "two pieces of one cluster contradict each other:\n"
                                  "    one: ps 0 is p:1\n    other: ps 0 is p:2");
    psi_tf_config_free(&one);
    psi_tf_config_free(&other);
    psi_tf_config_free(&alone);
}

/* If this fails, a file that is not there or a directory passes for an empty one. */
static void
test_load(void **state)
{
    char path[] = "/tmp/tf_config_test.XXXXXX";
    const int fd = mkstemp(path);
    static const char text[] = "{\"cluster\": {\"ps\": [\"p:1\"]}}";
    struct psi_tf_config config;
    struct psd_error err = {0};

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    close(fd);
    assert_int_equal(psi_tf_config_load(path, &config, &err), PSD_OK);
    psi_tf_config_free(&config);
    unlink(path);
    assert_int_equal(psi_tf_config_load(path, &config, &err), PSD_ERR_IO);
    assert_int_equal(psi_tf_config_load("/", &config, &err), PSD_ERR_IO);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_cluster), cmocka_unit_test(test_old_names_and_defaults),
        cmocka_unit_test(test_sparse_maps),   cmocka_unit_test(test_task_beyond_the_list),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_merge),         cmocka_unit_test(test_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
