/*
 * mhd.c - loads libmicrohttpd.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/mhd.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "base/fail.h"

struct mhd mhd;

/* Sets a pointer to a function; whether it is there. ISO C has no cast for it. */
static bool
find(void *library, const char *name, void *function_p)
{
    void *address = dlsym(library, name);

    memcpy(function_p, &address, sizeof(address));
    return address != NULL;
}

psd_status
mhd_load(struct psd_error *err)
{
    static const char name[] = "libmicrohttpd.so.12";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *why = library == NULL ? dlerror() : NULL;
    bool complete = library != NULL;

#define MHD_FIND(function) complete = complete && find(library, "MHD_" #function, &mhd.function);
    MHD_FUNCTIONS(MHD_FIND)
#undef MHD_FIND
    if (!complete) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "%s cannot be loaded, so there is no page: %s (Debian has it in the "
                        "package libmicrohttpd12)",
                        name, why != NULL ? why : "a function is missing");
    }
    return PSD_OK;
}
