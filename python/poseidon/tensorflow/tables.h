/*
 * tables.h - the tables that operations of a graph name, and libpsd as Python has loaded it.
 *
 * A graph outlives a job, or is loaded into another process; so a node has the name of its table,
 * which is looked up whenever the node runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef POSEIDON_TENSORFLOW_TABLES_H
#define POSEIDON_TENSORFLOW_TABLES_H

#include <stdbool.h>

#include <psd/psd.h>

enum verb { VERB_PUSH, VERB_PULL, VERB_PUSH_PULL };

/* The functions of libpsd that kernels call. */
struct library {
    psd_status (*push)(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p);
    psd_status (*pull)(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p);
    psd_status (*push_pull)(psd_table *table, const struct psd_transfer *transfer, psd_op **op_p);
    uint64_t (*step)(const psd_table *table);
    uint64_t (*count)(const psd_table *table);
    size_t (*element_bytes)(const psd_table *table);
    const struct psd_error *(*last_error)(void);
    const struct psd_error *(*op_error)(const psd_op *op);
    void (*op_release)(psd_op *op);
    psd_status (*mark)(psd_context *context, uint64_t step, const char *name, uint64_t begin_ns,
                       uint64_t end_ns);
};

const struct library *tables_library(void);

/*
 * Starts a transfer of the table of that name with its next step. `bytes` is what the caller has
 * memory for. False: it did not start, and the text says why.
 */
bool tables_start(const char *name, enum verb verb, size_t bytes, struct psd_transfer *transfer,
                  struct psd_error *why);

#endif
