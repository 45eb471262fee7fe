/*
 * run_page.c - a job's page and its report.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/run_page.h"

#include <gnu/libc-version.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/monotonic.h"
#include "launch/page/document.h"
#include "launch/page/invite.h"
#include "launch/page/token.h"
#include "launch/run/feeding.h"
#include "launch/text/json_text.h"
#include "launch/text/variables.h"

/* Of the machine that psd_run runs on; that of Poseidon is told with the job. */
static json_t *
describe_versions(void)
{
    json_t *versions = json_array();
    struct utsname system;

    if (uname(&system) == 0) {
        json_array_append_new(
            versions, json_sprintf("%s %s %s", system.sysname, system.release, system.machine));
    }
    json_array_append_new(versions, json_sprintf("glibc %s", gnu_get_libc_version()));
    json_array_append_new(versions, json_text(OpenSSL_version(OPENSSL_VERSION)));
    return versions;
}

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
    json_object_set_new(value, "versions", describe_versions());
    return value;
}

/* What only psd_run knows; stays as it is between attempts. */
static void
renew_members(struct shown *shown)
{
    json_t *members = json_object();
    char *text;

    json_object_set_new(members, "configuration", describe(shown->run));
    json_object_set_new(members, "report",
                        shown->report_path[0] != '\0' ? json_text(shown->report_path)
                                                      : json_null());
    text = json_dumps(members, JSON_COMPACT);
    json_decref(members);
    if (text != NULL) {
        free(shown->members);
        shown->members = text;
    }
}

/* A whole snapshot with them. Takes the snapshot. */
static char *
add_members(const struct shown *shown, char *snapshot)
{
    const size_t bytes = shown->members != NULL ? strlen(shown->members) : 0;
    char *text = NULL;

    if (bytes == 0 ||
        asprintf(&text, "%.*s,%s", (int)bytes - 1, shown->members, snapshot + 1) < 0) {
        return snapshot;
    }
    free(snapshot);
    return text;
}

static char *
snapshot(void *context, bool whole)
{
    struct shown *shown = context;
    struct feed_since nothing = {0};
    char *json;

    if (shown->run != NULL) {
        feeding_look(shown->run, psi_monotonic_ms());
    }
    if (shown->run != NULL && whole) {
        renew_members(shown);
    }
    json = feed_json(shown->feed, whole ? &nothing : &shown->since);
    return json != NULL && whole ? add_members(shown, json) : json;
}

static char *
metrics(void *context)
{
    return feed_metrics(((struct shown *)context)->feed);
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

/* Into a file of the user alone, which goes with the job. */
static psd_status
write_address(const struct run *run, struct psd_error *err)
{
    char address[PAGE_ADDRESS_BYTES];
    char line[PAGE_ADDRESS_BYTES + 1];
    char path[4096];
    psd_status status;

    page_address(run->page, address);
    snprintf(path, sizeof(path), "%.4000s/page_address", run->directory);
    snprintf(line, sizeof(line), "%s\n", address);
    status = token_write(path, line, err);
    if (status == PSD_OK) {
        snprintf(run->args->shown->address_path, sizeof(path), "%s", path);
    }
    return status;
}

static void
invite(struct run *run)
{
    struct psd_error err = {0};
    char address[PAGE_ADDRESS_BYTES];

    page_address(run->page, address);
    if (run->console.terminal) {
        console_say(&run->console, "watch the job at %s", address);
        say_tunnel(run);
        return;
    }
    if (write_address(run, &err) != PSD_OK) {
        console_say(&run->console, "%s; \"psd_run page %s\" tells where the job's page is",
                    err.text, run->args->job);
        return;
    }
    console_say(&run->console, "watch the job at the address in %s",
                run->args->shown->address_path);
    say_tunnel(run);
}

/* A token is no part of the job's story. */
static void
invite_quietly(struct run *run)
{
    const struct console_listener listener = run->console.listener;

    run->console.listener = (struct console_listener){0};
    invite(run);
    run->console.listener = listener;
}

psd_status
run_page_open(struct run *run, struct psd_error *err)
{
    struct shown *shown = run->args->shown;
    const struct page_source source = {.snapshot = snapshot, .metrics = metrics, .context = shown};
    psd_status status;

    run->page = shown->page;
    if (run->args->page == NULL || run->feed == NULL || shown->is_tried) {
        return PSD_OK;
    }
    shown->is_tried = true;
    status = page_open(run->args->page, &shown->page, err);
    if (status != PSD_OK && status != PSD_ERR_INVALID) { /* the job is worth more */
        console_say(&run->console, "no page for this job: %s", err->text);
        return PSD_OK;
    }
    if (status != PSD_OK) {
        return status;
    }
    run->page = shown->page;
    page_show(run->page, &source);
    return PSD_OK;
}

void
run_page_begin(struct run *run)
{
    struct shown *shown = run->args->shown;

    if (run->page != NULL && !shown->has_begun) {
        invite_quietly(run);
    }
    shown->has_begun = true;
}

static const char no_page[] = "this job has no page (--page off, or it said why when it began)\n";

char *
run_page_address(const struct run *run)
{
    char address[PAGE_ADDRESS_BYTES];
    char *text = NULL;

    if (run->page == NULL) {
        return strdup(no_page);
    }
    page_address(run->page, address);
    return asprintf(&text, "%s\n", address) < 0 ? NULL : text;
}

char *
run_page_file(const struct run *run)
{
    struct psd_error err = {0};
    char *text = NULL;
    int bytes;

    if (run->page == NULL) {
        return strdup(no_page);
    }
    if (run->args->shown->address_path[0] == '\0' && write_address(run, &err) != PSD_OK) {
        bytes = asprintf(&text, "%s; a terminal is told the address itself\n", err.text);
    } else {
        char *whole = realpath(run->args->shown->address_path, NULL); /* who asks is elsewhere */

        bytes = asprintf(&text, "watch the job at the address in %s\n",
                         whole != NULL ? whole : run->args->shown->address_path);
        free(whole);
    }
    return bytes < 0 ? NULL : text;
}

static void
write_report(struct run *run)
{
    struct psd_error err = {0};
    char path[4096];
    char *json;

    snprintf(path, sizeof(path), "%.4000s/report.html", run->directory);
    json = snapshot(run->args->shown, true);
    if (json == NULL || document_write(path, json, &err) != PSD_OK) {
        console_say(&run->console, "no report of the job: %s",
                    json == NULL ? "no memory" : err.text);
    } else {
        snprintf(run->args->shown->report_path, sizeof(path), "%s", path);
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
    if (run->args->page != NULL && run->args->shown->has_begun) {
        write_report(run);
        renew_members(run->args->shown);
    }
}

void
shown_end(struct shown *shown)
{
    if (shown->page != NULL) {
        page_end(shown->page);
        page_close(shown->page);
    }
    if (shown->address_path[0] != '\0') {
        unlink(shown->address_path); /* it leads nowhere, and its token may be that of other jobs */
    }
    feed_destroy(shown->feed);
    free(shown->members);
    *shown = (struct shown){0};
}
