# SPDX-License-Identifier: Apache-2.0
"""What the package says to what it cannot do. One test for each mistake."""

import os
import re
import subprocess
import sys

import pytest

import poseidon
from conftest import environment


def refused(said):
    """The line of the worker that was refused: which of two is refused depends on who was first."""
    lines = [line for lines in said for line in lines if "Error" in line]
    assert len(lines) == 1, said
    return lines[0]


def test_shapes_differ_between_ranks(run):
    """If this fails, a model that differs between ranks is trained, or nobody learns where."""
    said = run("""
        poseidon.init()
        say(attempt(poseidon.Table, "layer1.weight", (2, 3 + poseidon.rank())))
    """)
    line = refused(said)
    assert line.startswith("MismatchError ERR_MISMATCH: table layer1.weight: worker")
    assert "f32[2,3]" in line and "f32[2,4]" in line and line.endswith("shape differs")


def test_types_differ_between_ranks(run):
    """If this fails, bytes of one type are read as another."""
    line = refused(run("""
        poseidon.init()
        say(attempt(poseidon.Table, "bias", 4, ["float32", "float64"][poseidon.rank()]))
    """))
    assert line.startswith("MismatchError ERR_MISMATCH: table bias: worker")
    assert "f32[4]" in line and "f64[4]" in line and line.endswith("dtype differs")


def test_empty_on_one_rank_only(run):
    """If this fails, a rank whose parameter is empty goes on while the others wait for it."""
    line = refused(run("""
        poseidon.init()
        if poseidon.rank() == 1:
            poseidon.barrier()
        say(attempt(poseidon.Table, "bias", 4 * (1 - poseidon.rank())))
        if poseidon.rank() == 0:
            poseidon.barrier()
    """))
    assert line.startswith("MismatchError ERR_MISMATCH: table bias: worker 1 wants ")
    assert "worker 0 opened f32[4]" in line and line.endswith("here it has no elements: shape (0,)")


def test_table_of_one_rank_only(run):
    """If this fails, a rank with one parameter more hangs, and nobody learns which it is."""
    said = run("""
        poseidon.init()
        poseidon.Table("shared", 4)
        if poseidon.rank() == 0:
            table = poseidon.Table("only.here", 4)
            say(attempt(table.push(np.ones(4, np.float32), timeout_ms=500).wait))
        poseidon.barrier()
    """)
    assert re.match(r"TimeoutError ERR_TIMEOUT: push table only.here step 0: not finished in \d{3,} ms", said[0][0])
    assert ("table only.here step 0 waits for worker 1 (nothing from it yet: does it have this "
            "table?)") in said[0][0]


def test_broadcasts_differ_between_ranks(run):
    """If this fails, a worker takes another array for its own."""
    said = run("""
        poseidon.init()
        name = ["bias", "weight"][poseidon.rank()]
        say(attempt(poseidon.broadcast, np.zeros(3 + poseidon.rank()), name=name))
        os._exit(0) if poseidon.rank() == 1 else None
    """, options=("--on_worker_death=continue",))
    assert said[1] == ["MismatchError ERR_MISMATCH: broadcast weight: rank 1 expects weight "
                       "float64[4] from rank 0, rank 0 sends bias float64[3]"]


WRONG = {
    "objects": ("np.array([None] * 3)", "TypeError -: push table w: elements of type object: tables "
                "hold float32, float64, float16 and bfloat16, no text and no objects"),
    "strings": ("np.array(['a', 'b', 'c'])", "TypeError -: push table w: elements of type str32: "
                "tables hold float32, float64, float16 and bfloat16, no text and no objects"),
    "a string": ("'abc'", "TypeError -: push table w: elements of type str96: tables hold float32, "
                 "float64, float16 and bfloat16, no text and no objects"),
    "complex": ("np.ones(3, np.complex64)", "TypeError -: push table w: elements of type complex64: "
                "tables hold float32, float64, float16 and bfloat16; give real and imaginary parts "
                "tables of their own (a.real, a.imag)"),
    "integers": ("np.ones(3, np.int64)", "TypeError -: push table w: elements of type int64: tables "
                 "hold float32, float64, float16 and bfloat16; convert it (a.astype('float32'))"),
    "another float": ("np.ones(3)", "TypeError -: push table w: the table holds float32, the array "
                      "float64: convert it (a.astype('float32'))"),
    "another shape": ("np.ones((3, 1), np.float32)", "ValueError -: push table w: the table has "
                      "shape (3,), the array (3, 1)"),
    "a list of words": ("['a', 'b', 'c']", "TypeError -: push table w: not numbers: could not "
                        "convert string to float: 'a'"),
    "NaN": ("np.array([0, np.nan, 0], np.float32)", "NotFiniteError ERR_NOT_FINITE: push table w "
            "step 0: worker 0's gradient is not finite at index 1"),
}


