# SPDX-License-Identifier: Apache-2.0
"""poseidon.torch in real jobs: workers are the cases of torch_cases.py."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import warm

torch = pytest.importorskip("torch", reason="no PyTorch here (tools/setup.sh frameworks)")

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("PSD_BIN", TREE / "bin")).absolute()
CASES = HERE / "torch_cases.py"
DEADLINE_S = 600  # of a job that hangs: busy cores take their time

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(TREE / "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "PSD_LIB": str((BIN / "ps_server").resolve().parent / "libpsd.so.0"),
            "OMP_NUM_THREADS": "1", **more}


def run(directory, *command, **variables):
    """Runs to its end; nothing may take longer than the deadline."""
    directory.mkdir(parents=True, exist_ok=True)
    return subprocess.run([str(word) for word in command], cwd=directory, capture_output=True,
                          text=True, timeout=DEADLINE_S, check=False, stdin=subprocess.DEVNULL,
                          env=environment(**variables))


def found(directory, rank):
    return torch.load(directory / f"rank{rank}.pt", weights_only=False)


def run_job(directory, case, *arguments, workers=2, servers=1, **variables):
    """Runs a case on several workers; it must end well."""
    done = run(directory, BIN / "psd_run", "--workers", workers, "--servers", servers,
               " ".join([warm.python("torch"), str(CASES), case, *map(str, arguments)]), **variables)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(name="job")
def fixture_job(tmp_path):
    """Runs a case on several workers: what each rank found."""

    def go(case, *arguments, workers=2, name="job", **options):
        run_job(tmp_path / name, case, *arguments, workers=workers, **options)
        return [found(tmp_path / name, rank) for rank in range(workers)]

    return go


@pytest.fixture(name="once", scope="module")
def fixture_once(tmp_path_factory):
    """The same for cases that several tests look at."""
    results = {}

    def go(case, workers=2):
        if case not in results:
            directory = tmp_path_factory.mktemp(case)
            run_job(directory, case, workers=workers)
            results[case] = [found(directory, rank) for rank in range(workers)]
        return results[case]

    return go


@pytest.fixture(name="fails")
def fixture_fails(tmp_path):
    """Runs a case that must not end well: everything it said."""

    def go(case, *arguments, workers=2):
        done = run(tmp_path / "job", BIN / "psd_run", "--workers", workers, "--servers", 1,
                   " ".join([warm.python("torch"), str(CASES), case, *map(str, arguments)]))
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    return go


@pytest.fixture(name="alone")
def fixture_alone(tmp_path):
    """Runs a case in a process without a job: what it found."""

    def go(case, *arguments):
        done = run(tmp_path / "alone", warm.python("torch"), CASES, case, *arguments)
        assert done.returncode == 0, done.stderr
        return found(tmp_path / "alone", 0)

    return go


def distance(some, others):
    """||difference|| / ||others||, of all tensors together."""
    difference = sum((a.double() - b.double()).square().sum() for a, b in zip(some, others))
    return (difference / sum(b.double().square().sum() for b in others)).sqrt().item()


def same_bits(some, others):
    return len(some) == len(others) and all(map(torch.equal, some, others))


# ---- the same as others


def test_fifty_steps_equal_distributed_data_parallel(once, tmp_path):
    """If this fails, a model trains otherwise than under DistributedDataParallel."""
    ours = once("ours")
    directory = tmp_path / "ddp"
    directory.mkdir()
    ranks = [subprocess.Popen([sys.executable, str(CASES), "ddp_alone", str(rank)], cwd=directory,
                              env=environment(GLOO_SOCKET_IFNAME="lo")) for rank in range(2)]
    try:
        assert [rank.wait(DEADLINE_S) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    theirs = found(directory, 0)
    assert distance(ours[0], theirs) <= 1e-6
    assert same_bits(ours[0], ours[1]), "ranks differ"


def test_bits_do_not_depend_on_the_run_nor_on_buckets_and_servers(once, job):
    """If this fails, the same training ends in other bits when it is repeated, or with other buckets or servers."""
    assert same_bits(once("ours")[0], job("ours", 1, servers=2)[0])


@pytest.mark.all
def test_bits_do_not_depend_on_one_large_bucket(once, job):
    """If this fails, one bucket for everything gives other bits than many."""
    assert same_bits(once("ours")[0], job("ours", 1 << 30)[0])


def test_optimizer_equals_one_process_with_both_batches(once, alone):
    """With a scheduler and clipping between backward and step. If this fails, two workers make other steps than one
    process with both batches."""
    (first, under_way, rounds), (second, *_) = once("plain")
    assert same_bits(first, second)
    assert not any(under_way) and rounds == 20
    assert distance(first, alone("plain_alone")) < 1e-6


def test_steps_made_in_the_next_forward_have_the_same_bits(once, job):
    """If this fails, a step that is put off until the next forward is another step."""
    deferred, under_way, rounds = job("plain", "forward")[1]
    assert same_bits(deferred, once("plain")[0][0])
    assert under_way == [True, False] * 10, "every second step was synchronized before it"
    assert rounds == 20


@pytest.mark.parametrize("overlap,before", [
    ("backward", "scheduler"), ("forward", "holder"), pytest.param("backward", "replacement", marks=pytest.mark.all),
    pytest.param("forward", "scheduler", marks=pytest.mark.all), pytest.param("backward", "holder", marks=pytest.mark.all),
    pytest.param("forward", "replacement", marks=pytest.mark.all)])
def test_who_holds_step_before_it_is_distributed_makes_the_same_steps(job, once, overlap, before):
    """If this fails, a program trains nothing, or on its own gradients, without a word."""
    first, second = job("plain", overlap, before)
    assert same_bits(first[0], second[0])
    assert same_bits(first[0], once("plain")[0][0])


def test_every_optimizer_steps_in_the_next_forward(once):
    """If this fails, an optimizer of PyTorch steps otherwise when its steps are put off."""
    for name, (begin, backward, forward) in once("every_optimizer")[0].items():
        assert not same_bits(begin, forward), f"{name} does not train"
        assert same_bits(backward, forward), name


@pytest.mark.all
def test_error_with_two_workers_is_no_larger_than_with_one(job):
    """If this fails, two workers learn worse than one."""
    one = job("error_after_training", workers=1, name="one")[0]
    two = job("error_after_training", name="two")[0]
    assert two <= one


# ---- accumulation


@pytest.mark.parametrize("how, rounds", [("no_sync", 20), ("passes", 20), ("twice", 40),
                                         ("zeroed", 40), ("closure", 40)])
def test_accumulated_gradients_equal_one_process(once, how, rounds):
    """If this fails, a way to accumulate gradients trains something else."""
    first, second = once("accumulated")
    assert same_bits(first[how][0], second[how][0])
    assert first[how][1] == rounds
    assert distance(first[how][0], first["alone"]) < 1e-6


# ---- what models do


def test_parameters_that_a_rank_or_nobody_uses(job):
    """If this fails, a parameter that nobody used is changed, or a worker waits for its gradient."""
    ranks = job("unused")
    assert same_bits(ranks[0][0], ranks[1][0])
    for _, never_moved, never_is_none, right_is_none in ranks:
        assert never_moved, "weight decay moved a parameter that nobody used"
        assert never_is_none
        assert not right_is_none, "rank 1 used it in the last step, so all have a gradient"


def test_sparse_embedding_gradients_stay_sparse(job, alone):
    """If this fails, an embedding with sparse gradients trains something else."""
    ranks = job("sparse")
    assert same_bits(ranks[0][0], ranks[1][0])
    assert all(layout == torch.sparse_coo for _, layout in ranks)
    assert distance(ranks[0][0], alone("sparse_alone")[0]) < 1e-6


@pytest.mark.parametrize("kind", ["float64", "bfloat16", "float16"])
def test_parameters_of_other_types(once, kind):
    """If this fails, parameters of this type are trained wrong."""
    ranks = [rank[kind] for rank in once("types")]
    assert same_bits(ranks[0][0], ranks[1][0])
    assert ranks[0][0][0].dtype == getattr(torch, kind)
    assert all(last < first for _, first, last in ranks)


def test_numbers_travel_with_the_gradients(once):
    """If this fails, what workers tell each other in every step changes on its way, or changes their gradients."""
    ranks = once("room", workers=3)
    for kind, carries in ((torch.float32, True), (torch.float64, True), (torch.bfloat16, False)):
        for rank in ranks:
            gradients, told, heard = rank[kind, True]
            assert all(map(same_bits, rank[kind, False][0], gradients))
            assert list(map(bool, told)) == [False, carries, carries]  # in the first round there are no buckets yet
            assert heard == [sum(those, []) for those in zip(*(each[kind, True][1] for each in ranks))]


def test_numbers_of_a_rank_that_has_ended(once):
    """If this fails, a rank's farewell is not heard by others, counts in their means, or spoils its own gradients."""
    ranks = once("room", workers=3)
    for kind in (torch.float32, torch.float64):
        everybodys = [sum(those, []) for those in zip(*(rank[kind][1] for rank in ranks))]
        assert [rank[kind][2] for rank in ranks] == [everybodys] * 3
        gradients = [rank[kind][0] for rank in ranks]
        assert same_bits(gradients[2], ranks[2][kind, True][0][-1])
        assert same_bits(gradients[0], gradients[1])
        torch.testing.assert_close(gradients[0][-1], torch.full_like(gradients[0][-1], 2.0))  # the mean of two ranks


