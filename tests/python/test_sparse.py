# SPDX-License-Identifier: Apache-2.0
"""Sparse tables with NumPy, in real jobs."""

import os
import signal

import pytest

TRAIN = """
    import hashlib
    poseidon.init()
    ROWS, WIDTH, STEPS = 400, 6, 8
    rule = sys.argv[1]
    how = dict(rule=rule, learning_rate=0.1, init="uniform", init_value=1, seed=5)
    table = poseidon.SparseTable("rows", WIDTH, **how)
    dense = poseidon.Table("dense", (ROWS, WIDTH), **how)
    draw = np.random.default_rng(poseidon.rank())
    for step in range(STEPS):
        ids = draw.integers(0, ROWS, draw.integers(0, 300))
        values = table.lookup(ids).wait()
        gradients = (draw.standard_normal((ids.size, WIDTH)) + values).astype(np.float32)
        whole = np.zeros((ROWS, WIDTH), np.float32)
        seen = set()
        for at, row in zip(ids.tolist(), gradients):  # repeated ids: in order
            whole[at] = whole[at] + row if at in seen else row
            seen.add(at)
        a, b = table.push(ids, gradients), dense.push(whole)
        a.wait(), b.wait()
    everything = table.lookup(np.arange(ROWS)[::-1]).wait()[::-1]
    assert everything.tobytes() == dense.pull().wait().tobytes()
    say(hashlib.sha256(everything.tobytes()).hexdigest())
"""

LAYOUTS = [dict(servers=1), dict(servers=2, options=("--lanes=2",)), dict(servers=1, options=("--lanes=4",)),
           dict(servers=3, env={"PSD_TRANSPORT": "tcp"})]


@pytest.mark.parametrize("rule", ["sgd", "adagrad"])
def test_same_bits_as_a_dense_table(run, rule):
    """If this fails, a sparse table computes something else than a dense one, or other bits with other servers,
    lanes or transports."""
    said = [run(TRAIN, rule, name=f"job{number}", **layout) for number, layout in enumerate(LAYOUTS)]
    assert said[0][0] == said[0][1] and len(said[0][0]) == 1
    assert said == [said[0]] * len(LAYOUTS)


DIE = """
    import hashlib, signal
    poseidon.init()
    going = {"rows stay": {}, "idle rows go": dict(idle_steps=1, sweep_every=1), "small rows go": dict(norm_min=1.9, sweep_every=1),
             "old rows go": dict(capacity_rows=4096, full="oldest")}[sys.argv[3]]
    table = poseidon.SparseTable("e", 4, rule="adagrad", learning_rate=0.5, init="normal", init_value=1, seed=2, **going)
    for step in range(table.step, 6):
        ids = np.random.default_rng([poseidon.rank(), step]).integers(0, 20000, 600)
        rows = table.lookup(ids).wait()
        future = table.push(ids, rows * np.float32(step + 1))
        if step == 3 and poseidon.rank() == 1 and poseidon.context().incarnation == 1 and sys.argv[1] == "die":
            if sys.argv[2] == "late":
                future.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        future.wait()
    say(hashlib.sha256(table.lookup(np.arange(20000)).wait().tobytes()).hexdigest())
"""


@pytest.mark.parametrize("which", ["rows stay", "idle rows go", "small rows go", "old rows go"])
def test_a_replacement_leaves_the_same_bits(run, which):
    """If this fails, a worker that is killed in the middle of a step, and replaced, changes what is learnt, or does not see rows
    that went in the step before."""
    options = ("--on_worker_death", "wait")
    expected = run(DIE, "live", "", which, servers=2, options=options, name="live")
    for when in ("early", "late"):
        said = run(DIE, "die", when, which, servers=2, options=options, name=when)
        assert said[0] == expected[0] and len(said[0]) == 1


def test_a_job_goes_on_without_the_dead(run):
    """If this fails, the death of a worker stops a job with sparse tables that was to go on."""
    said = run(DIE, "die", "early", "rows stay", servers=2, workers=3, options=("--on_worker_death", "continue"))
    assert said[0] == said[2] and len(said[0]) == 1 and said[1] == []


