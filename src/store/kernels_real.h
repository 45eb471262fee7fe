/*
 * kernels_real.h - the arithmetic of kernels.c, written once for f32 and f64. Not a header:
 * included twice, with REAL the type, ANY the same at any alignment, MASK an integer of its size,
 * and SQRT, QUIET_NAN and NAME. It undefines them.
 *
 * The order of operations below is the definition of each rule: another order has other bits, and a
 * change needs a new PSI_KERNEL_REVISION. By the time a rule runs, the gradient is divided, then
 * clipped, then has its weight decay added, unless the rule decouples it (rule.h).
 * `a * b * c` means (a * b) * c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/* The payload of a NaN depends on the order of operands, which is the compiler's choice. */
static inline REAL
NAME(canonical)(REAL value)
{
    return value != value ? QUIET_NAN : value;
}

static void
NAME(add2)(void *to, const void *const parts[2], size_t count)
{
    ANY *out = to;
    const ANY *a = parts[0];
    const ANY *b = parts[1];

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        out[i] = a[i] + b[i];
    }
}

static void
NAME(add4)(void *to, const void *const parts[4], size_t count)
{
    ANY *out = to;
    const ANY *a = parts[0];
    const ANY *b = parts[1];
    const ANY *c = parts[2];
    const ANY *d = parts[3];

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        out[i] = (a[i] + b[i]) + (c[i] + d[i]);
    }
}

static void
NAME(add8)(void *to, const void *const parts[8], size_t count)
{
    ANY *out = to;
    const ANY *a = parts[0];
    const ANY *b = parts[1];
    const ANY *c = parts[2];
    const ANY *d = parts[3];
    const ANY *e = parts[4];
    const ANY *f = parts[5];
    const ANY *g = parts[6];
    const ANY *h = parts[7];

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        out[i] = ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]));
    }
}

static bool
NAME(finite)(const void *values, size_t count)
{
    const ANY *in = values;
    MASK bad = 0;

    for (size_t i = 0; i < count; i++) {
        const REAL zero = in[i] - in[i]; /* but NaN for a NaN or an infinity */

        bad |= zero != 0 ? 1u : 0u;
    }
    return bad == 0;
}

static void
NAME(divide)(void *to, const void *values, double divisor, size_t count)
{
    ANY *out = to;
    const ANY *in = values;
    const REAL by = (REAL)divisor;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        out[i] = in[i] / by;
    }
}

static void
NAME(scale)(void *to, const void *values, double factor, size_t count)
{
    ANY *out = to;
    const ANY *in = values;
    const REAL by = (REAL)factor;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        out[i] = in[i] * by;
    }
}

/* A NaN compares as neither above nor below, and stays. */
static void
NAME(clip)(void *to, const void *values, double limit, size_t count)
{
    ANY *out = to;
    const ANY *in = values;
    const REAL most = (REAL)limit;
    const REAL least = -most;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL value = in[i];
        const REAL upper = value > most ? most : value;

        out[i] = upper < least ? least : upper;
    }
}

static void
NAME(decay)(void *to, const void *gradient, const void *values, double decay, size_t count)
{
    ANY *out = to;
    const ANY *g = gradient;
    const ANY *w = values;
    const REAL part = (REAL)decay;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        out[i] = g[i] + part * w[i];
    }
}

/* ---- Rules ---- */

/* Where a gradient comes from. */
struct NAME(source) {
    const ANY *a, *b, *c, *d;
    ANY *kept;
    REAL scale;
};

static inline struct NAME(source) NAME(source_of)(const struct kernel_block *block)
{
    return (struct NAME(source)){.a = block->leaves[0],
                                 .b = block->leaves[1],
                                 .c = block->leaves[2],
                                 .d = block->leaves[3],
                                 .kept = block->kept,
                                 .scale = (REAL)block->scale};
}

static ALWAYS_INLINE REAL
NAME(leaves_sum)(const struct NAME(source) * from, enum kernel_leaves leaves, size_t i)
{
    switch (leaves) {
    case KERNEL_ONE_LEAF:
    case KERNEL_ONE_KEPT:
        return from->a[i];
    case KERNEL_TWO_LEAVES:
    case KERNEL_TWO_KEPT:
        return from->a[i] + from->b[i];
    default:
        return (from->a[i] + from->b[i]) + (from->c[i] + from->d[i]);
    }
}

/* leaves: known when this is compiled, so nothing is left of the question. By a scale of 1 it is
 * the same number. */
static ALWAYS_INLINE REAL
NAME(gradient)(const struct NAME(source) * from, enum kernel_leaves leaves, size_t i)
{
    const REAL sum = NAME(leaves_sum)(from, leaves, i);

    if (leaves >= KERNEL_ONE_KEPT) {
        from->kept[i] = sum;
    }
    return sum * from->scale;
}

/* to = g */
RULE(sum)
{
    const struct NAME(source) source = NAME(source_of)(block);
    ANY *to = block->to;
    const size_t count = block->count;

    (void)numbers;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        to[i] = NAME(canonical)(NAME(gradient)(&source, leaves, i));
    }
}

