/*
 * ops.c - push, pull, push_pull and broadcast as operations of TensorFlow graphs.
 *
 * All kernels are asynchronous: one starts a transfer, returns, and ends when the answer has come,
 * so that no thread of TensorFlow ever waits for another worker. A transfer ends on whichever
 * thread drives libpsd, which must not be held up; what TensorFlow does next is therefore begun by
 * a thread of our own (finish_all).
 *
 * Tables are opened by Python (ops.py) and known here by name: tables.h. How a callback outlives
 * the call that brought it: done.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tensorflow/c/kernels.h>

/* ops.h of TensorFlow names these without typedefs, which C needs. */
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_DimensionHandle TF_DimensionHandle;
#include <tensorflow/c/ops.h>

#include "done.h"
#include "tables.h"

#define EXPORT __attribute__((visibility("default")))
#define FLOATS "T: {half, bfloat16, float, double}"
#define ANYTHING                                                                                   \
    "T: {half, bfloat16, float, double, int8, int16, int32, int64, uint8, uint16, "                \
    "uint32, uint64, bool, complex64, complex128}"

EXPORT const char *poseidon_ops_problem(void);

/* What a node of the graph says of itself. */
struct node {
    char table[PSD_NAME_MAX + 1];
    int64_t timeout_ms;
    TF_DataType type;
    int64_t shape[PSD_DIMS_MAX]; /* pull */
    int dims;                    /* pull */
    TF_Bool is_root;             /* broadcast */
};

/* A transfer under way. Thread: that of the kernel until it has started, then the finisher. */
struct pending {
    struct pending *next;
    TF_OpKernelContext *context;
    struct done done;
    TF_Tensor *input;  /* (optional) */
    TF_Tensor *output; /* (optional) */
    float *pairs;      /* broadcast: two bytes of the tensor in each */
    bool is_root;
    struct psd_error error; /* of the operation, which is gone when the finisher comes */
};

static pthread_mutex_t finished_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished_some = PTHREAD_COND_INITIALIZER;
static struct pending *finished_first; /* guarded by finished_lock, as is the next one */
static struct pending **finished_end = &finished_first;
static const char *problem; /* written while the library is loaded */

/* ---------------------------------------------------------------------- how a kernel ends --- */

static TF_Code
code_of(psd_status status)
{
    switch (status) {
    case PSD_ERR_TIMEOUT:
        return TF_DEADLINE_EXCEEDED;
    case PSD_ERR_NOT_FINITE:
    case PSD_ERR_INVALID:
    case PSD_ERR_MISMATCH:
        return TF_INVALID_ARGUMENT;
    default:
        return TF_ABORTED;
    }
}

static void
fail(TF_OpKernelContext *context, TF_Code code, const char *text)
{
    TF_Status *status = TF_NewStatus();

    TF_SetStatus(status, code, text);
    TF_OpKernelContext_Failure(context, status);
    TF_DeleteStatus(status);
}

static void
release(struct pending *pending)
{
    if (pending->input != NULL) {
        TF_DeleteTensor(pending->input);
    }
    if (pending->output != NULL) {
        TF_DeleteTensor(pending->output);
    }
    free(pending->pairs);
    free(pending);
}

/* Every float32 holds two bytes of the tensor exactly, whatever they mean. */
static void
pack_pairs(float *pairs, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        const unsigned high = i + 1 < count ? bytes[i + 1] : 0u;

        pairs[i / 2] = (float)(bytes[i] | high << 8);
    }
}

static void
unpack_pairs(const float *pairs, unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        const unsigned pair = (unsigned)pairs[i / 2];

        bytes[i] = (unsigned char)(pair & 0xffu);
        if (i + 1 < count) {
            bytes[i + 1] = (unsigned char)(pair >> 8);
        }
    }
}

