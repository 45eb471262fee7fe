# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts drawn at random train like one process, or are stopped at their first step.

    tests/python/generate.py SEED          shows the script of a test that failed
    tests/python/generate.py SEED --run    runs it once more"""

import pytest

from generate import SEED_LIMIT, draw, render
from generated_jobs import check
from plain_jobs import BIN

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


def test_scripts_of_all_seeds_can_be_compiled():
    """If this fails, what is tested is the generator."""
    for seed in range(1, SEED_LIMIT + 1):
        compile(render(draw(seed)), f"seed {seed}", "exec")


SMOKE = 48  # batches fetched ahead, an uneven end, the best weights saved and loaded


@pytest.mark.parametrize("seed", [seed if seed == SMOKE else pytest.param(seed, marks=pytest.mark.all)
                                  for seed in range(1, SEED_LIMIT + 1)])
def test_generated_script(tmp_path, seed):
    """If this fails, a script that nobody has written yet trains wrong in silence, or is stopped without need."""
    assert check(seed, tmp_path) is None, f"tests/python/generate.py {seed} shows it"
