/*
 * is_local.c - whether a name or an address is this machine.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/is_local.h"

#include <ifaddrs.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

/* The first label counts too: "node7" is "node7.cluster". */
static bool
is_own_name(const char *host)
{
    char own[256] = "";

    if (gethostname(own, sizeof(own) - 1) != 0 || own[0] == '\0') {
        return false;
    }
    return strcasecmp(host, own) == 0 ||
           (strchr(host, '.') == NULL && strcspn(own, ".") == strlen(host) &&
            strncasecmp(host, own, strlen(host)) == 0);
}

static bool
is_interface_address(const char *host)
{
    struct ifaddrs *list = NULL;
    struct in_addr v4;
    struct in6_addr v6;
    const bool is_v4 = inet_pton(AF_INET, host, &v4) == 1;
    const bool is_v6 = inet_pton(AF_INET6, host, &v6) == 1;
    bool found = false;

    if ((!is_v4 && !is_v6) || getifaddrs(&list) != 0) {
        return false;
    }
    for (const struct ifaddrs *item = list; item != NULL && !found; item = item->ifa_next) {
        const void *address = item->ifa_addr;

        if (address == NULL) {
            continue;
        }
        if (is_v4 && item->ifa_addr->sa_family == AF_INET) {
            found = memcmp(&((const struct sockaddr_in *)address)->sin_addr, &v4, sizeof(v4)) == 0;
        } else if (is_v6 && item->ifa_addr->sa_family == AF_INET6) {
            found =
                memcmp(&((const struct sockaddr_in6 *)address)->sin6_addr, &v6, sizeof(v6)) == 0;
        }
    }
    freeifaddrs(list);
    return found;
}

bool
is_local(const char *host)
{
    struct in_addr v4;

    return strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (strncmp(host, "127.", 4) == 0 && inet_pton(AF_INET, host, &v4) == 1) ||
           is_own_name(host) || is_interface_address(host);
}