def test_gradients_that_are_refused(run):
    """If this fails, a mistake in a gradient is sent to the servers, or is told so that nobody
    understands it."""
    (lines,) = run("""
        poseidon.init()
        table = poseidon.Table("w", 3)
        for text in sys.argv[1:]:
            say(attempt(table.push, eval(text)))
        assert table.step == 0 and (table.pull().wait() == 0).all()
        table.push(np.ones(3, np.float32)).wait()
    """, *(text for text, _ in WRONG.values()), workers=1)
    assert dict(zip(WRONG, lines)) == {name: wanted for name, (_, wanted) in WRONG.items()}


TABLES = {
    "complex table": ("'t', 3, complex", "TypeError -: elements of type complex128: "),
    "object table": ("'t', values=np.array([{}])", "TypeError -: table t: values: elements of type "
                     "object: "),
    "no shape": ("'t'", "InvalidError ERR_INVALID: table t: give a shape, or values to begin with"),
    "unknown rule": ("'t', 3, rule='sdg'", "InvalidError ERR_INVALID: table t: rule is 'sdg', "
                     "expected one of sgd, add, momentum"),
    "unknown word": ("'t', 3, lr=0.1", "TypeError -: table t: unknown argument 'lr': there are use, "),
    "misspelt word": ("'t', 3, learnig_rate=0.1", "TypeError -: table t: unknown argument 'learnig_rate': did you mean "
                      "'learning_rate'?"),
    "seed below zero": ("'t', 3, init='normal', seed=-1", "InvalidError ERR_INVALID: table t: seed is -1, expected 0 to 18446744073709551615"),
    "text for a number": ("'t', 3, learning_rate='0.1'", "TypeError -: table t: learning_rate is '0.1', expected a number"),
    "half a worker": ("'t', 3, backup_workers=0.5", "TypeError -: table t: backup_workers is 0.5, expected a whole number"),
    "steps in words": ("'t', 3, staleness='two'", "TypeError -: table t: staleness is 'two', expected a number of steps, or \"unbounded\""),
    "no name": ("'', 3", "InvalidError ERR_INVALID: table name: empty, expected 1 to 255 bytes"),
    "shape against values": ("'t', 4, values=np.zeros(3, np.float32)", "ValueError -: table t: "
                             "values: the table has shape (4,), the array (3,)"),
}


SPARSE_TABLES = {
    "no width": ("'e', None", "TypeError -: sparse table e: width is None, expected a whole number"),
    "too few rows": ("'e', 4, capacity_rows=-5", "InvalidError ERR_INVALID: sparse table e: capacity_rows is -5, expected 0 to "),
    "a word for a yes": ("'e', 4, rule='adagrad', row_wise='no'", "InvalidError ERR_INVALID: sparse table e: row_wise is 'no', expected "
                         "True or False"),
}


def test_sparse_tables_that_are_refused(run):
    """If this fails, -1 is taken for the largest number, or nobody learns whose argument was wrong."""
    (lines,) = run("""
        poseidon.init()
        for text in sys.argv[1:]:
            say(attempt(lambda: eval(f"poseidon.SparseTable({text})")))
    """, *(text for text, _ in SPARSE_TABLES.values()), workers=1)
    for name, line in zip(SPARSE_TABLES, lines, strict=True):
        assert line.startswith(SPARSE_TABLES[name][1]), (name, line)


def test_tables_that_are_refused(run):
    """If this fails, a mistake in a table's arguments is found late, or not at all."""
    (lines,) = run("""
        poseidon.init()
        for text in sys.argv[1:]:
            say(attempt(lambda: eval(f"poseidon.Table({text})")))
        frozen = np.zeros(3, np.float32)
        frozen.flags.writeable = False
        say(attempt(poseidon.Table("o", 3).pull, frozen))
        say(attempt(poseidon.init, op_timeout_ms=5))
        say(attempt(poseidon.broadcast, np.array(["a"])))
        say(attempt(poseidon.broadcast, np.zeros(3), root=4))
    """, *(text for text, _ in TABLES.values()), workers=1)
    for (name, (_, wanted)), line in zip(TABLES.items(), lines):
        assert line.startswith(wanted), name
    assert lines[len(TABLES):] == [
        "ValueError -: pull table o: out is read-only",
        "StateError ERR_STATE: poseidon.init was called before in this process: close() first, or "
        "open another poseidon.Context",
        "TypeError -: broadcast array: elements of type str32: only numbers can be sent, no text "
        "and no objects",
        "InvalidError ERR_INVALID: broadcast array: root 4, the job has ranks 0 to 0"]


