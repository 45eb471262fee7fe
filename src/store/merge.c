/*
 * merge.c - sorted lists of rows become one, added along the tree over ranks.
 *
 * A heap of the lists' heads gives the ids in order, and rows of one id by rising rank: each row is
 * read once, where it lies, and each sum is written once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/numbers.h"
#include "store/sum.h"
#include "table/row_policy.h"

/* What comes next of a list. */
struct head {
    uint64_t key; /* its mixed id */
    uint32_t list;
    size_t at;
};

struct psi_merge_memory {
    struct head *heads; /* a heap: the smallest key first, of equal ones the smallest list */
    struct leaf *leaves;
    uint32_t lists_max;
    size_t ids_max;
    size_t numbers_max;
    _Alignas(64) char scratch[SUM_SCRATCH_BYTES];
};

enum { ALIGN = 64, SLACK = 4 }; /* memory grows by a quarter more than is needed */

/* One call of psi_merge_rows(), with everything looked up. */
struct merging {
    const struct kernels *kernels;
    psd_dtype dtype;
    uint32_t width;
    const struct psi_row_list *lists;
    struct psi_merge_memory *memory;
    uint32_t heads;
};

void
psi_merge_fini(struct psi_merge *merge)
{
    if (merge->memory != NULL) {
        free(merge->memory->heads);
        free(merge->memory->leaves);
        free(merge->memory);
    }
    free(merge->ids);
    free(merge->sums);
    *merge = (struct psi_merge){0};
}

/* Replaces *array_p by room for `count` items and more; what was in it is lost. */
static bool
make_room(void *array_p, size_t *most, size_t count, size_t item_bytes)
{
    void **const array = array_p;
    const size_t wanted = count + count / SLACK;
    size_t bytes;

    if (count <= *most) {
        return true;
    }
    free(*array);
    *most = 0;
    bytes = (wanted * item_bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    *array = aligned_alloc(ALIGN, bytes);
    if (*array == NULL) {
        return false;
    }
    *most = wanted;
    return true;
}

static bool
make_lists_room(struct psi_merge_memory *memory, uint32_t lists)
{
    size_t heads = memory->lists_max;
    size_t leaves = memory->lists_max;

    memory->lists_max = 0;
    if (!make_room(&memory->heads, &heads, lists, sizeof(struct head)) ||
        !make_room(&memory->leaves, &leaves, lists, sizeof(struct leaf))) {
        return false;
    }
    memory->lists_max = (uint32_t)leaves;
    return true;
}

static bool
prepare(struct psi_merge *merge, size_t rows, uint32_t width, uint32_t lists)
{
    struct psi_merge_memory *memory = merge->memory;

    merge->count = 0;
    if (memory == NULL) {
        memory = aligned_alloc(ALIGN, sizeof(*memory));
        if (memory == NULL) {
            return false;
        }
        memset(memory, 0, offsetof(struct psi_merge_memory, scratch));
        merge->memory = memory;
    }
    if (!make_room(&merge->ids, &memory->ids_max, rows, sizeof(uint64_t)) ||
        !make_room(&merge->sums, &memory->numbers_max, rows * width, sizeof(float)) ||
        !make_lists_room(memory, lists)) {
        return false;
    }
    merge->bytes = sizeof(*memory) + memory->ids_max * sizeof(uint64_t) +
                   memory->numbers_max * sizeof(float) +
                   memory->lists_max * (sizeof(struct head) + sizeof(struct leaf));
    return true;
}

/* ---- The heap ---- */

static bool
is_before(const struct head *a, const struct head *b)
{
    return a->key != b->key ? a->key < b->key : a->list < b->list;
}

/* The head at `index` may be too large for its place: it goes down. */
static void
sift_down(struct head *heads, uint32_t count, uint32_t index)
{
    const struct head moved = heads[index];

    for (;;) {
        uint32_t child = 2 * index + 1;

        if (child >= count) {
            break;
        }
        if (child + 1 < count && is_before(&heads[child + 1], &heads[child])) {
            child++;
        }
        if (!is_before(&heads[child], &moved)) {
            break;
        }
        heads[index] = heads[child];
        index = child;
    }
    heads[index] = moved;
}

static void
heap_init(struct merging *merging, uint32_t list_count)
{
    struct head *heads = merging->memory->heads;

    for (uint32_t i = 0; i < list_count; i++) {
        const struct psi_row_list *list = &merging->lists[i];

        psi_assert(i == 0 || list->rank >= list[-1].rank);
        if (list->count > 0) {
            heads[merging->heads++] =
                (struct head){.key = psi_bucket_mix(list->ids[0]), .list = i, .at = 0};
        }
    }
    for (uint32_t i = merging->heads / 2; i > 0; i--) {
        sift_down(heads, merging->heads, i - 1);
    }
}

/* The list of the first head goes on to its next row. */
static void
advance(struct merging *merging)
{
    struct head *heads = merging->memory->heads;
    const struct psi_row_list *list = &merging->lists[heads[0].list];

    heads[0].at++;
    if (heads[0].at < list->count) {
        const uint64_t key = psi_bucket_mix(list->ids[heads[0].at]);

        psi_assert(key > heads[0].key);
        heads[0].key = key;
    } else {
        merging->heads--;
        heads[0] = heads[merging->heads];
    }
    sift_down(heads, merging->heads, 0);
}

/* ---- Rows ---- */

static struct leaf
leaf_of(const struct merging *merging, const struct head *head)
{
    const struct psi_row_list *list = &merging->lists[head->list];
    const size_t bytes = list->is_sum ? sizeof(float) : psi_dtype_bytes(merging->dtype);

    return (struct leaf){
        .rank = list->rank,
        .is_sum = list->is_sum,
        .data = (const char *)list->rows + head->at * merging->width * bytes,
    };
}

/* One or two of f32 need no tree. */
static void
add(const struct merging *merging, const struct leaf *leaves, uint32_t count, float *to)
{
    struct psi_sum sum;

    if (merging->dtype == PSD_F32 && count == 1) {
        memcpy(to, leaves[0].data, merging->width * sizeof(float));
    } else if (merging->dtype == PSD_F32 && count == 2) {
        const void *parts[2] = {leaves[0].data, leaves[1].data};

        merging->kernels->f32->add2(to, parts, merging->width);
    } else {
        psi_sum_init(&sum, merging->kernels, merging->dtype, leaves, count,
                     merging->memory->scratch);
        psi_sum_all(&sum, merging->width, to);
    }
}

psd_status
psi_merge_rows(struct psi_merge *merge, psd_dtype dtype, uint32_t width, enum kernel_level level,
               const struct psi_row_list *lists, uint32_t list_count, struct psd_error *err)
{
    struct merging merging = {
        .kernels = psi_kernel_level_kernels(level), .dtype = dtype, .width = width, .lists = lists};
    size_t rows = 0;

    psi_assert(dtype != PSD_F64 && width > 0);
    for (uint32_t i = 0; i < list_count; i++) {
        rows += lists[i].count;
    }
    if (!prepare(merge, rows, width, list_count)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "merge %zu rows of %u numbers: no memory", rows,
                        width);
    }
    merging.memory = merge->memory;
    heap_init(&merging, list_count);
    while (merging.heads > 0) {
        struct leaf *leaves = merging.memory->leaves;
        const struct head *first = merging.memory->heads;
        const uint64_t key = first->key;
        uint32_t count = 0;

        merge->ids[merge->count] = lists[first->list].ids[first->at];
        do {
            leaves[count++] = leaf_of(&merging, first);
            advance(&merging);
        } while (merging.heads > 0 && first->key == key);
        add(&merging, leaves, count, merge->sums + merge->count * width);
        merge->count++;
    }
    return PSD_OK;
}

