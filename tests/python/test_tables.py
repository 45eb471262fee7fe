# SPDX-License-Identifier: Apache-2.0
"""Tables with NumPy: what goes in, what comes out, and where the bytes lie."""

import pytest


def test_gradients_meet_and_the_rule_is_applied(run):
    """If this fails, training with the package computes something else than it says."""
    said = run("""
        poseidon.init()
        start = np.arange(6, dtype=np.float32).reshape(2, 3)
        table = poseidon.Table("w", values=start, learning_rate=0.5)
        assert (table.pull().wait() == start).all() and table.step == 0
        gradient = np.full((2, 3), poseidon.rank() + 1, np.float32)  # mean 1.5
        for step in range(4):
            assert table.step == step
            w = table.push_pull(gradient).wait()
            assert np.allclose(w, start - 0.75 * (step + 1)), w
        out = np.empty((2, 3), np.float32)
        assert table.pull(out).wait() is out and (out == w).all()
        say("right", table.dtype, table.shape)
    """)
    assert said == [["right float32 (2, 3)"]] * 2


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_sum_tables(run, dtype, reduce):
    """If this fails, a reduction of this type or kind is wrong."""
    said = run("""
        poseidon.init()
        table = poseidon.Table("s", (3, 5), sys.argv[1], use="sum", reduce=sys.argv[2])
        mine = np.arange(15, dtype=sys.argv[1]).reshape(3, 5) * (poseidon.rank() + 1)
        got = table.push_pull(mine).wait()
        assert got.dtype == np.dtype(sys.argv[1])
        assert (got == np.arange(15).reshape(3, 5) * (3 if sys.argv[2] == "sum" else 1.5)).all()
        say("right")
    """, dtype, reduce)
    assert said == [["right"]] * 2


def test_memory_of_every_layout(run):
    """If this fails, a transposed, strided, reversed or foreign-endian array arrives as garbage."""
    said = run("""
        poseidon.init()
        table = poseidon.Table("s", (4, 6), use="sum", reduce="sum")
        whole = np.arange(96, dtype=np.float32).reshape(8, 12)
        layouts = [whole[::2, ::2], whole[::-2, ::-2], whole.reshape(12, 8)[::2, ::2].T,
                   np.asfortranarray(whole[:4, :6]), whole[:4, :6].astype(">f4"),
                   np.broadcast_to(np.float32(3), (4, 6))]
        for layout in layouts:
            out = np.full((9, 13), -1, np.float32)
            into = out[:8:2, :12:2]
            assert table.push_pull(layout, into).wait() is into
            assert (into == 2 * layout).all() and out[1, 1] == -1 and out[8, 12] == -1
        for given in (np.ones((4, 6), np.float32).tolist(), memoryview(whole[:4, :6].copy())):
            table.push(given).wait()
        say("right")
    """)
    assert said == [["right"]] * 2


def test_scalars_empty_and_many_dimensions(run):
    """If this fails, a model with a scalar or an empty parameter cannot be trained."""
    said = run("""
        poseidon.init()
        scalar = poseidon.Table("scalar", (), use="sum")
        assert scalar.push_pull(np.float32(2)).wait().shape == ()
        empty = poseidon.Table("empty", values=np.empty((3, 0), np.float32))
        future = empty.push_pull(np.empty((3, 0), np.float32))
        assert future.done() and future.wait().shape == (3, 0) and empty.step == 1
        assert empty.pull(view=True).wait().shape == (3, 0)
        deep = poseidon.Table("deep", (1, 2) * 4, use="sum")
        assert deep.push_pull(np.ones((1, 2) * 4, np.float32)).wait().sum() == 16
        say(attempt(poseidon.Table, "deeper", (1,) * 9))
    """)
    assert said == [["InvalidError ERR_INVALID: table deeper: shape (1, 1, 1, 1, 1, 1, 1, 1, 1): "
                     "expected at most 8 dimensions, none negative"]] * 2


def test_bfloat16_as_bits(run):
    """If this fails, bfloat16 needs a framework to be used at all."""
    said = run("""
        poseidon.init()
        table = poseidon.Table("b", 3, "bfloat16", use="sum")
        bits = (np.array([1, 2.5, -4], np.float32).view(np.uint32) >> 16).astype(np.uint16)
        got = table.push_pull(bits).wait()
        say((got.astype(np.uint32) << 16).view(np.float32).tolist())
    """)
    assert said == [["[1.0, 2.5, -4.0]"]] * 2


