# SPDX-License-Identifier: Apache-2.0
"""Scripts that were written for Horovod, with the import replaced: horovod/ has them."""

import importlib.util
import json
import pathlib

import pytest

from conftest import environment
from helpers import Job
import warm

SCRIPTS = pathlib.Path(__file__).resolve().parent / "horovod"
DEADLINE_S = 600  # of a job that hangs: busy cores take their time


@pytest.fixture(name="job")
def fixture_job(tmp_path):
    """Runs a script with two workers: what each has found."""

    def go(script, *arguments, module, **variables):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module} here (tools/setup.sh frameworks)")
        job = Job(tmp_path / script, "--workers", 2, "--servers", 1, "--",
                  warm.python("tensorflow" if module == "keras" else module), SCRIPTS / script, *arguments,
                  environment=environment(OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="2",
                                          CUDA_VISIBLE_DEVICES="", **variables))
        assert job.wait(DEADLINE_S) == 0, job.stdout() + job.stderr()
        return [json.loads([line[6:] for line in job.log(f"worker{rank}").decode().splitlines()
                            if line.startswith("FOUND ")][-1]) for rank in range(2)]

    return go


def test_pytorch(job):
    """If this fails, a script written for Horovod's PyTorch trains something else, or does not run, or a
    name that is missing does not say so."""
    zero, one = job("torch_images.py", module="torch")
    for rank, found in enumerate((zero, one)):
        for way in ("plain", "passes", "sum", "clipped", "sum, passes, clipped", "predivide"):
            assert found[way] < 1e-12, way
        assert 1e-8 < found["half"] < 1e-2  # it did travel as float16
        assert found["begin"] == 0 and found["saved"]
        assert found["losses"][1] < found["losses"][0]
        assert found["uneven"]["last"] == 1 and found["uneven"]["distance"] < 1e-12
        check_collectives(found["collectives"], rank)
        check_refusals(found["refusals"])
    assert zero["weights"] == one["weights"] and zero["losses"] == one["losses"]


def check_collectives(found, rank):
    assert found["first"] == [3.0, 6.0] and found["polled"] and found["ready"]
    assert found["more"] == [[3.0 + 2 * number, 6.0 + 2 * number] for number in range(3)]
    assert found["inplace"] == [1.5, 3.0] and found["rooted"] == [1.0, 1.0]
    assert found["gathered"] == [[0], [1], [1]]
    assert found["half"] == pytest.approx([0.5, 1.0], abs=1e-3)
    assert found["scaled"] == [7.5, 15.0]
    assert found["least"] == [1.0, 2.0] and found["most"] == [1, 7] and found["product"] == [6]
    assert found["count"] == 11 and found["group"] == [[1.5, 3.0], [3.0, 6.0]]
    assert found["objects"] == [{"rank": 0}, {"rank": 1}] and found["object"] == {"epoch": 3}
    assert found["gradient"] == [27.0]  # 2 * 4.5 * 3 on both, and their mean
    assert found["place"] == [rank, 2, rank, 2, True] and not any(found["built"])


def check_refusals(said):
    assert "op=Adasum is not offered: use op=Average" in said["adasum"]
    assert "offered are Average, Sum" in said["minimum"]
    assert "gradient_predivide_factor is for op=Average" in said["predivide"]
    assert "compression='Metric'" in said["compression"]
    assert "every operation is one of all workers" in said["set"]
    assert "ProcessSet is not offered" in said["sets"]
    assert "convert it" in said["mean"] and "detach()" in said["gather"]
    assert "has no attribute 'no_such_name'" in said["unknown"]


@pytest.mark.all
def test_keras(job):
    """If this fails, a script written for Horovod's Keras trains something else, or does not run."""
    zero, one = job("keras_images.py", module="keras")
    for rank, found in enumerate((zero, one)):
        for way in ("plain", "sum", "averaged passes", "passes"):
            assert found[way] < 1e-10, way
        assert 1e-8 < found["half"] < 1e-2
        # From half to the whole in the first epoch, the whole, a tenth, and down from there.
        assert found["rates"] == pytest.approx(
            [0.05, 0.0625, 0.075, 0.0875, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01,
             0.01, 0.1 ** 1.25 * 0.1, 0.1 ** 1.5 * 0.1, 0.1 ** 1.75 * 0.1])
        assert found["resumed"]["begin"] == 4 and found["resumed"]["score"] == [1.5, 2.0]
        done = found["operations"]
        assert done["mean"] == 1.5 and done["sum"] == 6 and done["gathered"] == [[0], [1], [1]]
        assert done["place"] == [rank, 2, rank, 2, True] and not any(done["built"]) and done["same"]
        said = found["refusals"]
        assert "op=Adasum is not offered" in said["adasum"]
        assert "every operation is one of all workers" in said["set"]
        assert "broadcast_variables" in said["variables"]
    assert zero["weights"] == one["weights"] and zero["history"] == one["history"]
    assert zero["resumed"]["before"] != one["resumed"]["before"]
    assert zero["resumed"]["weights"] == one["resumed"]["weights"]


def test_tensorflow(job):
    """If this fails, a loop or a session written for Horovod trains something else, or does not run."""
    zero, one = job("tensorflow_images.py", module="tensorflow")
    for rank, found in enumerate((zero, one)):
        assert found["plain"] < 1e-10 and found["sum"] < 1e-10 and 1e-8 < found["half"] < 1e-1
        assert found["session"]["rooted"] == 1.0
        assert found["half session"]["weights"] == pytest.approx(found["session"]["weights"], rel=1e-2)
        done = found["operations"]
        assert done["inside"] == [[1.5], [1.0, 2.0], [2.0]] and done["mean"] == [1.5]
        assert done["sum"] == [7] and done["most"] == [1.0] and done["scaled"] == [3.0]
        assert done["half"] == pytest.approx([1 / 3], abs=1e-3) and done["half"] != [1 / 3]
        assert done["gathered"] == [[0], [1], [1]] and done["rooted"] == [1]
        assert done["group"] == [[1.0], [0.0]] and done["object"] == {"epoch": 3}
        assert done["place"] == [rank, 2, rank, 2, True] and not any(done["built"])
        said = found["refusals"]
        assert "op=Adasum is not offered" in said["adasum"]
        assert "backward_passes_per_step=2 is not offered" in said["passes"]
        assert "cast it" in said["mean"] and "broadcast_variables" in said["variables"]
    assert zero["weights"] == one["weights"] and zero["session"] == one["session"]