static void
finish(struct pending *pending)
{
    struct done done = pending->done;

    if (pending->error.status != PSD_OK) {
        fail(pending->context, code_of(pending->error.status), pending->error.text);
    } else if (pending->pairs != NULL) {
        unpack_pairs(pending->pairs, TF_TensorData(pending->output),
                     TF_TensorByteSize(pending->output));
    }
    release(pending); /* first: the callback may give the memory to the next kernel */
    done_run(&done);
}

/* Waits until there are some. */
static struct pending *
take_finished(void)
{
    struct pending *taken;

    pthread_mutex_lock(&finished_lock);
    while (finished_first == NULL) {
        pthread_cond_wait(&finished_some, &finished_lock);
    }
    taken = finished_first;
    finished_first = NULL;
    finished_end = &finished_first;
    pthread_mutex_unlock(&finished_lock);
    return taken;
}

static void *
finish_all(void *unused)
{
    struct pending *pending = unused;

    while ((pending = take_finished()) != NULL) {
        while (pending != NULL) {
            struct pending *next = pending->next;

            finish(pending);
            pending = next;
        }
    }
    return NULL;
}

/* A psd_done_fn. */
static void
on_done(psd_op *op, psd_status status, void *user)
{
    struct pending *pending = user;

    if (status != PSD_OK) {
        pending->error = *tables_library()->op_error(op);
        pending->error.status = status;
    }
    tables_library()->op_release(op); /* here: the context may be closed as soon as we return */
    pthread_mutex_lock(&finished_lock);
    *finished_end = pending;
    finished_end = &pending->next;
    pthread_cond_signal(&finished_some);
    pthread_mutex_unlock(&finished_lock);
}

/* -------------------------------------------------------------------- how a kernel begins --- */

static void *
node_create(TF_OpKernelConstruction *construction)
{
    struct node *node = calloc(1, sizeof(*node));
    TF_Status *status = TF_NewStatus();
    int32_t dims = 0;
    int32_t bytes = 0;

    if (node == NULL) {
        TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "no memory for a node");
    }
    if (TF_GetCode(status) == TF_OK) {
        TF_OpKernelConstruction_GetAttrString(construction, "table", node->table, PSD_NAME_MAX,
                                              status);
    }
    if (TF_GetCode(status) == TF_OK) {
        TF_OpKernelConstruction_GetAttrInt64(construction, "timeout_ms", &node->timeout_ms, status);
    }
    if (TF_GetCode(status) == TF_OK) {
        TF_OpKernelConstruction_GetAttrType(construction, "T", &node->type, status);
    }
    if (TF_GetCode(status) == TF_OK &&
        TF_OpKernelConstruction_HasAttr(construction, "is_root", status)) {
        TF_OpKernelConstruction_GetAttrBool(construction, "is_root", &node->is_root, status);
    }
    if (TF_GetCode(status) == TF_OK &&
        TF_OpKernelConstruction_HasAttr(construction, "dims", status)) {
        TF_OpKernelConstruction_GetAttrSize(construction, "dims", &dims, &bytes, status);
        if (TF_GetCode(status) == TF_OK && dims > PSD_DIMS_MAX) {
            TF_SetStatus(status, TF_INVALID_ARGUMENT, "a table has at most 8 dimensions");
        }
        if (TF_GetCode(status) == TF_OK && dims > 0) {
            TF_OpKernelConstruction_GetAttrInt64List(construction, "dims", node->shape, dims,
                                                     status);
        }
        node->dims = dims > 0 ? dims : 0;
    }
    if (TF_GetCode(status) != TF_OK) {
        TF_OpKernelConstruction_Failure(construction, status);
        free(node);
        node = NULL;
    }
    TF_DeleteStatus(status);
    return node;
}

static void
node_delete(void *kernel)
{
    free(kernel);
}

