# SPDX-License-Identifier: Apache-2.0
"""PyTorch with workers that come and go, by Horovod's names: `hvd.elastic` of `import poseidon.torch as hvd`.

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            state.sampler.set_epoch(state.epoch)
            for data, target in loader:        DataLoader(dataset, batch_size, sampler=sampler)
                optimizer.zero_grad()
                loss(model(data), target).backward()
                optimizer.step()               hvd.DistributedOptimizer(...)
                state.commit()

    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0))

docs/elastic.md is the manual."""

from ...elastic import HostsUpdatedInterrupt, ObjectState, State, StateLost, members, run, samples
from . import loader
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "HostsUpdatedInterrupt", "ObjectState", "State", "StateLost", "TorchState", "members", "run", "samples"]

loader.count_batches()
