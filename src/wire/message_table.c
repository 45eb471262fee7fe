/*
 * message_table.c - TABLE_OPEN and TABLE_INFO: what a table is, and the loads its places follow
 * from.
 *
 * What can be computed is not sent: the number of elements follows from the shape, the first place
 * of a server from the lanes of those before it. So neither can contradict the other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "shard/bucket.h"
#include "wire/pack.h"

/* The numbers of a rule that are plain doubles, in the order of the wire. */
#define RULE_NUMBERS(X)                                                                            \
    X(learning_rate)                                                                               \
    X(momentum)                                                                                    \
    X(beta1)                                                                                       \
    X(beta2)                                                                                       \
    X(epsilon)                                                                                     \
    X(l1)                                                                                          \
    X(l2)                                                                                          \
    X(ftrl_beta)                                                                                   \
    X(weight_decay)                                                                                \
    X(clip_value)                                                                                  \
    X(decay)                                                                                       \
    X(floor)

/* Added to the use of a sparse table: who does not know of these refuses it. */
enum { USE_SPARSE = 2 };

static void
pack_rule(struct psi_pack *pack, const struct psd_rule_args *rule)
{
    psi_pack_u8(pack, (uint8_t)rule->rule);
#define PACK_NUMBER(name) psi_pack_f64(pack, rule->name);
    RULE_NUMBERS(PACK_NUMBER)
#undef PACK_NUMBER
    psi_pack_u8(pack, (uint8_t)rule->schedule);
    psi_pack_u64(pack, rule->warmup);
    psi_pack_u64(pack, rule->period);
}

static void
unpack_rule(struct psi_unpack *unpack, struct psd_rule_args *rule)
{
    rule->rule = psi_unpack_u8(unpack, "rule", PSD_RULE_SGD, PSI_RULES - 1);
#define UNPACK_NUMBER(name) rule->name = psi_unpack_f64(unpack, #name);
    RULE_NUMBERS(UNPACK_NUMBER)
#undef UNPACK_NUMBER
    rule->schedule = psi_unpack_u8(unpack, "schedule", PSD_SCHEDULE_CONSTANT, PSD_SCHEDULE_COSINE);
    rule->warmup = psi_unpack_u64(unpack, "warmup");
    rule->period = psi_unpack_u64(unpack, "period");
}

static void
pack_spec(struct psi_pack *pack, const struct psi_spec *spec)
{
    psi_pack_string(pack, spec->name, sizeof(spec->name));
    psi_pack_u8(pack, (uint8_t)spec->dtype);
    psi_pack_u8(pack, (uint8_t)spec->dims);
    for (uint32_t i = 0; i < spec->dims; i++) {
        psi_pack_u64(pack, spec->shape[i]);
    }
    psi_pack_u8(pack, (uint8_t)(spec->use + (psi_spec_is_sparse(spec) ? USE_SPARSE : 0)));
    psi_pack_u8(pack, (uint8_t)spec->reduce);
    pack_rule(pack, &spec->rule);
    psi_pack_u32(pack, spec->staleness);
    psi_pack_u32(pack, spec->backup_workers);
    psi_pack_u8(pack, (uint8_t)spec->nan_policy);
    psi_pack_u8(pack, (uint8_t)spec->init);
    psi_pack_f64(pack, spec->init_value);
    psi_pack_u64(pack, spec->seed);
}

/* A product that does not fit is wrong here and refused by check_spec(), which knows the limit. */
static void
unpack_shape(struct psi_unpack *unpack, struct psi_spec *spec)
{
    spec->dims = psi_unpack_u8(unpack, "dims", 1, PSD_DIMS_MAX);
    spec->count = 1;
    for (uint32_t i = 0; i < spec->dims; i++) {
        spec->shape[i] = psi_unpack_u64(unpack, "shape");
        spec->count *= spec->shape[i];
    }
}

/* Whoever knows how many workers there are asks psi_spec_check() again; here it is what fits any
 * job, so that nothing behind the decoder ever sees a spec that makes no sense. */
static void
check_spec(struct psi_unpack *unpack, const struct psi_spec *spec)
{
    struct psd_error why = {0};

    if (unpack->status == PSD_OK && psi_spec_check(spec, PSI_RANKS_MAX, &why) != PSD_OK) {
        psi_unpack_refuse(unpack, "spec", "%s", why.text);
    }
}

static void
unpack_spec(struct psi_unpack *unpack, struct psi_spec *spec)
{
    uint8_t use;

    psi_unpack_string(unpack, "name", spec->name, sizeof(spec->name));
    spec->dtype = psi_unpack_u8(unpack, "dtype", PSD_F32, PSD_BF16);
    unpack_shape(unpack, spec);
    use = psi_unpack_u8(unpack, "use", PSD_USE_UPDATE, PSD_USE_SUM + USE_SPARSE);
    spec->use = (psd_use)(use % USE_SPARSE);
    if (use >= USE_SPARSE && spec->count > PSD_WIDTH_MAX) {
        psi_unpack_refuse(unpack, "shape", "rows of %llu numbers, at most %d",
                          (unsigned long long)spec->count, PSD_WIDTH_MAX);
    }
    spec->width = use >= USE_SPARSE ? (uint32_t)spec->count : 0;
    spec->reduce = psi_unpack_u8(unpack, "reduce", PSD_REDUCE_MEAN, PSD_REDUCE_SUM);
    unpack_rule(unpack, &spec->rule);
    spec->staleness = psi_unpack_u32(unpack, "staleness", 0, UINT32_MAX);
    spec->backup_workers = psi_unpack_u32(unpack, "backup_workers", 0, PSI_RANKS_MAX - 1);
    spec->nan_policy = psi_unpack_u8(unpack, "nan_policy", PSD_NAN_REJECT, PSD_NAN_ALLOW);
    spec->init = psi_unpack_u8(unpack, "init", PSD_INIT_ZERO, PSD_INIT_NORMAL);
    spec->init_value = psi_unpack_f64(unpack, "init_value");
    spec->seed = psi_unpack_u64(unpack, "seed");
}

