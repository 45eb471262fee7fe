/*
 * what_runs.c - what a job comes to.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/prepare/what_runs.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/text/memory.h"
#include "launch/text/words.h"

static void
write_words(FILE *stream, const char *name, const struct words *words)
{
    if (words->count > 0) {
        fprintf(stream, " %s", name);
    }
    for (size_t i = 0; i < words->count; i++) {
        fputc(' ', stream);
        words_quote(stream, words->list[i]);
    }
}

static void
write_text(FILE *stream, const char *name, const char *text)
{
    if (text != NULL) {
        fprintf(stream, " %s=", name);
        words_quote(stream, text);
    }
}

static void
write_command(FILE *stream, const struct launch_options *options, const struct prepared *prepared)
{
    const struct plan *plan = &prepared->plan;

    (void)options;
    for (uint32_t i = 0; i < plan->command_count; i++) {
        write_words(stream, "with", &plan->commands[i].environment);
        write_words(stream, "run", &plan->commands[i].argv);
    }
    write_words(stream, "image", &plan->image);
    write_text(stream, "virtualenv", plan->virtualenv);
}

static void
write_directory(FILE *stream, const struct launch_options *options, const struct prepared *prepared)
{
    char here[4096];

    if (prepared->plan.workdir != NULL && prepared->plan.workdir[0] == '/') {
        fputs(prepared->plan.workdir, stream);
    } else if (getcwd(here, sizeof(here)) != NULL) {
        fprintf(stream, "%s", here);
        write_text(stream, "workdir", prepared->plan.workdir);
    }
    write_text(stream, "sync", options->sync);
}

static void
write_machines(FILE *stream, const struct launch_options *options, const struct prepared *prepared)
{
    const struct layout *layout = &prepared->layout;

    for (uint32_t i = 0; i < layout->machine_count; i++) {
        const struct layout_machine *machine = &layout->machines[i];

        fprintf(stream, " %s@%s:%u %s", machine->user, machine->name, machine->ssh_port,
                machine->address);
    }
    for (uint32_t slot = 0; slot < layout->slots; slot++) {
        fprintf(stream, " %u/%u", layout->machine_of[slot], layout->gpus[slot]);
    }
    fprintf(stream, " %u servers, %u workers, %u GPUs each", prepared->plan.servers,
            prepared->plan.workers, prepared->plan.gpus_per_worker);
    write_text(stream, "interface", options->interface);
}

/* With the values that those variables have now: who names one means its value. */
static void
write_forward(FILE *stream, const char *pattern, const struct words *variables)
{
    write_text(stream, "forward", pattern);
    for (size_t i = 0; i < variables->count; i++) {
        if (plan_pattern_fits(pattern, variables->list[i])) {
            write_text(stream, "is", variables->list[i]);
        }
    }
}

static void
write_environment(FILE *stream, const struct launch_options *options,
                  const struct prepared *prepared)
{
    const struct plan *plan = &prepared->plan;

    write_words(stream, "all", &plan->worker_environment);
    for (uint32_t i = 0; plan->worker_set != NULL && i < plan->workers; i++) {
        write_words(stream, "one", &plan->worker_set[i]);
    }
    for (size_t i = 0; i < options->forward.count; i++) {
        write_forward(stream, options->forward.values[i], &plan->forwarded);
    }
    fprintf(stream, " keep_env=%d", plan->keep_env);
}

/* What the job is to its processes, and how it bears their deaths. */
static void
write_settings(FILE *stream, const struct launch_options *options, const struct prepared *prepared)
{
    const struct plan *plan = &prepared->plan;

    write_words(stream, "master", &plan->master_settings);
    write_words(stream, "servers", &plan->server_settings);
    fprintf(stream,
            " lanes=%u pass=%d personality=%u chief=%d evaluator=%d auto=%d max_restarts=%u "
            "server_restarts=%u master_restarts=%u restart_delay=%u timeout=%u grace=%u",
            plan->lanes, (int)plan->pass, plan->personality, plan->chief, plan->evaluator,
            plan->automatic, plan->max_restarts, options->server_restarts, options->master_restarts,
            options->restart_delay_ms, options->timeout_s, options->grace_ms);
    write_text(stream, "restart", options_word(launch_restart_words, options->restart));
    write_text(stream, "scope", options_word(launch_scope_words, options->restart_scope));
}

static const struct part {
    const char *name;
    void (*write)(FILE *stream, const struct launch_options *options,
                  const struct prepared *prepared);
} parts[] = {{"command", write_command},
             {"directory", write_directory},
             {"machines", write_machines},
             {"environment", write_environment},
             {"settings", write_settings}};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

/* A command need not be UTF-8, and JSON must. */
static json_t *
escaped(const char *text)
{
    char *ascii = memory_need(malloc(4 * strlen(text) + 1));
    char *end = ascii;
    json_t *value;

    for (; *text != '\0'; text++) {
        end += sprintf(end, (unsigned char)*text < 0x80 ? "%c" : "\\x%02x", (unsigned char)*text);
    }
    *end = '\0';
    value = json_string(ascii);
    free(ascii);
    return value;
}

char *
what_runs(const struct launch_options *options, const struct prepared *prepared)
{
    json_t *all = json_object();
    char *document;

    for (size_t i = 0; i < PARTS; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *stream = memory_need(open_memstream(&text, &bytes));

        parts[i].write(stream, options, prepared);
        fclose(stream);
        json_object_set_new(all, parts[i].name, escaped(memory_need(text)));
        free(text);
    }
    document = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(all);
    return document;
}

void
what_runs_differ(const char *one, const char *other, char *text_p, size_t size)
{
    json_t *ours = json_loads(one, 0, NULL);
    json_t *theirs = json_loads(other, 0, NULL);
    size_t used = 0;

    text_p[0] = '\0';
    for (size_t i = 0; i < PARTS && used < size; i++) {
        const json_t *our = json_object_get(ours, parts[i].name);
        const json_t *their = json_object_get(theirs, parts[i].name);

        if (our == NULL || !json_equal(our, their)) {
            used += (size_t)snprintf(text_p + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     parts[i].name);
        }
    }
    json_decref(ours);
    json_decref(theirs);
}
