/*
 * meet_name.c - meeting where rank 0 has a name and a port that all know: --coordinator HOST:PORT.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "launch/multi/given_ranks.h"
#include "transport/address.h"

static bool
detect(const struct launch_options *options)
{
    return options->coordinator != NULL;
}

/* "tcp://HOST:PORT", however it was written. */
static void
name_coordinator(const struct launch_options *options, char address_p[JOINER_ADDRESS_BYTES])
{
    const char *text = options->coordinator;

    snprintf(address_p, JOINER_ADDRESS_BYTES, "%s%s",
             strncmp(text, "tcp://", 6) == 0 ? "" : "tcp://", text);
}

static psd_status
roles(struct multi_start *multi, struct psd_error *err)
{
    char text[JOINER_ADDRESS_BYTES];
    struct psi_address address;
    psd_status status = given_ranks_find(multi, err);

    if (status != PSD_OK) {
        return status;
    }
    name_coordinator(multi->options, text);
    status = psi_address_parse(text, &address, err);
    if (status == PSD_OK && address.port == 0) {
        status = psi_fail(err, PSD_ERR_INVALID, "the port is missing");
    }
    if (status != PSD_OK) {
        char why[200];

        snprintf(why, sizeof(why), "%.199s", err->text);
        return psi_fail(err, PSD_ERR_INVALID, "--coordinator %.100s: must be HOST:PORT: %s",
                        multi->options->coordinator, why);
    }
    multi->port = address.port;
    return PSD_OK;
}

static psd_status
enter(struct multi_start *multi, struct psd_error *err)
{
    return multi_start_has_secret(multi)
               ? PSD_OK
               : psi_fail(err, PSD_ERR_INVALID,
                          "--coordinator needs a secret that all have: --secret_file FILE or "
                          "PSD_SECRET_FILE (psd_run secret FILE makes one)");
}

static psd_status
find(void *context, char address_p[JOINER_ADDRESS_BYTES], int *code_p, struct psd_error *err)
{
    const struct multi_start *multi = context;

    (void)code_p;
    (void)err;
    name_coordinator(multi->options, address_p);
    return PSD_OK;
}

const struct meet_ops meet_name = {
    .name = "--coordinator",
    .returns = true,
    .detect = detect,
    .roles = roles,
    .enter = enter,
    .find = find,
};
