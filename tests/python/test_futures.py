# SPDX-License-Identifier: Apache-2.0
"""Operations under way: waiting, callbacks, threads, Ctrl-C."""

import os
import re
import signal

import pytest


def test_waiting_gives_the_gil_back(run):
    """If this fails, a waiting thread stops all others."""
    said = run("""
        poseidon.init()
        table = poseidon.Table("w", 4)
        counted = 0
        if poseidon.rank() == 1:
            gate = threading.Event()
            threading.Timer(0.7, gate.set).start()
            gate.wait(30)
        else:
            ended = threading.Event()
            def count():
                global counted
                while not ended.is_set():
                    counted += 1
                    ended.wait(0.001)
            thread = threading.Thread(target=count)
            thread.start()
        table.push(np.ones(4, np.float32)).wait()
        if poseidon.rank() == 0:
            ended.set()
            thread.join()
            assert counted > 50, counted
        say("right")
    """)
    assert said == [["right"]] * 2


def test_timeout_leaves_the_operation_alone(run):
    """If this fails, a wait that gave up spoils the operation."""
    said = run("""
        poseidon.init()
        table = poseidon.Table("w", 4, rule="add")
        if poseidon.rank() == 0:
            future = table.push_pull(np.ones(4, np.float32))
            assert not future.done()
            say(attempt(future.wait, 0.05))
            say(repr(future))
            poseidon.barrier()
            say(future.result(30).tolist(), future.exception(), future.done())
        else:
            poseidon.barrier()
            table.push_pull(np.ones(4, np.float32)).wait()
    """)
    assert said[0] == [
        "TimeoutError ERR_TIMEOUT: push_pull table w step 0: not done within 0.05 s; it goes on",
        "<poseidon.Future push_pull table w step 0: pending>",
        "[1.0, 1.0, 1.0, 1.0] None True"]


def test_callbacks_and_many_waiting_threads(run):
    """If this fails, callbacks are lost or come twice, or two threads free one operation."""
    said = run("""
        poseidon.init()
        table = poseidon.Table("w", 1000, rule="add")
        seen, lock, failures = [], threading.Lock(), []
        def note(future):
            with lock:
                seen.append(future)
        def wait(future):
            try:
                future.wait(30)
            except Exception as error:
                failures.append(error)
        futures = []
        for step in range(100):
            future = table.push(np.ones(1000, np.float32))
            future.add_done_callback(note)
            futures.append(future)
            threads = [threading.Thread(target=wait, args=(future,)) for _ in range(step % 4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        deadline = time.monotonic() + 30
        while len(seen) < 100 and time.monotonic() < deadline:
            time.sleep(0.001)  # nobody waits for most of them: the watcher notices
        assert not failures and len(seen) == 100 and set(seen) == set(futures)
        futures[0].add_done_callback(note)
        assert len(seen) == 101
        future.add_done_callback(lambda _: 1 / 0)  # is logged, and hurts nobody
        say("right")
    """)
    assert all("right" in lines for lines in said)  # the traceback comes by stderr, before or after


def test_operation_that_fails(run):
    """If this fails, the reason of a failure does not reach the one who asks, or a step that failed
    cannot be repeated."""
    said = run("""
        poseidon.init(op_timeout_ms=500)
        table = poseidon.Table("w", 4, rule="add")
        ones = np.ones(4, np.float32)
        if poseidon.rank() == 0:
            future = table.push(ones)
            error = future.exception()
            say(type(error).__name__, error.status.name, error.outcome, error)
            assert isinstance(error, TimeoutError) and attempt(future.wait) == attempt(future.wait)
        poseidon.barrier()
        say(table.push_pull(ones, timeout_ms=30000).wait().tolist())
    """)
    assert re.match(r"TimeoutError ERR_TIMEOUT unknown push table w step 0: not finished in \d{3,} ms", said[0][0])
    assert "waits for worker 1" in said[0][0]
    assert said[0][1] == said[1][0] == "[1.0, 1.0, 1.0, 1.0]"


@pytest.mark.parametrize("where", ["wait", "barrier", "table", "init"])
def test_interrupt(start, tmp_path, where):
    """If this fails, Ctrl-C does nothing while a worker waits."""
    job = start("""
        where = sys.argv[1]
        forever = threading.Event()
        if where == "init" and os.environ["PSD_RANK"] == "1":
            forever.wait(60)
        try:
            if where == "init":
                say("waiting")
            poseidon.init()
            if poseidon.rank() != int(sys.argv[2]):
                forever.wait(60)
            if where == "wait":
                table = poseidon.Table("w", 4)
            say("waiting")
            if where == "wait":
                table.push(np.ones(4, np.float32)).wait()
            elif where == "barrier":
                poseidon.barrier()
            else:
                poseidon.Table("late", 4, init="rank0")  # waits for the values of rank 0
        except KeyboardInterrupt:
            say("interrupted")
            sys.exit(7)
    """, where, rank := 1 if where == "table" else 0)
    job.wait_for_output("waiting")
    os.kill(job.pid_of(f"worker{rank}"), signal.SIGINT)
    job.wait_for_output("interrupted", seconds=10)
    assert job.wait(30) == 7, job.stderr()
