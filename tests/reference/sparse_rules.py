#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference values for the rules of sparse tables, written from psd.h and row_policy.h with NumPy.

    python3 tests/reference/sparse_rules.py > src/store/sparse/row_reference.h

Three rows of six numbers; in each of 60 updates the generator that src/store/sparse/row_rule_test.c
has, too, says which of them have a gradient. A row moves only then, and has its own count.
"""
import math

import numpy as np

import rules

WIDTH, ROWS, UPDATES, SEED, INITIAL = 6, 3, 60, 54321, 0.25
SHOWN = (1, 10, 60)

CASES = {
    "sgd": dict(rule="SGD", learning_rate=0.1),
    "sgd, decayed, warm-up": dict(rule="SGD", learning_rate=0.1, weight_decay=0.05, warmup=20),
    "add": dict(rule="ADD"),
    "momentum": dict(rule="MOMENTUM", learning_rate=0.05, momentum=0.9),
    "nesterov": dict(rule="NESTEROV", learning_rate=0.05, momentum=0.9),
    "adagrad": dict(rule="ADAGRAD", learning_rate=0.3, epsilon=1e-10),
    "row-wise adagrad": dict(rule="ADAGRAD", learning_rate=0.3, epsilon=1e-8, row_wise=True),
    "row-wise adagrad, clipped": dict(rule="ADAGRAD", learning_rate=0.3, epsilon=1e-8, clip_value=0.4, row_wise=True),
    "rmsprop": dict(rule="RMSPROP", learning_rate=0.02, beta2=0.99, epsilon=1e-8),
    "adam": dict(rule="ADAM", learning_rate=0.02, beta1=0.9, beta2=0.999, epsilon=1e-8),
    "adamw": dict(rule="ADAMW", learning_rate=0.02, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.5),
    "ftrl": dict(rule="FTRL", learning_rate=0.3, ftrl_beta=1.0, l1=0.5, l2=0.1),
    "ftrl, group lasso": dict(rule="FTRL", learning_rate=0.3, ftrl_beta=1.0, l1=0.1, l2=0.1, group_lasso=0.7),
    "ftrl, large group lasso": dict(rule="FTRL", learning_rate=0.3, ftrl_beta=1.0, l1=0.1, group_lasso=1.6),
}


def draws():
    state = SEED
    while True:
        state = (state * 1664525 + 1013904223) % 2**32
        yield state >> 8


def row_adagrad(w, g, s, c, lr):
    s["n"] = s["n"] + np.float32(np.mean(g.astype(np.float64) ** 2))
    return w - lr * g / (np.sqrt(s["n"]) + c["epsilon"])


def group_ftrl(w, g, s, c, lr):
    grown = s["v"] + g * g
    s["m"] = s["m"] + (g - (np.sqrt(grown) - np.sqrt(s["v"])) / lr * w)
    s["v"] = grown
    shrunk = np.where(np.abs(s["m"]) <= c["l1"], np.float32(0), s["m"] - np.sign(s["m"]) * c["l1"])
    norm = np.float32(math.sqrt(np.sum(shrunk.astype(np.float64) ** 2)))
    limit = np.float32(c["group_lasso"] * np.float32(math.sqrt(WIDTH)))
    if norm <= limit:
        return np.zeros(WIDTH, np.float32)
    return (limit / norm - np.float32(1)) * shrunk / ((c["ftrl_beta"] + np.sqrt(grown)) / lr + c["l2"])


def change(args, w, g, s, c, lr):
    if args.get("clip_value"):
        g = np.clip(g, -c["clip_value"], c["clip_value"])
    if args.get("weight_decay") and args["rule"] not in rules.DECOUPLED:
        g = g + c["weight_decay"] * w
    s["t"] += 1
    if args.get("row_wise"):
        return row_adagrad(w, g, s, c, lr)
    if args.get("group_lasso"):
        return group_ftrl(w, g, s, c, lr)
    return rules.step(args["rule"], w, g, s, c, lr, np.float32)


def run(args):
    names = ("momentum", "beta1", "beta2", "epsilon", "l1", "l2", "ftrl_beta", "weight_decay", "clip_value", "group_lasso")
    c = {name: np.float32(args.get(name, 0)) for name in names}
    c.update({"exact_" + name: args.get(name, 0) for name in names})
    values = [np.full(WIDTH, INITIAL, np.float32) for _ in range(ROWS)]
    states = [{"m": np.zeros(WIDTH, np.float32), "v": np.zeros(WIDTH, np.float32), "n": np.float32(0), "t": 0}
              for _ in range(ROWS)]
    draw, shown = draws(), []
    for update in range(1, UPDATES + 1):
        for row in range(ROWS):
            if next(draw) % 3 == 0:
                continue
            g = np.array([next(draw) / 2**23 - 1 for _ in range(WIDTH)]).astype(np.float32)
            states[row]["rate"] = rules.learning_rate(args, update)
            values[row] = change(args, values[row], g, states[row], c, np.float32(states[row]["rate"]))
            assert values[row].dtype == np.float32
        if update in SHOWN:
            shown.append(np.concatenate(values))
    return shown


def initializer(args):
    rule = {name: value for name, value in args.items() if name not in ("row_wise", "group_lasso")}
    return rules.initializer(rule)


def main():
    print(f"""/*
 * row_reference.h - values of {ROWS} rows after so many updates ({", ".join(map(str, SHOWN))}) by each rule.
 *
 * Made by tests/reference/sparse_rules.py. Do not edit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
/* clang-format off */
#ifndef STORE_SPARSE_ROW_REFERENCE_H
#define STORE_SPARSE_ROW_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/psd.h>

enum {{ REFERENCE_WIDTH = {WIDTH}, REFERENCE_ROWS = {ROWS}, REFERENCE_SHOWN = {len(SHOWN)}, REFERENCE_SEED = {SEED} }};

#define REFERENCE_INITIAL {INITIAL}

static const uint64_t reference_updates[REFERENCE_SHOWN] = {{{", ".join(map(str, SHOWN))}}};

static const struct row_reference {{
    const char *name;
    struct psd_rule_args args;
    bool row_wise;
    double group_lasso;
    double values[REFERENCE_SHOWN][REFERENCE_ROWS * REFERENCE_WIDTH];
}} row_references[] = {{""")
    for name, args in CASES.items():
        print(f'    {{.name = "{name}",\n     .args = {{{initializer(args)}}},')
        print(f"     .row_wise = {str(args.get('row_wise', False)).lower()}, .group_lasso = {args.get('group_lasso', 0)},")
        print(f"     .values = {rules.table(run(args), 9)}}},")
    print("};\n\n#endif")


if __name__ == "__main__":
    main()
