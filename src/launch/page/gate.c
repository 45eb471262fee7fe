/*
 * gate.c - who may see the page.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/gate.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <sys/random.h>

#include "base/fail.h"

static void
write_hex(const uint8_t *bytes, size_t chars, char *text_p)
{
    for (size_t i = 0; i < chars / 2; i++) {
        snprintf(text_p + 2 * i, 3, "%02x", bytes[i]);
    }
}

/* Digits that only those know who know the token, and that do not tell it. */
static void
derive(const char *token, const char *purpose, size_t chars, char *text_p)
{
    uint8_t digest[EVP_MAX_MD_SIZE];

    psi_assert(HMAC(EVP_sha256(), token, (int)strlen(token), (const uint8_t *)purpose,
                    strlen(purpose) + 1, digest, NULL) != NULL);
    write_hex(digest, chars, text_p);
}

bool
gate_draw(char secret_p[GATE_SECRET_CHARS + 1])
{
    uint8_t bytes[GATE_SECRET_BYTES];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return false;
    }
    write_hex(bytes, GATE_SECRET_CHARS, secret_p);
    return true;
}

/* NULL: there is none in it, as whoever serves it will find. */
static X509 *
read_certificate(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *certificate = bio != NULL ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    return certificate;
}

void
gate_init(struct gate *gate, const char *token, const char *address, const char *name,
          const char *certificate)
{
    *gate = (struct gate){.tls = certificate != NULL};
    gate->certificate = certificate != NULL ? read_certificate(certificate) : NULL;
    snprintf(gate->token, sizeof(gate->token), "%s", token);
    snprintf(gate->address, sizeof(gate->address), "%s", address != NULL ? address : "");
    snprintf(gate->name, sizeof(gate->name), "%s", name != NULL ? name : "");
    derive(token, "cookie of psd_run's page", GATE_SECRET_CHARS, gate->cookie);
    derive(token, "path of psd_run's page", GATE_PLACE_CHARS, gate->place);
}

void
gate_fini(struct gate *gate)
{
    X509_free(gate->certificate);
    gate->certificate = NULL;
}

const char *
gate_below(const struct gate *gate, const char *path)
{
    const size_t bytes = strlen(gate->place);

    return path[0] == '/' && strncmp(path + 1, gate->place, bytes) == 0 && path[1 + bytes] == '/'
               ? path + 1 + bytes
               : NULL;
}

/* In a time that does not tell how much of it is right. */
static bool
is_secret(const char *said, const char *secret)
{
    const size_t bytes = strlen(secret);

    return said != NULL && bytes > 0 && strlen(said) == bytes &&
           CRYPTO_memcmp(said, secret, bytes) == 0;
}

/* The bytes of the host in "host", "host:port", "[address]" or "[address]:port"; 0: it is none of
 * them. A forwarded port has another number here, so any will do. */
static size_t
host_bytes(const char *host)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    size_t digits;

    if (end == NULL) {
        return 0;
    }
    end += host[0] == '[';
    digits = *end == ':' ? strspn(end + 1, "0123456789") : 0;
    if (*end != '\0' && (digits == 0 || digits > 5 || end[1 + digits] != '\0')) {
        return 0;
    }
    return (size_t)(end - host);
}

bool
gate_is_host(const char *host, const char *name)
{
    const size_t bytes = host_bytes(host);

    return bytes > 0 && bytes == strlen(name) && strncasecmp(host, name, bytes) == 0;
}

/* Whether the page's certificate is for that host. A dot before a name would stand for all names below
 * it. */
static bool
is_certified(const struct gate *gate, const char *host)
{
    const size_t bytes = host_bytes(host);
    char name[GATE_HOST_BYTES];

    if (gate->certificate == NULL || bytes == 0 || bytes >= sizeof(name) || host[0] == '.') {
        return false;
    }
    if (host[0] == '[') {
        snprintf(name, sizeof(name), "%.*s", (int)(bytes - 2), host + 1);
    } else {
        snprintf(name, sizeof(name), "%.*s", (int)bytes, host);
    }
    return X509_check_host(gate->certificate, name, 0, 0, NULL) == 1 ||
           X509_check_ip_asc(gate->certificate, name, 0) == 1;
}