@pytest.mark.parametrize("how", [("backward",), pytest.param(("forward",), marks=pytest.mark.all),
                                 pytest.param(("forward", "fused"), marks=pytest.mark.all)])
def test_grad_scaler_skips_a_step_on_all_ranks(job, how):
    """If this fails, ranks part, because one skipped a step that others made."""
    ranks = job("scaler", *how)
    assert same_bits(ranks[0][0], ranks[1][0])
    for trained, scales, kept, begin in ranks:
        assert not same_bits(trained, begin)
        assert kept, "a rank made the step with the infinity"
        assert scales[5] < scales[4]


def test_layouts_and_odd_parameters(job):
    """If this fails, a tensor of an unusual layout comes back with its elements in other places."""
    contiguous = job("layouts")
    channels_last = job("layouts", name="channels_last", CHANNELS_LAST="1")
    assert same_bits(*contiguous) and same_bits(*channels_last)
    assert distance(channels_last[0], contiguous[0]) < 1e-4


def test_buffers_follow_rank_0(job):
    """If this fails, running statistics differ between ranks."""
    first, second = job("buffers")
    assert sorted(first) == sorted(second)
    assert same_bits(list(first.values()), list(second.values()))
    assert first["module.1.num_batches_tracked"] == 20


# ---- ranks with different numbers of batches


