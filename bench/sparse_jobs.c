/*
 * sparse_jobs.c - jobs whose workers look rows up and push them.
 *
 * A stage is a job of some workers and servers, with the peers of its transport beside it. They
 * live through all works of the stage, and take turns in each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sparse_jobs.h"

#include "base/fail.h"
#include "job.h"
#include "progress.h"
#include "row_peers.h"
#include "rows.h"
#include "sparse_ceiling.h"
#include "timer.h"

enum { POSEIDON = ROW_PEERS, PLAYERS, WARM_ROUNDS = 3 };

/* What workers do. Thread: immutable. */
struct work {
    const char *name;
    uint64_t flags;
    uint64_t batch;
    uint64_t width;
    unsigned peers; /* bits of enum row_peer */
    uint64_t ids;   /* 0: as many as the run has */
};

enum {
    PLAIN = 1 << ROW_PEER_PLAIN,
    CACHES = 1 << ROW_PEER_REDIS | 1 << ROW_PEER_MEMCACHED,
    MANY = 1000000,
    FEW = 32768,       /* rows that are wide */
    KEPT = 256 * 1024, /* rows of a table from which the oldest go */
};

static const struct work main_works[] = {
    {"lookup", TEAM_LOOKUP, 4096, 16, PLAIN | CACHES, 0},
    {"push", TEAM_PUSH, 4096, 16, PLAIN, 0},
    {"push and lookup", TEAM_PUSH | TEAM_LOOKUP, 4096, 16, PLAIN, 0},
};

static const struct work other_works[] = {
    {"lookup, zipf", TEAM_LOOKUP | TEAM_ZIPF, 4096, 16, PLAIN, 0},
    {"push and lookup, zipf", TEAM_PUSH | TEAM_LOOKUP | TEAM_ZIPF, 4096, 16, 0, 0},
    {"lookup", TEAM_LOOKUP, 64, 16, PLAIN | CACHES, FEW},
    {"lookup", TEAM_LOOKUP, 1024, 16, PLAIN | CACHES, FEW},
    {"lookup", TEAM_LOOKUP, 32768, 16, 0, FEW},
    {"push and lookup", TEAM_PUSH | TEAM_LOOKUP, 4096, 1, 0, FEW},
    {"push and lookup", TEAM_PUSH | TEAM_LOOKUP, 4096, 64, 0, FEW},
    {"push and lookup", TEAM_PUSH | TEAM_LOOKUP, 1024, 256, 0, FEW},
    {"push and lookup", TEAM_PUSH | TEAM_LOOKUP, 128, 4096, 0, FEW / 8},
    {"push, new ids", TEAM_PUSH | TEAM_NEW, 4096, 16, 0, 0},
    {"push, new ids for old", TEAM_PUSH | TEAM_NEW | TEAM_EVICT, 4096, 16, 0, KEPT},
};

struct stage {
    uint32_t workers;
    uint32_t servers;
    bool tcp;
    bool others; /* also other_works */
    bool peers;
};

static const struct stage stages[] = {
    {2, 1, false, true, true},   {2, 1, true, false, true},  {1, 1, false, false, true},
    {2, 2, false, false, false}, {4, 1, false, false, true}, {4, 4, true, false, false},
};

/* ---- A stage ---- */

/* Thread: owned by the runner. */
struct field {
    const struct stage *stage;
    const struct bench_options *options;
    FILE *lines;
    uint64_t ids;
    bool plays[PLAYERS];
    struct group groups[PLAYERS];
    double speeds[PLAYERS][RESULT_REPEAT_MAX]; /* million ids per second, of all workers */
    double cpu_ns[PLAYERS][RESULT_REPEAT_MAX]; /* of all its processes, for an id */
    double p99_us;                             /* Poseidon's rounds, of the last run */
};

static const char *
player_name(unsigned player)
{
    static const char *const names[ROW_PEERS] = {"C gather", "Redis", "memcached"};

    return player == POSEIDON ? "Poseidon" : names[player];
}

static psd_status
start_players(struct field *field, struct psd_error *err)
{
    const struct stage *stage = field->stage;
    const struct job_args args = {
        .workers = stage->workers, .servers = stage->servers, .tcp = stage->tcp};
    psd_status status = job_start(&args, &field->groups[POSEIDON], err);

    field->plays[POSEIDON] = status == PSD_OK;
    for (unsigned peer = 0; peer < ROW_PEERS && status == PSD_OK; peer++) {
        const bool wanted = stage->peers && (peer == ROW_PEER_PLAIN || !field->options->alone) &&
                            row_peer_missing(peer) == NULL;

        if (wanted) {
            status = row_peer_start(peer, stage->workers, stage->tcp, 2 * field->ids,
                                    &field->groups[peer], err);
            field->plays[peer] = status == PSD_OK;
        }
    }
    return status;
}

