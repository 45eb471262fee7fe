/*
 * cluster_test.c - cluster.json: what it may say, and one test for each way to get it wrong.
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

#include "clock/clock.h"
#include "cluster/cluster.h"
#include "cluster/endpoint.h"
#include "shard/shard.h"

/* The two keys that every file needs, for tests of the others. */
#define NODES "\"worker_nodes\": [\"a\"], \"server_nodes\": [\"b\"]"

static psd_status
parse(const char *text, struct psi_cluster *cluster, struct psd_error *err)
{
    return psi_cluster_parse(text, strlen(text), "conf/c.json", cluster, err);
}

/* The text is refused with this message, and nothing is written. */
static void
expect_refused(const char *text, const char *message)
{
    struct psi_cluster cluster;
    struct psi_cluster before;
    struct psd_error err = {0};

    memset(&cluster, 0x5a, sizeof(cluster));
    memset(&before, 0x5a, sizeof(before));
    assert_int_equal(parse(text, &cluster, &err), PSD_ERR_INVALID);
    assert_string_equal(err.text, message);
    assert_memory_equal(&cluster, &before, sizeof(cluster));
}

/* The host, as the only worker, is refused: the reason. */
static void
expect_host_refused(const char *host, const char *reason)
{
    char text[512];
    char message[512];

    snprintf(text, sizeof(text), "{\"worker_nodes\": [\"%s\"]}", host);
    snprintf(message, sizeof(message), "conf/c.json:1:19: host \"%.64s\" %s", host, reason);
    expect_refused(text, message);
}