def test_a_server_that_dies_ends_the_job_by_name(start):
    """If this fails, rows are lost in silence with their server, or nobody learns that a copy would have kept them."""
    job = start("""
        poseidon.init()
        table = poseidon.SparseTable("words", 4)
        say("begun")
        while True:
            table.push([1], np.ones((1, 4), np.float32)).wait()
    """, servers=2)
    job.wait_for_output("begun", count=2)
    os.kill(job.pid_of("server1"), signal.SIGKILL)
    assert job.wait(60) != 0
    assert "its part of table words is lost" in job.stderr() and "replicas=1" in job.stderr()


SUM = """
    import hashlib
    poseidon.init()
    ROWS, WIDTH = 400, 6
    sums = poseidon.SparseTable("sums", WIDTH, use="sum", reduce=sys.argv[1])
    dense = poseidon.Table("dense", (ROWS, WIDTH), use="sum", reduce=sys.argv[1])
    draw = np.random.default_rng(poseidon.rank())
    digest = hashlib.sha256()
    for step in range(8):
        ids = draw.integers(0, ROWS, draw.integers(0, 90))
        gradients = draw.standard_normal((ids.size, WIDTH)).astype(np.float32)
        whole, touched = np.zeros((ROWS, WIDTH), np.float32), np.zeros((1, ROWS), np.float32)
        for at, row in zip(ids.tolist(), gradients):
            whole[at] = whole[at] + row if touched[0, at] else row
            touched[0, at] = 1
        came, rows = sums.push(ids, gradients).wait()
        out = np.empty_like(whole)
        dense.push_pull(whole, out).wait()
        assert came.dtype == np.int64 and (np.diff(came) > 0).all() and (rows == out[came]).all()
        assert not np.delete(out, came, 0).any()
        digest.update(came.tobytes() + rows.tobytes())
    say(digest.hexdigest())
"""


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_sums_of_rows_are_those_of_a_dense_table(run, reduce):
    """If this fails, a sum lacks rows or has others, workers get different ones, or its bits depend on servers, lanes or
    transport."""
    said = [run(SUM, reduce, name=f"job{number}", **layout) for number, layout in enumerate(LAYOUTS)]
    assert said[0][0] == said[0][1] and len(said[0][0]) == 1
    assert said == [said[0]] * len(LAYOUTS)


def test_sums_in_edge_cases(run):
    """If this fails, an empty sum, ids of 2**63 and more, halves, or futures that nobody waits for bring something else."""
    said = run("""
        poseidon.init()
        sums = poseidon.SparseTable("s", 2, "float16", use="sum", reduce="sum")
        ids, rows = sums.push([], np.empty((0, 2), np.float16)).wait()
        assert ids.shape == (0,) and rows.shape == (0, 2) and rows.dtype == np.float16
        futures = [sums.push(np.array([2**64 - 1, 3 + poseidon.rank(), 2**64 - 1], np.uint64),
                             np.full((3, 2), 1 + step, np.float16)) for step in range(5)]
        for step, future in enumerate(futures):
            ids, rows = future.wait()
            assert ids.tolist() == [3, 4, -1] and rows[:, 0].tolist() == [1 + step, 1 + step, 4 * (1 + step)]
        for refused in (lambda: sums.lookup([3]), lambda: poseidon.SparseTable("t", 2, use="sum", rule="adagrad"),
                        lambda: poseidon.SparseTable("u", 2, use="sum", idle_steps=3)):
            try:
                refused()
            except poseidon.InvalidError as error:
                say(error)
        say(repr(sums.step))
    """)
    assert all("keeps no rows to look up" in lines[0] and "use sum with a rule" in lines[1] and
               "use sum with idle_steps" in lines[2] and lines[3] == "6" for lines in said)