/* w = w - rate * g */
RULE(sgd)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, leaves, i);

        to[i] = NAME(canonical)(w[i] - rate * g);
    }
}

/* w = w + g */
RULE(plus)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    const size_t count = block->count;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, leaves, i);

        to[i] = NAME(canonical)(w[i] + g);
    }
}

/* m = momentum * m + g;  w = w - rate * m */
RULE(momentum)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    ANY *mean = block->state[0];
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;
    const REAL momentum = (REAL)numbers->momentum;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, leaves, i);
        const REAL m = momentum * mean[i] + g;

        mean[i] = NAME(canonical)(m);
        to[i] = NAME(canonical)(w[i] - rate * m);
    }
}

/* m = momentum * m + g;  w = w - rate * (g + momentum * m) */
RULE(nesterov)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    ANY *mean = block->state[0];
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;
    const REAL momentum = (REAL)numbers->momentum;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, leaves, i);
        const REAL m = momentum * mean[i] + g;

        mean[i] = NAME(canonical)(m);
        to[i] = NAME(canonical)(w[i] - rate * (g + momentum * m));
    }
}

/* n = n + g * g;  w = w - rate * g / (sqrt(n) + epsilon) */
RULE(adagrad)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    ANY *square = block->state[0];
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;
    const REAL epsilon = (REAL)numbers->epsilon;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, leaves, i);
        const REAL n = square[i] + g * g;

        square[i] = NAME(canonical)(n);
        to[i] = NAME(canonical)(w[i] - rate * g / (SQRT(n) + epsilon));
    }
}

/* n = beta2 * n + (1 - beta2) * g * g;  w = w - rate * g / (sqrt(n) + epsilon) */
RULE(rmsprop)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    ANY *square = block->state[0];
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;
    const REAL beta2 = (REAL)numbers->beta2;
    const REAL rest = (REAL)numbers->beta2_rest;
    const REAL epsilon = (REAL)numbers->epsilon;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, leaves, i);
        const REAL n = beta2 * square[i] + rest * g * g;

        square[i] = NAME(canonical)(n);
        to[i] = NAME(canonical)(w[i] - rate * g / (SQRT(n) + epsilon));
    }
}

/*
 * m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
 * w = w - shrink * w   (adamw)
 * w = w - rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
 */
static ALWAYS_INLINE void
NAME(adam_step)(const struct kernel_numbers *numbers, const struct kernel_block *block,
                enum kernel_leaves leaves, bool decoupled)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *from = block->from;
    ANY *to = block->to;
    ANY *mean = block->state[0];
    ANY *variance = block->state[1];
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;
    const REAL beta1 = (REAL)numbers->beta1;
    const REAL beta2 = (REAL)numbers->beta2;
    const REAL rest1 = (REAL)numbers->beta1_rest;
    const REAL rest2 = (REAL)numbers->beta2_rest;
    const REAL correction1 = (REAL)numbers->correction1;
    const REAL correction2 = (REAL)numbers->correction2;
    const REAL epsilon = (REAL)numbers->epsilon;
    const REAL shrink = (REAL)numbers->shrink;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, leaves, i);
        const REAL m = beta1 * mean[i] + rest1 * g;
        const REAL v = beta2 * variance[i] + rest2 * g * g;
        const REAL w = decoupled ? from[i] - shrink * from[i] : from[i];

        mean[i] = NAME(canonical)(m);
        variance[i] = NAME(canonical)(v);
        to[i] = NAME(canonical)(w - rate * (m / correction1) / (SQRT(v / correction2) + epsilon));
    }
}

RULE(adam)
{
    NAME(adam_step)(numbers, block, leaves, false);
}

RULE(adamw)
{
    NAME(adam_step)(numbers, block, leaves, true);
}

/*
 * q = n + g * g;  sigma = (sqrt(q) - sqrt(n)) / rate;  z = z + (g - sigma * w);  n = q
 * w = |z| <= l1 ? 0 : -(z - sign(z) * l1) / ((ftrl_beta + sqrt(q)) / rate + l2)
 */
RULE(ftrl)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    ANY *square = block->state[0];
    ANY *linear = block->state[1];
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;
    const REAL l1 = (REAL)numbers->l1;
    const REAL l2 = (REAL)numbers->l2;
    const REAL beta = (REAL)numbers->ftrl_beta;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, leaves, i);
        const REAL q = square[i] + g * g;
        const REAL root = SQRT(q);
        const REAL sigma = (root - SQRT(square[i])) / rate;
        const REAL z = linear[i] + (g - sigma * w[i]);
        const REAL size = z < 0 ? -z : z;
        const REAL beyond = z < 0 ? z + l1 : z - l1;
        const REAL solved = -beyond / ((beta + root) / rate + l2);

        square[i] = NAME(canonical)(q);
        linear[i] = NAME(canonical)(z);
        to[i] = NAME(canonical)(size <= l1 ? 0 : solved);
    }
}