static void
expect_parsed(const char *text, struct psi_cluster *cluster)
{
    struct psd_error err = {0};

    if (parse(text, cluster, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
}

/* If this fails, the file of the tutorial does not work. */
static void
test_parse_the_smallest_file(void **state)
{
    struct psi_cluster cluster;

    (void)state;
    expect_parsed("{" NODES "}", &cluster);
    assert_int_equal(cluster.worker_count, 1);
    assert_string_equal(cluster.workers[0].host, "a");
    assert_string_equal(cluster.workers[0].user, "");
    assert_int_equal(cluster.workers[0].ssh_port, 0);
    assert_int_equal(cluster.workers[0].slots, 1);
    assert_null(cluster.workers[0].addr);
    assert_int_equal(cluster.server_count, 1);
    assert_string_equal(cluster.servers[0].host, "b");
    assert_string_equal(cluster.master.host, "");
    assert_int_equal(cluster.master_port, 0);
    assert_null(cluster.pem_file);
    assert_null(cluster.virtualenv);
    assert_null(cluster.username);
    assert_null(cluster.worker_commands);
    assert_int_equal(cluster.pass, PSI_PASS_AUTO);
    assert_int_equal(cluster.env_count, 0);
    assert_int_equal(cluster.settings.heartbeat_ms, 250);
    psi_cluster_free(&cluster);
    psi_cluster_free(&cluster);
}

/* If this fails, a key is read into the wrong place or not at all. */
static void
test_parse_every_key(void **state)
{
    struct psi_cluster cluster;

    (void)state;
    expect_parsed("{\"worker_nodes\": [\"a\", \"b\"],\n"
                  " \"server_nodes\": [\"c\"],\n"
                  " \"master_node\": \"tcp://d:5555\",\n"
                  " \"master_port\": 5555,\n"
                  " \"pem_file\": \"key.pem\",\n"
                  " \"virtualenv\": \"/opt/v\",\n"
                  " \"username\": \"ann\",\n"
                  " \"settings\": {\"heartbeat_ms\": 100, \"lanes\": \"3\","
                  "                \"payload_checksum\": true, \"on_worker_death\": \"wait\"},\n"
                  " \"pass\": \"both\",\n"
                  " \"worker_commands\": [\"run 0\", \"run 1\"],\n"
                  " \"env\": {\"OMP_NUM_THREADS\": \"2\", \"EMPTY\": \"\"}}\n",
                  &cluster);
    assert_int_equal(cluster.worker_count, 2);
    assert_string_equal(cluster.master.host, "d");
    assert_int_equal(cluster.master_port, 5555);
    assert_string_equal(cluster.pem_file, "conf/key.pem");
    assert_string_equal(cluster.virtualenv, "/opt/v");
    assert_string_equal(cluster.username, "ann");
    assert_int_equal(cluster.settings.heartbeat_ms, 100);
    assert_int_equal(cluster.settings.lanes, 3);
    assert_int_equal(cluster.settings.payload_checksum, 1);
    assert_int_equal(cluster.settings.on_worker_death, PSI_DEATH_WAIT);
    assert_int_equal(cluster.settings.source[0], PSI_SOURCE_FILE);
    assert_int_equal(cluster.pass, PSI_PASS_BOTH);
    assert_string_equal(cluster.worker_commands[0], "run 0");
    assert_string_equal(cluster.worker_commands[1], "run 1");
    assert_int_equal(cluster.env_count, 2);
    assert_string_equal(cluster.env[0].name, "OMP_NUM_THREADS");
    assert_string_equal(cluster.env[0].value, "2");
    assert_string_equal(cluster.env[1].value, "");
    psi_cluster_free(&cluster);
}

/* If this fails, ranks land on other hosts than the file says. */
static void
test_parse_expands_slots(void **state)
{
    struct psi_cluster cluster;

    (void)state;
    expect_parsed("{\"worker_nodes\": [\"a\", {\"host\": \"eve@g:22\", \"slots\": 3, \"gpus\": 8,"
                  " \"addr\": \"10.0.0.7\", \"user\": \"bob\", \"env\": {\"X\": \"1\"}}, \"a\"],"
                  " \"server_nodes\": [{\"slots\": 2, \"host\": \"s\", \"env\": {\"Y\": \"2\"}}]}",
                  &cluster);
    assert_int_equal(cluster.worker_count, 5);
    assert_string_equal(cluster.workers[0].host, "a");
    assert_string_equal(cluster.workers[4].host, "a");
    for (uint32_t i = 1; i <= 3; i++) {
        const struct psi_cluster_node *node = &cluster.workers[i];

        assert_string_equal(node->host, "g");
        assert_string_equal(node->user, "bob");
        assert_string_equal(node->addr, "10.0.0.7");
        assert_int_equal(node->ssh_port, 22);
        assert_int_equal(node->slot, i - 1);
        assert_int_equal(node->slots, 3);
        assert_int_equal(node->gpus, 8);
        assert_int_equal(node->env_count, 1);
        assert_string_equal(node->env[0].name, "X");
    }
    assert_int_equal(cluster.server_count, 2);
    assert_string_equal(cluster.servers[1].env[0].value, "2");
    psi_cluster_free(&cluster);
}

/* If this fails, an address is cut in the wrong place. */
static void
test_endpoint_forms(void **state)
{
    static const struct {
        const char *text, *user, *host;
        uint16_t port;
    } cases[] = {
        {"node-1.example.org", "", "node-1.example.org", 0},
        {"10.0.0.1:2200", "", "10.0.0.1", 2200},
        {"ann@h", "ann", "h", 0},
        {"ann.b-c_d@h:65535", "ann.b-c_d", "h", 65535},
        {"::1", "", "::1", 0},
        {"fe80::1%eth0", "", "fe80::1%eth0", 0},
        {"[::1]", "", "::1", 0},
        {"bob@[fe80::1%eth0]:22", "bob", "fe80::1%eth0", 22},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_endpoint endpoint;

        assert_null(psi_endpoint_parse(cases[i].text, &endpoint));
        assert_string_equal(endpoint.user, cases[i].user);
        assert_string_equal(endpoint.host, cases[i].host);
        assert_int_equal(endpoint.port, cases[i].port);
    }
}

/* If this fails, a key file beside cluster.json is looked for elsewhere. */
static void
test_pem_file_is_relative_to_the_file(void **state)
{
    static const char text[] = "{" NODES ", \"pem_file\": \"k\"}";
    struct psi_cluster cluster;

    (void)state;
    assert_int_equal(psi_cluster_parse(text, strlen(text), "c.json", &cluster, NULL), PSD_OK);
    assert_string_equal(cluster.pem_file, "k");
    psi_cluster_free(&cluster);
    expect_parsed("{" NODES ", \"pem_file\": \"/etc/k\"}", &cluster);
    assert_string_equal(cluster.pem_file, "/etc/k");
    psi_cluster_free(&cluster);
}

/* If this fails, the limits of the file are not those of a job. */
static void
test_limits_agree(void **state)
{
    (void)state;
    assert_int_equal(PSI_CLUSTER_WORKERS_MAX, PSI_RANKS_MAX);
    assert_int_equal(PSI_CLUSTER_SERVERS_MAX, PSI_SERVERS_MAX);
}

/* If this fails, the position of an error points somewhere else in a file of many lines. */
static void
test_positions_in_a_long_file(void **state)
{
    (void)state;
    expect_refused(
        "\n"
        "{\n"
        "    \"env\": {\"A\": \"\\\"}]\\\\\", \"B\": \"\xc3\xa9\"}, \"pass\": \"none\",\n"
        "    \"worker_nodes\": [ {\"host\": \"a\", \"env\": {\"C\": \"[{\"}} , \"b\"\n"
        "        , \"c\"],\n"
        "    \"virtualenv\": \"\xc3\xa9\", \"server_nodes\": [\"ok\", {\"host\": \"x\","
        " \"slots\": 0}]\n"
        "}\n",
        "conf/c.json:6:70: slots is 0: must be 1 to 1024");
}

/* If this fails, a broken file is half understood. */
static void
test_refuses_broken_syntax(void **state)
{
    struct psi_cluster cluster;
    struct psd_error err;

    (void)state;
    assert_int_equal(parse("{\n  \"worker_nodes\": [,]}", &cluster, &err), PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "conf/c.json:2:20: "));
    assert_int_equal(parse("", &cluster, &err), PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "conf/c.json:1:"));
    assert_int_equal(parse("{" NODES "} more", &cluster, &err), PSD_ERR_INVALID);
    assert_int_equal(parse("{" NODES, &cluster, &err), PSD_ERR_INVALID);
    assert_int_equal(parse("{" NODES ", \"pass\": \"\\u0000\"}", &cluster, &err), PSD_ERR_INVALID);
    assert_int_equal(parse("{" NODES ", \"pass\": \"\xff\"}", &cluster, &err), PSD_ERR_INVALID);
}

