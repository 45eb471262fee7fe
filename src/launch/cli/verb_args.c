/*
 * verb_args.c - the command lines of show, page, logs, stop, restart, scale, list, top, trace and
 * reader-key.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/verb_args.h"

#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "launch/rules/watch.h"

static const char about_show[] =
    "A job that runs here: its machines and its processes. JOB is a name of psd_run list or the\n"
    "beginning of one; without it, the only job. With --master, the table of any master whose\n"
    "secret you have, for jobs that were started by hand.\n"
    "\n"
    "    psd_run show\n"
    "    psd_run show train --watch\n"
    "    psd_run show --master tcp://10.0.0.1:5555 --secret_file job.secret";
static const char about_logs[] =
    "What a process of a job printed. NAME is worker0, server1, master, or the beginning of one.\n"
    "Without JOB: the one that was started in this directory, or ended there last (--out).\n"
    "\n"
    "    psd_run logs worker0\n"
    "    psd_run logs -f --since 10s train worker3";
static const char about_stop[] =
    "Ends a job as Ctrl-C would: workers have 5 s, then servers, then the master.\n"
    "\n"
    "    psd_run stop train";
static const char about_restart[] =
    "Restarts the servers of a job one after the other, each when the job can do without it: when\n"
    "all others have whole copies of what they hold, or workers can make it anew. Training goes "
    "on,\n"
    "and no bit of synchronous results changes. Servers that hold parameters need copies\n"
    "(--replicas 1). Exit code 0: all are back; 1: one took too long, and the others were left "
    "alone.\n"
    "\n"
    "    psd_run restart train --servers";
static const char about_scale[] =
    "More workers or servers for a job that runs, or fewer (docs/elastic.md). It has to be "
    "started\n"
    "with room for them: --max_workers, --max_servers. New workers run the same command, and "
    "count\n"
    "from a step on that the log names, or from that of --at_step, which nobody may have come to.\n"
    "Those with the highest ranks leave: they get SIGTERM, and\n"
    "time to finish their step and to leave (psd_leave, or psd_close); after that they are "
    "killed.\n"
    "A new server gets its share of what the others have; one that leaves gives away what it has,\n"
    "and is ended then. Training goes on without a pause, and no bit changes. Exit code 0: it is\n"
    "under way; 3: refused, with the reason.\n"
    "\n"
    "    psd_run scale train --workers 6\n"
    "    psd_run scale train --workers +2 --host node7\n"
    "    psd_run scale train --workers +1 --at_step 5000\n"
    "    psd_run scale train --workers=-1\n"
    "    psd_run scale train --servers +1";
static const char about_page[] =
    "Where a job that runs here is watched in a browser: its address, with its token. Who has it\n"
    "sees the job; give it to nobody else. With --master, a page for a job that was started by "
    "hand:\n"
    "it is served until the job is over, or until Ctrl-C.\n"
    "\n"
    "    psd_run page train\n"
    "    psd_run page --master tcp://10.0.0.1:5555 --secret_file job.secret";
static const char about_reader_key[] =
    "Writes a new FILE (mode 0600) with the key of those who read a job: it opens the values of\n"
    "tables, and nothing else. It prints what a reader has to find in its environment\n"
    "(docs/reading.md). Of a job that was started by hand, --secret_file names its secret.\n"
    "\n"
    "    psd_run reader-key train eval.key\n"
    "    psd_run reader-key --secret_file job.secret eval.key";
static const char about_list[] = "The jobs that run on this machine for you.";
static const char about_top[] = "The processes of a job on one screen, again every second; keys "
                                "sort. Where stdin or stdout is\n"
                                "no terminal: once.\n"
                                "\n"
                                "    psd_run top train";
static const char about_trace[] =
    "Where the time of the last steps went, worker by worker: a timeline for Perfetto\n"
    "(https://ui.perfetto.dev), to stdout.\n"
    "\n"
    "    psd_run trace --steps 20 >trace.json";

static bool
parse(const struct psi_command *command, int argc, char *const *argv, bool *help,
      struct psi_arguments *arguments, int *code_p)
{
    struct psi_settings settings;
    struct psd_error err = {0};

    psi_settings_init(&settings);
    if (psi_options_parse(command, argc, argv, &settings, arguments, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\nsee %s -h\n", err.text, command->name);
        *code_p = WATCH_CODE_USAGE;
        return false;
    }
    *help = arguments->help;
    if (arguments->help) {
        psi_options_help(stdout, command);
        *code_p = 0;
        return false;
    }
    return true;
}

static const struct psi_command commands[] = {
    [VERB_SHOW] = {.name = "psd_run show",
                   .synopsis = "[JOB] [options]",
                   .about = about_show,
                   .option_count = 5},
    [VERB_LOGS] = {.name = "psd_run logs",
                   .synopsis = "[options] [JOB] NAME",
                   .about = about_logs,
                   .option_count = 4},
    [VERB_STOP] = {.name = "psd_run stop",
                   .synopsis = "[--now] [JOB]",
                   .about = about_stop,
                   .option_count = 1},
    [VERB_RESTART] = {.name = "psd_run restart",
                      .synopsis = "[JOB] --servers [--timeout SECONDS]",
                      .about = about_restart,
                      .option_count = 2},
    [VERB_SCALE] = {.name = "psd_run scale",
                    .synopsis = "[JOB] --workers N | --servers N [options]",
                    .about = about_scale,
                    .option_count = 5},
    [VERB_PAGE] = {.name = "psd_run page",
                   .synopsis = "[JOB] [options]",
                   .about = about_page,
                   .option_count = 2},
    [VERB_READER_KEY] = {.name = "psd_run reader-key",
                         .synopsis = "[JOB] FILE",
                         .about = about_reader_key,
                         .option_count = 1},
    [VERB_LIST] = {.name = "psd_run list",
                   .synopsis = "[options]",
                   .about = about_list,
                   .option_count = 2},
    [VERB_TOP] = {.name = "psd_run top", .synopsis = "[JOB]", .about = about_top},
    [VERB_TRACE] = {.name = "psd_run trace",
                    .synopsis = "[--steps N] [JOB]",
                    .about = about_trace,
                    .option_count = 1},
};

bool
verb_parse(int argc, char *const *argv, enum verb verb, struct verb_options *options,
           const char **first_p, const char **second_p, int *code_p)
{
    const struct psi_option table[][7] = {
        [VERB_SHOW] = {{"watch", 'w', PSI_OPTION_FLAG, "again every second", &options->watch},
                       {"no_trunc", 0, PSI_OPTION_FLAG, "all columns, whole commands",
                        &options->no_trunc},
                       {"json", 0, PSI_OPTION_FLAG, "for programs", &options->json},
                       {"master", 0, PSI_OPTION_TEXT, "ask this master, tcp://IP:PORT, instead",
                        &options->master},
                       {"secret_file", 0, PSI_OPTION_TEXT, "its secret (PSD_SECRET_FILE)",
                        &options->secret_file}},
        [VERB_LOGS] = {{"follow", 'f', PSI_OPTION_FLAG, "and what is still to come",
                        &options->follow},
                       {"times", 't', PSI_OPTION_FLAG, "with the time in front of every line",
                        &options->times},
                       {"since", 0, PSI_OPTION_TEXT, "only what is younger: 30s, 10m, 2h",
                        &options->since},
                       {"out", 'o', PSI_OPTION_TEXT, "where logs are [./logs]", &options->out}},
        [VERB_STOP] = {{"now", 0, PSI_OPTION_FLAG, "kill, without time to save", &options->now}},
        [VERB_RESTART] = {{"servers", 0, PSI_OPTION_FLAG, "the servers", &options->servers},
                          {"timeout", 0, PSI_OPTION_NUMBER,
                           "how many seconds each may take until nothing is missing [60]",
                           &options->seconds, 1, 86400}},
        [VERB_SCALE] =
            {{"workers", 0, PSI_OPTION_TEXT, "how many there are to be: 3, or +1, -1",
              &options->scale_workers},
             {"servers", 0, PSI_OPTION_TEXT, "the same of servers", &options->scale_servers},
             {"host", 0, PSI_OPTION_TEXT,
              "the machine of the job for new ones [that with the fewest of them]", &options->host},
             {"grace", 0, PSI_OPTION_NUMBER, "how many seconds workers that leave have for it [30]",
              &options->seconds, 1, 86400},
             {"at_step", 0, PSI_OPTION_NUMBER,
              "new workers count from exactly this step on [the first possible one]",
              &options->at_step, 1, UINT32_MAX}},
        [VERB_LIST] = {{"no_trunc", 0, PSI_OPTION_FLAG, "all columns, whole commands",
                        &options->no_trunc},
                       {"json", 0, PSI_OPTION_FLAG, "for programs", &options->json}},
        [VERB_PAGE] = {{"master", 0, PSI_OPTION_TEXT,
                        "serve a page here, over what this master tells, tcp://IP:PORT",
                        &options->master},
                       {"secret_file", 0, PSI_OPTION_TEXT, "its secret (PSD_SECRET_FILE)",
                        &options->secret_file}},
        [VERB_READER_KEY] = {{"secret_file", 0, PSI_OPTION_TEXT,
                              "the secret of a job that was started by hand",
                              &options->secret_file}},
        [VERB_TRACE] = {{"steps", 0, PSI_OPTION_NUMBER, "how many [20]", &options->steps, 1, 4096}},
    };
    struct psi_command command = commands[verb];
    const char **const places[] = {first_p, second_p};
    struct psi_arguments arguments;
    int taken = 0;

    command.options = table[verb];
    for (int at = 0; at < argc;) { /* options may stand behind arguments, too */
        if (!parse(&command, argc - at, argv + at, &options->help, &arguments, code_p)) {
            return false;
        }
        at += arguments.first;
        if (at >= argc) {
            break;
        }
        if (taken == 2 || places[taken] == NULL) {
            fprintf(stderr, "psd_run: %s: %.64s is one argument too many\nsee %s -h\n", argv[0],
                    argv[at], command.name);
            *code_p = WATCH_CODE_USAGE;
            return false;
        }
        *places[taken++] = argv[at];
    }
    return true;
}

