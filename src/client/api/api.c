/*
 * api.c - what the public calls share; the calls themselves are in api_*.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/api/api.h"

#include "base/fail.h"
#include "config/environment.h"
#include "config/settings.h"
#include "transport/address.h"

/* What could never be connected to is an error at once, not after a timeout. */
psd_status
psi_check_address(const char *text, struct psd_error *err)
{
    char formatted[PSI_ADDRESS_BYTES];
    struct psi_address address;
    psd_status status = psi_address_parse(text, &address, err);

    if (status == PSD_OK && psi_address_format(&address, formatted, NULL) != PSD_OK) {
        status = psi_fail(err, PSD_ERR_INVALID, "address \"%.120s\": too long", text);
    }
    if (status == PSD_OK && address.scheme == PSI_SCHEME_TCP && address.port == 0) {
        status = psi_fail(err, PSD_ERR_INVALID, "address \"%s\": no port to connect to", text);
    }
    return status;
}

psd_status
psi_secret_source(const char *file, struct psi_secret_source *source_p, struct psd_error *err)
{
    bool insecure = false;
    const psd_status status = psi_environment_switch("PSD_INSECURE", &insecure, err);

    *source_p = (struct psi_secret_source){
        .fd = psi_environment("PSD_SECRET_FD"),
        .file = file != NULL ? file : psi_environment("PSD_SECRET_FILE"),
        .file_key = file != NULL ? "secret_file" : "PSD_SECRET_FILE",
        .insecure = insecure ? "PSD_INSECURE=1" : NULL,
    };
    return status;
}
