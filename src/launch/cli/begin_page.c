/*
 * begin_page.c - which page a command line asks for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/begin_page.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static bool
parse_port(const char *text, uint16_t *port_p)
{
    char *end;
    const unsigned long port = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || port == 0 || port > UINT16_MAX) {
        return false;
    }
    *port_p = (uint16_t)port;
    return true;
}

psd_status
begin_page(const struct launch_options *options, struct page_args *args_p, bool *wanted_p,
           struct psd_error *err)
{
    struct page_args args = {.address = options->page_address,
                             .certificate = options->page_cert,
                             .key = options->page_key,
                             .token_file = options->page_token};
    const bool off =
        options->unwatched || (options->page != NULL && strcmp(options->page, "off") == 0);

    if (options->unwatched && (options->page != NULL || options->tensorboard != NULL)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--unwatched and %s: nothing would be told that could be shown; give one "
                        "of them",
                        options->page != NULL ? "--page" : "--tensorboard");
    }
    if (options->page != NULL && !off && !parse_port(options->page, &args.port)) {
        return psi_fail(err, PSD_ERR_INVALID, "--page %.64s: a port from 1 to 65535, or off",
                        options->page);
    }
    *args_p = args;
    *wanted_p = !off;
    return PSD_OK;
}
