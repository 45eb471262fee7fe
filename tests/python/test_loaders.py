# SPDX-License-Identifier: Apache-2.0
"""Data loaders with processes of their own, beside a job."""

import importlib.util

import pytest

POOL = """
    import multiprocessing

    def load(index):
        return np.full(4, index % 3, np.float32)

    def main():
        poseidon.init()
        table = poseidon.Table("w", 4, rule="add", reduce="sum")
        table.push(np.zeros(4, np.float32)).add_done_callback(lambda _: None)  # all threads run
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            for gradient in pool.imap(load, range(30)):
                values = table.push_pull(gradient).wait()
        say(values.tolist())
        poseidon.close()

    if __name__ == "__main__":
        main()
"""

LOADER = """
    import torch

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, index):
            return torch.full((4,), float(index % 3))

    def main():
        poseidon.init()
        table = poseidon.Table("w", 4, rule="add", reduce="sum")
        loader = torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=2,
                                             multiprocessing_context=sys.argv[1])
        for epoch in range(2):
            for batch in loader:
                values = table.push_pull(batch.sum(0)).wait()
        say(values.tolist())
        poseidon.close()

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_pool(run, how):
    """If this fails, loading data in processes hangs or disturbs the job."""
    assert run(POOL, how) == [["[60.0, 60.0, 60.0, 60.0]"]] * 2


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch here")
@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.all)])
def test_loader_of_pytorch(run, how):
    """If this fails, the usual way to load data does not work beside a job."""
    assert run(LOADER, how) == [["[124.0, 124.0, 124.0, 124.0]"]] * 2