/* If this fails, brackets nested without end bring the program down. */
static void
test_refuses_endless_nesting(void **state)
{
    static char text[200001];
    struct psi_cluster cluster;
    struct psd_error err;

    (void)state;
    memset(text, '[', sizeof(text) - 1);
    assert_int_equal(parse(text, &cluster, &err), PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "conf/c.json:1:"));
}

/* If this fails, one of two contradicting lines silently wins. */
static void
test_refuses_duplicate_keys(void **state)
{
    struct psi_cluster cluster;
    struct psd_error err;

    (void)state;
    assert_int_equal(parse("{" NODES ",\n\"worker_nodes\": [\"c\"]}", &cluster, &err),
                     PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "conf/c.json:2:"));
    assert_non_null(strstr(err.text, "duplicate"));
}

/* If this fails, a misspelt key is ignored. */
static void
test_refuses_unknown_keys(void **state)
{
    (void)state;
    expect_refused("{" NODES ",\n  \"wroker_nodes\": []}",
                   "conf/c.json:2:3: unknown key \"wroker_nodes\"; did you mean \"worker_nodes\"?");
    expect_refused("{\"pass\": \"env\"\n \"workdir\": \"/\"}",
                   "conf/c.json:2:10: ',' or '}' expected near '\"workdir\"'");
    expect_refused("{\"worker_nodes\": [\"a\" \"b\"]}",
                   "conf/c.json:1:25: ',' or ']' expected near '\"b\"'");
    expect_refused("{\"bananas\": 1}", "conf/c.json:1:2: unknown key \"bananas\"");
    expect_refused("{\"worker_nodes\": [{\"hots\": \"a\"}]}",
                   "conf/c.json:1:20: unknown key \"hots\"; did you mean \"host\"?");
}