/* Names that others may point at this machine are none of ours. */
static bool
is_our_host(const struct gate *gate, const char *host)
{
    return gate_is_host(host, "localhost") || gate_is_host(host, "127.0.0.1") ||
           gate_is_host(host, "[::1]") || gate_is_host(host, gate->address) ||
           gate_is_host(host, gate->name) || is_certified(gate, host);
}

/* The page's own requests come from where it was loaded; other programs name no origin. */
static bool
is_origin(const struct gate *gate, const struct gate_request *request)
{
    const char *scheme = gate->tls ? "https://" : "http://";
    const size_t bytes = strlen(scheme);

    return request->origin == NULL || (strncmp(request->origin, scheme, bytes) == 0 &&
                                       strcasecmp(request->origin + bytes, request->host) == 0);
}

static bool
is_too_often(struct gate *gate, uint64_t now_ms)
{
    if (now_ms / 1000 != gate->second) {
        gate->second = now_ms / 1000;
        gate->requests = 0;
    }
    return ++gate->requests > GATE_REQUESTS_PER_S;
}

static enum gate_verdict
judge(const struct gate *gate, const struct gate_request *request)
{
    static const char bearer[] = "Bearer ";

    if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0) {
        return GATE_READ_ONLY;
    }
    if (request->host == NULL || !is_our_host(gate, request->host)) {
        return GATE_STRANGE_HOST;
    }
    if (!is_origin(gate, request)) {
        return GATE_STRANGE_ORIGIN;
    }
    if (request->token != NULL) {
        return is_secret(request->token, gate->token) ? GATE_TRADE : GATE_WRONG_TOKEN;
    }
    if (request->authorization != NULL) {
        const bool borne = strncasecmp(request->authorization, bearer, sizeof(bearer) - 1) == 0;

        return borne && is_secret(request->authorization + sizeof(bearer) - 1, gate->token)
                   ? GATE_OPEN
                   : GATE_WRONG_TOKEN;
    }
    if (request->cookie != NULL) {
        return is_secret(request->cookie, gate->cookie) ? GATE_OPEN : GATE_WRONG_TOKEN;
    }
    return GATE_NO_TOKEN;
}

enum gate_verdict
gate_check(struct gate *gate, const struct gate_request *request, uint64_t now_ms)
{
    const enum gate_verdict verdict = judge(gate, request);

    if (verdict == GATE_OPEN || verdict == GATE_TRADE) {
        return verdict; /* strangers do not keep the owner out */
    }
    return is_too_often(gate, now_ms) ? GATE_TOO_OFTEN : verdict;
}

static const struct {
    unsigned status;
    const char *text;
} verdicts[GATE_VERDICTS] = {
    [GATE_OPEN] = {200, ""},
    [GATE_TRADE] = {200, ""},
    [GATE_READ_ONLY] = {405, "This page only shows a job: GET and HEAD are all it knows.\n"},
    [GATE_STRANGE_HOST] = {403, "This is not the address that psd_run listens at. Over ssh, use "
                                "ssh -L and localhost.\n"},
    [GATE_STRANGE_ORIGIN] = {403, "Pages of other sites may not read this one.\n"},
    [GATE_NO_TOKEN] = {401, "Open the whole address that psd_run printed, with its token. "
                            "\"psd_run page\" prints it again.\n"},
    [GATE_WRONG_TOKEN] = {403, "The token is that of another job, or of none. \"psd_run page\" "
                               "prints the address of a job that runs.\n"},
    [GATE_TOO_OFTEN] = {429, "Too many requests at once: try again in a second.\n"},
};

unsigned
gate_http_status(enum gate_verdict verdict)
{
    return verdicts[verdict].status;
}

const char *
gate_text(enum gate_verdict verdict)
{
    return verdicts[verdict].text;
}
