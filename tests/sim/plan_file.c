/*
 * plan_file.c - a plan as text: written, read, and refused where it makes no sense.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static const char first_line[] = "psd_sim plan";

enum type { TYPE_BOOL, TYPE_U8, TYPE_U32, TYPE_U64, TYPE_DOUBLE, TYPE_WORD };

/* One key. A word is an enum of consecutive numbers, the first of them `base`. */
struct field {
    const char *key;
    enum type type;
    size_t offset;
    unsigned values; /* of an array: its length */
    unsigned base;
    const char *const *words;
};

static const char *const policies[] = {"fail", "continue", "wait", NULL};
static const char *const kinds[] = {"rounds", "slots", "ledger", NULL};
static const char *const dtypes[] = {"f32", "f64", "f16", "bf16", NULL};
static const char *const uses[] = {"update", "sum", NULL};
static const char *const reduces[] = {"mean", "sum", NULL};
static const char *const rules[] = {"sgd",     "add",  "momentum", "nesterov", "adagrad",
                                    "rmsprop", "adam", "adamw",    "ftrl",     NULL};
static const char *const inits[] = {"zero", "rank0", "constant", "uniform", "normal", NULL};

#define PLAN(name, type)                                                                           \
    {                                                                                              \
#name, type, offsetof(struct plan, name), 1, 0, NULL                                       \
    }
#define PLAN_LIST(name)                                                                            \
    {                                                                                              \
#name, TYPE_U32, offsetof(struct plan, name),                                              \
            sizeof(((struct plan *)0)->name) / sizeof(uint32_t), 0, NULL                           \
    }
#define PLAN_WORD(name, words)                                                                     \
    {                                                                                              \
#name, TYPE_WORD, offsetof(struct plan, name), 1, 0, words                                 \
    }
#define PART(part, name, type)                                                                     \
    {                                                                                              \
#part "." #name, type, offsetof(struct plan, part.name), 1, 0, NULL                        \
    }
#define TABLE(name, type)                                                                          \
    {                                                                                              \
#name, type, offsetof(struct table_plan, name), 1, 0, NULL                                 \
    }
#define TABLE_WORD(name, base, words)                                                              \
    {                                                                                              \
#name, TYPE_WORD, offsetof(struct table_plan, name), 1, base, words                        \
    }

static const struct field plan_fields[] = {
    PLAN(seed, TYPE_U64),
    PLAN(workers, TYPE_U32),
    PLAN(readers, TYPE_U32),
    PLAN(servers, TYPE_U32),
    PLAN_LIST(lanes),
    PLAN_LIST(worker_host),
    PLAN_LIST(server_host),
    PLAN_WORD(policy, policies),
    PLAN(heartbeat_ms, TYPE_U32),
    PLAN(dead_heartbeats, TYPE_U32),
    PLAN(grace_ms, TYPE_U32),
    PLAN(server_wait_ms, TYPE_U32),
    PLAN(server_return_ms, TYPE_U32),
    PLAN(replicas, TYPE_U32),
    PLAN(max_servers, TYPE_U32),
    PLAN(scales, TYPE_U32),
    PLAN(move_bytes_per_s, TYPE_U64),
    PLAN(master_grace_ms, TYPE_U32),
    PLAN(steps, TYPE_U64),
    PLAN(pushes_max, TYPE_U64),
    PLAN(op_timeout_ms, TYPE_U32),
    PLAN(ledger_timeout_ms, TYPE_U32),
    PLAN(pool_bytes, TYPE_U64),
    PLAN(window_bytes, TYPE_U32),
    PLAN(rows_part_bytes, TYPE_U32),
    PLAN(checksum, TYPE_BOOL),
    PLAN(lone_sums, TYPE_BOOL),
    PLAN(depth, TYPE_U32),
    PLAN(threads, TYPE_U32),
    PLAN(barrier_every, TYPE_U64),
    PLAN(end_barriers, TYPE_U32),
    PLAN(save_every, TYPE_U64),
    PLAN(checkpoint_steps, TYPE_U64),
    PLAN(checkpoint_ms, TYPE_U64),
    PLAN(snapshot_bytes, TYPE_U64),
    PLAN(load_step, TYPE_U64),
    PLAN(resumes, TYPE_BOOL),
    PLAN(step_adds, TYPE_BOOL),
    PLAN(auto_rank, TYPE_BOOL),
    PLAN(start_workers, TYPE_U32),
    PLAN_LIST(join_ms),
    PLAN_LIST(join_step),
    PLAN(leave_percent, TYPE_U32),
    PLAN(think_max_ns, TYPE_U64),
    PART(weather, delay_min, TYPE_U64),
    PART(weather, delay_max, TYPE_U64),
    PART(weather, slow_percent, TYPE_U32),
    PART(weather, take_max, TYPE_U64),
    PART(weather, lost_connect_percent, TYPE_U32),
    PART(weather, close_max, TYPE_U64),
    PART(faults, from_ns, TYPE_U64),
    PART(faults, until_ns, TYPE_U64),
    PART(faults, cuts, TYPE_U32),
    PART(faults, clogs, TYPE_U32),
    PART(faults, pauses, TYPE_U32),
    PART(faults, worker_kills, TYPE_U32),
    PART(faults, together, TYPE_BOOL),
    PART(faults, kill_server, TYPE_BOOL),
    PART(faults, kill_master, TYPE_BOOL),
    PART(faults, server_lives, TYPE_U32),
    PART(faults, exiles, TYPE_U32),
    PART(faults, freezes, TYPE_U32),
    PART(faults, blocks, TYPE_U32),
    PART(faults, rifts, TYPE_U32),
    PART(faults, server_stays_away, TYPE_BOOL),
    PART(faults, master_lives, TYPE_U32),
    PART(faults, masters_overlap, TYPE_BOOL),
    PART(faults, masters_move, TYPE_BOOL),
    PART(faults, target_kills, TYPE_U32),
    PART(faults, neighbour_cuts, TYPE_U32),
    PART(faults, harsh, TYPE_BOOL),
};

