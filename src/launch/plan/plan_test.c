/*
 * plan_test.c - what a worker is given to run: comma lists, placeholders, flags, environment; and
 * which hosts are this one.
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

#include <sys/stat.h>

#include <cmocka.h>

#include "launch/plan/plan.h"
#include "launch/plan/process.h"
#include "launch/system/is_local.h"
#include "launch/text/variables.h"

static const char search_path[] = "/usr/bin:/bin";

/* A directory with stand-ins for the daemons and two scripts. */
struct setup {
    char directory[64];
    char knows[96];
    char plain[96];
};

static void
write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, 0755), 0);
}

static int
set_up(void **state)
{
    struct setup *place = calloc(1, sizeof(*place));
    char path[96];

    snprintf(place->directory, sizeof(place->directory), "/tmp/plan_test.XXXXXX");
    assert_non_null(mkdtemp(place->directory));
    snprintf(path, sizeof(path), "%s/ps_master", place->directory);
    write_file(path, "#!/bin/sh\n");
    snprintf(path, sizeof(path), "%s/ps_server", place->directory);
    write_file(path, "#!/bin/sh\n");
    snprintf(place->knows, sizeof(place->knows), "%s/knows.py", place->directory);
    write_file(place->knows, "flags.DEFINE_string('master_address', 'tcp://0.0.0.0:5555', '')\n");
    snprintf(place->plain, sizeof(place->plain), "%s/plain.py", place->directory);
    write_file(place->plain, "print('my_master_address_book')\n");
    *state = place;
    return 0;
}

static int
tear_down(void **state)
{
    static const char *const names[] = {"ps_master", "ps_server", "knows.py", "plain.py"};
    struct setup *place = *state;
    char path[96];

    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", place->directory, names[i]);
        unlink(path);
    }
    rmdir(place->directory);
    free(place);
    return 0;
}

static void
join(const struct words *words, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < words->count; i++) {
        used += (size_t)snprintf(text + used, size - used, "<%s>", words->list[i]);
    }
}

static void
expect_list(const char *text, uint32_t workers, const char *want)
{
    struct psd_error err = {0};
    struct words texts = {0};
    char shown[600];

    if (command_list(text, workers, search_path, false, &texts, &err) == PSD_OK) {
        join(&texts, shown, sizeof(shown));
    } else {
        snprintf(shown, sizeof(shown), "%s", err.text);
    }
    words_fini(&texts);
    if (strncmp(shown, want, strlen(want)) != 0) {
        fail_msg("%s for %u: %s", text, workers, shown);
    }
}

/* If this fails, a comma in an argument splits a command, or a list of commands is run as one. */
static void
test_command_list(void **state)
{
    (void)state;
    expect_list("sh a.sh", 2, "<sh a.sh>");
    expect_list("sh a.sh --part=1, sh a.sh --part=2", 2, "<sh a.sh --part=1><sh a.sh --part=2>");
    expect_list("X=1 sh a, X=2 sh b", 2, "<X=1 sh a><X=2 sh b>");
    expect_list("sh a.sh --sizes 1,2", 2, "<sh a.sh --sizes 1,2>");
    expect_list("sh a.sh 'x, sh y'", 2, "<sh a.sh 'x, sh y'>");
    expect_list("echo hello, world", 2, "<echo hello, world>");
    expect_list("sh a, sh b", 3, "2 commands for 3 workers");
    expect_list("echo a, cat b, nosuchprogram c", 3, "'echo a, cat b, nosuchprogram c' may be");
    expect_list("echo ls,cat", 2, "'echo ls,cat' may be one command or 2");
    expect_list("echo ls,cat", 1, "<echo ls,cat>");
}

/* If this fails, a program is looked for in the wrong place. */
static void
test_command_find(void **state)
{
    char *path = command_find("sh", search_path);

    (void)state;
    assert_non_null(path);
    assert_string_equal(strrchr(path, '/'), "/sh");
    free(path);
    assert_null(command_find("no-such-program", search_path));
    assert_null(command_find("", search_path));
    assert_null(command_find("/", search_path));
    assert_null(command_find("sh", NULL));
}