/* Memory for the answer, shaped like the input, or as the node says when there is none. */
static bool
allocate_output(const struct node *node, struct pending *pending, TF_Status *status)
{
    int64_t shape[PSD_DIMS_MAX];
    const int dims = pending->input != NULL ? TF_NumDims(pending->input) : node->dims;
    size_t bytes = TF_DataTypeSize(node->type);

    if (dims > PSD_DIMS_MAX) {
        TF_SetStatus(status, TF_INVALID_ARGUMENT, "a table has at most 8 dimensions");
        return false;
    }
    for (int i = 0; i < dims; i++) {
        shape[i] = pending->input != NULL ? TF_Dim(pending->input, i) : node->shape[i];
        bytes *= (size_t)shape[i];
    }
    pending->output =
        TF_AllocateOutput(pending->context, 0, node->type, shape, dims, bytes, status);
    return TF_GetCode(status) == TF_OK;
}

/* Input and output as the verb needs them. */
static bool
prepare(const struct node *node, enum verb verb, bool packed, struct pending *pending,
        TF_Status *status)
{
    size_t bytes;

    if (verb != VERB_PULL) {
        TF_GetInput(pending->context, 0, &pending->input, status);
        if (TF_GetCode(status) != TF_OK) {
            return false;
        }
    }
    if (verb != VERB_PUSH && !allocate_output(node, pending, status)) {
        return false;
    }
    if (!packed) {
        return true;
    }
    bytes = TF_TensorByteSize(pending->input);
    pending->pairs = calloc((bytes + 1) / 2 + 1, sizeof(float)); /* the others give zeros */
    if (pending->pairs == NULL) {
        TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "broadcast: no memory");
        return false;
    }
    if (node->is_root) {
        pack_pairs(pending->pairs, TF_TensorData(pending->input), bytes);
    }
    return true;
}

static bool
start(const struct node *node, enum verb verb, struct pending *pending, struct psd_error *why)
{
    struct psd_transfer transfer = {
        .timeout_ms = (uint32_t)node->timeout_ms, .done = on_done, .user = pending};
    const TF_Tensor *sized = pending->input != NULL ? pending->input : pending->output;
    size_t bytes = TF_TensorByteSize(sized);

    if (pending->pairs != NULL) {
        transfer.gradient = pending->pairs;
        transfer.values = pending->pairs;
        bytes = (bytes + 1) / 2 * sizeof(float);
    } else {
        transfer.gradient = pending->input != NULL ? TF_TensorData(pending->input) : NULL;
        transfer.values = pending->output != NULL ? TF_TensorData(pending->output) : NULL;
    }
    return tables_start(node->table, verb, bytes, &transfer, why);
}

static void
compute(const struct node *node, enum verb verb, bool packed, TF_OpKernelContext *context,
        TF_AsyncOpKernelDoneCallback *callback)
{
    struct pending *pending = calloc(1, sizeof(*pending));
    struct psd_error why = {.status = PSD_ERR_STATE};
    TF_Status *status = TF_NewStatus();

    if (pending == NULL) {
        fail(context, TF_RESOURCE_EXHAUSTED, "no memory for a transfer");
        TF_RunAsyncOpKernelDoneCallback(callback);
        TF_DeleteStatus(status);
        return;
    }
    pending->context = context;
    if (!prepare(node, verb, packed, pending, status)) {
        TF_OpKernelContext_Failure(context, status);
        release(pending);
        TF_RunAsyncOpKernelDoneCallback(callback);
    } else {
        done_keep(&pending->done, callback); /* before the start: it may end at once */
        if (!start(node, verb, pending, &why)) {
            struct done done = pending->done;

            fail(context,
                 why.status == PSD_ERR_STATE ? TF_FAILED_PRECONDITION : code_of(why.status),
                 why.text);
            release(pending);
            done_run(&done);
        }
    }
    TF_DeleteStatus(status);
}

static void
compute_push(void *kernel, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *callback)
{
    compute(kernel, VERB_PUSH, false, context, callback);
}

static void
compute_pull(void *kernel, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *callback)
{
    compute(kernel, VERB_PULL, false, context, callback);
}

static void
compute_push_pull(void *kernel, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *callback)
{
    compute(kernel, VERB_PUSH_PULL, false, context, callback);
}

