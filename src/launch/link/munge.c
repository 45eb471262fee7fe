/*
 * munge.c - the job's secret among machines that share a MUNGE key.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/munge.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

/* Of libmunge's interface, which has not changed since its version 2. */
enum {
    OPTION_SOCKET = 8,
    OPTION_UID_RESTRICTION = 9,
    CODE_OK = 0,
    CODE_SOCKET = 6,
    CODE_REPLAYED = 17,
};

/* Thread: filled by the first caller, before psd_run has threads; never unloaded. */
struct library {
    void *handle;
    void *(*ctx_create)(void);
    void (*ctx_destroy)(void *context);
    int (*ctx_set)(void *context, int option, ...);
    const char *(*ctx_strerror)(void *context);
    int (*encode)(char **credential, void *context, const void *bytes, int count);
    int (*decode)(const char *credential, void *context, void **bytes, int *count, uid_t *uid,
                  gid_t *gid);
};

static struct library *
load(void)
{
    static struct library library;
    const struct {
        const char *name;
        void *function; /* a pointer to a function, filled as dlsym(3) shows */
    } symbols[] = {
        {"munge_ctx_create", &library.ctx_create}, {"munge_ctx_destroy", &library.ctx_destroy},
        {"munge_ctx_set", &library.ctx_set},       {"munge_ctx_strerror", &library.ctx_strerror},
        {"munge_encode", &library.encode},         {"munge_decode", &library.decode}};

    if (library.handle != NULL) {
        return &library;
    }
    library.handle = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library.handle != NULL && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *found = dlsym(library.handle, symbols[i].name);

        memcpy(symbols[i].function, &found, sizeof(found));
        if (found == NULL) {
            dlclose(library.handle);
            library.handle = NULL;
        }
    }
    return library.handle != NULL ? &library : NULL;
}

bool
munge_is_there(void)
{
    return load() != NULL;
}

/* A context that talks to the given munged, or NULL with err. */
static void *
open_context(const struct library *library, const char *socket, struct psd_error *err)
{
    void *context = library != NULL ? library->ctx_create() : NULL;

    if (library == NULL) {
        psi_fail(err, PSD_ERR_IO,
                 "MUNGE: no libmunge.so.2 here; install it (Debian: libmunge2), or give all "
                 "processes the same --secret_file");
        return NULL;
    }
    if (context == NULL ||
        (socket != NULL && library->ctx_set(context, OPTION_SOCKET, socket) != CODE_OK)) {
        psi_fail(err, PSD_ERR_NO_MEMORY, "MUNGE: no memory");
        if (context != NULL) {
            library->ctx_destroy(context);
        }
        return NULL;
    }
    return context;
}

static psd_status
explain(const struct library *library, void *context, int code, const char *what,
        struct psd_error *err)
{
    const char *why = library->ctx_strerror(context);

    why = why != NULL ? why : "no reason given";
    if (code == CODE_SOCKET) {
        return psi_fail(err, PSD_ERR_IO,
                        "MUNGE: %s: %s; is munged running? `munge -n | unmunge` tries it", what,
                        why);
    }
    return psi_fail(err, PSD_ERR_REFUSED, "MUNGE: %s: %s", what, why);
}

psd_status
munge_seal(const char *socket, const uint8_t secret[PSI_SECRET_BYTES], char **credential_p,
           struct psd_error *err)
{
    const struct library *library = load();
    void *context = open_context(library, socket, err);
    char *credential = NULL;
    psd_status status = PSD_OK;
    int code;

    if (context == NULL) {
        return err != NULL ? err->status : PSD_ERR_IO;
    }
    code = library->ctx_set(context, OPTION_UID_RESTRICTION, geteuid());
    if (code == CODE_OK) {
        code = library->encode(&credential, context, secret, PSI_SECRET_BYTES);
    }
    if (code != CODE_OK) {
        status = explain(library, context, code, "make a credential", err);
        status = status == PSD_ERR_REFUSED ? PSD_ERR_IO : status;
        free(credential);
    } else {
        *credential_p = credential;
    }
    library->ctx_destroy(context);
    return status;
}

/* What came out of a credential of ours, and nobody else's. */
static psd_status
take(const void *bytes, int count, uid_t uid, uint8_t secret_p[PSI_SECRET_BYTES],
     struct psd_error *err)
{
    if (uid != geteuid()) { /* whose secret it is, he could read what is said under it */
        return psi_fail(
            err, PSD_ERR_REFUSED,
            "MUNGE: the credential is of user %u, but this is user %u: it is not from this job",
            (unsigned)uid, (unsigned)geteuid());
    }
    if (bytes == NULL || count != PSI_SECRET_BYTES) {
        return psi_fail(err, PSD_ERR_REFUSED, "MUNGE: the credential holds no secret of a job");
    }
    memcpy(secret_p, bytes, PSI_SECRET_BYTES);
    return PSD_OK;
}

psd_status
munge_unseal(const char *socket, const char *credential, uint8_t secret_p[PSI_SECRET_BYTES],
             struct psd_error *err)
{
    const struct library *library = load();
    void *context = open_context(library, socket, err);
    void *bytes = NULL;
    psd_status status;
    uid_t uid = 0;
    gid_t gid = 0;
    int count = 0;
    int code;

    if (context == NULL) {
        return err != NULL ? err->status : PSD_ERR_IO;
    }
    code = library->decode(credential, context, &bytes, &count, &uid, &gid);
    /* munged lets a machine read each once; several processes of a machine read the same. */
    status = code == CODE_OK || code == CODE_REPLAYED
                 ? take(bytes, count, uid, secret_p, err)
                 : explain(library, context, code, "read a credential", err);
    if (bytes != NULL) {
        explicit_bzero(bytes, (size_t)count);
        free(bytes);
    }
    library->ctx_destroy(context);
    return status;
}
