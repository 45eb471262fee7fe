/*
 * endpoint.c - "[user@]host[:port]", as people write it into a configuration.
 *
 * These words end up on the command line of ssh, so only letters that no host name can do without
 * are let through, and none may begin like an option.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cluster/endpoint.h"

#include <stddef.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

/* Copies text[0 .. bytes - 1] if it fits and is not empty. */
static bool
copy(char *to, size_t size, const char *text, size_t bytes)
{
    if (bytes == 0 || bytes >= size) {
        return false;
    }
    memcpy(to, text, bytes);
    to[bytes] = '\0';
    return true;
}

static bool
parse_port(const char *text, uint16_t *port_p)
{
    uint32_t port = 0;

    for (size_t i = 0; text[i] != '\0'; i++) {
        if (text[i] < '0' || text[i] > '9' || i >= 5) {
            return false;
        }
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    *port_p = (uint16_t)port;
    return port >= 1 && port <= UINT16_MAX;
}

bool
psi_user_valid(const char *user)
{
    const size_t bytes = strlen(user);

    return bytes > 0 && bytes < sizeof(((struct psi_endpoint *)0)->user) && user[0] != '-' &&
           strspn(user, letters) == bytes;
}

/* host, host:port, v6 address, [v6 address]:port */
static const char *
parse_host(const char *text, struct psi_endpoint *endpoint)
{
    const char *colon = strchr(text, ':');
    const char *host = text;
    size_t bytes = strlen(text);
    const char *port = NULL;

    if (text[0] == '[') {
        host = text + 1;
        bytes = strcspn(host, "]");
        if (host[bytes] != ']' || (host[bytes + 1] != '\0' && host[bytes + 1] != ':') ||
            colon == NULL || colon > host + bytes) {
            return "has brackets that are not around an IPv6 address";
        }
        port = host[bytes + 1] == ':' ? host + bytes + 2 : NULL;
    } else if (colon != NULL && strchr(colon + 1, ':') == NULL) {
        bytes = (size_t)(colon - text);
        port = colon + 1;
    }
    if (host[0] == '-') {
        return "begins with a dash";
    }
    if (memchr(host, '[', bytes) != NULL || memchr(host, ']', bytes) != NULL) {
        return "has brackets that are not around an IPv6 address";
    }
    if (port != NULL && !parse_port(port, &endpoint->port)) {
        return "has a port that is not a number from 1 to 65535";
    }
    if (!copy(endpoint->host, sizeof(endpoint->host), host, bytes)) {
        return bytes == 0 ? "has no host name" : "is longer than a host name can be";
    }
    return NULL;
}

const char *
psi_endpoint_parse(const char *text, struct psi_endpoint *endpoint_p)
{
    struct psi_endpoint endpoint = {.port = 0};
    const char *at = strchr(text, '@');
    const char *wrong;

    if (text[0] == '\0') {
        return "is empty";
    }
    if (text[0] == '-') {
        return "begins with a dash";
    }
    for (const char *letter = text; *letter != '\0'; letter++) {
        if (strchr(letters, *letter) == NULL && strchr(":[]@%", *letter) == NULL) {
            return "has a letter that no host name has";
        }
    }
    if (at != NULL && (!copy(endpoint.user, sizeof(endpoint.user), text, (size_t)(at - text)) ||
                       !psi_user_valid(endpoint.user) || strchr(at + 1, '@') != NULL)) {
        return "has no valid user name before the @";
    }
    wrong = parse_host(at != NULL ? at + 1 : text, &endpoint);
    if (wrong == NULL) {
        *endpoint_p = endpoint;
    }
    return wrong;
}