static const struct field table_fields[] = {
    TABLE_WORD(kind, 0, kinds),
    TABLE_WORD(dtype, PSD_F32, dtypes),
    TABLE(count, TYPE_U64),
    TABLE_WORD(use, 0, uses),
    TABLE_WORD(reduce, 0, reduces),
    TABLE_WORD(rule.rule, 0, rules),
    TABLE(rule.learning_rate, TYPE_DOUBLE),
    TABLE(rule.momentum, TYPE_DOUBLE),
    TABLE(staleness, TYPE_U32),
    TABLE(backup, TYPE_U32),
    TABLE_WORD(init, 0, inits),
    TABLE(priority, TYPE_U8),
    TABLE(opened_at, TYPE_U64),
    TABLE(split, TYPE_BOOL),
    TABLE(ranges, TYPE_BOOL),
    TABLE(skips, TYPE_BOOL),
    TABLE(ordinary, TYPE_BOOL),
    TABLE(width, TYPE_U32),
    TABLE(idle, TYPE_U32),
    TABLE(spills, TYPE_BOOL),
    TABLE(places, TYPE_U32),
};

enum {
    PLAN_FIELDS = sizeof(plan_fields) / sizeof(plan_fields[0]),
    TABLE_FIELDS = sizeof(table_fields) / sizeof(table_fields[0]),
};

/* ---- one value ----------------------------------------------------------------------------- */

static uint64_t
load_number(enum type type, const void *from)
{
    switch (type) {
    case TYPE_BOOL:
        return *(const bool *)from;
    case TYPE_U8:
        return *(const uint8_t *)from;
    case TYPE_U64:
        return *(const uint64_t *)from;
    default:
        return *(const uint32_t *)from;
    }
}

/* False: the number is too large. */
static bool
store_number(enum type type, void *to, uint64_t number)
{
    switch (type) {
    case TYPE_BOOL:
        *(bool *)to = number != 0;
        return number <= 1;
    case TYPE_U8:
        *(uint8_t *)to = (uint8_t)number;
        return number <= UINT8_MAX;
    case TYPE_U64:
        *(uint64_t *)to = number;
        return true;
    default:
        *(uint32_t *)to = (uint32_t)number;
        return number <= UINT32_MAX;
    }
}

static bool
parse_number(enum type type, const char *word, void *to)
{
    char *end;
    uint64_t number;

    errno = 0;
    if (type == TYPE_DOUBLE) {
        *(double *)to = strtod(word, &end);
        return end != word && *end == '\0';
    }
    number = strtoull(word, &end, 10);
    return errno == 0 && word[0] >= '0' && word[0] <= '9' && *end == '\0' &&
           store_number(type, to, number);
}

static bool
parse_value(const struct field *field, const char *word, void *to)
{
    if (field->type != TYPE_WORD) {
        return parse_number(field->type, word, to);
    }
    for (unsigned i = 0; field->words[i] != NULL; i++) {
        if (strcmp(field->words[i], word) == 0) {
            return store_number(TYPE_U32, to, field->base + i);
        }
    }
    return false;
}

