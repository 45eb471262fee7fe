# SPDX-License-Identifier: Apache-2.0
"""PSD_TORCH_GRADIENTS: gradients of plain PyTorch scripts as 16-bit floats, and where that is refused."""

# pylint: disable=redefined-outer-name

from plain_jobs import HERE, TREE, alone, fixture_job, steps, told  # noqa: F401

REFUSED = """
    import os
    import torch
    import poseidon
    import poseidon.torch as psd

    psd.init()
    for word, options in (("int8", {}), ("bf16", {"server_side": True})):
        os.environ["PSD_TORCH_GRADIENTS"] = word
        model = torch.nn.Linear(2, 2)
        try:
            psd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model, **options)
        except poseidon.InvalidError as error:
            print("REFUSED", error)
"""


def test_plain_scripts_send_half_of_the_bytes(job, tmp_path):
    """If this fails, PSD_TORCH_GRADIENTS=bf16 does nothing in a script that nobody changed, or trains something else, or
    workers, or other numbers of servers, have other bits."""
    script = HERE / "plain" / "strict.py"
    one = steps(alone(tmp_path, script, "--batch", 32))
    hashes = set()
    for servers in (1, 2):
        done = job(script, "--batch", 16, options=("--servers", servers), PSD_TORCH_GRADIENTS="bf16")
        assert done.code == 0, done.out + done.err
        assert "averaged as bfloat16" in done.notes()[0]
        workers = [done.log(rank).decode() for rank in (0, 1)]
        hashes |= {told(text, "HASH") for text in workers}
        difference = (steps(workers[0]) - one).abs().max()
        assert 1e-6 < difference < 0.05, "nothing was rounded, or too much"
    assert len(hashes) == 1


def test_what_cannot_be_is_refused_by_name(job):
    """If this fails, a word that means nothing, or one that cannot be followed, is ignored."""
    done = job(REFUSED, workers=1, PYTHONPATH=str(TREE / "python"))
    assert done.code == 0, done.out + done.err
    text = done.log(0).decode()
    assert "REFUSED PSD_TORCH_GRADIENTS=int8: must be own, bf16 or fp16" in text
    assert "REFUSED PSD_TORCH_GRADIENTS=bf16: with server_side, servers make the steps" in text
