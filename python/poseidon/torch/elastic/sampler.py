# SPDX-License-Identifier: Apache-2.0
"""The sampler as PyTorch knows samplers."""

from torch.utils.data import Sampler

from ... import elastic


class ElasticSampler(elastic.ElasticSampler, Sampler):
    """See poseidon.elastic.ElasticSampler. A DataLoader tells it the size of batches."""