def test_asynchronous_tables_count_their_steps(run):
    """If this fails, asynchronous training pushes the same step for ever, or loses updates."""
    said = run("""
        poseidon.init()
        table = poseidon.Table("a", 4, rule="add", staleness=None)
        for step in range(5):
            assert table.step == step
            table.push(np.ones(4, np.float32)).wait()
        poseidon.barrier()
        say(table.pull().wait().tolist())
    """)
    assert said == [["[10.0, 10.0, 10.0, 10.0]"]] * 2


def test_save_and_load(run, tmp_path):
    """If this fails, training cannot go on from where it was saved."""
    script = """
        poseidon.init()
        table = poseidon.Table("w", 5, rule="momentum", learning_rate=0.1)
        step = poseidon.load(sys.argv[1]) if sys.argv[2] == "load" else 0
        assert table.step == step
        values = np.zeros(5, np.float32)
        for _ in range(step, int(sys.argv[3])):
            table.push_pull(np.arange(5, dtype=np.float32), values).wait()
        if poseidon.rank() == 0:
            assert poseidon.save(sys.argv[1]) == int(sys.argv[3])
        poseidon.barrier()
        say(step, values.tobytes().hex())
    """
    whole = run(script, tmp_path / "whole", "begin", 6, name="whole")
    run(script, tmp_path / "parts", "begin", 3, name="first")
    rest = run(script, tmp_path / "parts", "load", 6, name="second")
    assert rest[0][0].split() == ["3", whole[0][0].split()[1]]


def test_memory_read_in_place(run):
    """If this fails, alloc() leaks, or arrays over the library's memory end the process."""
    said = run("""
        import gc, weakref
        context = poseidon.init()
        size = 1 << 20
        def mapped():
            return open("/proc/self/maps").read().count("memfd:psd")
        table = poseidon.Table("w", size, rule="add")
        gradient = poseidon.alloc(size)
        assert gradient.sum() == 0 and gradient.flags.writeable
        gradient[:] = 1
        part = gradient[10:]  # keeps the memory
        view = table.push_pull(gradient, view=True).wait()
        assert view is table.view() and not view.flags.writeable and (view == 1).all()
        before = mapped()  # the values in place are some, too
        for _ in range(20):
            other = poseidon.alloc((256, 1024), "float64")
            other[:] = 3
        del other, gradient
        assert mapped() == before, (mapped(), before)
        poseidon.barrier()
        poseidon.close()
        assert (view == 1).all() and part.sum() == size - 10  # and nobody dies of it
        part[:] = 5
        assert part[7] == 5
        say("alive")
    """)
    assert said == [["alive"]] * 2


def test_fire_and_forget(run):
    """If this fails, a push whose future nobody keeps reads memory that is gone, or is kept for
    ever."""
    said = run("""
        context = poseidon.init()
        table = poseidon.Table("w", 1000, rule="add")
        for _ in range(200):
            table.push(np.ones(1000, np.float32))
        assert table.pull().wait().tolist() == [200.0] * 1000
        table.push(np.ones(1000, np.float32)).wait()
        assert len(context._live) <= 1, len(context._live)
        say("right")
    """)
    assert said == [["right"]] * 2


def test_broadcast_is_exact(run):
    """If this fails, workers begin with different weights, or with changed ones."""
    said = run("""
        poseidon.init()
        rank = poseidon.rank()
        random = np.random.default_rng(3)
        for dtype in ("u1", "i8", "f2", "f4", "f8", "c16", "?"):
            for shape in ((), (0, 2), (3,), (333, 77), (1 << 21,)):
                truth = np.frombuffer(random.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize),
                                      np.uint8)
                truth = (truth & 1 if dtype == "?" else truth).view(dtype).reshape(shape)
                mine = truth.copy() if rank == 1 else np.zeros(shape, dtype)
                got = poseidon.broadcast(mine, root=1, name="x")
                assert got is mine and got.tobytes() == truth.tobytes(), (dtype, shape)
        special = np.array([np.nan, -0.0, np.inf], np.float32)
        strided = np.zeros((3, 2), np.float32)[:, 0] if rank else special
        assert poseidon.broadcast(strided).tobytes() == special.tobytes()
        frozen = np.frombuffer(b"12345678" if rank == 0 else b"abcdefgh", np.uint8)
        say(poseidon.broadcast(frozen).tobytes().decode())
    """)
    assert said == [["12345678"]] * 2


