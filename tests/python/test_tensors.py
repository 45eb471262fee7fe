# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch, by DLPack: no copy where the memory allows."""

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here")

import numpy as np  # noqa: E402

from poseidon import _memory  # noqa: E402


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_no_copy(dtype):
    """If this fails, every gradient is copied once more than it must be."""
    tensor = torch.arange(6, dtype=getattr(torch, dtype)).reshape(2, 3)
    assert _memory.lend_input("x", tensor, dtype, (2, 3)).address == tensor.data_ptr()
    assert _memory.lend_output("x", tensor, dtype, (2, 3)).address == tensor.data_ptr()
    part = tensor[1:]
    assert _memory.lend_input("x", part, dtype, (1, 3)).address == part.data_ptr()


def test_memory_lives_as_long_as_it_is_lent():
    """If this fails, the library reads memory that PyTorch has given to somebody else."""
    tensor = torch.ones(1 << 20)
    lent = _memory.lend_input("x", tensor, "float32", (1 << 20,))
    address = lent.address
    del tensor
    others = [torch.zeros(1 << 20) for _ in range(8)]
    assert all(other.data_ptr() != address for other in others)
    assert lent.keep[0].min() == 1


def test_tensors_in_and_out(run):
    """If this fails, tensors arrive changed."""
    said = run("""
        import torch
        poseidon.init()
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            table = poseidon.Table(f"t{dtype}", (3, 4), dtype, use="sum", reduce="sum")
            given = torch.arange(12, dtype=dtype).reshape(3, 4)
            out = torch.zeros(3, 4, dtype=dtype)
            assert table.push_pull(given, out).wait() is out and (out == 2 * given).all()
            wide = torch.zeros(4, 6, dtype=dtype)
            into = wide.t()[::2]  # (3, 4), neither rows nor columns together
            table.push_pull(given.t().contiguous().t(), into).wait()
            assert (into == 2 * given).all() and wide[:, 1].abs().sum() == 0
        leaf = torch.ones(2, requires_grad=True)
        table = poseidon.Table("leaf", values=leaf)
        assert table.pull(leaf).wait() is leaf
        numbers = torch.arange(5) * poseidon.rank()
        say(poseidon.broadcast(numbers, root=1).tolist(),
            poseidon.broadcast(torch.tensor(2.5, dtype=torch.bfloat16)).item())
        say(attempt(table.push, torch.ones(2, dtype=torch.complex64)))
        say(attempt(table.push, torch.ones(2, dtype=torch.int64)))
        say(attempt(table.push, torch.ones(2, device="meta")))
    """)
    assert said[0] == said[1]
    assert said[0][0] == "[0, 1, 2, 3, 4] 2.5"
    assert "elements of type complex64: tables hold" in said[0][1]
    assert "elements of type int64: tables hold" in said[0][2]
    assert said[0][3].startswith("TypeError -: push table leaf: the tensor cannot be read: ")


def test_other_frameworks_are_read(run):
    """If this fails, arrays of JAX are copied or, which is worse, written."""
    jax = pytest.importorskip("jax", reason="no PyTorch here, nor JAX")
    array = jax.numpy.arange(3.0)
    lent = _memory.lend_input("x", array, "float32", (3,))
    assert lent.address == array.unsafe_buffer_pointer()
    with pytest.raises(ValueError, match="out is read-only"):
        _memory.lend_output("x", array, "float32", (3,))
    said = run("""
        import jax.numpy
        poseidon.init()
        mine = jax.numpy.arange(3.0) + poseidon.rank()
        got = poseidon.broadcast(mine)
        say(np.asarray(got).tolist(), (np.asarray(mine) - poseidon.rank()).tolist())
    """, env={"JAX_PLATFORMS": "cpu"})
    assert said == [["[0.0, 1.0, 2.0] [0.0, 1.0, 2.0]"]] * 2


def test_refuses_what_cannot_be_written():
    """If this fails, memory that must not change is written, or a copy that nobody sees."""
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        _memory.lend_output("x", frozen, "float32", (3,))
    for wrong in ([0.0] * 3, 1.0, object(), None):
        with pytest.raises(TypeError, match="out must be an array, a CPU tensor of PyTorch or a "):
            _memory.lend_output("x", wrong, "float32", (3,))
    buffer = bytearray(12)
    lent = _memory.lend_output("x", memoryview(buffer).cast("f"), "float32", (3,))
    lent.keep[0][1] = 1
    assert buffer[4:8] == np.float32(1).tobytes()
    with pytest.raises(ValueError, match="out is read-only"):
        _memory.lend_output("x", memoryview(bytes(12)).cast("f"), "float32", (3,))