@pytest.mark.parametrize("how", ["model", pytest.param("optimizer", marks=pytest.mark.all),
                                 pytest.param("forward", marks=pytest.mark.all)])
def test_uneven_numbers_of_batches_with_join(job, alone, how):
    """If this fails, ranks with fewer batches change the mean of the others, or hang."""
    ranks = job("uneven", how)
    assert same_bits(ranks[0][0], ranks[1][0])
    assert same_bits(ranks[0][1], ranks[1][1]), "momentum differs"
    assert distance(ranks[0][0], alone("uneven_alone")) < 1e-6


def test_uneven_numbers_of_batches_without_join_do_not_hang(job):
    """If this fails, a rank with fewer batches makes the others wait for ever."""
    job("uneven", "nothing")


def test_a_rank_that_does_something_else_is_an_error_with_advice(fails):
    """If this fails, ranks that call different things hang, instead of saying so."""
    said = fails("astray")
    assert "did not come back within 2 s" in said and "join()" in said


# ---- states


def test_state_dict_round_trip(job):
    """If this fails, training goes on from a saved state as something else."""
    for straight, resumed, names in job("state_round_trip"):
        assert same_bits(straight, resumed)
        assert names == [f"module.{number}.{kind}" for number in (0, 2, 4)
                         for kind in ("bias", "weight")]


