# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts that draw noise, each with an oracle: one process that is given what all workers have drawn, and
trains on the mean of their losses, ends with the same weights."""

import collections
import json

import pytest

from plain_jobs import BIN, HERE, alone, fixture_job, told, torch  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")
SAMPLES, EPOCHS = 72, 3  # of all of them; 72 is made of whole steps for two workers and for three


def values(text):
    return torch.tensor(json.loads(told(text, "VALUES")), dtype=torch.float64)


def check(job, tmp_path, name, workers):
    """Returns what the workers printed."""
    script = HERE / "plain" / f"{name}.py"
    done = job(script, workers=workers)
    assert done.code == 0, done.out + done.err
    texts = [done.log(rank).decode() for rank in range(workers)]
    assert all(told(text, "VALUES") == told(texts[0], "VALUES") for text in texts), "workers have different weights"

    seen = collections.Counter(sample for text in texts for sample in json.loads(told(text, "SEEN")))
    assert seen == dict.fromkeys(range(SAMPLES), EPOCHS), "samples were trained on more or less often than by one process"
    noise = [told(text, "NOISE") for text in texts]
    assert len(set(noise)) == workers, "workers have drawn the same"

    recorded = tmp_path / f"{name}{workers}.json"
    recorded.write_text(json.dumps(list(zip(*(json.loads(told(text, "RECORDED")) for text in texts), strict=True))))
    one = alone(tmp_path, script, "replay", recorded)
    assert (values(one) - values(texts[0])).abs().max() <= 1e-9
    return texts


def test_noise_of_all_workers_makes_the_mean(job, tmp_path):
    """If this fails, scripts that draw noise in their loops train on something else than the mean over all of it."""
    check(job, tmp_path, "diffusion", 2)


@pytest.mark.all
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", ["siamese", "diffusion", "gan"])
def test_gallery(job, tmp_path, name, workers):
    """If this fails, a kind of script that many people have trains wrong, or no two runs of it are alike."""
    texts = check(job, tmp_path, name, workers)
    again = job(HERE / "plain" / f"{name}.py", workers=workers)
    assert again.code == 0, again.out + again.err
    assert [again.log(rank).decode() for rank in range(workers)] == texts, "a seed does not decide everything"
    if name == "gan":
        assert len({told(text, "STATISTICS") for text in texts}) == 1, "the workers normalize by different statistics"