/* If this fails, a value of the wrong type is taken for a default. */
static void
test_refuses_wrong_types(void **state)
{
    (void)state;
    expect_refused("[]", "conf/c.json:1:1: the file must be an object, not an array");
    expect_refused("{\"worker_nodes\": \"a\"}",
                   "conf/c.json:1:18: worker_nodes must be an array, not a string");
    expect_refused("{\"server_nodes\": {}}",
                   "conf/c.json:1:18: server_nodes must be an array, not an object");
    expect_refused("{\"worker_nodes\": [\"a\", 7]}",
                   "conf/c.json:1:24: a node must be a string or an object, not an integer");
    expect_refused("{\"worker_nodes\": [{\"host\": null}]}",
                   "conf/c.json:1:28: host must be a string, not null");
    expect_refused("{\"worker_nodes\": [{\"host\": \"a\", \"slots\": 2.5}]}",
                   "conf/c.json:1:42: slots must be an integer, not a fraction");
    expect_refused("{\"master_node\": true}",
                   "conf/c.json:1:17: master_node must be a string, not true");
    expect_refused("{\"master_port\": \"5555\"}",
                   "conf/c.json:1:17: master_port must be an integer, not a string");
    expect_refused("{\"settings\": []}",
                   "conf/c.json:1:14: settings must be an object, not an array");
    expect_refused("{\"env\": {\"A\": 1}}", "conf/c.json:1:15: A must be a string, not an integer");
    expect_refused("{\"worker_commands\": [false]}",
                   "conf/c.json:1:22: a worker command must be a string, not false");
}

/* If this fails, a job starts without workers or without servers. */
static void
test_refuses_missing_keys(void **state)
{
    (void)state;
    expect_refused(
        "\n {\"server_nodes\": [\"a\"]}",
        "conf/c.json:2:2: \"worker_nodes\" is missing: the machines of the workers, as in "
        "[\"10.0.0.1\", \"10.0.0.2\"]");
    expect_refused(
        "{\"worker_nodes\": [\"a\"]}",
        "conf/c.json:1:1: \"server_nodes\" is missing: the machines of the servers, as in "
        "[\"10.0.0.1\"]; they may be those of the workers");
    expect_refused("{\"worker_nodes\": [{\"slots\": 2}]}",
                   "conf/c.json:1:19: the node has no \"host\"");
}

/* If this fails, an empty list is taken for a job. */
static void
test_refuses_empty_lists(void **state)
{
    (void)state;
    expect_refused("{\"worker_nodes\": []}",
                   "conf/c.json:1:18: worker_nodes is empty: at least one is needed");
    expect_refused("{\"server_nodes\": [ ]}",
                   "conf/c.json:1:18: server_nodes is empty: at least one is needed");
}

/* If this fails, a file asks for more processes than a job can have. */
static void
test_refuses_too_many_processes(void **state)
{
    (void)state;
    expect_refused("{\"worker_nodes\": [{\"host\": \"a\", \"slots\": 1024}, \"b\"]}",
                   "conf/c.json:1:49: worker_nodes: more than 1024 processes");
    expect_refused("{\"server_nodes\": [{\"host\": \"a\", \"slots\": 257}]}",
                   "conf/c.json:1:19: server_nodes: more than 256 processes");
}

/* If this fails, a number outside its range is cut down silently. */
static void
test_refuses_numbers_out_of_range(void **state)
{
    (void)state;
    expect_refused("{\"worker_nodes\": [{\"host\": \"a\", \"slots\": -1}]}",
                   "conf/c.json:1:42: slots is -1: must be 1 to 1024");
    expect_refused("{\"worker_nodes\": [{\"host\": \"a\", \"gpus\": 4294967297}]}",
                   "conf/c.json:1:41: gpus is 4294967297: must be 0 to 1024");
    expect_refused("{\"master_port\": 65536}",
                   "conf/c.json:1:17: master_port is 65536: must be 0 to 65535");
}