def test_gradients_outlive_the_job(job):
    """If this fails, gradients are read from memory that is gone."""
    assert job("after_close") == [True, True]


# ---- servers make the steps


@pytest.mark.parametrize("rule", ["sgd", "momentum", "nesterov", "adam", "adamw", "adagrad",
                                  "rmsprop"])
def test_servers_make_the_same_steps(once, rule):
    """If this fails, a rule of the servers is not that of torch.optim."""
    first, second = once("server_side")
    assert same_bits(first[rule][0], second[rule][0])
    assert distance(first[rule][0], first[rule][1]) < 1e-5


@pytest.mark.parametrize("staleness", [2, None])
def test_stale_and_asynchronous_training_learns(once, staleness):
    """If this fails, training with stale values learns nothing."""
    for rank in once("asynchronous"):
        losses = rank[staleness]
        assert sum(losses[-4:]) < 0.8 * sum(losses[:4])


# ---- Horovod's names


def test_horovod_names(job):
    """If this fails, a script written for Horovod misses a name, or gets another result."""
    ranks = job("horovod")
    assert same_bits(ranks[0]["values"], ranks[1]["values"])
    for rank, result in enumerate(ranks):
        assert result["place"] == (rank, 2, rank)
        assert result["lr"] == 0.1
        assert result["mean"].tolist() == [1.5, 3.0]
        assert result["sum"].item() == 6.0
        assert result["gathered"].tolist() == [[0, 0], [1, 1], [1, 1]]
        assert result["root"].tolist() == [0, 1, 2]
        assert result["object"] == {"a": (1, None, float("inf")), 2: [1]}


# ---- what must be refused


@pytest.mark.parametrize("what, words", [
    ("more", ["extra.weight", "rank 1 has", "rank 0 does not have it"]),
    pytest.param("shape", ["2.weight", "300x64", "301x64", "on rank 0", "rank 1"], marks=pytest.mark.all),
    ("layout", ["second.weight", "on rank 0 and", "strides [72, 1, 24, 8] on rank 1"]),
    pytest.param("type", ["4.weight", "float32 5x300", "float64 5x300"], marks=pytest.mark.all)])
def test_models_that_differ_are_named(fails, what, words):
    """If this fails, ranks with different models train on, or are not told what differs."""
    said = fails("different", what)
    assert "MismatchError" in said
    for word in words:
        assert word in said, said


@pytest.mark.parametrize("what, words", [
    ("twice", "averaged already"),
    ("part", "parameter group0.6 is not one of the DataParallel model"),
    ("complex", "parameter wave is complex64"),
    ("lbfgs", "LBFGS"),
    ("frozen", "none of the parameters requires a gradient"),
    ("rule", "servers know no rule like Adamax"),
    ("rate", "learning_rate changed from 0.1 to 0.01"),
    ("staleness", "staleness=3 needs server_side=True"),
    ("again", "a second backward before step(): the first gradient of 4.bias"),
    ("nan", "NotFiniteError")])
def test_refusals(once, what, words):
    """If this fails, something that cannot be right is done anyway."""
    assert words in once("refused", workers=1)[0][what]


# ---- what one sees