static psd_status
end_players(struct field *field, psd_status status, struct psd_error *err)
{
    for (unsigned player = 0; player < PLAYERS; player++) {
        if (field->plays[player] && status == PSD_OK) {
            status = group_end(&field->groups[player], err);
        } else if (field->plays[player]) {
            group_abandon(&field->groups[player]);
        }
    }
    return status;
}

/* ---- A work ---- */

static struct team_order
order_of(const struct field *field, const struct work *work)
{
    return (struct team_order){
        .verb = TEAM_ROWS,
        .flags = work->flags,
        .ids = work->ids != 0 && work->ids < field->ids ? work->ids : field->ids,
        .width = work->width,
        .batch = work->batch,
    };
}

static bool
takes_part(const struct field *field, const struct work *work, unsigned player)
{
    return field->plays[player] && (player == POSEIDON || (work->peers >> player & 1) != 0);
}

/* Makes the rows, and finds how many rounds fill the time. */
static psd_status
warm_up(struct field *field, unsigned player, struct team_order order, uint64_t *rounds_p,
        struct psd_error *err)
{
    struct team *team = &field->groups[player].team;
    struct team_times times;
    psd_status status = team_command(team, &order, &times, err);

    order.rounds = WARM_ROUNDS;
    for (int i = 0; i < 2 && status == PSD_OK; i++) { /* the first one is never the fastest */
        status = team_command(team, &order, &times, err);
    }
    if (status == PSD_OK) {
        *rounds_p =
            timer_rounds((uint64_t)(field->options->seconds * 1e9), WARM_ROUNDS, times.elapsed_ns);
    }
    return status;
}

static psd_status
run_once(struct field *field, unsigned player, struct team_order order, uint64_t rounds,
         uint32_t repeat, struct psd_error *err)
{
    struct team_times times;
    psd_status status;

    order.rounds = rounds;
    status = team_command(&field->groups[player].team, &order, &times, err);
    if (status != PSD_OK) {
        return status;
    }
    field->speeds[player][repeat] =
        (double)(rounds * order.batch * field->stage->workers) * 1e3 / (double)times.elapsed_ns;
    field->cpu_ns[player][repeat] =
        (double)times.cpu_ns / (double)(rounds * order.batch * field->stage->workers);
    if (player == POSEIDON) {
        field->p99_us = (double)times.p99_ns * 1e-3;
    }
    return PSD_OK;
}

static double
middle(const double *values, uint32_t count)
{
    return result_spread(values, count).middle;
}

static double
ratio_of(const struct field *field, unsigned player, uint32_t repeat)
{
    double ratios[RESULT_REPEAT_MAX];

    for (uint32_t i = 0; i < repeat; i++) {
        ratios[i] = field->speeds[POSEIDON][i] / field->speeds[player][i];
    }
    return timer_median(ratios, repeat);
}

/* How many times as fast as caches the first work is to be; 0: nobody said. */
static double
goal_of(const struct field *field, const struct work *work, unsigned player)
{
    if (work != &main_works[0] || field->stage->workers != 2 || player == ROW_PEER_PLAIN) {
        return 0;
    }
    return field->stage->tcp ? 10 : 20;
}

static void
print_beside(const struct field *field, const struct work *work, unsigned player, double own,
             uint32_t repeat)
{
    const struct stage *stage = field->stage;
    const struct team_order order = order_of(field, work);
    const char *transport = stage->tcp ? "tcp" : "shm";
    const double cpu_ns = middle(field->cpu_ns[POSEIDON], repeat);
    const double goal = player == POSEIDON ? 0 : goal_of(field, work, player);
    double ratio = 0;
    double beside = 0;
    double beside_ns = 0;
    char end[128] = "| | | | |";

    if (player != POSEIDON) {
        ratio = ratio_of(field, player, repeat);
        beside = middle(field->speeds[player], repeat);
        beside_ns = middle(field->cpu_ns[player], repeat);
        snprintf(end, sizeof(end),
                 goal != 0 ? "| %s %.3g | %.0f | %.3g | %.0f |" : "| %s %.3g | %.0f | %.3g | |",
                 player_name(player), beside, beside_ns, ratio, goal);
    }
    printf("| %s | %llu | %llu | %llu | %u, %u | %s | %.3g | %.0f | %.0f %s\n", work->name,
           (unsigned long long)order.ids, (unsigned long long)order.width,
           (unsigned long long)order.batch, stage->workers, stage->servers, transport, own, cpu_ns,
           field->p99_us, end);
    if (field->lines != NULL) {
        fprintf(field->lines,
                "{\"name\": \"sparse job: %s\", \"rows\": %llu, \"width\": %llu, \"batch\": %llu, "
                "\"workers\": %u, \"servers\": %u, \"transport\": \"%s\", \"value\": %.6g, "
                "\"unit\": \"M ids/s\", \"cpu_ns\": %.1f, \"p99_us\": %.1f, \"reference_name\": "
                "\"%s\", "
                "\"reference\": %.6g, \"reference_cpu_ns\": %.1f, \"ratio\": %.4f, \"goal\": %.1f, "
                "\"repeat\": %u}\n",
                work->name, (unsigned long long)order.ids, (unsigned long long)order.width,
                (unsigned long long)order.batch, stage->workers, stage->servers, transport, own,
                cpu_ns, field->p99_us, player == POSEIDON ? "" : player_name(player), beside,
                beside_ns, ratio, goal, repeat);
    }
}