/* If this fails, a host name reaches ssh as an option or as shell. */
static void
test_refuses_bad_host_names(void **state)
{
    static char name[301];

    (void)state;
    expect_host_refused("", "is empty");
    expect_host_refused("-oProxyCommand=x", "begins with a dash");
    expect_host_refused("ann@-oProxyCommand", "begins with a dash");
    expect_host_refused("[-::1]", "begins with a dash");
    expect_host_refused("a b", "has a letter that no host name has");
    expect_host_refused("a;reboot", "has a letter that no host name has");
    expect_host_refused("$(reboot)", "has a letter that no host name has");
    expect_host_refused("a/b", "has a letter that no host name has");
    expect_host_refused("h\xc3\xb6st", "has a letter that no host name has");
    expect_host_refused("@h", "has no valid user name before the @");
    expect_host_refused("a@b@c", "has no valid user name before the @");
    expect_host_refused("a%b@c", "has no valid user name before the @");
    expect_host_refused("a@", "has no host name");
    expect_host_refused(":22", "has no host name");
    memset(name, 'a', sizeof(name) - 1);
    expect_host_refused(name, "is longer than a host name can be");
}

/* If this fails, brackets that mean something else are taken for an IPv6 address. */
static void
test_refuses_bad_brackets(void **state)
{
    static const char reason[] = "has brackets that are not around an IPv6 address";

    (void)state;
    expect_host_refused("[::1]x", reason);
    expect_host_refused("[[::1]]", reason);
    expect_host_refused("[host]", "has brackets with something that is no number (column 2)");
    expect_host_refused("[::1", "has a bracket that is not closed (column 1)");
    expect_host_refused("::1]", "has a bracket that was not opened (column 4)");
    expect_host_refused("n[4-1]", "has a range that runs backwards (column 3)");
}

/* If this fails, a list of hosts is one host, or their slots and users are mixed up. */
static void
test_lists_of_hosts(void **state)
{
    struct psi_cluster cluster;
    struct psd_error err = {0};
    static const char text[] = "{\"worker_nodes\": [\"n[08-10]\", {\"host\": \"ann@g[1-2]:2200\", "
                               "\"slots\": 2}, \"a,b\"], \"server_nodes\": [\"n[1-2]\"]}";
    static const char *const names[] = {"n08", "n09", "n10", "g1", "g1", "g2", "g2", "a", "b"};

    (void)state;
    assert_int_equal(psi_cluster_parse(text, sizeof(text) - 1, "c.json", &cluster, &err), PSD_OK);
    assert_int_equal(cluster.worker_count, 9);
    for (size_t i = 0; i < 9; i++) {
        assert_string_equal(cluster.workers[i].host, names[i]);
    }
    assert_string_equal(cluster.workers[5].user, "ann");
    assert_int_equal(cluster.workers[5].ssh_port, 2200);
    assert_int_equal(cluster.workers[6].slot, 1);
    assert_int_equal(cluster.server_count, 2);
    psi_cluster_free(&cluster);
}

/* If this fails, a bad port becomes another port. */
static void
test_refuses_bad_ports(void **state)
{
    static const char reason[] = "has a port that is not a number from 1 to 65535";

    (void)state;
    expect_host_refused("h:", reason);
    expect_host_refused("h:0", reason);
    expect_host_refused("h:65536", reason);
    expect_host_refused("h:100000", reason);
    expect_host_refused("h:2x", reason);
    expect_host_refused("[::1]:", reason);
}