bool
psi_merge_finite(const struct psi_merge *merge, uint32_t width, enum kernel_level level,
                 size_t *at_p)
{
    const struct kernels_real *real = psi_kernel_level_kernels(level)->f32;

    if (real->finite(merge->sums, merge->count * width)) {
        return true;
    }
    for (size_t i = 0; i < merge->count; i++) {
        if (!real->finite(merge->sums + i * width, width)) {
            *at_p = i;
            break;
        }
    }
    return false;
}

void
psi_merge_publish(const struct psi_merge *merge, psd_dtype dtype, uint32_t width,
                  enum kernel_level level, uint32_t divisor, void *rows)
{
    const struct kernels *kernels = psi_kernel_level_kernels(level);
    const size_t row_bytes = width * psi_dtype_bytes(dtype);

    for (size_t i = 0; i < merge->count; i++) {
        const void *sum = merge->sums + i * width;
        void *to = (char *)rows + i * row_bytes;
        float divided[PSD_WIDTH_MAX] PSI_UNINITIALIZED;

        if (divisor > 1) {
            psi_divide_by(kernels->f32, divided, sum, divisor, width);
            sum = divided;
        }
        if (dtype == PSD_F16) {
            kernels->f16_from_f32(to, sum, width);
        } else if (dtype == PSD_BF16) {
            kernels->bf16_from_f32(to, sum, width);
        } else {
            const struct kernel_block copy = {
                .leaves = {sum}, .scale = 1, .to = to, .count = width};

            kernels->f32->sum[KERNEL_ONE_LEAF](NULL, &copy);
        }
    }
}