struct made {
    char argv[1024];
    struct words environment;
};

/* Plans a job of 2 servers and 2 workers and makes one process of it. */
static void
make(const char *command, enum psi_pass pass, uint32_t slot, struct made *made)
{
    static char *environment[] = {"PATH=/usr/bin:/bin", "PSD_RANK=99", "HOME=/root", NULL};
    struct words argv = {0};
    struct psd_error err = {0};
    struct plan plan = {.servers = 2, .workers = 2, .pass = pass};
    const struct plan_sources sources = {.command = command, .environment = environment};
    struct process_facts facts = {.master = "tcp://127.0.0.1:7001",
                                  .address = "127.0.0.1",
                                  .job = "test",
                                  .port = "20001",
                                  .peers = "tcp://127.0.0.1:20000,tcp://127.0.0.1:20001",
                                  .restart = 1,
                                  .place = {.local_size = 2, .nodes = 1},
                                  .cores = 4};
    const char *file;

    words_add(&plan.master_settings, "--heartbeat_ms=100");
    if (plan_build(&plan, &sources, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    facts.knows_flags = command_knows_flags(&plan.commands[0], search_path, &file);
    process_words(&plan, slot, &facts, &argv, &made->environment);
    join(&argv, made->argv, sizeof(made->argv));
    words_fini(&argv);
    plan_fini(&plan);
}

static void
expect_end(const char *text, const char *end)
{
    if (strlen(text) < strlen(end) || strcmp(text + strlen(text) - strlen(end), end) != 0) {
        fail_msg("%s does not end with %s", text, end);
    }
}

/* If this fails, scripts that know the flags do not get them, or strict ones die of them. */
static void
test_flags_by_the_script(void **state)
{
    const struct setup *place = *state;
    struct made made = {0};
    char command[256];

    snprintf(command, sizeof(command), "sh %s --x", place->knows);
    make(command, PSI_PASS_AUTO, 4, &made);
    expect_end(made.argv, "<--x><--distributed><--master_address><tcp://127.0.0.1:7001>"
                          "<--client_id><1>");
    words_fini(&made.environment);
    make(command, PSI_PASS_ENV, 4, &made);
    expect_end(made.argv, "<--x>");
    words_fini(&made.environment);

    snprintf(command, sizeof(command), "sh %s %s", place->plain, place->knows);
    make(command, PSI_PASS_AUTO, 3, &made);
    expect_end(made.argv, "knows.py>");
    words_fini(&made.environment);
    make(command, PSI_PASS_BOTH, 3, &made);
    expect_end(made.argv, "<--client_id><0>");
    words_fini(&made.environment);
}

/* If this fails, placeholders reach the script as they are, or flags are added to them. */
static void
test_placeholders(void **state)
{
    const struct setup *place = *state;
    struct made made = {0};
    char command[256];

    snprintf(command, sizeof(command), "N={rank} sh %s {rank}/{world} {role}:{port} {master} {x}",
             place->knows);
    make(command, PSI_PASS_AUTO, 4, &made);
    expect_end(made.argv, "<1/2><worker:7001><tcp://127.0.0.1:7001><{x}>");
    assert_string_equal(variables_get(made.environment.list, "N"), "1");
    words_fini(&made.environment);
}

/* If this fails, a worker believes a rank that it inherited, or does not know its own. */
static void
test_worker_environment(void **state)
{
    struct made made = {0};

    (void)state;
    make("A=1 A=2 sh", PSI_PASS_AUTO, 4, &made);
    assert_string_equal(variables_get(made.environment.list, "PSD_RANK"), "1");
    assert_string_equal(variables_get(made.environment.list, "PSD_WORLD"), "2");
    assert_string_equal(variables_get(made.environment.list, "PSD_ROLE"), "worker");
    assert_string_equal(variables_get(made.environment.list, "PSD_RESTART_COUNT"), "1");
    assert_string_equal(variables_get(made.environment.list, "PSD_MASTER_ADDRESS"),
                        "tcp://127.0.0.1:7001");
    assert_string_equal(variables_get(made.environment.list, "A"), "2");
    assert_string_equal(variables_get(made.environment.list, "PSD_LOCAL_SIZE"), "2");
    assert_string_equal(variables_get(made.environment.list, "PSD_JOB_ID"), "test");
    assert_string_equal(variables_get(made.environment.list, "PSD_PORT"), "20001");
    assert_string_equal(variables_get(made.environment.list, "PSD_PEERS"),
                        "tcp://127.0.0.1:20000,tcp://127.0.0.1:20001");
    assert_null(variables_get(made.environment.list, "PSD_LOG_DIR"));
    assert_null(variables_get(made.environment.list, "HOME"));
    words_fini(&made.environment);
}

static void
expect_unbuffered(char *own, const char *wanted)
{
    char *environment[] = {"PATH=/usr/bin:/bin", own, NULL};
    struct psd_error err = {0};
    struct plan plan = {.servers = 1, .workers = 1};
    const struct plan_sources sources = {.command = "sh", .environment = environment};

    assert_int_equal(plan_build(&plan, &sources, &err), PSD_OK);
    assert_string_equal(variables_get(plan.worker_environment.list, "PYTHONUNBUFFERED"), wanted);
    plan_fini(&plan);
}

/* If this fails, workers of other machines print at their end what they had to say before. */
static void
test_python_prints_at_once(void **state)
{
    (void)state;
    expect_unbuffered(NULL, "1");
    expect_unbuffered("PYTHONUNBUFFERED=x", "x");
    expect_unbuffered("PYTHONUNBUFFERED=", ""); /* which means no to Python */
}

/* If this fails, the daemons are started with options they do not have. */
static void
test_daemon_arguments(void **state)
{
    struct made made = {0};

    (void)state;
    make("sh", PSI_PASS_AUTO, 0, &made);
    assert_string_equal(
        made.argv, "<ps_master><--workers><2><--servers><2><--bind><127.0.0.1>"
                   "<--port><0><--ready_fd><3><--tell_joins><--heed_stdin><--heartbeat_ms=100>");
    words_fini(&made.environment);
    make("sh", PSI_PASS_AUTO, 2, &made);
    assert_string_equal(made.argv, "<ps_server><--index><1><--master_address>"
                                   "<tcp://127.0.0.1:7001><--bind><127.0.0.1><--servers><2>"
                                   "<--lanes=2>");
    words_fini(&made.environment);
}

/* If this fails, a mistake is found only after half of the job was started. */
static void
test_plan_refuses(void **state)
{
    static char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    struct psd_error err = {0};
    struct plan plan = {.servers = 1, .workers = 1};
    struct plan_sources sources = {.command = "A=1", .environment = environment};

    (void)state;
    assert_int_equal(plan_build(&plan, &sources, &err), PSD_ERR_INVALID);
    plan_fini(&plan);
    plan.servers = 1;
    sources.command = "sh";
    assert_int_equal(plan_build(&plan, &sources, &err), PSD_ERR_INVALID);
    plan_fini(&plan);
}

/* If this fails, workers on other machines miss what their environment needs, or get our PATH. */
static void
test_forwarded_environment(void **state)
{
    static char *environment[] = {"PATH=/usr/bin:/bin",
                                  "OMP_NUM_THREADS=3",
                                  "HOME=/root",
                                  "MINE=1",
                                  "MY_A=a",
                                  "MY_B=b",
                                  NULL};
    struct psd_error err = {0};
    struct plan plan = {.servers = 1, .workers = 1};
    struct plan_sources sources = {.command = "sh", .environment = environment};

    (void)state;
    words_add(&sources.forward, "MINE");
    words_add(&sources.forward, "MY_*");
    words_add(&sources.forward, "SET=here");
    assert_int_equal(plan_build(&plan, &sources, &err), PSD_OK);
    assert_string_equal(variables_get(plan.forwarded.list, "OMP_NUM_THREADS"), "3");
    assert_string_equal(variables_get(plan.forwarded.list, "MINE"), "1");
    assert_string_equal(variables_get(plan.forwarded.list, "MY_B"), "b");
    assert_string_equal(variables_get(plan.worker_environment.list, "SET"), "here");
    assert_null(variables_get(plan.forwarded.list, "PATH"));
    assert_null(variables_get(plan.forwarded.list, "HOME"));
    plan_fini(&plan);
    words_fini(&sources.forward);
}

/* If this fails, workers of one machine fight over one GPU while others are idle. */
static void
test_gpus_are_dealt_out(void **state)
{
    static char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    static const struct {
        uint32_t gpus, size, rank;
        const char *want;
    } cases[] = {{4, 2, 1, "2,3"}, {4, 4, 3, "3"}, {2, 4, 3, "1"}, {0, 2, 1, NULL}};
    const struct plan_sources sources = {.command = "sh", .environment = environment};
    struct psd_error err = {0};
    struct plan plan = {.servers = 1, .workers = 1};

    (void)state;
    assert_int_equal(plan_build(&plan, &sources, &err), PSD_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct process_facts facts = {
            .master = "tcp://127.0.0.1:1",
            .address = "127.0.0.1",
            .job = "test",
            .gpus = cases[i].gpus,
            .place = {.local_size = cases[i].size, .local_rank = cases[i].rank}};
        struct words argv = {0};
        struct words variables = {0};
        const char *got;

        process_words(&plan, 2, &facts, &argv, &variables);
        got = variables_get(variables.list, "CUDA_VISIBLE_DEVICES");
        assert_true(cases[i].want == NULL ? got == NULL
                                          : got != NULL && strcmp(got, cases[i].want) == 0);
        words_fini(&argv);
        words_fini(&variables);
    }
    plan_fini(&plan);
}

/* One process of a job of another personality: what it is told. */
static void
make_foreign(const struct plan *said, uint32_t slot, struct made *made, char name[24])
{
    static char *environment[] = {"PATH=/usr/bin:/bin", "RANK=99", "PORT=80", NULL};
    const struct plan_sources sources = {.command = "sh main.sh", .environment = environment};
    struct psi_tf_config cluster = {0};
    struct process_facts facts = {.master = "",
                                  .address = "10.0.0.1",
                                  .job = "test",
                                  .port = "20001",
                                  .logs = "/logs",
                                  .restart = 1,
                                  .place = {.local_size = 2,
                                            .nodes = 2,
                                            .worker_node = 1,
                                            .worker_nodes = 2,
                                            .cross_size = 2},
                                  .cluster = &cluster,
                                  .root_address = "10.0.0.9",
                                  .root_port = "9000",
                                  .store_address = "10.0.0.7",
                                  .store_port = "7000",
                                  .interface = "eth0"};
    struct psd_error err = {0};
    struct words argv = {0};
    struct plan plan = *said;

    assert_int_equal(psi_tf_config_add(&cluster, PSI_TF_PS, 0, "a:1", &err), PSD_OK);
    assert_int_equal(psi_tf_config_add(&cluster, PSI_TF_WORKER, 0, "b:1", &err), PSD_OK);
    if (plan_build(&plan, &sources, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    process_words(&plan, slot, &facts, &argv, &made->environment);
    plan_name(&plan, slot, name);
    join(&argv, made->argv, sizeof(made->argv));
    words_fini(&argv);
    psi_tf_config_free(&cluster);
    plan_fini(&plan);
}

/* If this fails, a script of another system is told something else than there. */
static void
test_personalities(void **state)
{
    static const struct {
        unsigned personality;
        uint32_t slot;
        const char *name;
        const char *arguments;
        const char *variable;
        const char *value; /* NULL: not set */
    } cases[] = {
        {PERSONALITY_TF1, 1, "ps0",
         "<sh><main.sh><--job_name><ps><--task_index><0><--ps_hosts><a:1><--worker_hosts><b:1>",
         "TF_CONFIG",
         "{\"cluster\": {\"worker\": [\"b:1\"], \"ps\": [\"a:1\"]}, \"task\": {\"type\": \"ps\", "
         "\"index\": 0}, \"environment\": \"cloud\"}"},
        {PERSONALITY_TF_CONFIG, 2, "chief", "<sh><main.sh>", "PSD_ROLE", "chief"},
        {PERSONALITY_TF_CONFIG, 3, "worker0", "<sh><main.sh>", "GRPC_FAIL_FAST", "use_caller"},
        {PERSONALITY_TF_CONFIG, 4, "evaluator", "<sh><main.sh>", "PSD_RANK", "2"},
        {PERSONALITY_DMLC, 0, "scheduler", "<sh><main.sh>", "DMLC_ROLE", "scheduler"},
        {PERSONALITY_DMLC, 1, "server0", "<sh><main.sh>", "DMLC_PS_ROOT_PORT", "9000"},
        {PERSONALITY_DMLC, 3, "worker1", "<sh><main.sh>", "DMLC_WORKER_ID", "1"},
        {PERSONALITY_DMLC, 3, "worker1", "<sh><main.sh>", "PORT", NULL},
        {PERSONALITY_DMLC | PERSONALITY_TORCH, 3, "worker1", "<sh><main.sh>", "MASTER_ADDR",
         "10.0.0.7"},
        {PERSONALITY_DMLC | PERSONALITY_TORCH, 3, "worker1", "<sh><main.sh>", "GROUP_RANK", "1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bool special = cases[i].personality == PERSONALITY_TF_CONFIG;
        const struct plan said = {.servers = 1,
                                  .workers = 3,
                                  .personality = cases[i].personality,
                                  .chief = special,
                                  .evaluator = special};
        struct made made = {0};
        char name[24];
        const char *value;

        make_foreign(&said, cases[i].slot, &made, name);
        assert_string_equal(name, cases[i].name);
        assert_string_equal(made.argv, cases[i].arguments);
        value = variables_get(made.environment.list, cases[i].variable);
        if (cases[i].value == NULL) {
            assert_null(value);
        } else {
            assert_non_null(value);
            assert_string_equal(value, cases[i].value);
        }
        assert_null(variables_get(made.environment.list, "PSD_MASTER_ADDRESS"));
        words_fini(&made.environment);
    }
}

/* A variable that is looked for among those of a personality. */
struct wanted {
    const char *variable;
    bool found;
};

static void
compare_variable(void *owner, const char *variable)
{
    struct wanted *wanted = owner;

    wanted->found = wanted->found || strcmp(variable, wanted->variable) == 0;
}

/* If this fails, a variable that a personality sets is not known to be its own, or the reverse: the
 * user's value of it is overwritten without a word. */
static void
test_variables_of_personalities_are_known(void **state)
{
    static const unsigned sets[] = {PERSONALITY_TORCH, PERSONALITY_DMLC, PERSONALITY_MPI};

    (void)state;
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        const bool dmlc = sets[i] == PERSONALITY_DMLC;
        const struct plan said = {.servers = dmlc ? 1 : 0, .workers = 2, .personality = sets[i]};
        struct made made = {0};
        char name[24];
        char variable[64];

        make_foreign(&said, dmlc ? 2 : 1, &made, name);
        for (size_t k = 0; k < made.environment.count; k++) {
            struct wanted wanted = {.variable = variable};

            snprintf(variable, sizeof(variable), "%.*s",
                     (int)strcspn(made.environment.list[k], "="), made.environment.list[k]);
            personality_each(sets[i], compare_variable, &wanted);
            if (strncmp(variable, "PSD_", 4) != 0 && !wanted.found) {
                fail_msg("%s is set, and not known", variable);
            }
        }
        words_fini(&made.environment);
    }
}

/* If this fails, sets that contradict each other are taken, or fitting ones refused. */
static void
test_personality_sets(void **state)
{
    static const struct {
        const char *list;
        unsigned set; /* 0: refused */
    } cases[] = {
        {"poseidon", PERSONALITY_POSEIDON},
        {"torch,mpi", PERSONALITY_TORCH | PERSONALITY_MPI},
        {"poseidon,torch", PERSONALITY_POSEIDON | PERSONALITY_TORCH},
        {"tf1,tf_config,torch", PERSONALITY_TF1 | PERSONALITY_TF_CONFIG | PERSONALITY_TORCH},
        {"poseidon,tf1", 0},
        {"poseidon,dmlc", 0},
        {"dmlc,tf_config", 0},
        {"", 0},
        {"tor", 0},
        {"torch,", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psd_error err = {0};
        unsigned set = 0;

        assert_int_equal(personality_parse(cases[i].list, &set, &err),
                         cases[i].set != 0 ? PSD_OK : PSD_ERR_INVALID);
        assert_int_equal(set, cases[i].set);
    }
}

static bool
master_waits_for_late_workers(const struct plan *plan)
{
    const struct process_facts facts = {.master = "tcp://127.0.0.1:7001", .address = "127.0.0.1"};
    struct words argv = {0};
    struct words environment = {0};
    char text[512];

    process_words(plan, 0, &facts, &argv, &environment);
    join(&argv, text, sizeof(text));
    words_fini(&argv);
    words_fini(&environment);
    return strstr(text, "<--late_workers>") != NULL;
}

/* What is said may be built several times. */
static psd_status
build(const struct plan *said, const struct plan_sources *sources, struct plan *plan_p,
      struct psd_error *err)
{
    psd_status status;

    *plan_p = *said;
    status = plan_build(plan_p, sources, err);
    if (status != PSD_OK) {
        plan_fini(plan_p);
    }
    return status;
}

/* If this fails, scripts are distributed where the user or a container forbids it. */
static void
test_automatic(void **state)
{
    char *const environment[] = {"PATH=/usr/bin:/bin", NULL};
    struct plan said = {.servers = 1, .workers = 2};
    struct plan_sources sources = {
        .command = "true", .environment = environment, .automatic = PLAN_AUTOMATIC_ON};
    struct psd_error err = {0};
    struct plan plan;

    (void)state;
    assert_int_equal(build(&said, &sources, &plan, NULL), PSD_OK);
    assert_true(plan.automatic);
    assert_string_equal(variables_get(plan.worker_environment.list, "PSD_AUTO"), "on");
    assert_true(master_waits_for_late_workers(&plan));
    plan_fini(&plan);

    sources.automatic = PLAN_AUTOMATIC_WARN;
    assert_int_equal(build(&said, &sources, &plan, NULL), PSD_OK);
    assert_true(plan.automatic);
    assert_string_equal(variables_get(plan.worker_environment.list, "PSD_AUTO"), "warn");
    plan_fini(&plan);
    sources.automatic = PLAN_AUTOMATIC_TF1;
    assert_int_equal(build(&said, &sources, &plan, NULL), PSD_OK);
    assert_true(plan.automatic);
    assert_string_equal(variables_get(plan.worker_environment.list, "PSD_AUTO"), "tf1");
    plan_fini(&plan);

    said.personality = PERSONALITY_TF1;
    said.automatic_asked = true;
    assert_int_equal(build(&said, &sources, &plan, NULL), PSD_OK);
    assert_false(plan.automatic);
    assert_string_equal(variables_get(plan.worker_environment.list, "PSD_AUTO"), "names");
    plan_fini(&plan);
    sources.automatic = PLAN_AUTOMATIC_ON;
    assert_int_equal(build(&said, &sources, &plan, &err), PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "leave out one of the two"));
    said.personality = 0;
    said.automatic_asked = false;
    sources.automatic = PLAN_AUTOMATIC_TF1;

    sources.image = "apptainer exec x.sif";
    assert_int_equal(build(&said, &sources, &plan, NULL), PSD_OK);
    assert_false(plan.automatic);
    assert_string_equal(variables_get(plan.worker_environment.list, "PSD_AUTO"), "off");
    assert_false(master_waits_for_late_workers(&plan));
    plan_fini(&plan);

    said.automatic_asked = true;
    assert_int_equal(build(&said, &sources, &plan, &err), PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "does not work in containers"));

    sources.automatic = PLAN_AUTOMATIC_OFF;
    sources.image = NULL;
    assert_int_equal(build(&said, &sources, &plan, NULL), PSD_OK);
    assert_false(plan.automatic);
    assert_string_equal(variables_get(plan.worker_environment.list, "PSD_AUTO"), "off");
    plan_fini(&plan);
}

/* If this fails, a job on this machine is refused, or another machine is taken for it. */
static void
test_here(void **state)
{
    char own[256] = "";

    (void)state;
    assert_true(is_local("localhost"));
    assert_true(is_local("127.0.0.1"));
    assert_true(is_local("127.3.2.1"));
    assert_true(is_local("::1"));
    assert_int_equal(gethostname(own, sizeof(own) - 1), 0);
    assert_true(is_local(own));
    assert_false(is_local("127.evil.example"));
    assert_false(is_local("203.0.113.7"));
    assert_false(is_local("2001:db8::7"));
    assert_false(is_local(""));
}

static bool
are_one_computer(const void *context, uint32_t one, uint32_t other)
{
    const char *names = context;

    return names[one] == names[other];
}

/* If this fails, two workers of one computer both take themselves for its first, and one GPU. */
static void
test_neighbours(void **state)
{
    const struct layout_task tasks[] = {
        {0, LAUNCH_SERVER, 0}, {1, LAUNCH_WORKER, 0}, {2, LAUNCH_WORKER, 0}, {3, LAUNCH_WORKER, 0}};
    struct neighbours found;
    struct computers computers;
    struct layout layout = layout_build_joined(tasks, 4);

    (void)state;
    computers_init(&computers, &layout, are_one_computer, "abab");
    found = neighbours_find(&computers, 1, 4); /* rank 2, beside rank 0 on the second */
    assert_int_equal(computers.count, 2);
    assert_int_equal(found.local_rank, 1);
    assert_int_equal(found.local_size, 2);
    assert_int_equal(found.node, 1);
    assert_int_equal(found.cross_rank, 0); /* the first has no worker of local rank 1 */
    assert_int_equal(found.cross_size, 1);
    computers_fini(&computers);

    computers_init(&computers, &layout, NULL, NULL);
    found = neighbours_find(&computers, 1, 4);
    assert_int_equal(found.local_rank, 0);
    assert_int_equal(found.node, 3);
    assert_int_equal(found.worker_node, 2); /* the first has only the server */
    assert_int_equal(found.worker_nodes, 3);
    computers_fini(&computers);
    layout_fini(&layout);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command_list),
        cmocka_unit_test(test_command_find),
        cmocka_unit_test_setup_teardown(test_flags_by_the_script, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_placeholders, set_up, tear_down),
        cmocka_unit_test(test_worker_environment),
        cmocka_unit_test(test_python_prints_at_once),
        cmocka_unit_test(test_daemon_arguments),
        cmocka_unit_test(test_plan_refuses),
        cmocka_unit_test(test_forwarded_environment),
        cmocka_unit_test(test_gpus_are_dealt_out),
        cmocka_unit_test(test_personalities),
        cmocka_unit_test(test_variables_of_personalities_are_known),
        cmocka_unit_test(test_personality_sets),
        cmocka_unit_test(test_automatic),
        cmocka_unit_test(test_here),
        cmocka_unit_test(test_neighbours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