def test_who_is_there(run):
    """If this fails, a worker does not know its place, or what it reports is lost."""
    said = run("""
        with poseidon.init() as job:
            assert job is poseidon.init() is poseidon.context() and poseidon.is_initialized()
            for step in range(3):
                poseidon.report(step, "loss", 0.5)
            poseidon.barrier()
            assert poseidon.global_step(2) in (2, 4)
            poseidon.barrier()
            assert poseidon.global_step() == 4
            roles = sorted(node.role for node in poseidon.nodes())
            say(poseidon.rank(), poseidon.size(), poseidon.local_rank(), poseidon.local_size(),
                poseidon.num_servers(), job.incarnation, *roles)
            del os.environ["PSD_LOCAL_RANK"]  # as when it was started by hand
            assert (job.local_rank, job.local_size) == (poseidon.rank(), 2)
        assert not poseidon.is_initialized()
    """, servers=2)
    roles = "master server server worker worker"
    assert said == [[f"{rank} 2 {rank} 2 2 1 {roles}"] for rank in range(2)]


def test_replacement_goes_on_where_the_dead_stopped(run):
    """If this fails, a worker that was killed and started again repeats or skips a step."""
    said = run("""
        import signal
        job = poseidon.init()
        table = poseidon.Table("w", 1000, rule="add", reduce="sum")
        values = table.pull().wait()
        for step in range(table.step, 8):
            if (job.rank, job.incarnation, step) == (1, 1, 4):
                os.kill(os.getpid(), signal.SIGKILL)
            table.push_pull(np.full(1000, 2.0 ** step, np.float32), values).wait()
        say(job.incarnation, set(values.tolist()))
    """, options=("--on_worker_death=wait",))
    assert said[0] == ["1 {510.0}"]


@pytest.mark.parametrize("how", ["with", "plain"])
def test_failed_worker_says_no_farewell(start, how):
    """If this fails, a worker that raised counts as done, and the others hang or go on alone; or it
    does not end before the deadline of what it left pending."""
    job = start("""
        def work():
            pending = poseidon.Table("w", 4).push(np.ones(4, np.float32)) if poseidon.rank() else 0
            if poseidon.rank() == 1:
                raise ValueError("no luck")
            poseidon.barrier()

        if sys.argv[1] == "with":
            with poseidon.init():
                work()
        else:
            poseidon.init()
            work()
    """, how)
    codes = (1, 70) if how == "with" else (1,)  # the end of the block may be heard of first
    assert job.wait(30) in codes, job.stderr()
    assert "ValueError: no luck" in job.stdout()


SLOW_TO_UNLOAD = """
    import atexit
    atexit.register(time.sleep, 2)  # comes after poseidon's own, as the unloading of a framework does
    sys.modules.pop("poseidon", None)
    for name in [name for name in sys.modules if name.startswith("poseidon.")]:
        del sys.modules[name]
    import poseidon
"""


@pytest.mark.parametrize("how,code", [("raise", 1), ("exit", 3), ("text", 1), ("finally", 3)])
def test_failed_worker_ends_with_its_own_code(start, how, code):
    """If this fails, a worker that takes its time to end is called lost before its code is known,
    and nobody reads why it failed."""
    job = start(SLOW_TO_UNLOAD + """
    poseidon.init()
    table = poseidon.Table("w", 4)
    pending = table.push(np.ones(4, np.float32)) if poseidon.rank() == 1 else None
    if poseidon.rank() == 1:
        say("no luck")
        if sys.argv[1] == "raise":
            raise ValueError("at all")
        if sys.argv[1] == "finally":
            try:
                sys.exit(3)
            finally:
                say("at all")
        say("at all")
        sys.exit(3 if sys.argv[1] == "exit" else "at all")
    poseidon.barrier()
    """, how)
    assert job.wait(30) == code, job.stdout() + job.stderr()
    assert "lost" not in job.stderr().splitlines()[-1]
    assert "worker 1 (pid" in job.stderr() and f"ended with code {code}" in job.stderr()
    assert "at all" in job.stderr().partition("the last lines that worker1 printed:")[2]


def test_an_exit_that_was_caught_is_none(run):
    """If this fails, a worker that ended well counts as failed because it once tried to exit."""
    said = run("""
        poseidon.init()
        try:
            sys.exit(3)
        except SystemExit:
            say("goes on")
        poseidon.barrier()
    """)
    assert said == [["goes on"]] * 2
