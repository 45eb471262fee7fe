#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference values for the update rules, written from the formulas in psd.h with NumPy.

    python3 tests/reference/rules.py > src/store/rule_reference.h

Each rule runs 100 updates of four elements, once in float32 and once in float64. Gradients come
from the linear congruential generator that src/store/rule_test.c has, too.
"""
import math

import numpy as np

ELEMENTS = 4
DECOUPLED = ("ADAMW",)  # rules that shrink the values themselves
SHOWN = (1, 10, 100)
SEED = 12345

# Every number a rule uses is said aloud; nothing relies on the library's defaults.
CASES = {
    "sgd": dict(rule="SGD", learning_rate=0.1),
    "sgd, clipped, decayed": dict(rule="SGD", learning_rate=0.1, weight_decay=0.05, clip_value=0.4),
    "sgd, warm-up, step": dict(rule="SGD", learning_rate=0.2, warmup=5, schedule="STEP", period=30,
                               decay=0.3),
    "sgd, warm-up, cosine": dict(rule="SGD", learning_rate=0.2, warmup=5, schedule="COSINE",
                                 period=80, floor=0.1),
    "add": dict(rule="ADD"),
    "momentum": dict(rule="MOMENTUM", learning_rate=0.05, momentum=0.9),
    "momentum, decayed": dict(rule="MOMENTUM", learning_rate=0.05, momentum=0.8, weight_decay=0.1),
    "nesterov": dict(rule="NESTEROV", learning_rate=0.05, momentum=0.9),
    "adagrad": dict(rule="ADAGRAD", learning_rate=0.3, epsilon=1e-10),
    "rmsprop": dict(rule="RMSPROP", learning_rate=0.02, beta2=0.99, epsilon=1e-8),
    "adam": dict(rule="ADAM", learning_rate=0.02, beta1=0.9, beta2=0.999, epsilon=1e-8),
    "adam, decayed": dict(rule="ADAM", learning_rate=0.02, beta1=0.9, beta2=0.99, epsilon=1e-6,
                          weight_decay=0.1),
    "adamw": dict(rule="ADAMW", learning_rate=0.02, beta1=0.9, beta2=0.999, epsilon=1e-8,
                  weight_decay=0.5),
    "ftrl": dict(rule="FTRL", learning_rate=0.3, ftrl_beta=1.0, l1=0.5, l2=0.1),
    "ftrl, no l1": dict(rule="FTRL", learning_rate=0.1, ftrl_beta=0.5),
}


def gradients():
    state = SEED
    while True:
        values = []
        for _ in range(ELEMENTS):
            state = (state * 1664525 + 1013904223) % 2**32
            values.append((state >> 8) / 2**23 - 1)
        yield np.array(values)


def learning_rate(args, update):
    rate = args.get("learning_rate", 0)
    warmup = args.get("warmup", 0)
    if update <= warmup:
        return rate * update / warmup
    done = update - warmup - 1
    schedule = args.get("schedule")
    if schedule == "STEP":
        return rate * args["decay"] ** (done // args["period"])
    if schedule == "COSINE":
        turn = math.cos(math.pi * min(1, done / args["period"]))
        return rate * (args["floor"] + (1 - args["floor"]) * (1 + turn) / 2)
    return rate


def adam(w, g, s, c, lr, real):
    s["m"] = c["beta1"] * s["m"] + real(1 - c["exact_beta1"]) * g
    s["v"] = c["beta2"] * s["v"] + real(1 - c["exact_beta2"]) * g * g
    mean = s["m"] / real(1 - c["exact_beta1"] ** s["t"])
    variance = s["v"] / real(1 - c["exact_beta2"] ** s["t"])
    return w - lr * mean / (np.sqrt(variance) + c["epsilon"])


def step(rule, w, g, s, c, lr, real):
    """The new values; s is the state, c the constants in the working type."""
    if rule == "SGD":
        return w - lr * g
    if rule == "ADD":
        return w + g
    if rule == "MOMENTUM":
        s["m"] = c["momentum"] * s["m"] + g
        return w - lr * s["m"]
    if rule == "NESTEROV":
        s["m"] = c["momentum"] * s["m"] + g
        return w - lr * (g + c["momentum"] * s["m"])
    if rule == "ADAGRAD":
        s["v"] = s["v"] + g * g
        return w - lr * g / (np.sqrt(s["v"]) + c["epsilon"])
    if rule == "RMSPROP":
        s["v"] = c["beta2"] * s["v"] + real(1 - c["exact_beta2"]) * g * g
        return w - lr * g / (np.sqrt(s["v"]) + c["epsilon"])
    if rule == "ADAM":
        return adam(w, g, s, c, lr, real)
    if rule == "ADAMW":
        return adam(w - real(s["rate"] * c["exact_weight_decay"]) * w, g, s, c, lr, real)
    if rule == "FTRL":
        grown = s["v"] + g * g
        sigma = (np.sqrt(grown) - np.sqrt(s["v"])) / lr
        s["m"] = s["m"] + (g - sigma * w)
        s["v"] = grown
        shrunk = s["m"] - np.sign(s["m"]) * c["l1"]
        solved = -shrunk / ((c["ftrl_beta"] + np.sqrt(grown)) / lr + c["l2"])
        return np.where(np.abs(s["m"]) <= c["l1"], real(0), solved)
    raise ValueError(rule)


def run(args, real):
    names = ("momentum", "beta1", "beta2", "epsilon", "l1", "l2", "ftrl_beta", "weight_decay",
             "clip_value")
    c = {name: real(args.get(name, 0)) for name in names}
    c.update({"exact_" + name: args.get(name, 0) for name in names})
    w = (np.arange(ELEMENTS) * 0.25 - 0.375).astype(real)
    s = {"m": np.zeros(ELEMENTS, real), "v": np.zeros(ELEMENTS, real)}
    shown = []
    for update, g in zip(range(1, max(SHOWN) + 1), gradients()):
        g = g.astype(real)
        if args.get("clip_value"):
            g = np.clip(g, -c["clip_value"], c["clip_value"])
        if args.get("weight_decay") and args["rule"] not in DECOUPLED:
            g = g + c["weight_decay"] * w
        s["t"], s["rate"] = update, learning_rate(args, update)
        w = step(args["rule"], w, g, s, c, real(s["rate"]), real)
        assert w.dtype == real
        if update in SHOWN:
            shown.append(w.copy())
    return shown


def initializer(args):
    parts = []
    for name, value in args.items():
        if name == "rule":
            value = "PSD_RULE_" + value
        elif name == "schedule":
            value = "PSD_SCHEDULE_" + value
        parts.append(f".{name} = {value}")
    return ",\n              ".join(parts)


def table(rows, digits):
    return "{" + ",\n             ".join(
        "{" + ", ".join(f"{float(value):.{digits}g}" for value in row) + "}" for row in rows) + "}"


def main():
    shown = ", ".join(map(str, SHOWN))
    print(f"""/*
 * rule_reference.h - values of four elements after so many updates ({shown}) by each rule.
 *
 * Made by tests/reference/rules.py. Do not edit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
/* clang-format off */
#ifndef STORE_RULE_REFERENCE_H
#define STORE_RULE_REFERENCE_H

#include <stdint.h>

#include <psd/psd.h>

enum {{ REFERENCE_ELEMENTS = {ELEMENTS}, REFERENCE_SHOWN = {len(SHOWN)}, REFERENCE_SEED = {SEED} }};

static const uint64_t reference_updates[REFERENCE_SHOWN] = {{{shown}}};

static const struct rule_reference {{
    const char *name;
    struct psd_rule_args args;
    double f32[REFERENCE_SHOWN][REFERENCE_ELEMENTS];
    double f64[REFERENCE_SHOWN][REFERENCE_ELEMENTS];
}} rule_references[] = {{""")
    for name, args in CASES.items():
        print(f'    {{.name = "{name}",\n     .args = {{{initializer(args)}}},')
        print(f"     .f32 = {table(run(args, np.float32), 9)},")
        print(f"     .f64 = {table(run(args, np.float64), 15)}}},")
    print("};\n\n#endif")


if __name__ == "__main__":
    main()
