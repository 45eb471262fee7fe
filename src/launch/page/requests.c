/*
 * requests.c - what the page's server answers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "launch/page/document.h"
#include "launch/page/guests.h"
#include "launch/page/mhd.h"

enum { COOKIE_NAME_BYTES = 32, COOKIE_BYTES = 256, TURN_BYTES = 160 };

char *
requests_snapshot(struct requests *requests, bool whole)
{
    if (requests->source.snapshot == NULL) {
        return strdup("{}");
    }
    return requests->source.snapshot(requests->source.context, whole);
}

/* Nothing of a browser's generosity is wanted. */
static void
add_headers(const struct requests *requests, struct MHD_Response *response, const char *type)
{
    mhd.add_response_header(response, "Content-Type", type);
    mhd.add_response_header(response, "Cache-Control", "no-store");
    mhd.add_response_header(response, "Content-Security-Policy", document_policy());
    mhd.add_response_header(response, "Referrer-Policy", "no-referrer");
    mhd.add_response_header(response, "X-Content-Type-Options", "nosniff");
    mhd.add_response_header(response, "X-Frame-Options", "DENY");
    mhd.add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    mhd.add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    if (requests->gate.tls) {
        mhd.add_response_header(response, "Strict-Transport-Security", "max-age=0");
    }
}

/* Takes the response. */
static enum MHD_Result
queue(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response)
{
    enum MHD_Result result;

    if (response == NULL) {
        return MHD_NO;
    }
    result = mhd.queue_response(connection, status, response);
    mhd.destroy_response(response);
    return result;
}

/* Takes the text: memory of malloc(), or of the program where mode says so. */
static enum MHD_Result
answer_text(const struct requests *requests, struct MHD_Connection *connection, unsigned status,
            const char *type, char *text, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response =
        text != NULL ? mhd.create_response_from_buffer(strlen(text), text, mode) : NULL;

    if (response == NULL) {
        if (mode == MHD_RESPMEM_MUST_FREE) {
            free(text);
        }
        return MHD_NO;
    }
    add_headers(requests, response, type);
    return queue(connection, status, response);
}

