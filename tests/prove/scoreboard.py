# SPDX-License-Identifier: Apache-2.0
"""The scoreboard in docs/reliability.md, of all runs of one source hash."""

import collections

import asked
from asked import deaths, role

BEGIN = "<!-- From here on tests/prove/scoreboard.py writes this page. -->\n"
EDGES_MS = (100, 200, 300, 400, 500, 700, 1000, 1500, 2000, 3000, 5000, 8000, 15000)


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def summary(records, source):
    runs = collections.Counter(record["verdict"] for record in records)
    unstruck = sum(record["verdict"] == "void" and bool(record["why"]) for record in records)
    all_deaths = [(record, *death) for record in records for death in deaths(record)]
    rows = [
        ("sources", f"`{source}`"),
        ("runs", f"{len(records)}: {runs['held']} held, {runs['ended by name']} ended by name where that is allowed, "
                 f"{runs['void']} void ({unstruck} of them went wrong while nobody was killed), {runs['failed']} failed"),
        ("seeds", f"{len(records)} from {min((r['seed'] for r in records), default=0)} to {max((r['seed'] for r in records), default=0)}"),
        ("hours of running jobs", f"{sum(r['seconds'] for r in records) / 3600:.2f}"),
        ("pushes acknowledged", f"{sum(r['pushes'] for r in records):,}"),
        ("deaths", f"{len(all_deaths)}, {sum(at for *_, at in all_deaths)} of them at fail points"),
        ("acknowledged pushes lost", int(sum(r["lost"] for r in records))),
        ("pushes counted twice", int(sum(r["doubled"] for r in records))),
        ("runs with rounds: bits of a run without deaths",
         f"{sum(r.get('bits') is True for r in records)} of {sum('bits' in r for r in records)}"),
    ]
    return table(("", ""), rows)


def asked_for(records):
    """What the sources must have shown, beside what they have."""
    so_far, missing = asked.count(records), asked.missing(records)
    rows = [(what, number, so_far[what], missing.get(what, "-")) for what, number in asked.ASKED.items()]
    more = asked.more(records)
    return (table(("runs that held, or ended by name where that is allowed", "asked for", "so far", "missing"), rows) + "\n" +
            ("All of it is there.\n" if not missing else
             f"At the pace so far about {more[0]} more runs, {more[1]:.0f} minutes with JOBS=2.\n" if more else
             "Of something that is missing there is nothing yet, so nobody can tell how long the rest will take.\n"))


def by_mode(records):
    modes = sorted({record["mode"] for record in records})
    kinds = ["server", "master", "both", "server twice", "master twice", "stop server", "stop master", "machine"]
    rows = []
    for mode in modes:
        blows = [blow for record in records if record["mode"] == mode for blow in record["blows"] if not blow["void"]]
        counts = collections.Counter(role(blow) for blow in blows)
        own = [record for record in records if record["mode"] == mode]
        verdicts = collections.Counter(record["verdict"] for record in own)
        at_points = sum(at for record in own for *_, at in deaths(record))
        rows.append((mode, len(own), *(counts[kind] for kind in kinds), at_points, verdicts["ended by name"], verdicts["failed"]))
    return table(("mode", "runs", *kinds, "at fail points", "ended by name", "failed"), rows)


def recoveries(records):
    """Milliseconds per worker, by what died."""
    found = collections.defaultdict(list)
    for record in records:
        for blow in record["blows"]:
            if blow.get("recovery_ms") and not record["meet"] and blow["phase"] == "run":
                kind = role(blow)
                if kind in ("server", "machine") and not blow.get("owned"):
                    kind += " with copies alone"
                elif kind == "machine" and record["mode"].startswith("sum"):
                    kind += " (sums)"
                found[kind] += blow["recovery_ms"]
    return found


def recovery(records):
    found = recoveries(records)
    kinds = sorted(found, key=lambda kind: (-len(found[kind]), kind))
    rows = [(kind, len(found[kind]), *(f"{percentile(found[kind], part):.0f}" for part in (0.5, 0.9, 0.99)),
             f"{max(found[kind]):.0f}") for kind in kinds]
    shown = [kind for kind in ("server", "both", "machine", "master") if kind in found]
    counts = [(f"up to {edge}" if edge else f"more than {EDGES_MS[-1]}",
               *(sum(low < ms <= (edge or float("inf")) for ms in found[kind]) for kind in shown))
              for low, edge in zip((0, *EDGES_MS), (*EDGES_MS, None))]
    return (table(("who died", "samples", "p50 ms", "p90 ms", "p99 ms", "max ms"), rows) + "\n" +
            table(("ms", *shown), [row for row in counts if any(row[1:])]))


def by_point(records, points):
    killed = collections.Counter(blow["point"] for record in records for blow, _, at in deaths(record) if at)
    passed = collections.Counter()
    for record in records:
        passed.update(record.get("passes", {}))
    return table(("fail point", "deaths", "passed", "a process that comes there knows"),
                 [(f"`{name}`", killed[name], f"{passed[name]:,}", text) for name, text in points.items()])


def failures(records):
    failed = [record for record in records if record["verdict"] == "failed"]
    if not failed:
        return "None.\n"
    return "".join(f"- seed {record['seed']} ({record['mode']}, {record['way']}): {' '.join(record['why'].split())[:200]}\n" for record in failed)


def write(page, records, source, points):
    """Writes the page, and says whether anything failed."""
    by_hand = page.read_text().split(BEGIN)[0]
    reached = {blow["point"] for record in records for blow, _, at in deaths(record) if at}
    page.write_text(by_hand + BEGIN + f"""
## Scoreboard

{summary(records, source)}
### Asked for

{asked_for(records)}
### Deaths by mode

{by_mode(records)}
### Recovery

From the death to the end of the first step that began after it, for each worker, with all processes on one machine. Every
step asks every server, so its end is later than the first answer for a chunk of the dead one. (Runs with barriers are left out.)

{recovery(records)}
### Failures

{failures(records)}
### Fail points

{len(points)} points; somebody died at {len(reached)} of them.

{by_point(records, points)}""")
    return any(record["verdict"] == "failed" for record in records)
