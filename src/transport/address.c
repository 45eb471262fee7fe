/*
 * address.c - "tcp://host:port", "tcp://[v6]:port" and "inproc://name", taken apart and put
 * together.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

/* What follows "scheme://". */
enum rest { HOST_AND_PORT, NAME };

#define EXAMPLE_HOST_AND_PORT "host:port"
#define EXAMPLE_NAME          "name"

static const struct scheme {
    const char *word;
    enum rest rest;
} schemes[PSI_SCHEME_COUNT] = {
#define SCHEME(id, word, rest) [PSI_SCHEME_##id] = {#word, rest},
    PSI_TRANSPORT_MAP(SCHEME)
#undef SCHEME
};

/* "tcp://host:port or inproc://name" */
#define EXAMPLE(id, word, rest) " or " #word "://" EXAMPLE_##rest
static const char examples[] = PSI_TRANSPORT_MAP(EXAMPLE);
#undef EXAMPLE

static psd_status
refuse(struct psd_error *err, const char *text, const char *why)
{
    return psi_fail(err, PSD_ERR_INVALID, "address \"%.120s\": %s", text, why);
}

/* The text after "scheme://", or NULL. */
static const char *
parse_scheme(const char *text, enum psi_scheme_id *scheme_p)
{
    for (unsigned i = 0; i < PSI_SCHEME_COUNT; i++) {
        const size_t length = strlen(schemes[i].word);

        if (strncmp(text, schemes[i].word, length) == 0 && strncmp(text + length, "://", 3) == 0) {
            *scheme_p = (enum psi_scheme_id)i;
            return text + length + 3;
        }
    }
    return NULL;
}

/* Digits only: no sign, no blanks, nothing behind them. */
static bool
parse_port(const char *text, uint16_t *port_p)
{
    unsigned port = 0;
    unsigned digits = 0;

    for (; *text >= '0' && *text <= '9' && digits < 6; text++, digits++) {
        port = port * 10 + (unsigned)(*text - '0');
    }
    if (*text != '\0' || digits == 0 || port > UINT16_MAX) {
        return false;
    }
    *port_p = (uint16_t)port;
    return true;
}

static bool
is_host_name(const char *host)
{
    return host[0] != '\0' && host[strspn(host, "abcdefghijklmnopqrstuvwxyz"
                                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                "0123456789.-_")] == '\0';
}

/* An IPv6 address, perhaps with the interface it is local to: "fe80::1%eth0". */
static bool
is_v6(const char *host)
{
    char digits[INET6_ADDRSTRLEN];
    struct in6_addr v6;
    const size_t length = strcspn(host, "%");

    if (length >= sizeof(digits)) {
        return false;
    }
    memcpy(digits, host, length);
    digits[length] = '\0';
    return inet_pton(AF_INET6, digits, &v6) == 1;
}

static bool
take_host(struct psi_address *address, const char *begin, size_t length)
{
    if (length >= sizeof(address->host)) {
        return false;
    }
    memcpy(address->host, begin, length);
    address->host[length] = '\0';
    return true;
}

static psd_status
parse_host_and_port(const char *text, const char *rest, struct psi_address *address,
                    struct psd_error *err)
{
    const bool bracketed = rest[0] == '[';
    const char *host = bracketed ? rest + 1 : rest;
    const char *host_end = strchr(host, bracketed ? ']' : ':');
    const char *colon;

    if (host_end == NULL) {
        return refuse(err, text, bracketed ? "no ] after the IPv6 address" : "no port");
    }
    colon = bracketed ? host_end + 1 : host_end;
    if (*colon != ':') {
        return refuse(err, text, "no port");
    }
    if (strchr(colon + 1, ':') != NULL) {
        return refuse(err, text, "an IPv6 address stands in [ ]");
    }
    if (!take_host(address, host, (size_t)(host_end - host))) {
        return refuse(err, text, "host too long");
    }
    if (bracketed ? !is_v6(address->host) : !is_host_name(address->host)) {
        return refuse(err, text, bracketed ? "not an IPv6 address" : "not a host");
    }
    if (!parse_port(colon + 1, &address->port)) {
        return refuse(err, text, "the port is a number from 0 to 65535");
    }
    return PSD_OK;
}

static psd_status
parse_name(const char *text, const char *rest, struct psi_address *address, struct psd_error *err)
{
    if (rest[0] == '\0') {
        return refuse(err, text, "no name");
    }
    if (strlen(text) >= PSI_ADDRESS_BYTES || !take_host(address, rest, strlen(rest))) {
        return refuse(err, text, "name too long");
    }
    return PSD_OK;
}

psd_status
psi_address_parse(const char *text, struct psi_address *address_p, struct psd_error *err)
{
    struct psi_address address = {0};
    const char *rest = parse_scheme(text, &address.scheme);
    psd_status status;

    if (rest == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "address \"%.120s\": expected %s", text,
                        examples + strlen(" or "));
    }
    if (schemes[address.scheme].rest == HOST_AND_PORT) {
        status = parse_host_and_port(text, rest, &address, err);
    } else {
        status = parse_name(text, rest, &address, err);
    }
    if (status == PSD_OK) {
        *address_p = address;
    }
    return status;
}

psd_status
psi_address_format(const struct psi_address *address, char text_p[PSI_ADDRESS_BYTES],
                   struct psd_error *err)
{
    char text[PSI_HOST_BYTES + 32];
    const struct scheme *scheme = &schemes[address->scheme];
    const bool bracketed = strchr(address->host, ':') != NULL;

    if (scheme->rest == HOST_AND_PORT) {
        snprintf(text, sizeof(text), "%s://%s%s%s:%u", scheme->word, bracketed ? "[" : "",
                 address->host, bracketed ? "]" : "", address->port);
    } else {
        snprintf(text, sizeof(text), "%s://%s", scheme->word, address->host);
    }
    if (strlen(text) >= PSI_ADDRESS_BYTES) {
        return psi_fail(err, PSD_ERR_TOO_BIG, "address \"%.120s\": longer than %d bytes", text,
                        PSI_ADDRESS_BYTES - 1);
    }
    memcpy(text_p, text, strlen(text) + 1);
    return PSD_OK;
}

bool
psi_address_is_loopback(const struct psi_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (schemes[address->scheme].rest == NAME || strcmp(address->host, "localhost") == 0) {
        return true;
    }
    if (inet_pton(AF_INET, address->host, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return inet_pton(AF_INET6, address->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}
