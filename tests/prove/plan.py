# SPDX-License-Identifier: Apache-2.0
"""What a run does, drawn from its seed alone: which job, and which blows it gets.

Blows are kill -9, SIGSTOP, or either at a fail point. A point that lies on the way of every step is armed while the job
runs. One that lies on the way of a recovery is armed, and then another process is killed to send somebody there. Some lie
at the beginning or the end of a job."""

import collections
import random

MODES = ("sum keep", "sum hold", "bsp", "stale", "async", "sum rows", "rows")
ROUNDS = ("sum keep", "sum hold", "bsp", "sum rows", "rows")  # all workers see the same in a step
BLOWS_MAX = 5

# points: armed with this one. provoke: who is killed to send somebody there.
# may_end: redundancy cannot be back at that moment, so the job may end by name.
Blow = collections.namedtuple("Blow", "role point passing action provoke phase may_end",
                              defaults=("", 1, "kill", "", "run", False))
Plan = collections.namedtuple("Plan", "seed mode way shape workers servers pace meet blows")

EACH_STEP = ("server_push_counted", "server_value_told")
EACH_ROUND = ("server_round_full", "server_round_applied", "server_round_handed_over", "server_round_released",
              "server_round_answered")
EACH_CHANGE = ("server_pair_parcel_queued", "server_pair_parcel_sent", "server_pair_acked", "server_pair_committed",
               "server_copy_change_applied", "server_copy_acked", "server_global_step_added",
               "server_global_step_waits", "server_global_step_told")
EACH_HOLD = ("server_hold_begun", "server_hold_got", "server_hold_released", "server_hold_told")
EACH_BARRIER = ("master_barrier_arrived", "master_barrier_released_one")

# On the way of a server's other life, of sums: it may die there again.
ADOPTION = ("server_adopt_begun", "server_adopt_told", "server_adopt_asked", "server_adopt_shown", "server_adopt_opened",
            "server_table_ordered", "server_table_opened", "server_table_ready", "server_view_arrived",
            "server_view_taken", "server_view_acked", "server_welcomed", "server_push_repeated")
# What the master does then.
LOSS = ("master_server_lost", "master_server_awaited", "master_view_committed_one", "master_view_committed",
        "master_view_acked_one", "master_view_acked", "master_view_told_one", "master_view_told")
RETURN = (*LOSS, "master_server_complete", "master_lane_admitted", "master_table_acked")
PROMOTION = (*LOSS, "master_promotion_ordered_one", "master_promotion_ordered", "master_promotion_complete",
             "master_pair_crossed_out", "master_pair_ended", "master_pair_ordered_one", "master_pair_ordered",
             "master_pair_eligible", "master_pair_whole")
REBUILD = ("master_rebuild_begun", "master_rebuild_lane_told", "master_rebuild_decided", "master_rebuild_restored",
           "master_rebuild_done")
REBUILD_COPIES = ("master_rebuild_copy_told",)
# A server that dies while the master is away.
RETOLD = ("server_journal_told", "server_welcomed")
# A server on the way of another's promotion or repair: one of two deaths at once, of which only one has a copy.
REPAIR = ("server_copy_promoted", "server_place_taken", "server_stands_by", "server_pair_ordered", "server_pair_begun",
          "server_pair_snapshot_queued", "server_pair_eligible", "server_pair_eligible_told", "server_pair_alone",
          "server_pair_ended", "server_copy_ordered", "server_copy_met", "server_copy_snapshot_taken",
          "server_copy_table_opened", "server_copy_eligible", "server_view_taken")
START_SERVER = ("server_table_ordered", "server_table_opened", "server_table_ready", "server_view_arrived",
                "server_view_taken", "server_view_acked", "server_welcomed", "server_pair_begun",
                "server_copy_table_opened")
START_MASTER = ("master_table_asked", "master_table_ordered", "master_table_acked", "master_table_ready",
                "master_table_told", "master_view_committed_one", "master_view_committed", "master_view_acked_one",
                "master_view_acked", "master_view_told_one", "master_view_told", "master_barrier_arrived")
START_PAIRS = ("master_pair_ordered_one", "master_pair_ordered", "master_pair_eligible", "master_pair_whole")
END_MASTER = ("master_worker_done", "master_done_acked", "master_done_answered", "master_barrier_arrived",
              "master_barrier_released_one")
END_SERVER = ("server_done_kept",)


def has_copies(mode):
    return not mode.startswith("sum")


def steady_points(mode):
    rounds = EACH_ROUND if mode in ROUNDS else ("server_push_applied",)
    return EACH_STEP + rounds + (EACH_CHANGE if has_copies(mode) else ()) + (EACH_HOLD if mode == "sum hold" else ())


def draw_point(rng, mode, meet):
    """A blow at a fail point in the middle of a run."""
    copies = has_copies(mode)
    kind = rng.choices(("steady", "server", "master", "rebuild", "retold", "repair"),
                       (5, 0 if copies else 3, 3, 2, 1 if copies else 0, 1 if copies else 0))[0]
    if kind == "steady":
        names = steady_points(mode) + (EACH_BARRIER if meet else ())
        name = rng.choice(names)
        return Blow(name.split("_")[0], name, passing=rng.randint(1, 40), action=rng.choices(("kill", "stop"), (6, 1))[0])
    if kind == "server":
        return Blow("server", rng.choice(ADOPTION), passing=rng.randint(1, 3), provoke="server")
    if kind == "master":
        names = PROMOTION if copies else RETURN
        return Blow("master", rng.choice(names), passing=rng.randint(1, 2), provoke="server")
    if kind == "rebuild":
        names = REBUILD + (REBUILD_COPIES if copies else ())
        return Blow("master", rng.choice(names), passing=1, provoke="master")
    if kind == "retold":
        return Blow("server", rng.choice(RETOLD), passing=rng.randint(1, 4), provoke="master")
    return Blow("server", rng.choice(REPAIR), passing=rng.randint(1, 3), provoke="server", may_end=True)


