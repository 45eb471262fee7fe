/*
 * done.c - the callback that ends an asynchronous kernel, kept until the answer is there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "done.h"

#include <dlfcn.h>
#include <stddef.h>

enum { COPY = 2, DESTROY = 3 }; /* what a manager is asked to do */

/* A function of TensorFlow that takes such a callback: its name says std::function of libstdc++. */
static const char taker[] =
    "_ZN10tensorflow16ThreadPoolDevice12ComputeAsyncEPNS_13AsyncOpKernelEPNS_15OpKernelContextE"
    "St8functionIFvvEE";

bool
done_supported(void)
{
    Dl_info where;
    void *library;
    bool found;

    /* TensorFlow's libraries are not in the global scope: look in the one that runs callbacks. */
    if (dladdr((const void *)(size_t)TF_RunAsyncOpKernelDoneCallback, &where) == 0) {
        return false;
    }
    library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) {
        return false;
    }
    found = dlsym(library, taker) != NULL;
    dlclose(library);
    return found;
}

void
done_keep(struct done *done, const TF_AsyncOpKernelDoneCallback *callback)
{
    const struct done *source = (const struct done *)(const void *)callback;

    done->manage = source->manage;
    done->invoke = source->invoke;
    source->manage(done->storage, source->storage, COPY);
}

void
done_run(struct done *done)
{
    TF_RunAsyncOpKernelDoneCallback((TF_AsyncOpKernelDoneCallback *)(void *)done);
    done->manage(done->storage, done->storage, DESTROY);
}