static void
print_work(const struct field *field, const struct work *work)
{
    const uint32_t repeat = field->options->repeat;
    const double own = middle(field->speeds[POSEIDON], repeat);
    bool is_alone = true;

    for (unsigned player = 0; player < POSEIDON; player++) {
        if (takes_part(field, work, player)) {
            print_beside(field, work, player, own, repeat);
            is_alone = false;
        }
    }
    if (is_alone) {
        print_beside(field, work, POSEIDON, own, repeat);
    }
    fflush(stdout); /* the rest takes a while */
}

static psd_status
measure(struct field *field, const struct work *work, struct psd_error *err)
{
    const struct team_order order = order_of(field, work);
    uint64_t rounds[PLAYERS] = {0};
    psd_status status = PSD_OK;

    progress_say(work->name);
    for (unsigned player = 0; player < PLAYERS && status == PSD_OK; player++) {
        if (takes_part(field, work, player)) {
            status = warm_up(field, player, order, &rounds[player], err);
        }
    }
    for (uint32_t i = 0; i < field->options->repeat && status == PSD_OK; i++) {
        for (unsigned player = 0; player < PLAYERS && status == PSD_OK; player++) {
            if (takes_part(field, work, player)) {
                status = run_once(field, player, order, rounds[player], i, err);
            }
        }
    }
    progress_clear();
    if (status == PSD_OK) {
        print_work(field, work);
    }
    return status;
}

/* Of large tables there is memory for two, in jobs of one kind. */
static uint64_t
rows_of(const struct stage *stage, const struct bench_options *options)
{
    if (options->quick) {
        return 65536;
    }
    return options->large && stage->workers == 2 && stage->servers == 1 ? 10 * MANY : MANY;
}

static psd_status
run_stage(const struct stage *stage, const struct bench_options *options, FILE *lines,
          struct psd_error *err)
{
    const size_t others = sizeof(other_works) / sizeof(other_works[0]);
    struct field field = {
        .stage = stage,
        .options = options,
        .lines = lines,
        .ids = rows_of(stage, options),
    };
    psd_status status = start_players(&field, err);

    for (size_t i = 0; i < sizeof(main_works) / sizeof(main_works[0]) && status == PSD_OK; i++) {
        status = measure(&field, &main_works[i], err);
    }
    if (options->large) { /* there is no memory for all of them with so many */
        field.ids = MANY;
    }
    for (size_t i = 0; i < others && stage->others && status == PSD_OK; i++) {
        status = measure(&field, &other_works[i], err);
    }
    return end_players(&field, status, err);
}

psd_status
sparse_jobs_run(const struct bench_options *options, FILE *lines, struct psd_error *err)
{
    const size_t count = options->quick ? 2 : sizeof(stages) / sizeof(stages[0]);
    psd_status status = PSD_OK;

    printf(
        "\nJobs, rows of f32 with adagrad: million ids per second of all workers together; for an "
        "id, nanoseconds of\nprocessor time of all processes; the 99th percentile of a round in "
        "microseconds. Beside it: each worker's own\nplain rows in memory, with nobody to share "
        "them; Redis and memcached with clients in C, the best size of their\ncommands.\n\n");
    printf("| work | rows | width | batch | workers, servers | | M ids/s | CPU | p99 | beside | "
           "CPU | ratio | "
           "goal |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        status = run_stage(&stages[i], options, lines, err);
    }
    for (unsigned peer = 0; peer < ROW_PEERS && !options->alone && status == PSD_OK; peer++) {
        if (row_peer_missing(peer) != NULL) {
            printf("\nskipped: %s\n", row_peer_missing(peer));
        }
    }
    return status;
}