static size_t
bytes_of(enum type type)
{
    static const size_t bytes[] = {
        [TYPE_BOOL] = sizeof(bool),     [TYPE_U8] = sizeof(uint8_t),
        [TYPE_U32] = sizeof(uint32_t),  [TYPE_U64] = sizeof(uint64_t),
        [TYPE_DOUBLE] = sizeof(double), [TYPE_WORD] = sizeof(uint32_t),
    };

    return bytes[type];
}

/* ---- writing ------------------------------------------------------------------------------- */

static void
write_value(const struct field *field, const void *from, FILE *file)
{
    if (field->type == TYPE_DOUBLE) {
        fprintf(file, " %.17g", *(const double *)from);
    } else if (field->type == TYPE_WORD) {
        fprintf(file, " %s", field->words[load_number(TYPE_WORD, from) - field->base]);
    } else {
        fprintf(file, " %llu", (unsigned long long)load_number(field->type, from));
    }
}

/* Zeroes at the end of a list go without saying. */
static void
write_field(const struct field *field, const void *object, FILE *file)
{
    const char *values = (const char *)object + field->offset;
    unsigned count = field->values;

    while (count > 1 &&
           load_number(field->type, values + (count - 1) * bytes_of(field->type)) == 0) {
        count--;
    }
    fputs(field->key, file);
    for (unsigned i = 0; i < count; i++) {
        write_value(field, values + i * bytes_of(field->type), file);
    }
    fputc('\n', file);
}

void
plan_write(const struct plan *plan, FILE *file)
{
    fprintf(file, "%s\n", first_line);
    for (unsigned i = 0; i < PLAN_FIELDS; i++) {
        write_field(&plan_fields[i], plan, file);
    }
    for (unsigned i = 0; i < plan->table_count; i++) {
        fprintf(file, "\ntable %s\n", plan->table[i].name);
        for (unsigned k = 0; k < TABLE_FIELDS; k++) {
            write_field(&table_fields[k], &plan->table[i], file);
        }
    }
}

/* ---- reading ------------------------------------------------------------------------------- */

struct reader {
    struct plan *plan;
    const char *path;
    unsigned line;
    bool seen[PLAN_FIELDS + TABLE_FIELDS]; /* keys of the plan, and of the table being read */
    char *text;
    size_t size;
};

static bool refuse(const struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool
refuse(const struct reader *reader, const char *format, ...)
{
    va_list args;
    const int used = snprintf(reader->text, reader->size, "%s:%u: ", reader->path, reader->line);

    va_start(args, format);
    if (used >= 0 && (size_t)used < reader->size) {
        vsnprintf(reader->text + used, reader->size - (size_t)used, format, args);
    }
    va_end(args);
    return false;
}

static bool
begin_table(struct reader *reader, char **rest)
{
    struct plan *plan = reader->plan;
    const char *name = strtok_r(NULL, " ", rest);
    struct table_plan *table = &plan->table[plan->table_count];

    if (name == NULL || strlen(name) >= sizeof(table->name)) {
        return refuse(reader, "table: wants a name of at most %zu characters",
                      sizeof(table->name) - 1);
    }
    if (plan->table_count == TABLES_MAX) {
        return refuse(reader, "table: one more than %d", TABLES_MAX);
    }
    snprintf(table->name, sizeof(table->name), "%s", name);
    table->dtype = PSD_F32;
    plan->table_count++;
    memset(reader->seen + PLAN_FIELDS, 0, TABLE_FIELDS * sizeof(bool));
    return true;
}

/* The key's field; *object_p: what it is a field of. */
static const struct field *
find_field(struct reader *reader, const char *key, void **object_p, bool **seen_p)
{
    struct plan *plan = reader->plan;
    const bool in_table = plan->table_count > 0;
    const struct field *fields = in_table ? table_fields : plan_fields;
    const unsigned count = in_table ? TABLE_FIELDS : PLAN_FIELDS;

    *object_p = in_table ? (void *)&plan->table[plan->table_count - 1] : (void *)plan;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(fields[i].key, key) == 0) {
            *seen_p = &reader->seen[in_table ? PLAN_FIELDS + i : i];
            return &fields[i];
        }
    }
    return NULL;
}

static bool
read_values(struct reader *reader, const struct field *field, void *object, char **rest)
{
    char *to = (char *)object + field->offset;
    unsigned count = 0;

    for (const char *word; (word = strtok_r(NULL, " ", rest)) != NULL; count++) {
        if (count == field->values) {
            return refuse(reader, "%s: more than %u values", field->key, field->values);
        }
        if (!parse_value(field, word, to + count * bytes_of(field->type))) {
            return refuse(reader, "%s: cannot be %s", field->key, word);
        }
    }
    return count > 0 || refuse(reader, "%s: no value", field->key);
}