static void
compute_broadcast(void *kernel, TF_OpKernelContext *context, TF_AsyncOpKernelDoneCallback *callback)
{
    compute(kernel, VERB_PUSH_PULL, true, context, callback);
}

/* ----------------------------------------------------------------------- what there is --- */

static void
shape_of_input(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeHandle *shape = TF_NewShapeHandle();

    TF_ShapeInferenceContextGetInput(context, 0, shape, status);
    if (TF_GetCode(status) == TF_OK) {
        TF_ShapeInferenceContextSetOutput(context, 0, shape, status);
    }
    TF_DeleteShapeHandle(shape);
}

static void
shape_unknown(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeInferenceContextSetUnknownShape(context, status);
}

static void
shape_none(TF_ShapeInferenceContext *context, TF_Status *status)
{
    (void)context;
    TF_SetStatus(status, TF_OK, "");
}

struct operation {
    const char *name;
    const char *input;  /* (optional) */
    const char *output; /* (optional) */
    const char *type;
    const char *attribute; /* (optional) of this one alone */
    void (*infer)(TF_ShapeInferenceContext *context, TF_Status *status);
    void (*compute)(void *kernel, TF_OpKernelContext *context,
                    TF_AsyncOpKernelDoneCallback *callback);
};

static const struct operation operations[] = {
    {"PoseidonPush", "gradient: T", NULL, FLOATS, NULL, shape_none, compute_push},
    {"PoseidonPull", NULL, "values: T", FLOATS, "dims: list(int)", shape_unknown, compute_pull},
    {"PoseidonPushPull", "gradient: T", "values: T", FLOATS, NULL, shape_of_input,
     compute_push_pull},
    {"PoseidonBroadcast", "value: T", "values: T", ANYTHING, "is_root: bool", shape_of_input,
     compute_broadcast},
};

static void
define(const struct operation *operation, TF_Status *status)
{
    TF_OpDefinitionBuilder *builder = TF_NewOpDefinitionBuilder(operation->name);

    TF_OpDefinitionBuilderAddAttr(builder, operation->type);
    TF_OpDefinitionBuilderAddAttr(builder, "table: string");
    TF_OpDefinitionBuilderAddAttr(builder, "timeout_ms: int = 1800000");
    if (operation->attribute != NULL) {
        TF_OpDefinitionBuilderAddAttr(builder, operation->attribute);
    }
    if (operation->input != NULL) {
        TF_OpDefinitionBuilderAddInput(builder, operation->input);
    }
    if (operation->output != NULL) {
        TF_OpDefinitionBuilderAddOutput(builder, operation->output);
    }
    TF_OpDefinitionBuilderSetIsStateful(builder, true); /* never folded, merged or left out */
    TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, operation->infer);
    TF_RegisterOpDefinition(builder, status);
}

/* When TensorFlow loads the library. */
__attribute__((constructor)) static void
register_all(void)
{
    TF_Status *status = TF_NewStatus();
    pthread_t finisher;

    if (!done_supported()) {
        problem = "this TensorFlow was not built with libstdc++: its callbacks cannot be kept";
    } else if (pthread_create(&finisher, NULL, finish_all, NULL) != 0) {
        problem = "no thread could be started";
    } else {
        pthread_detach(finisher);
    }
    for (size_t i = 0; problem == NULL && i < sizeof(operations) / sizeof(operations[0]); i++) {
        define(&operations[i], status);
        if (TF_GetCode(status) == TF_OK) {
            TF_RegisterKernelBuilder(operations[i].name,
                                     TF_NewAsyncKernelBuilder(operations[i].name, "CPU",
                                                              node_create, operations[i].compute,
                                                              node_delete),
                                     status);
        }
        if (TF_GetCode(status) != TF_OK) {
            problem = "TensorFlow did not take the operations";
        }
    }
    TF_DeleteStatus(status);
}

const char *
poseidon_ops_problem(void)
{
    return problem;
}
