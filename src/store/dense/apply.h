/*
 * apply.h - the one pass over memory: add the gradients of a chunk and update its values.
 *
 * The bits depend on the gradients and the ranks alone: not on arrival order, servers, lanes, block
 * size, SIMD level, or on what was added elsewhere (sum.h). No fused multiply-add anywhere; a
 * published NaN is always the canonical quiet one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_DENSE_APPLY_H
#define STORE_DENSE_APPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/sum.h"
#include "table/spec.h"

/* One chunk and one meeting of gradients. */
struct apply {
    const struct kernels *kernels; /* that this CPU can run */
    psd_dtype dtype;
    psd_use use;
    const struct psd_rule_args *rule; /* PSD_USE_UPDATE; defaults filled in */
    uint32_t elements;                /* 1..PSD_CHUNK_ELEMENTS */

    const struct leaf *leaves; /* by rising rank; may be empty */
    uint32_t leaf_count;
    uint32_t divisor; /* the sum is divided by it (true division); 0: not divided */
    bool check;       /* a sum that is not finite leaves everything untouched */
    bool
        was_checked; /* by whoever added it: only a fault of memory or wire makes it bad by now, and
                         then the chunk is of no use, so it is looked at while it is applied */
    void *sum_out; /* (optional) gets the sum, not divided, in what is computed in: its leaves need
                         not be read again by who wants that, too. elements * 4 (f64: 8) bytes */

    uint64_t update;  /* number of this update of the chunk, from 1 */
    const void *from; /* values before (UPDATE), in dtype ... */
    void *to;         /* ... and after; the same memory or another */
    float *master; /* f16, bf16 with UPDATE: the f32 values the rule works on, changed in place */
    void *state[PSI_STATES_MAX]; /* f32 (f64 for f64 tables), changed in place */
};

enum {
    APPLY_OK = -1,
    APPLY_SCRATCH_BYTES = PSD_CHUNK_ELEMENTS * 8 + SUM_SCRATCH_BYTES, /* sum, partial sums */
};

/*
 * Applies it. Returns APPLY_OK, or (check only) the index of the first element whose sum, before
 * the division or as the table's type holds it, is not finite; then nothing was changed. So it is
 * with f16 and bf16 values that a rule makes too large for their type; then all has been changed,
 * and the chunk is of no use. USE_SUM writes the (divided) sum to `to`.
 * An empty set of leaves: USE_SUM writes zeros; UPDATE applies a gradient of zero. The gradient is
 * divided, clipped, and then has its weight decay added.
 *
 * scratch: APPLY_SCRATCH_BYTES, 64-byte aligned, the caller's own.
 */
int64_t store_apply(const struct apply *apply, void *scratch);

#endif