static bool
read_line(struct reader *reader, char *line)
{
    char *rest = NULL;
    const char *key;
    const struct field *field;
    void *object;
    bool *seen = NULL;

    line[strcspn(line, "#\n")] = '\0';
    if (reader->line == 1) {
        return strcmp(line, first_line) == 0 ||
               refuse(reader, "does not begin with \"%s\"", first_line);
    }
    key = strtok_r(line, " ", &rest);
    if (key == NULL) {
        return true;
    }
    if (strcmp(key, "table") == 0) {
        return begin_table(reader, &rest);
    }
    field = find_field(reader, key, &object, &seen);
    if (field == NULL) {
        return refuse(reader, "%s: no such key of a %s", key,
                      reader->plan->table_count > 0 ? "table" : "plan");
    }
    if (*seen) {
        return refuse(reader, "%s: a second time", key);
    }
    *seen = true;
    return read_values(reader, field, object, &rest);
}

/* What the rest of the simulator relies on. */
/* The rows of a sparse table. */
static bool
is_spread(const struct plan *plan, const struct table_plan *table)
{
    uint32_t places = 0;

    for (uint32_t i = 0; i < plan->servers; i++) {
        places += plan->lanes[i];
    }
    return places == table->places && table->count % ((uint64_t)places * table->width) == 0;
}

static bool
check(const struct reader *reader)
{
    const struct plan *plan = reader->plan;

    if (plan->workers == 0 || plan->workers > WORKERS_MAX) {
        return refuse(reader, "workers: %u, not 1 to %d", plan->workers, WORKERS_MAX);
    }
    if (plan->servers == 0 || plan->servers > SERVERS_MAX) {
        return refuse(reader, "servers: %u, not 1 to %d", plan->servers, SERVERS_MAX);
    }
    if (plan->max_servers > PROCESSES_MAX ||
        (plan->max_servers > 0 && plan->max_servers < plan->servers)) {
        return refuse(reader, "max_servers: %u, not 0, nor servers to %d", plan->max_servers,
                      PROCESSES_MAX);
    }
    for (uint32_t i = 0; i < plan->servers; i++) {
        if (plan->lanes[i] == 0 || plan->lanes[i] > LANES_MAX) {
            return refuse(reader, "lanes: %u, not 1 to %d", plan->lanes[i], LANES_MAX);
        }
    }
    if (plan->steps == 0 || plan->table_count == 0) {
        return refuse(reader, "%s: none", plan->steps == 0 ? "steps" : "table");
    }
    if (plan->resumes && plan->load_step == 0) {
        return refuse(reader, "resumes: from no load_step");
    }
    if (plan->load_step >= plan->steps) {
        return refuse(reader, "load_step: not below steps");
    }
    if (plan->depth > FLIGHTS_MAX) {
        return refuse(reader, "depth: %u, not 0 to %d", plan->depth, FLIGHTS_MAX);
    }
    if (plan->heartbeat_ms == 0 || plan->dead_heartbeats == 0 || plan->op_timeout_ms == 0) {
        return refuse(reader, "heartbeat_ms, dead_heartbeats and op_timeout_ms cannot be 0");
    }
    if (plan->weather.delay_max < plan->weather.delay_min ||
        plan->faults.until_ns < plan->faults.from_ns) {
        return refuse(reader, "weather.delay and faults: the end is before the beginning");
    }
    for (unsigned i = 0; i < plan->table_count; i++) {
        if (plan->table[i].count == 0 || plan->table[i].backup >= plan->workers) {
            return refuse(reader, "table %s: count 0, or backup not below %u workers",
                          plan->table[i].name, plan->workers);
        }
        if (plan->table[i].width > 0 && !is_spread(plan, &plan->table[i])) {
            return refuse(reader,
                          "table %s: places is not the number of lanes, or count not a multiple of "
                          "places times width",
                          plan->table[i].name);
        }
    }
    return true;
}

bool
plan_read(struct plan *plan, const char *path, char *text, size_t size)
{
    struct reader reader = {.plan = plan, .path = path, .text = text, .size = size};
    FILE *file = fopen(path, "r");
    char line[512];
    bool good = true;

    memset(plan, 0, sizeof(*plan));
    if (file == NULL) {
        snprintf(text, size, "%s: %s", path, strerror(errno));
        return false;
    }
    while (good && fgets(line, sizeof(line), file) != NULL) {
        reader.line++;
        good = read_line(&reader, line);
    }
    fclose(file);
    return good && check(&reader);
}
