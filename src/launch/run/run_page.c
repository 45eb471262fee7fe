/*
 * run_page.c - a job's page and its report.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/run_page.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/monotonic.h"
#include "launch/page/document.h"
#include "launch/page/invite.h"
#include "launch/page/token.h"
#include "launch/run/feeding.h"
#include "launch/text/json_text.h"
#include "launch/text/variables.h"

/* What psd_run was told, for those who ask later how it was. */
static json_t *
describe(const struct run *run)
{
    json_t *value = json_object();
    json_t *machines = json_array();

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        const struct host *host = &run->hosts[i];

        json_array_append_new(
            machines, json_text(host->hostname[0] != '\0' ? host->hostname : host->machine->name));
    }
    json_object_set_new(value, "psd_run", json_text(run->args->arguments));
    json_object_set_new(value, "directory", json_text(run->here));
    json_object_set_new(value, "machines", machines);
    json_object_set_new(value, "attempt", json_integer(run->args->attempt));
    return value;
}

/* A whole snapshot with members that only psd_run knows. Takes the snapshot. */
static char *
add_members(const struct run *run, char *snapshot)
{
    json_t *members = json_object();
    char *text = NULL;
    char *more;

    json_object_set_new(members, "configuration", describe(run));
    json_object_set_new(members, "report",
                        run->report_path[0] != '\0' ? json_text(run->report_path) : json_null());
    more = json_dumps(members, JSON_COMPACT);
    json_decref(members);
    if (more != NULL) {
        more[strlen(more) - 1] = ','; /* in the place of its brace */
        text = asprintf(&text, "%s%s", more, snapshot + 1) < 0 ? NULL : text;
    }
    free(more);
    if (text == NULL) {
        return snapshot;
    }
    free(snapshot);
    return text;
}

static char *
snapshot(void *context, bool whole)
{
    struct run *run = context;
    struct feed_since nothing = {0};
    char *json;

    feeding_look(run, psi_monotonic_ms());
    json = feed_json(run->feed, whole ? &nothing : &run->page_since);
    return json != NULL && whole ? add_members(run, json) : json;
}

static char *
metrics(void *context)
{
    return feed_metrics(((struct run *)context)->feed);
}

psd_status
run_page_open(struct run *run, struct psd_error *err)
{
    const struct page_source source = {.snapshot = snapshot, .metrics = metrics, .context = run};
    struct page_wish *wish = run->args->page;
    struct page_args args;
    psd_status status;

    if (wish == NULL || run->feed == NULL) {
        return PSD_OK;
    }
    args = wish->args;
    if (wish->token[0] != '\0') { /* the job is begun anew: where it was */
        args.port = wish->port;
        args.token = wish->token;
    }
    status = page_open(&args, &run->page, err);
    if (status != PSD_OK && !wish->is_required) {
        console_say(&run->console, "no page for this job: %s", err->text);
        return PSD_OK;
    }
    if (status != PSD_OK) {
        return status;
    }
    wish->port = page_port(run->page);
    snprintf(wish->token, sizeof(wish->token), "%s", page_token(run->page));
    page_show(run->page, &source);
    return PSD_OK;
}

static void
say_tunnel(struct run *run)
{
    char *const *environment = run->args->environment;
    char hostname[256] = "";
    char tunnel[INVITE_BYTES];
    struct invite_place place = {
        .user = variables_get(environment, "USER"),
        .hostname = hostname,
        .ssh_connection = variables_get(environment, "SSH_CONNECTION"),
        .slurm_job = variables_get(environment, "SLURM_JOB_ID"),
        .submit_host = variables_get(environment, "SLURM_SUBMIT_HOST"),
    };

    gethostname(hostname, sizeof(hostname) - 1);
    invite_tunnel(&place, page_port(run->page), tunnel);
    if (tunnel[0] != '\0') {
        console_say(&run->console, "from your own machine: %s, and open the same address there",
                    tunnel);
    }
}

static void
invite(struct run *run)
{
    struct psd_error err = {0};
    char address[PAGE_ADDRESS_BYTES];
    char line[PAGE_ADDRESS_BYTES + 1];
    char path[4096];

    page_address(run->page, address);
    if (run->console.terminal) {
        console_say(&run->console, "watch the job at %s", address);
        say_tunnel(run);
        return;
    }
    snprintf(path, sizeof(path), "%.4000s/page_address", run->directory);
    snprintf(line, sizeof(line), "%s\n", address);
    if (token_write(path, line, &err) != PSD_OK) {
        console_say(&run->console, "%s; \"psd_run page %s\" tells where the job's page is",
                    err.text, run->args->job);
        return;
    }
    console_say(&run->console, "watch the job at the address in %s", path);
    say_tunnel(run);
}

void
run_page_invite(struct run *run)
{
    const struct console_listener listener = run->console.listener;

    if (run->page != NULL) {
        run->console.listener = (struct console_listener){0}; /* a token is no part of the story */
        invite(run);
        run->console.listener = listener;
    }
}

char *
run_page_address(const struct run *run)
{
    char address[PAGE_ADDRESS_BYTES];
    char *text = NULL;

    if (run->page == NULL) {
        return strdup("this job has no page (--page off, or it said why when it began)\n");
    }
    page_address(run->page, address);
    return asprintf(&text, "%s\n", address) < 0 ? NULL : text;
}

static void
write_report(struct run *run)
{
    struct psd_error err = {0};
    char path[4096];
    char *json;

    snprintf(path, sizeof(path), "%.4000s/report.html", run->directory);
    json = snapshot(run, true);
    if (json == NULL || document_write(path, json, &err) != PSD_OK) {
        console_say(&run->console, "no report of the job: %s",
                    json == NULL ? "no memory" : err.text);
    } else {
        snprintf(run->report_path, sizeof(run->report_path), "%s", path);
        console_say(&run->console, "what happened, with all curves: %s", path);
    }
    free(json);
}

void
run_page_end(struct run *run)
{
    if (run->feed == NULL) {
        return;
    }
    if (run->args->page != NULL) {
        write_report(run);
    }
    if (run->page != NULL) {
        page_end(run->page);
    }
}