static void
say_which(const struct words *names, enum verb verb)
{
    static const char *const words[] = {[VERB_SHOW] = "show",
                                        [VERB_LOGS] = "logs",
                                        [VERB_STOP] = "stop",
                                        [VERB_TOP] = "top",
                                        [VERB_TRACE] = "trace",
                                        [VERB_PAGE] = "page",
                                        [VERB_READER_KEY] = "reader-key",
                                        [VERB_RESTART] = "restart --servers",
                                        [VERB_SCALE] = "scale --workers N"};

    fprintf(stderr, "psd_run: which job? Several run:");
    for (size_t i = 0; i < names->count; i++) {
        fprintf(stderr, " %s", names->list[i]);
    }
    fprintf(stderr, ". Name one: psd_run %s %s%s\n", words[verb], names->list[0],
            verb == VERB_LOGS         ? " worker0"
            : verb == VERB_READER_KEY ? " FILE"
                                      : "");
}

bool
verb_choose_job(const char *wanted, enum verb verb, char name_p[JOBS_NAME_BYTES], int *code_p)
{
    struct psd_error err = {0};
    struct words names = {0};
    const char *found = NULL;
    size_t matching = 0;

    *code_p = WATCH_CODE_CANNOT_START;
    if (jobs_list(&names, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        return false;
    }
    for (size_t i = 0; i < names.count; i++) {
        const bool exact = wanted != NULL && strcmp(names.list[i], wanted) == 0;

        if (wanted == NULL || exact || strncmp(names.list[i], wanted, strlen(wanted)) == 0) {
            found = names.list[i];
            matching = exact ? 1 : matching + 1;
        }
        if (exact) {
            break;
        }
    }
    if (matching == 1) {
        snprintf(name_p, JOBS_NAME_BYTES, "%.63s", found);
    } else if (matching > 1) {
        say_which(&names, verb);
    } else if (verb == VERB_LOGS && wanted != NULL) {
        fprintf(stderr,
                "psd_run: no job named %.64s runs; the logs of one that has ended: psd_run logs "
                "PROCESS, without its name, where it was started\n",
                wanted);
    } else if (names.count > 0) {
        fprintf(stderr, "psd_run: no job named %.64s; psd_run list shows those that run\n", wanted);
    } else {
        fprintf(stderr, "psd_run: no job of yours runs on this machine%s\n",
                verb == VERB_SHOW ? " (jobs that were started by hand: psd_run show --master "
                                    "tcp://IP:PORT)"
                                  : "");
    }
    words_fini(&names);
    return matching == 1;
}

char *
verb_ask(const char *name, const char *line)
{
    struct psd_error err = {0};
    char *answer = NULL;

    if (jobs_ask(name, line, &answer, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        return NULL;
    }
    return answer;
}
