/*
 * Tests of gate.c. If one fails, somebody sees a job who must not, or its owner does not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "launch/page/gate.h"

static struct gate gate;

static int
set_up(void **state)
{
    char token[GATE_SECRET_CHARS + 1];

    (void)state;
    if (!gate_draw(token)) {
        return -1;
    }
    gate_init(&gate, token, "10.0.0.7", "node7.cluster", NULL);
    return 0;
}

/* A request that is let in, for tests to spoil. */
static struct gate_request
good(void)
{
    return (struct gate_request){.method = "GET", .host = "localhost:4711", .cookie = gate.cookie};
}

static enum gate_verdict
check(const struct gate_request *request)
{
    gate.requests = 0;
    return gate_check(&gate, request, 1000);
}

/* If this fails, the token is not traded, or a browser with the cookie is refused. */
static void
test_token_cookie_and_bearer(void **state)
{
    struct gate_request request = good();
    char bearer[128] = "Bearer ";

    (void)state;
    assert_int_equal(check(&request), GATE_OPEN);
    request.cookie = NULL;
    assert_int_equal(check(&request), GATE_NO_TOKEN);
    request.token = gate.token;
    assert_int_equal(check(&request), GATE_TRADE);
    request.token = NULL;
    strcat(bearer, gate.token);
    request.authorization = bearer;
    assert_int_equal(check(&request), GATE_OPEN);
    request.method = "HEAD";
    assert_int_equal(check(&request), GATE_OPEN);
}

/* If this fails, a wrong token or cookie opens the page. */
static void
test_wrong_secrets(void **state)
{
    char nearly[GATE_SECRET_CHARS + 2];
    const char *wrong[] = {"", "0", nearly, gate.cookie};
    struct gate_request request = good();

    (void)state;
    memcpy(nearly, gate.token, sizeof(gate.token));
    nearly[GATE_SECRET_CHARS - 1] ^= 1;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        request.token = wrong[i];
        assert_int_equal(check(&request), GATE_WRONG_TOKEN);
    }
    strcpy(nearly, gate.token);
    strcat(nearly, "0");
    request.token = nearly;
    assert_int_equal(check(&request), GATE_WRONG_TOKEN);
    request = good();
    request.cookie = gate.token; /* what is in an address is no cookie */
    assert_int_equal(check(&request), GATE_WRONG_TOKEN);
    request.cookie = NULL;
    request.authorization = gate.token;
    assert_int_equal(check(&request), GATE_WRONG_TOKEN);
    request.authorization = "Basic Og==";
    assert_int_equal(check(&request), GATE_WRONG_TOKEN);
}

/* Self-signed, of an elliptic curve, for these names. */
static void
make_certificate(const char *names, char *pem_p, size_t size)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
    BIO *bio = BIO_new(BIO_s_mem());
    int got;

    assert_true(key != NULL && certificate != NULL && extension != NULL && bio != NULL);
    X509_set_version(certificate, 2);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_set_pubkey(certificate, key);
    X509_add_ext(certificate, extension, -1);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_bio_X509(bio, certificate), 1);
    got = BIO_read(bio, pem_p, (int)size - 1);
    assert_true(got > 0);
    pem_p[got] = '\0';
    BIO_free(bio);
    X509_EXTENSION_free(extension);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

/* If this fails, a page with TLS refuses the very name that its certificate is for; or takes others. */
static void
test_names_of_the_certificate(void **state)
{
    static const char *const ours[] = {"job.example.org",    "JOB.example.org:8443",
                                       "a.pool.example.org", "10.1.2.3:443",
                                       "[fd00::7]:443",      "localhost"};
    static const char *const strange[] = {
        "example.org",       "evil.example", "a.b.pool.example.org",
        "job.example.org.x", "10.1.2.4",     "",
        "[fd00::8]:443",     ".example.org", ".org"};
    struct gate_request request = {.method = "GET"};
    struct gate other;
    char pem[4096];

    (void)state;
    make_certificate("DNS:job.example.org,DNS:*.pool.example.org,IP:10.1.2.3,IP:fd00::7", pem,
                     sizeof(pem));
    gate_init(&other, "another token 12", NULL, NULL, pem);
    assert_true(other.tls);
    request.cookie = other.cookie;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        request.host = ours[i];
        if (gate_check(&other, &request, 1000) != GATE_OPEN) {
            fail_msg("%s is refused", ours[i]);
        }
    }
    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        request.host = strange[i];
        if (gate_check(&other, &request, 1000) != GATE_STRANGE_HOST) {
            fail_msg("%s is let in", strange[i]);
        }
    }
    gate_fini(&other);
    gate_init(&other, "another token 12", NULL, NULL, "no certificate");
    request.host = ours[0];
    assert_int_equal(gate_check(&other, &request, 1000), GATE_STRANGE_HOST);
    gate_fini(&other);
}

/* If this fails, pages that are open do not come back when a job is begun anew, or the token can be
 * read from the cookie. */
static void
test_cookie_is_of_the_token(void **state)
{
    struct gate again;
    struct gate other;

    (void)state;
    gate_init(&again, gate.token, NULL, NULL, NULL);
    gate_init(&other, "another token 12", NULL, NULL, NULL);
    assert_string_equal(again.cookie, gate.cookie);
    assert_string_not_equal(other.cookie, gate.cookie);
    assert_string_not_equal(gate.token, gate.cookie);
    assert_int_equal(strlen(gate.cookie), GATE_SECRET_CHARS);
}