/* If this fails, a user name or an address reaches ssh unchecked. */
static void
test_refuses_bad_users_and_addresses(void **state)
{
    (void)state;
    expect_refused("{\"username\": \"-l\"}",
                   "conf/c.json:1:14: username \"-l\" is not a user name");
    expect_refused("{\"username\": \"\"}", "conf/c.json:1:14: username \"\" is not a user name");
    expect_refused("{\"worker_nodes\": [{\"user\": \"a b\"}]}",
                   "conf/c.json:1:28: user \"a b\" is not a user name");
    expect_refused("{\"worker_nodes\": [{\"addr\": \"a b\"}]}",
                   "conf/c.json:1:28: addr \"a b\" has a letter that no host name has");
    expect_refused("{\"worker_nodes\": [{\"addr\": \"10.0.0.1:80\"}]}",
                   "conf/c.json:1:28: addr is an address alone, without user and port");
}

/* If this fails, the master listens where the file does not say. */
static void
test_refuses_contradicting_master_ports(void **state)
{
    struct psi_cluster cluster;

    (void)state;
    expect_refused("{\"master_node\": \"a:1\", \"master_port\": 2}",
                   "conf/c.json:1:39: master_port says port 2, but 1 is said elsewhere");
    expect_refused("{\"master_port\": 2, \"master_node\": \"tcp://a:1\"}",
                   "conf/c.json:1:35: master_node says port 1, but 2 is said elsewhere");
    expect_refused(
        "{\"master_node\": \"udp://a:1\"}",
        "conf/c.json:1:17: master_node \"udp://a:1\" has a letter that no host name has");
    expect_parsed("{" NODES ", \"master_node\": \"a\", \"master_port\": 2}", &cluster);
    assert_int_equal(cluster.master_port, 2);
    psi_cluster_free(&cluster);
}

/* If this fails, a misspelt or impossible setting in the file is ignored. */
static void
test_refuses_bad_settings(void **state)
{
    (void)state;
    expect_refused("{\"settings\": {\"hartbeat_ms\": 5}}",
                   "conf/c.json:1:15: settings: unknown setting hartbeat_ms; did you mean "
                   "heartbeat_ms?");
    expect_refused("{\"settings\": {\"heartbeat_ms\": 5}}",
                   "conf/c.json:1:15: settings: heartbeat_ms=5: must be a number, 10 to 60000 ms");
    expect_refused("{\"settings\": {\"heartbeat_ms\": 99.5}}",
                   "conf/c.json:1:31: setting heartbeat_ms must be a string, an integer or a "
                   "boolean, not a fraction");
}

/* If this fails, workers get flags they cannot read, or none. */
static void
test_refuses_bad_pass(void **state)
{
    (void)state;
    expect_refused("{\"pass\": \"flag\"}",
                   "conf/c.json:1:10: pass \"flag\": must be auto, flags, env, both or none");
}

/* If this fails, some workers run nothing, or a command is run by nobody. */
static void
test_refuses_wrong_number_of_commands(void **state)
{
    (void)state;
    expect_refused("{\"worker_commands\": [\"x\", \"y\"], " NODES "}",
                   "conf/c.json:1:21: 2 worker_commands for 1 workers: give one for each");
    expect_refused("{\"worker_commands\": [], " NODES "}",
                   "conf/c.json:1:21: 0 worker_commands for 1 workers: give one for each");
    expect_refused("{\"worker_commands\": [\"\"]}", "conf/c.json:1:22: the string is empty");
}

/* If this fails, a variable cannot be set where it should be, or says something to a shell. */
static void
test_refuses_bad_variable_names(void **state)
{
    (void)state;
    expect_refused("{\"env\": {\"A=B\": \"\"}}",
                   "conf/c.json:1:10: \"A=B\" cannot be the name of a variable");
    expect_refused("{\"env\": {\"1A\": \"\"}}",
                   "conf/c.json:1:10: \"1A\" cannot be the name of a variable");
    expect_refused("{\"worker_nodes\": [{\"env\": {\"\": \"\"}}]}",
                   "conf/c.json:1:28: \"\" cannot be the name of a variable");
}