/* ---- Rules that see the whole row ---- */

enum { NAME(parts) = 8 };

/* Eight sums, of every eighth number each, as a wide addition makes them. */
static ALWAYS_INLINE REAL
NAME(parts_sum)(const REAL *part)
{
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

/* n = n + mean(g * g);  w = w - rate * g / (sqrt(n) + epsilon) */
static void
NAME(row_adagrad)(const struct kernel_numbers *numbers, const struct kernel_block *block)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    ANY *square = block->state[0];
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;
    REAL part[NAME(parts)] = {0};
    REAL n;
    REAL root;

    for (size_t i = 0; i < count; i += NAME(parts)) {
        const size_t here = count - i < NAME(parts) ? count - i : NAME(parts);

        for (size_t j = 0; j < here; j++) {
            const REAL g = NAME(gradient)(&source, KERNEL_ONE_LEAF, i + j);

            part[j] += g * g;
        }
    }
    n = square[0] + NAME(parts_sum)(part) / (REAL)count;
    root = SQRT(n) + (REAL)numbers->epsilon;
    square[0] = NAME(canonical)(n);
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, KERNEL_ONE_LEAF, i);

        to[i] = NAME(canonical)(w[i] - rate * g / root);
    }
}

/* z beyond +-l1; 0 between them. A NaN stays. */
static ALWAYS_INLINE REAL
NAME(beyond)(REAL z, REAL l1)
{
    const REAL size = z < 0 ? -z : z;

    return size <= l1 ? 0 : z < 0 ? z + l1 : z - l1;
}

/*
 * n and z as ftrl;  s = |z| <= l1 ? 0 : z - sign(z) * l1;  norm = sqrt(sum(s * s))
 * limit = group * sqrt(count)
 * w = norm <= limit or s = 0 ? 0 : (limit / norm - 1) * s / ((ftrl_beta + sqrt(n)) / rate + l2)
 */
static void
NAME(group_ftrl)(const struct kernel_numbers *numbers, const struct kernel_block *block)
{
    const struct NAME(source) source = NAME(source_of)(block);
    const ANY *w = block->from;
    ANY *to = block->to;
    ANY *square = block->state[0];
    ANY *linear = block->state[1];
    const size_t count = block->count;
    const REAL rate = (REAL)numbers->rate;
    const REAL l1 = (REAL)numbers->l1;
    const REAL l2 = (REAL)numbers->l2;
    const REAL beta = (REAL)numbers->ftrl_beta;
    const REAL limit = (REAL)numbers->group * SQRT((REAL)count);
    REAL part[NAME(parts)] = {0};
    REAL norm;
    REAL factor;

    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL g = NAME(gradient)(&source, KERNEL_ONE_LEAF, i);
        const REAL q = square[i] + g * g;
        const REAL sigma = (SQRT(q) - SQRT(square[i])) / rate;

        linear[i] = NAME(canonical)(linear[i] + (g - sigma * w[i]));
        square[i] = NAME(canonical)(q);
    }
    for (size_t i = 0; i < count; i += NAME(parts)) {
        const size_t here = count - i < NAME(parts) ? count - i : NAME(parts);

        for (size_t j = 0; j < here; j++) {
            const REAL s = NAME(beyond)(linear[i + j], l1);

            part[j] += s * s;
        }
    }
    norm = SQRT(NAME(parts_sum)(part));
    factor = limit / norm - 1;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const REAL s = NAME(beyond)(linear[i], l1);
        const REAL solved = factor * s / ((beta + SQRT(square[i])) / rate + l2);

        to[i] = NAME(canonical)(norm <= limit || s == 0 ? 0 : solved);
    }
}

static const struct kernels_real NAME(kernels) = {
    .add2 = NAME(add2),
    .add4 = NAME(add4),
    .add8 = NAME(add8),
    .finite = NAME(finite),
    .divide = NAME(divide),
    .scale = NAME(scale),
    .clip = NAME(clip),
    .decay = NAME(decay),
    .sum = BY_LEAVES(sum),
    .rule =
        {
            [PSD_RULE_SGD] = BY_LEAVES(sgd),
            [PSD_RULE_ADD] = BY_LEAVES(plus),
            [PSD_RULE_MOMENTUM] = BY_LEAVES(momentum),
            [PSD_RULE_NESTEROV] = BY_LEAVES(nesterov),
            [PSD_RULE_ADAGRAD] = BY_LEAVES(adagrad),
            [PSD_RULE_RMSPROP] = BY_LEAVES(rmsprop),
            [PSD_RULE_ADAM] = BY_LEAVES(adam),
            [PSD_RULE_ADAMW] = BY_LEAVES(adamw),
            [PSD_RULE_FTRL] = BY_LEAVES(ftrl),
        },
    .row_adagrad = NAME(row_adagrad),
    .group_ftrl = NAME(group_ftrl),
};

#undef REAL
#undef ANY
#undef MASK
#undef SQRT
#undef QUIET_NAN
#undef NAME