def test_trace_shows_transfers_during_backward(tmp_path):
    """If this fails, gradients leave only after backward, or the trace does not show when."""
    run_job(tmp_path, "traced", PSD_TORCH_TRACE="trace-{rank}.json")
    events = json.loads((tmp_path / "trace-1.json").read_text())["traceEvents"]
    waits = [event for event in events if event["name"] == "wait"]
    transfers = [event for event in events if event["ph"] == "X" and event["tid"] > 0]
    assert len(waits) == 5 and len(transfers) > 5
    begins = sorted(transfer["ts"] for transfer in transfers)
    assert any(waits[-2]["ts"] + waits[-2]["dur"] < begin < waits[-1]["ts"] for begin in begins), \
        "in the last step nothing left before backward had ended"


# ---- devices


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_tensors(job, alone):
    """If this fails, models on a GPU train something else than in one process."""
    ranks = job("cuda")
    assert same_bits(*ranks)
    assert distance(ranks[0], alone("cuda_alone")) < 1e-5


# ---- without a job


@pytest.fixture(name="package", scope="module")
def fixture_package():
    """poseidon.torch in this process, which is in no job."""
    os.environ["PSD_LIB"] = environment()["PSD_LIB"]
    sys.path.insert(0, str(TREE / "python"))
    yield pytest.importorskip("poseidon.torch")
    sys.path.remove(str(TREE / "python"))
    del os.environ["PSD_LIB"]


def test_before_init_it_says_so(package):
    """If this fails, a call before init ends in an error that says nothing."""
    with pytest.raises(Exception, match="poseidon.init"):
        package.DataParallel(torch.nn.Linear(2, 2))


def test_values_travel_without_pickle(package):
    """If this fails, values of a peer are unpickled, or come back changed."""
    from poseidon.torch import codec

    assert package is not None
    value = {"a": (1, 2.5, None, True), 3: ["x", float("-inf")],
             "t": torch.arange(6, dtype=torch.int16).reshape(2, 3), "e": torch.empty(0, 4)}
    back = codec.decode(codec.encode(value))
    assert torch.equal(back.pop("t"), value.pop("t"))
    assert back.pop("e").shape == value.pop("e").shape
    assert back == value
    with pytest.raises(TypeError, match=r"the value\['f'\] is a function"):
        codec.encode({"f": distance})


def test_buckets_are_packed_in_the_order_given(package):
    """If this fails, buckets are not filled in the order in which gradients come."""
    from poseidon.torch.buckets import Slot, plan

    assert package is not None
    sizes = {"a": 10, "big": 1000, "b": 200, "c": 50, "d": 5}
    slots = [Slot(name, torch.zeros(size)) for name, size in sizes.items()]
    slots.append(Slot("wide", torch.zeros(3, dtype=torch.float64)))
    packed = [[slot.name for slot in bucket] for bucket in plan(slots, 900)]
    assert packed == [["big"], ["a", "b", "c"], ["d"], ["wide"]]


# ---- examples and measurements


def loss_at(step, said):
    return float(re.search(rf"step {step}: loss (\S+)", said)[1])


def writes_better_after_60_steps(said):
    return loss_at(0, said) > 4 and loss_at(59, said) < 3.2


def reads_nine_of_ten_digits(said):
    return float(re.search(r"epoch 3: loss \S+, accuracy (\S+)", said)[1]) > 0.9


@pytest.mark.parametrize("name, arguments, workers, learned", [
    pytest.param("torch_mnist", "", 2, reads_nine_of_ten_digits, marks=pytest.mark.all),
    pytest.param("torch_chars", "--steps=60 --write=20", 2, writes_better_after_60_steps, marks=pytest.mark.all),
    pytest.param("torch_async_adam", "--steps=150", 3, lambda said: "worker 2:" in said, marks=pytest.mark.all)])