def test_before_init():
    """If this fails, the first mistake of a beginner ends in a riddle."""
    for use in (poseidon.rank, poseidon.barrier, lambda: poseidon.Table("w", 3),
                lambda: poseidon.alloc(3)):
        with pytest.raises(poseidon.StateError, match=r"poseidon.init\(\) was not called"):
            use()
    poseidon.close()
    assert not poseidon.is_initialized()


def test_outside_of_a_job(monkeypatch):
    """If this fails, a script that was started without psd_run does not say so."""
    monkeypatch.delenv("PSD_MASTER_ADDRESS", raising=False)
    with pytest.raises(poseidon.InvalidError, match="no master address: run under psd_run"):
        poseidon.init()


def test_after_close(run):
    """If this fails, memory that is gone is used after close()."""
    (lines,) = run("""
        context = poseidon.init()
        table = poseidon.Table("w", 3)
        future = table.push(np.ones(3, np.float32))
        poseidon.close()
        poseidon.close()
        for use in (poseidon.rank, poseidon.barrier, table.pull, lambda: table.step,
                    lambda: table.push([1, 2, 3]), lambda: context.alloc(3), table.view):
            say(attempt(use))
        say(future.done(), future.wait(), repr(context))
    """, workers=1)
    assert lines[:7] == ["ClosedError ERR_CLOSED: the context was closed: nothing can be done "
                         "with it any more"] * 7
    assert lines[7] == "True None <poseidon.Context: closed>"


def test_in_a_forked_child(run):
    """If this fails, a child of fork disturbs its parent's job, or hangs."""
    (lines,) = run("""
        context = poseidon.init()
        table = poseidon.Table("w", 3)
        gradient = poseidon.alloc(3)
        future = table.push(np.ones(3, np.float32))
        future.add_done_callback(lambda _: None)
        child = os.fork()
        if child == 0:
            for use in (poseidon.rank, poseidon.barrier, table.pull, lambda: table.step,
                        poseidon.close, context.abandon, lambda: poseidon.alloc(3)):
                say(attempt(use).replace(str(context._pid), "P").replace(str(os.getpid()), "C"))
            del gradient, table, future
            sys.exit(0)  # with all that runs at the end of a process
        assert os.waitpid(child, 0)[1] == 0
        future.wait()
        gradient[:] = 1
        say(table.push_pull(gradient).wait().shape, poseidon.is_initialized())
    """, workers=1)
    assert lines[:7] == [
        "ForkedError ERR_FORKED: the context of process P was used in its child C: a child of fork "
        "computes, its parent talks to the job (data loaders may fork)"] * 7
    assert lines[7] == "(3,) True"


def in_python(script, **env):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=300, check=False, env={**os.environ, **environment(**env)})


def test_missing_library(tmp_path):
    """If this fails, nobody learns which file is missing."""
    path = tmp_path / "libpsd.so"
    done = in_python("import poseidon; poseidon.init()", PSD_LIB=str(path))
    assert "poseidon.LibraryError: libpsd cannot be loaded" in done.stderr
    assert str(path) in done.stderr and "PSD_LIB names it" in done.stderr


def compile_library(path, source):
    path.with_suffix(".c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, path.with_suffix(".c")], check=True)


def test_library_of_another_version(tmp_path):
    """If this fails, structures of one version are read by another."""
    path = tmp_path / "libpsd.so"
    compile_library(path, 'const char *psd_version(void);\n'
                          'const char *psd_version(void) { return "9.8.7"; }\n')
    done = in_python("import poseidon; poseidon.init()", PSD_LIB=str(path))
    assert (f"poseidon.LibraryError: {path} is libpsd 9.8.7, the package {poseidon.__path__[0]} is "
            f"{poseidon.__version__}: install both from one release") in done.stderr


def test_file_that_is_not_the_library(tmp_path):
    """If this fails, a wrong PSD_LIB ends in a message about symbols."""
    path = tmp_path / "libother.so"
    compile_library(path, "int other;\n")
    done = in_python("import poseidon; poseidon.init()", PSD_LIB=str(path))
    assert f"poseidon.LibraryError: {path} is not libpsd: it has no psd_version" in done.stderr
    compile_library(path, 'const char *psd_version(void);\nconst char *psd_version(void) '
                          f'{{ return "{poseidon.__version__}"; }}\n')
    done = in_python("import poseidon; poseidon.init()", PSD_LIB=str(path))
    assert f"{path} calls itself {poseidon.__version__} but has no psd_status_name" in done.stderr