static enum MHD_Result
say(const struct requests *requests, struct MHD_Connection *connection, unsigned status,
    const char *text)
{
    return answer_text(requests, connection, status, "text/plain; charset=utf-8",
                       (char *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
}

static void
cookie_name(const struct requests *requests, char name_p[COOKIE_NAME_BYTES])
{
    snprintf(name_p, COOKIE_NAME_BYTES, "psd_page_%u", requests->port);
}

/* The token was right: the browser gets the cookie, and goes on to where it counts. A redirection would
 * not do: after a click on another site it is that site's, and a strict cookie stays behind. */
static enum MHD_Result
trade(const struct requests *requests, struct MHD_Connection *connection)
{
    struct MHD_Response *response;
    char name[COOKIE_NAME_BYTES];
    char cookie[COOKIE_BYTES];
    char turn[TURN_BYTES];

    snprintf(turn, sizeof(turn),
             "<!doctype html><title>Poseidon</title><meta http-equiv=\"refresh\" content=\"0; "
             "url=/%s/\">\n",
             requests->gate.place);
    response = mhd.create_response_from_buffer(strlen(turn), turn, MHD_RESPMEM_MUST_COPY);
    if (response == NULL) {
        return MHD_NO;
    }
    cookie_name(requests, name);
    snprintf(cookie, sizeof(cookie), "%s=%s; Path=/%s/; HttpOnly; SameSite=Strict%s", name,
             requests->gate.cookie, requests->gate.place, requests->gate.tls ? "; Secure" : "");
    add_headers(requests, response, "text/html; charset=utf-8");
    mhd.add_response_header(response, "Set-Cookie", cookie);
    return queue(connection, gate_http_status(GATE_TRADE), response);
}

static enum MHD_Result
answer_page(struct requests *requests, struct MHD_Connection *connection)
{
    return answer_text(requests, connection, MHD_HTTP_OK, "text/html; charset=utf-8",
                       document_text(NULL), MHD_RESPMEM_MUST_FREE);
}

/* Whoever is here already gets what is new first: then all have the same, and the next news is the
 * same for all. */
static void
make_whole(struct requests *requests)
{
    char *news = requests_snapshot(requests, false);
    char *whole = requests_snapshot(requests, true);

    if (news != NULL && requests->streams.count > 0) {
        streams_send(&requests->streams, "snapshot", news);
    }
    if (whole != NULL) {
        streams_keep_whole(&requests->streams, whole);
    }
    free(news);
    free(whole);
}

static enum MHD_Result
answer_events(struct requests *requests, struct MHD_Connection *connection)
{
    struct MHD_Response *response;

    if (streams_have_room(&requests->streams) && requests->streams.whole == NULL) {
        make_whole(requests);
    }
    response = streams_open(&requests->streams, connection);
    if (response == NULL) {
        return say(requests, connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                   "This job is watched by as many pages as it serves: close one.\n");
    }
    mhd.set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 60u);
    add_headers(requests, response, "text/event-stream");
    return queue(connection, MHD_HTTP_OK, response);
}

static enum MHD_Result
answer_snapshot(struct requests *requests, struct MHD_Connection *connection)
{
    return answer_text(requests, connection, MHD_HTTP_OK, "application/json",
                       requests_snapshot(requests, true), MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result
answer_metrics(struct requests *requests, struct MHD_Connection *connection)
{
    char *text = requests->source.metrics != NULL
                     ? requests->source.metrics(requests->source.context)
                     : strdup("");

    return answer_text(requests, connection, MHD_HTTP_OK,
                       "text/plain; version=0.0.4; charset=utf-8", text, MHD_RESPMEM_MUST_FREE);
}

static const struct {
    const char *path;
    enum MHD_Result (*answer)(struct requests *requests, struct MHD_Connection *connection);
} answers[] = {
    {"/", answer_page},
    {"/events", answer_events},
    {"/snapshot", answer_snapshot},
    {"/metrics", answer_metrics},
};

static struct gate_request
describe(const struct requests *requests, struct MHD_Connection *connection, const char *method,
         bool is_below)
{
    char name[COOKIE_NAME_BYTES];

    cookie_name(requests, name);
    return (struct gate_request){
        .method = method,
        .host = mhd.lookup_connection_value(connection, MHD_HEADER_KIND, "Host"),
        .origin = mhd.lookup_connection_value(connection, MHD_HEADER_KIND, "Origin"),
        .cookie = is_below ? mhd.lookup_connection_value(connection, MHD_COOKIE_KIND, name) : NULL,
        .authorization = mhd.lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization"),
        .token = mhd.lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token"),
    };
}

enum MHD_Result
requests_answer(void *context, struct MHD_Connection *connection, const char *url,
                const char *method, const char *version, const char *upload, size_t *upload_bytes,
                void **own)
{
    struct requests *requests = context;
    const char *below = gate_below(&requests->gate, url);
    const char *path =
        below != NULL ? below : url; /* programs, which have the token, may leave it out */
    const struct gate_request request = describe(requests, connection, method, below != NULL);
    const enum gate_verdict verdict = gate_check(&requests->gate, &request, psi_monotonic_ms());

    (void)version;
    (void)upload;
    (void)own;
    if (*upload_bytes > 0) {
        return MHD_NO;
    }
    if (verdict == GATE_TRADE || verdict == GATE_OPEN) {
        guests_know(requests->guests, connection);
    }
    if (verdict == GATE_TRADE) {
        return trade(requests, connection);
    }
    if (verdict != GATE_OPEN) {
        return say(requests, connection, gate_http_status(verdict), gate_text(verdict));
    }
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        if (strcmp(path, answers[i].path) == 0) {
            return answers[i].answer(requests, connection);
        }
    }
    return say(requests, connection, MHD_HTTP_NOT_FOUND,
               "There is the page (/), /events, /snapshot and /metrics, and nothing else.\n");
}
