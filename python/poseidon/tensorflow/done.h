/*
 * done.h - the callback that ends an asynchronous kernel, kept until the answer is there.
 *
 * TensorFlow hands a kernel's compute function the address of a std::function<void()> that is gone
 * when the function returns (CAsyncOpKernel::ComputeAsync passes a parameter of its own), although
 * an asynchronous kernel is there to return first. So the function object is copied, the way its
 * library does it: an object of libstdc++ is two words of storage, a manager and an invoker, and
 * the manager copies and destroys the storage. done_supported() makes sure that TensorFlow was
 * built with that library; where a later TensorFlow keeps the callback alive by itself, a copy of
 * it is as good.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef POSEIDON_TENSORFLOW_DONE_H
#define POSEIDON_TENSORFLOW_DONE_H

#include <stdbool.h>

/* Of tensorflow/c/kernels.h, which defines an object and so can be included but once. */
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;
extern void TF_RunAsyncOpKernelDoneCallback(TF_AsyncOpKernelDoneCallback *callback);

struct done {
    void *storage[2];
    bool (*manage)(void *storage, const void *source, int operation);
    void (*invoke)(const void *storage);
};

/* Whether this TensorFlow's callbacks are what is described above. */
bool done_supported(void);

/* Copies the callback; to be called before the kernel's function returns. */
void done_keep(struct done *done, const TF_AsyncOpKernelDoneCallback *callback);

/* Runs it, once, and lets it go. */
void done_run(struct done *done);

#endif