def draw_blow(rng, mode, meet):
    kind = rng.choices(("server", "master", "both", "stop", "point"), (34, 14, 16, 5, 31))[0]
    if kind == "point":
        return draw_point(rng, mode, meet)
    if kind == "stop":
        return Blow(rng.choices(("server", "master"), (3, 1))[0], action="stop")
    return Blow(kind)


def draw_edge(rng, mode):
    """At the beginning or the end of a job: nothing flows, or there is nothing to lose yet."""
    copies = has_copies(mode)
    kind = rng.choice(("start master", "start server", "end master", "end server"))
    if kind == "start master":
        return Blow("master", rng.choice(START_MASTER + (START_PAIRS if copies else ())), rng.randint(1, 2), phase="start")
    if kind == "start server":
        names = [name for name in START_SERVER if copies or not name.startswith(("server_pair", "server_copy"))]
        return Blow("server", rng.choice(names), rng.randint(1, 2), phase="start", may_end=True)
    if kind == "end master":
        return Blow("master", rng.choice(END_MASTER), rng.randint(1, 2), phase="end")
    return Blow("server", rng.choice(END_SERVER), phase="end", may_end=copies)


def draw_field(rng, seed, mode):
    """Between hosts: cuts of a server's machine, and deaths of servers there."""
    blows = [Blow(rng.choice(("cut", "cut", "server"))) for _ in range(rng.randint(2, 4))]
    mode = "sum hold" if mode == "sum keep" else mode
    blows = blows if has_copies(mode) else blows[:1]  # another server has the part then, for good
    return Plan(seed=seed, mode=mode, way="hosts", shape=rng.choice(("small", "wide")),
                workers=2, servers=rng.choice((2, 3)), pace=rng.choice((60, 120)), meet=False, blows=blows)


def draw_mnist(rng, seed):
    """A training that people know, with copies."""
    blows = [Blow(rng.choice(("server", "server", "master", "both"))) for _ in range(rng.randint(1, 3))]
    return Plan(seed=seed, mode="bsp", way=rng.choice(("mnist shm", "mnist tcp")), shape="mnist", workers=2, servers=2, pace=0,
                meet=True, blows=blows)


def draw(seed):
    rng = random.Random(seed)
    mode = MODES[seed % len(MODES)]
    if seed // len(MODES) % 6 == 5:
        return draw_field(rng, seed, mode)
    if seed % (4 * len(MODES)) == 2:
        return draw_mnist(rng, seed)
    meet = rng.random() < 0.2
    blows = [draw_blow(rng, mode, meet) for _ in range(rng.randint(3, BLOWS_MAX))]
    for number, blow in enumerate(blows):
        if blow.may_end:  # it may be the last one
            blows = blows[:number + 1]
            break
    if rng.random() < 0.25 and not any(blow.may_end for blow in blows):
        edge = draw_edge(rng, mode)
        blows = [edge] if edge.may_end and edge.phase == "start" else sorted([*blows, edge], key=lambda one: one.phase != "start")
    return Plan(seed=seed, mode=mode, way="tcp" if mode == "sum hold" or mode != "sum keep" and rng.random() < 0.4 else "shm",
                shape=rng.choice(("small", "small", "wide")), workers=rng.choice((2, 2, 3)),
                servers=rng.choice((2, 3)), pace=rng.choice((0, 60, 120)), meet=meet, blows=blows)


def cell(mode, way, *blows, servers=2):
    return Plan(seed=0, mode=mode, way=way, shape="small", workers=2, servers=servers, pace=120, meet=False, blows=list(blows))


# One of each kind, for make test.
CELLS = {
    "sum-keep-killed": cell("sum keep", "shm", Blow("server")),
    "sum-hold-at-a-point": cell("sum hold", "tcp", Blow("server", "server_hold_released", passing=5)),
    "sum-rows-killed-twice": cell("sum rows", "shm", Blow("server"), Blow("server", "server_adopt_opened", provoke="server")),
    "rows-killed": cell("rows", "tcp", Blow("server")),
    "bsp-server-and-master": cell("bsp", "shm", Blow("server"), Blow("master"), servers=3),
    "stale-master-promoting": cell("stale", "tcp", Blow("master", "master_promotion_ordered", provoke="server"), servers=3),
    "async-stopped-at-a-point": cell("async", "shm", Blow("server", "server_push_applied", passing=7, action="stop"), servers=3),
    # By this seed server 2 is killed first; server 0, which has its copy, is the one that comes to the point.
    "async-second-death": cell("async", "shm", Blow("server", "server_view_taken", provoke="server", may_end=True),
                               servers=3)._replace(seed=234),
    "bsp-machine-cut-off": cell("bsp", "hosts", Blow("cut")),
}