def test_ids_of_every_kind(run):
    """If this fails, ids of some type or shape arrive as others, or rows lie where the wrong id stood."""
    said = run("""
        poseidon.init()
        table = poseidon.SparseTable("e", 3, rule="add", reduce="sum")
        ids = np.array([[7, -1], [2**63 - 1, 7]])
        table.push(ids, np.ones((2, 2, 3), np.float32)).wait()
        for kind in (np.int64, np.uint64):
            got = table.lookup(ids.astype(kind)).wait()
            assert got.shape == (2, 2, 3) and got[0, 0, 0] == 4 and got[0, 1, 0] == 2, got
        assert (table.lookup(np.array([7, 8], np.int16)).wait()[:, 0] == [4, 0]).all()
        assert table.lookup([7]).wait()[0, 0] == 4 and table.lookup(7).wait().shape == (3,)
        assert table.lookup(ids[:, ::-1]).wait()[0, 1, 0] == 4
        out = np.zeros((4, 6), np.float32)
        assert table.lookup([7, 8], out[:2, ::2]).wait()[0, 0] == 4 and out[0, 4] == 4 and out[0, 1] == 0
        assert table.lookup([]).wait().shape == (0, 3)
        table.push([], np.zeros((0, 3), np.float32)).wait()
        got = table.push_lookup([9], np.ones((1, 3), np.float32), [9, 7]).wait()
        assert (got[:, 0] == [2, 4]).all() and table.step == 3
        say(attempt(table.lookup, [1.5]))
        say(attempt(table.push, [1], np.ones((2, 3), np.float32)))
        say(attempt(table.push, [4], np.full((1, 3), np.inf, np.float32)))
    """)
    assert said[0][:2] == said[1][:2] and len(said[0]) == 3
    assert "ids of type float64: expected integers" in said[0][0]
    assert "shape" in said[0][1] and "gradient of id 4 is not finite" in said[0][2]


def test_half_rows(run):
    """If this fails, rows of 16 bits are not what is pushed, or repeated ids are rounded more than once."""
    said = run("""
        poseidon.init()
        table = poseidon.SparseTable("e", 2, "float16", rule="add", reduce="sum")
        few = np.array([[2048, 1], [1, 1], [1, 1]], np.float16)  # 2048 + 1 is 2048 in float16
        table.push([5, 5, 5], few).wait()
        say(table.lookup([5]).wait()[0].tolist())
    """)
    assert said == [["[4100.0, 6.0]"]] * 2


def test_a_full_table_says_so(run):
    """If this fails, a table that may keep no more rows loses some in silence."""
    said = run("""
        poseidon.init()
        table = poseidon.SparseTable("e", 4, capacity_rows=4096)
        ids = np.arange(100000) + 100000 * poseidon.rank()
        say(attempt(lambda: table.push(ids, np.ones((ids.size, 4), np.float32)).wait()))
    """, code=78)
    assert any("table e" in line and "capacity_rows" in line for lines in said for line in lines)


def test_old_rows_make_room(run):
    """If this fails, a bounded table forgets the rows that are in use, or forgets none."""
    said = run("""
        poseidon.init()
        table = poseidon.SparseTable("e", 1, rule="add", capacity_rows=16384, full="oldest")
        kept = np.arange(5) * 7919
        for step in range(30):
            ids = np.concatenate([kept, 10**6 * (step + 1) + np.arange(1000)])
            table.push(ids, np.ones((ids.size, 1), np.float32)).wait()
        say((table.lookup(10**6 + np.arange(1000)).wait() == 0).mean() > 0.9)
        say(table.lookup(kept).wait().max())
    """)
    assert said == [["True", "30.0"]] * 2


def test_a_job_that_cannot_have_them_says_why(run):
    """If this fails, a worker that joins is given sums of rows that it had no part in."""
    script = """
        poseidon.init()
        say(attempt(poseidon.SparseTable, "e", 4, use="sum"))
    """
    assert "cannot join sums of rows yet" in run(script, name="joins", options=("--max_workers", "4"))[0][0]


LARGE = """
    poseidon.init()
    wide = poseidon.SparseTable("wide", 4096, rule="add", reduce="sum")
    ids = np.arange(2500)   # 39 MiB in one lane: more than a frame holds
    ones = np.ones((50, 4096), np.float32)
    for step in range(3):
        future = wide.lookup(ids)
        pushed = wide.push(ids[::50], ones)   # while rows of this step are still coming
        rows = future.wait()
        assert (rows[::50] == step * 2).all() and rows.sum(dtype=float) == step * 2 * 50 * 4096, step
        pushed.wait()
    rows = wide.push_lookup(ids[::50], ones, ids[::-1].copy()).wait()[::-1]
    assert (rows[::50] == 8).all() and rows.sum(dtype=float) == 8 * 50 * 4096
    many = poseidon.SparseTable("many", 1).lookup(np.arange(1_200_000)).wait()
    assert many.shape == (1_200_000, 1) and not many.any()
    say("done")
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_lookups_beyond_a_frame(run, transport):
    """If this fails, a lookup of more than 16 MiB or 2**20 ids of a lane is refused, lacks rows, or shows some of a later step."""
    said = run(LARGE, options=("--lanes=1",), env={"PSD_TRANSPORT": transport})
    assert said == [["done"]] * 2