def test_examples(tmp_path, name, arguments, workers, learned):
    """If this fails, an example ends well, but what it shows does not train."""
    path = TREE / "examples" / "python" / f"{name}.py"
    assert len(path.read_text().splitlines()) < 150
    done = run(tmp_path, BIN / "psd_run", "--workers", workers, "--servers", 1,
               f"{sys.executable} {path} {arguments}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert learned(done.stdout), done.stdout
    digests = {line.split()[-1] for line in done.stdout.splitlines() if " parameters " in line}
    assert len(digests) <= 1, "workers ended with different parameters"


@pytest.mark.all
def test_overhead_is_measured(tmp_path):
    """If this fails, the benchmark of the overhead measures nothing."""
    done = run(tmp_path, sys.executable, TREE / "bench" / "torch_overhead.py", "--rounds=2",
               "--steps=1", "--batch=4", f"--json={tmp_path}/line")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "line").read_text())["name"] == "torch_overhead"


def test_gradients_of_a_bucket_are_copied_by_one_call(job):
    """If this fails, every parameter costs a call in the middle of backward, where it is dearest; or a hook of the program's
    that takes a gradient away makes ranks part."""
    zero, one = job("few_calls")
    assert len(one["calls"]) == 1 and one["calls"][0] == 24
    assert zero["calls"] == [23]
    for mine, others in zip(zero["gradients"], one["gradients"]):
        assert torch.equal(mine, others)


@pytest.mark.parametrize("frames,part", [
    (["at::native::mm (/x/libtorch_cpu.so)", "PyEval (/x/python3)"], None),
    (["__memmove_avx (/x/libc.so.6)", "at::native::cat (/x/libtorch_cpu.so)"], None),
    (["__memmove_avx (/x/libc.so.6)", "psi_timed_copy_large (/x/libpsd.so.0.1.0)"], 0),
    (["kernel (/x/libtorch_cpu.so)", "at::_ops::copy_::call (/x/libtorch_cpu.so)",
      "torch::autograd::PyFunctionTensorPostAccGradHooks (/x/libtorch_python.so)"], 0),
    (["PyEval (/x/python3)", "torch::autograd::PyFunctionTensorPostAccGradHooks (/x/libtorch_python.so)"], 1),
    (["PyEval (/x/python3)", "torch::autograd::GraphTask::exec_post_processing() (/x/libtorch_cpu.so)"], 1),
    (["epoll_wait (/x/libc.so.6)", "psi_loop_wait (/x/libpsd.so.0.1.0)",
      "torch::autograd::PyFunctionTensorPostAccGradHooks (/x/libtorch_python.so)"], 2),
])
def test_profile_tells_ours_from_the_programs(frames, part):
    """If this fails, bench/torch_share.py counts what the program computes as ours, or the other way round."""
    specification = importlib.util.spec_from_file_location("torch_share", TREE / "bench" / "torch_share.py")
    share = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(share)
    assert share.part_of(frames) == (None if part is None else share.PARTS[part])


@pytest.mark.all
def test_a_sparse_step_is_measured(tmp_path):
    """If this fails, the benchmark of the click-through step measures nothing, or one of the three computes something else."""
    done = run(tmp_path, sys.executable, TREE / "bench" / "torch_sparse.py", "--rows=5000", "--batch=64", "--steps=3",
               "--repeat=1", f"--json={tmp_path}/lines")
    assert done.returncode == 0, done.stdout + done.stderr
    figures = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [line["reference_name"] for line in figures] == ["torch, 1 process", "DDP over gloo, 2 processes"]
    assert all(line["ratio"] > 0 for line in figures)


@pytest.mark.all
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_overlap_is_measured(tmp_path):
    """If this fails, the benchmark of the overlap measures nothing."""
    done = run(tmp_path, sys.executable, TREE / "bench" / "torch_overlap.py", "--repeat=1",
               "--layers=3", "--width=256", "--batch=64", "--trace=trace.json", "--json=line")
    assert done.returncode == 0, done.stdout + done.stderr
    if "skipped" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert json.loads((tmp_path / "line").read_text())["name"] == "torch_overlap"
    assert "backward" in (tmp_path / "trace.json").read_text()
