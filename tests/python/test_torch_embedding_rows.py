# SPDX-License-Identifier: Apache-2.0
"""What layers of poseidon.torch whose rows are with the servers do beside forward and backward: rows that are fetched ahead,
padding, files."""

from plain_jobs import fixture_job  # noqa: F401
from test_torch_embedding import fixture_said  # noqa: F401

AHEAD = """
    import hashlib

    STEPS = 12

    def run(name, how):
        layer = psd.Embedding(name, WIDTH, rule="adagrad", learning_rate=0.3, init="normal", init_value=0.5, seed=4)
        asked = []
        own = layer.table.lookup
        layer.table.lookup = lambda ids, *rest, **more: (asked.append(len(ids)), own(ids, *rest, **more))[1]
        batches = [torch.from_numpy(np.random.default_rng([step, psd.rank()]).integers(0, 40, (2, 8))) for step in range(STEPS)]
        if how == "all":
            for batch in batches:
                layer.prefetch(batch)
        elif how == "halves":
            for batch in batches:
                layer.prefetch(batch[0]), layer.prefetch(batch[1])
        loader = psd.prefetched(batches, lambda batch: {layer: batch}) if how == "loader" else batches
        for step, batch in enumerate(loader):
            if how == "next" and step + 1 < STEPS:
                layer.next(batches[step + 1])
            if how == "left out" and step + 3 < STEPS:  # two of three are never used
                for later in range(3):
                    layer.prefetch(batches[(step + 1 + later) % STEPS])
            if how.startswith("halves"):
                for half in batch:
                    (layer(half) ** 2).sum().backward()
            else:
                (layer(batch) ** 2).sum().backward()
            with torch.no_grad():
                layer(batch[0] if how.startswith("halves") else batch)
            layer.step()
        layer.eval()
        values = layer(torch.arange(40))
        return len(asked), hashlib.sha256(values.detach().numpy().tobytes()).hexdigest()

    found = {how: run(how, how) for how in ("never", "next", "all", "loader", "left out", "halves never", "halves")}
    say(*(found[how][0] for how in found))
    say(*(found[how][1] for how in found))
"""


def test_rows_that_are_fetched_ahead_are_never_old(said):
    """If this fails, rows that were named before their step are those of a step before, which another worker has changed since:
    other bits than without. Or they are asked for again although they came, or a loader that leaves batches out confuses it."""
    lines = said(AHEAD)
    for counts, hashes in lines:
        never, following, whole, loader, left_out, halves_never, halves = map(int, counts.split())
        assert never == 12 * 2 + 1 and halves_never == 12 * 3 + 1  # forwards that learn, one that reads, and the last
        assert following == whole == loader == 3 and left_out < never and halves == 4, counts
        *one_forward, two_never, two = hashes.split()
        assert len(set(one_forward)) == 1 and two == two_never, hashes
    assert lines[0][1] == lines[1][1]


def test_asynchronous_reads_are_not_of_what_came_before(said):
    """If this fails, whoever evaluates an asynchronous model sees rows as they were when its last push was answered, and not what
    others have pushed since."""
    lines = said("""
        layer = psd.Embedding("e", 2, rule="add", reduce="sum", staleness=None)
        ids = torch.tensor([1, 2])
        for rank in range(2):
            if psd.rank() == rank:
                layer(ids).sum().backward()
                layer.next(ids)
                layer.step()
                with torch.no_grad():
                    say(layer(ids).tolist())  # the push has ended
            psd.barrier()
        say(layer.eval()(ids).tolist())
    """)
    both = "[[2.0, 2.0], [2.0, 2.0]]"
    assert lines == [["[[1.0, 1.0], [1.0, 1.0]]", both], [both, both]]


def test_more_rows_than_an_answer_holds_are_looked_up(said):
    """If this fails, a step ends in an error because so many rows were named ahead, although they could be had one forward after
    the other."""
    lines = said("""
        layer = psd.Embedding("wide", 4096, init="uniform", init_value=1, seed=3)
        parts = torch.arange(4800).view(8, 600)  # 9.4 MiB each: too many together, also for four lanes
        for part in parts:
            layer.next(part)
        layer.step()
        say({layer(part).shape[0] for part in parts})
    """, workers=1)
    assert lines == [["{600}"]]