/* What only sparse tables have, behind the rest. */
static void
pack_rows(struct psi_pack *pack, const struct psi_spec *spec)
{
    const struct psi_row_policy *rows = &spec->rows;

    psi_pack_u8(pack, (uint8_t)spec->bucket_bits);
    psi_pack_bool(pack, rows->row_wise);
    psi_pack_f64(pack, rows->group_lasso);
    psi_pack_u32(pack, rows->admit_after);
    psi_pack_u32(pack, rows->admit_window);
    psi_pack_u32(pack, rows->admit_counters);
    psi_pack_f64(pack, rows->admit_share);
    psi_pack_u64(pack, rows->capacity_rows);
    psi_pack_u8(pack, (uint8_t)rows->full);
    psi_pack_u32(pack, rows->idle_steps);
    psi_pack_f64(pack, rows->norm_min);
    psi_pack_u32(pack, rows->sweep_every);
}

static void
unpack_rows(struct psi_unpack *unpack, struct psi_spec *spec)
{
    struct psi_row_policy *rows = &spec->rows;

    spec->bucket_bits =
        psi_unpack_u8(unpack, "bucket_bits", PSI_BUCKET_BITS_MIN, PSI_BUCKET_BITS_MAX);
    rows->row_wise = psi_unpack_bool(unpack, "row_wise");
    rows->group_lasso = psi_unpack_f64(unpack, "group_lasso");
    rows->admit_after = psi_unpack_u32(unpack, "admit_after", 0, UINT32_MAX);
    rows->admit_window = psi_unpack_u32(unpack, "admit_window", 0, UINT32_MAX);
    rows->admit_counters = psi_unpack_u32(unpack, "admit_counters", 0, UINT32_MAX);
    rows->admit_share = psi_unpack_f64(unpack, "admit_share");
    rows->capacity_rows = psi_unpack_u64(unpack, "capacity_rows");
    rows->full = psi_unpack_u8(unpack, "full", PSI_FULL_REFUSE, PSI_FULLS - 1);
    rows->idle_steps = psi_unpack_u32(unpack, "idle_steps", 0, UINT32_MAX);
    rows->norm_min = psi_unpack_f64(unpack, "norm_min");
    rows->sweep_every = psi_unpack_u32(unpack, "sweep_every", 0, UINT32_MAX);
}

static void
pack_loads(struct psi_pack *pack, const struct psi_loads *loads)
{
    psi_pack_u32(pack, loads->servers);
    for (uint32_t s = 0; s < loads->servers; s++) {
        psi_pack_u32(pack, loads->first_place[s + 1] - loads->first_place[s]);
    }
    for (uint32_t p = 0; p < loads->places; p++) {
        psi_pack_u64(pack, loads->bytes[p]);
    }
}

static void
unpack_loads(struct psi_unpack *unpack, struct psi_loads *loads)
{
    loads->servers = psi_unpack_u32(unpack, "servers", 0, PSI_SERVERS_MAX);
    for (uint32_t s = 0; s < loads->servers && unpack->status == PSD_OK; s++) {
        loads->places += psi_unpack_u32(unpack, "lanes", 1, PSI_LANES_MAX);
        loads->first_place[s + 1] = loads->places;
    }
    if (loads->places > PSI_PLACES_MAX) {
        psi_unpack_refuse(unpack, "lanes", "%u of all servers, at most %d", loads->places,
                          PSI_PLACES_MAX);
    }
    for (uint32_t p = 0; p < loads->places && unpack->status == PSD_OK; p++) {
        loads->bytes[p] = psi_unpack_u64(unpack, "bytes");
    }
}

void
psi_table_info_encode(struct psi_pack *pack, const struct psi_table_info *info)
{
    psi_pack_u32(pack, info->id);
    psi_pack_u32(pack, info->creator);
    psi_pack_u64(pack, info->step);
    pack_spec(pack, &info->spec);
    pack_loads(pack, &info->loads);
    psi_pack_bool(pack, info->again);
    if (psi_spec_is_sparse(&info->spec)) {
        pack_rows(pack, &info->spec);
    }
}

psd_status
psi_table_info_decode(const uint8_t *bytes, size_t size, struct psi_table_info *info_p,
                      struct psd_error *err)
{
    struct psi_unpack unpack;

    memset(info_p, 0, sizeof(*info_p)); /* entries that are not sent are 0 */
    psi_unpack_init(&unpack, "TABLE_INFO", bytes, size, err);
    info_p->id = psi_unpack_u32(&unpack, "id", 0, UINT32_MAX);
    info_p->creator = psi_unpack_u32(&unpack, "creator", 0, PSI_RANKS_MAX - 1);
    info_p->step = psi_unpack_u64(&unpack, "step");
    unpack_spec(&unpack, &info_p->spec);
    unpack_loads(&unpack, &info_p->loads);
    info_p->again = psi_unpack_bool(&unpack, "again");
    if (psi_spec_is_sparse(&info_p->spec)) {
        unpack_rows(&unpack, &info_p->spec);
    }
    check_spec(&unpack, &info_p->spec);
    return unpack.status;
}
