# SPDX-License-Identifier: Apache-2.0
"""What the runs of one source hash must have shown before anybody may say that it was shown: how many deaths of whom, in
which mode. Runs that failed count for nothing, and neither do blows that are void, or come before or after the steps."""

import collections
import re

MODES = ("sum keep", "sum hold", "bsp", "stale", "async", "sum rows", "rows")
TOGETHER_MS = 100  # a server and the master within so much of each other

ASKED = {
    "servers killed": 500,
    **{f"... {mode}": 80 for mode in MODES},
    "... at fail points": 150,
    "masters killed": 200,
    f"server and master within {TOGETHER_MS} ms": 200,
    "machines cut off": 100,
}
_TOGETHER = f"server and master within {TOGETHER_MS} ms"


def deaths(record):
    """(blow, name of the process, was it at the point) for every death of the run that counts."""
    for blow in record["blows"]:
        if blow["void"]:
            continue
        killed = blow.get("killed", [])
        for number, name in enumerate(killed):
            at_point = bool(blow["point"]) and blow.get("reached") and number == len(killed) - 1
            yield blow, name, at_point


def role(blow):
    """What a blow came to: who died within it."""
    killed = blow.get("killed", [])
    roles = {re.sub(r" of server\d+$|\d+$", "", name) for name in killed}
    if blow["action"] == "stop":
        return "stop " + "+".join(sorted(roles)) if roles else ""
    if len(roles) == 2:
        return "both"
    if len(killed) == 2:
        return "server twice" if roles == {"server"} else "master twice"
    return next(iter(roles), "")


def is_together(blow):
    return role(blow) == "both" and blow["apart_ms"] <= TOGETHER_MS


def count(records):
    """How much of what is asked for the runs have shown."""
    found = collections.Counter()
    for record in records:
        if record["verdict"] not in ("held", "ended by name"):
            continue
        for blow, name, at_point in deaths(record):
            if blow["action"] == "stop" or blow["phase"] != "run":
                continue
            if name.startswith("machine"):
                found["machines cut off"] += 1
            elif not is_together(blow) and name.startswith("server"):
                found.update(["servers killed", f"... {record['mode']}"] + ["... at fail points"] * bool(at_point))
            elif not is_together(blow) and name == "master":
                found["masters killed"] += 1
        found[_TOGETHER] += sum(is_together(blow) for blow in record["blows"] if not blow["void"] and blow["phase"] == "run")
    return found


def missing(records):
    """{what: how many}, of what is not there yet."""
    found = count(records)
    return {what: number - found[what] for what, number in ASKED.items() if found[what] < number}


def in_words(lacking):
    return ", ".join(f"{number} {what}" for what, number in lacking.items())


def more(records):
    """(runs, minutes of two jobs at a time) until all is there, at the pace so far; None: something has not begun."""
    found, lacking = count(records), missing(records)
    if not records or not all(found[what] for what in lacking):
        return None
    times = max((number / found[what] for what, number in lacking.items()), default=0)
    return round(times * len(records)), times * sum(record["seconds"] for record in records) / 60 / 2


def adds(plan, lacking):
    """Whether a run may show some of what is missing; once nothing is, any run does."""
    for blow in plan.blows:
        struck = {blow.role, blow.provoke} - {""}
        if blow.action == "stop" or blow.phase != "run":
            continue
        if (blow.role == "cut" and "machines cut off" in lacking or blow.role == "both" and _TOGETHER in lacking or
                "server" in struck and {"servers killed", f"... {plan.mode}"} & set(lacking) or
                blow.role == "server" and blow.point and "... at fail points" in lacking or
                "master" in struck and "masters killed" in lacking):
            return True
    return not lacking