PADDING = """
    table = lambda layer: layer.table.lookup(np.array([0, 1, 2, -5])).wait()
    ids = torch.tensor([[1, 0, 1, 2], [0, 0, 0, 0], [2, 0, -5, 0]])
    for kind, reference, shape in ((psd.EmbeddingBag, nn.EmbeddingBag, "bags"), (psd.Embedding, nn.Embedding, "words")):
        modes = [dict(mode="sum"), dict(mode="mean")] if shape == "bags" else [{}]
        for mode in modes:
            name = shape + mode.get("mode", "")
            layer = kind(name, 3, padding_idx=0, rule="sgd", learning_rate=1, init="normal", init_value=1, seed=2, **mode)
            begun = torch.from_numpy(table(layer))
            other = reference(4, 3, padding_idx=0, **mode)
            other.weight.data[1:] = begun[1:]
            other.weight.data[0] = 0
            places = torch.where(ids == -5, 3, ids)
            made, wanted = layer(ids), other(places)
            (made ** 2).sum().backward()
            (wanted ** 2).sum().backward()
            layer.next(ids)
            layer.step()
            other.weight.data -= other.weight.grad
            again, wanted_again = layer(ids), other(places)
            layer.zero_grad()
            only = layer(torch.zeros(1, 2, dtype=torch.int64))
            rows = layer.table.lookup(np.array([0])).wait()
            say(name, float((made - wanted).abs().max()), float((again - wanted_again).abs().max()), float(only.abs().max()),
                bool((rows == begun[0].numpy()).all()), float((table(layer) - begun.numpy()).__abs__().max() > 0.1))
"""


def test_padding_has_no_row(said):
    """If this fails, the id of padding is not zeros, is trained, counts in a mean, or has a row on the servers."""
    for lines in said(PADDING):
        assert [line.split()[0] for line in lines] == ["bagssum", "bagsmean", "words"]
        for line in lines:
            _, made, again, only, untouched, moved = line.split()
            assert float(made) < 1e-6 and float(again) < 1e-5 and float(only) == 0 and untouched == "True" and float(moved) == 1, line


EXPORT = """
    import os, pathlib
    from safetensors import safe_open

    for dtype in ("float32", "bfloat16"):
        layer = psd.Embedding(f"rows/{dtype}", 3, dtype=dtype, rule="sgd", learning_rate=1, init="normal", init_value=1, seed=2)
        layer(torch.tensor([7, 2**40])).sum().backward()
        layer.step()
        ids = torch.tensor([2**40, 7, -1, 7])
        here = pathlib.Path(f"{dtype}{psd.rank()}")
        here.mkdir()
        counts = [layer.export(here / f"rows.{end}", ids) for end in ("safetensors", "npz")]
        rows = layer(torch.tensor([-1, 7, 2**40])).float()
        with safe_open(here / "rows.safetensors", "pt") as file:
            about, stored, values = file.metadata(), file.get_tensor("ids"), file.get_tensor("values")
        arrays = np.load(here / "rows.npz")
        same = torch.equal(values.float(), rows) and np.array_equal(arrays["values"], rows.detach().numpy())
        say(dtype, counts, stored.tolist() == arrays["ids"].tolist() == [-1, 7, 2**40], same, str(values.dtype), about["sparse_table"],
            about["step"], sorted(os.listdir(here)))
        layer.zero_grad()
    say(attempt(layer.export, "rows.txt", ids))
    say(attempt(layer.export, "no/where.npz", ids))
    say(layer.export("empty.safetensors", ids[:0]))
    wide = psd.Embedding("wide", 4096, init="uniform", init_value=1, seed=3)  # in several parts
    many = torch.arange(1000)
    say(wide.export("wide.npz", many) == 1000 and np.array_equal(np.load("wide.npz")["values"], wide(many).detach().numpy()))
"""


def test_rows_are_written_to_files(said):
    """If this fails, a file that export() has written has other rows than the table, cannot be read with safetensors and NumPy
    alone, or is left half written."""
    for lines in said(EXPORT, workers=1):
        assert lines[0] == "float32 [3, 3] True True torch.float32 rows/float32 1 ['rows.npz', 'rows.safetensors']"
        assert lines[1] == "bfloat16 [3, 3] True True torch.bfloat16 rows/bfloat16 1 ['rows.npz', 'rows.safetensors']"
        assert "ends in .safetensors or .npz" in lines[2] and "FileNotFoundError" in lines[3]
        assert lines[4:] == ["0", "True"]


def test_arguments_that_mean_nothing_here_are_refused(said):
    """If this fails, a layer that comes from torch.nn with its arguments trains otherwise than there, and nobody is told."""
    lines = said("""
        for options in (dict(max_norm=1.0), dict(scale_grad_by_freq=True), dict(_weight=torch.ones(2, 2)), dict(_freeze=True),
                        dict(device="cuda"), dict(use="sum")):
            say(attempt(psd.Embedding, "e", 2, **options))
        say(attempt(psd.Embedding, 1000, 16))
        say(attempt(psd.EmbeddingBag, "e", 2, mode="max"))
        layer = psd.Embedding("e", 2, sparse=True, max_norm=None, norm_type=2.0, scale_grad_by_freq=False)
        for number in range(1001):
            last = attempt(layer.prefetch, torch.tensor([number]))
        say(last)
    """, workers=1)[0]
    expected = ["max_norm", "scale_grad_by_freq", "_weight", "_freeze", "device", "keeps rows", "1000 is not a name", "sparse=True",
                "1000 batches that no forward has taken"]
    assert len(lines) == len(expected)
    assert all(part in line and "no error" not in line for part, line in zip(expected, lines)), lines