/* If this fails, other servers on this machine get the cookie, or the page is not where it says. */
static void
test_the_cookie_has_a_path(void **state)
{
    char path[64];
    struct gate other;

    (void)state;
    snprintf(path, sizeof(path), "/%s/events", gate.place);
    assert_string_equal(gate_below(&gate, path), "/events");
    gate_init(&other, "another token 12", NULL, NULL, NULL);
    assert_null(gate_below(&other, path));
    assert_null(gate_below(&gate, "/"));
    assert_null(gate_below(&gate, "/events"));
    path[1 + GATE_PLACE_CHARS] = '\0';
    assert_null(gate_below(&gate, path));
    assert_int_equal(strlen(gate.place), GATE_PLACE_CHARS);
    assert_null(strstr(gate.token, gate.place));
    assert_null(strstr(gate.cookie, gate.place));
}

/* If this fails, a gate that was never given a token is open to an empty one. */
static void
test_no_token_opens_nothing(void **state)
{
    struct gate_request request = good();

    (void)state;
    gate.token[0] = '\0';
    request.token = "";
    assert_int_equal(check(&request), GATE_WRONG_TOKEN);
}

/* If this fails, a name that somebody pointed at this machine reads the page. */
static void
test_hosts(void **state)
{
    static const char *const ours[] = {
        "localhost", "localhost:1",   "LOCALHOST:8080",      "127.0.0.1:80", "[::1]:80",
        "[::1]",     "node7.cluster", "NODE7.cluster:65535", "10.0.0.7:443"};
    static const char *const others[] = {"",
                                         ":",
                                         ":80",
                                         "evil.example",
                                         "localhost.evil.example",
                                         "localhost:80.evil.example",
                                         "localhost:",
                                         "localhost:123456",
                                         "localhost:80:80",
                                         "evil.example@localhost",
                                         "127.0.0.1.evil.example",
                                         "127.0.0.10",
                                         "[::1",
                                         "[::1]evil",
                                         "[::1]:",
                                         "::1",
                                         "node7",
                                         "node7.cluster.evil",
                                         "localhost "};
    struct gate_request request = good();

    (void)state;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        request.host = ours[i];
        assert_int_equal(check(&request), GATE_OPEN);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        request.host = others[i];
        assert_int_equal(check(&request), GATE_STRANGE_HOST);
    }
    request.host = NULL;
    assert_int_equal(check(&request), GATE_STRANGE_HOST);
    assert_false(gate_is_host("", ""));
}

/* If this fails, a page of another site reads this one. */
static void
test_origins(void **state)
{
    static const char *const others[] = {"null",
                                         "",
                                         "http://evil.example",
                                         "http://localhost",
                                         "http://localhost:4712",
                                         "https://localhost:4711",
                                         "http://localhost:4711.evil.example"};
    struct gate_request request = good();

    (void)state;
    request.origin = "http://localhost:4711";
    assert_int_equal(check(&request), GATE_OPEN);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        request.origin = others[i];
        assert_int_equal(check(&request), GATE_STRANGE_ORIGIN);
    }
    gate.tls = true;
    request.origin = "https://localhost:4711";
    assert_int_equal(check(&request), GATE_OPEN);
}

/* If this fails, the page can be told to change something. */
static void
test_read_only(void **state)
{
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", ""};
    struct gate_request request = good();

    (void)state;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        request.method = methods[i];
        assert_int_equal(check(&request), GATE_READ_ONLY);
    }
}

/* If this fails, strangers who ask all the time keep the owner out, or one is shut out for good. */
static void
test_too_often(void **state)
{
    const struct gate_request owner = good();
    struct gate_request request = good();

    (void)state;
    request.cookie = NULL;
    for (unsigned i = 0; i < GATE_REQUESTS_PER_S; i++) {
        assert_int_equal(gate_check(&gate, &request, 5000), GATE_NO_TOKEN);
    }
    assert_int_equal(gate_check(&gate, &request, 5999), GATE_TOO_OFTEN);
    assert_int_equal(gate_check(&gate, &owner, 5999), GATE_OPEN);
    assert_int_equal(gate_check(&gate, &request, 6000), GATE_NO_TOKEN);
}

/* If this fails, a refusal does not say what to do. */
static void
test_refusals_have_words(void **state)
{
    (void)state;
    for (enum gate_verdict verdict = GATE_READ_ONLY; verdict < GATE_VERDICTS; verdict++) {
        assert_true(gate_http_status(verdict) >= 400);
        assert_true(strlen(gate_text(verdict)) > 20);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_token_cookie_and_bearer, set_up),
        cmocka_unit_test_setup(test_wrong_secrets, set_up),
        cmocka_unit_test_setup(test_names_of_the_certificate, set_up),
        cmocka_unit_test_setup(test_cookie_is_of_the_token, set_up),
        cmocka_unit_test_setup(test_the_cookie_has_a_path, set_up),
        cmocka_unit_test_setup(test_no_token_opens_nothing, set_up),
        cmocka_unit_test_setup(test_hosts, set_up),
        cmocka_unit_test_setup(test_origins, set_up),
        cmocka_unit_test_setup(test_read_only, set_up),
        cmocka_unit_test_setup(test_too_often, set_up),
        cmocka_unit_test_setup(test_refusals_have_words, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