/* If this fails, an empty path is taken for a file. */
static void
test_refuses_empty_paths(void **state)
{
    (void)state;
    expect_refused("{\"pem_file\": \"\"}", "conf/c.json:1:14: pem_file is empty");
    expect_refused("{\"virtualenv\": \"\"}", "conf/c.json:1:16: virtualenv is empty");
}

/* Makes a file with `bytes` bytes: the text, then blanks. */
static void
write_file(char *path, const char *text, size_t bytes)
{
    const int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");

    assert_non_null(file);
    fputs(text, file);
    for (size_t i = strlen(text); i < bytes; i++) {
        fputc(' ', file);
    }
    assert_int_equal(fclose(file), 0);
}

/* If this fails, a file is not read whole, or one without end fills the memory. */
static void
test_load_reads_files_up_to_the_limit(void **state)
{
    char good[] = "/tmp/psd_cluster_test_XXXXXX";
    char long_one[] = "/tmp/psd_cluster_test_XXXXXX";
    struct psi_cluster cluster;
    struct psd_error err = {0};

    (void)state;
    write_file(good, "{" NODES "}", PSI_CLUSTER_FILE_BYTES_MAX);
    assert_int_equal(psi_cluster_load(good, &cluster, &err), PSD_OK);
    assert_string_equal(cluster.servers[0].host, "b");
    psi_cluster_free(&cluster);
    unlink(good);
    write_file(long_one, "{" NODES "}", PSI_CLUSTER_FILE_BYTES_MAX + 1);
    assert_int_equal(psi_cluster_load(long_one, &cluster, &err), PSD_ERR_TOO_BIG);
    assert_non_null(strstr(err.text, ":1:1: larger than 16 MiB"));
    unlink(long_one);
}

/* If this fails, a file that cannot be read is an empty one, or the message does not say why. */
static void
test_load_names_the_system_reason(void **state)
{
    struct psi_cluster cluster;
    struct psd_error err = {0};

    (void)state;
    assert_int_equal(psi_cluster_load("/nowhere/c.json", &cluster, &err), PSD_ERR_IO);
    assert_string_equal(err.text, "open /nowhere/c.json: No such file or directory");
    assert_int_equal(psi_cluster_load("/", &cluster, &err), PSD_ERR_IO);
    assert_string_equal(err.text, "read /: Is a directory");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_the_smallest_file),
        cmocka_unit_test(test_parse_every_key),
        cmocka_unit_test(test_parse_expands_slots),
        cmocka_unit_test(test_endpoint_forms),
        cmocka_unit_test(test_pem_file_is_relative_to_the_file),
        cmocka_unit_test(test_limits_agree),
        cmocka_unit_test(test_positions_in_a_long_file),
        cmocka_unit_test(test_refuses_broken_syntax),
        cmocka_unit_test(test_refuses_endless_nesting),
        cmocka_unit_test(test_refuses_duplicate_keys),
        cmocka_unit_test(test_refuses_unknown_keys),
        cmocka_unit_test(test_refuses_wrong_types),
        cmocka_unit_test(test_refuses_missing_keys),
        cmocka_unit_test(test_refuses_empty_lists),
        cmocka_unit_test(test_refuses_too_many_processes),
        cmocka_unit_test(test_refuses_numbers_out_of_range),
        cmocka_unit_test(test_refuses_bad_host_names),
        cmocka_unit_test(test_refuses_bad_brackets),
        cmocka_unit_test(test_lists_of_hosts),
        cmocka_unit_test(test_refuses_bad_ports),
        cmocka_unit_test(test_refuses_bad_users_and_addresses),
        cmocka_unit_test(test_refuses_contradicting_master_ports),
        cmocka_unit_test(test_refuses_bad_settings),
        cmocka_unit_test(test_refuses_bad_pass),
        cmocka_unit_test(test_refuses_wrong_number_of_commands),
        cmocka_unit_test(test_refuses_bad_variable_names),
        cmocka_unit_test(test_refuses_empty_paths),
        cmocka_unit_test(test_load_reads_files_up_to_the_limit),
        cmocka_unit_test(test_load_names_the_system_reason),
    };

    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
