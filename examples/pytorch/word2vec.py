# SPDX-License-Identifier: Apache-2.0
"""Words as vectors: skip-grams with negative sampling (word2vec), with vectors that are with the servers.

    psd_run --workers 2 --servers 2 "python3 examples/pytorch/word2vec.py"              licences that Debian ships
    psd_run --workers 2 --servers 2 "python3 examples/pytorch/word2vec.py TEXT ..."     or any texts

The id of a word is its hash, so nobody numbers the words before. A tenth of the places is held out: how often the word that
stands there, near another one, scores higher than a word that was drawn. With the licences of Debian 12 that are 69 of 100.
Whoever knows only how often words come has 64, and a table of all pairs, with 1776 numbers for each word and not 32, has 71."""

import argparse
import hashlib
import pathlib
import re

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import poseidon.torch as psd

LICENCES = [pathlib.Path("/usr/share/common-licenses") / name
            for name in ("Apache-2.0", "GFDL-1.3", "GPL-2", "GPL-3", "LGPL-2.1", "MPL-2.0")]


class Words(nn.Module):
    """A vector for each word, and another one for the words around it."""

    def __init__(self, width, rate, steps):
        super().__init__()
        how = dict(rule="adagrad", learning_rate=rate, schedule="cosine", period=steps)
        self.words = psd.Embedding("words", width, init="uniform", init_value=0.5 / width, seed=1, **how)
        self.near = psd.Embedding("near", width, **how)

    def forward(self, words, near):
        """How well they go together: words [n], near [n, k]."""
        return torch.einsum("nw,nkw->nk", self.words(words), self.near(near))

    def next(self, words, near):
        """Their vectors come with the answer to the push."""
        self.words.next(words)
        self.near.next(near)

    def step(self):
        """All that is learnt here is on the servers: there is no optimizer."""
        self.words.step()
        self.near.step()


def id_of(word):
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little", signed=True)


def pairs_of(ids, window):
    """Each word with those that stand at most so far away, and the place of the pair in the text."""
    places, words, near = [], [], []
    for distance in range(1, window + 1):
        places += [np.arange(len(ids) - distance)] * 2
        words += [ids[:-distance], ids[distance:]]
        near += [ids[distance:], ids[:-distance]]
    return np.concatenate(places), np.stack((np.concatenate(words), np.concatenate(near)), 1)


def drawn(counts, shape, draw):
    """Words, by how often they come; as word2vec does, the seldom ones a little more often than that."""
    chances = counts**0.75
    return draw.choice(len(counts), shape, p=chances / chances.sum())


def train(pairs, known, counts, args):
    """Every worker has each size()th pair, and makes equally many steps."""
    size = args.batch // psd.size()
    steps = len(pairs) // args.batch
    model = Words(args.width, args.rate, args.epochs * steps)
    draw = np.random.default_rng([2, psd.rank()])
    wanted = torch.zeros(size, 1 + args.drawn)
    wanted[:, 0] = 1

    def batches():
        for _ in range(args.epochs):
            mine = draw.permutation(pairs[psd.rank()::psd.size()])[:steps * size].reshape(steps, size, 2)
            for some in mine:
                others = known[drawn(counts, (size, args.drawn), draw)]
                yield torch.from_numpy(some[:, 0].copy()), torch.from_numpy(np.concatenate((some[:, 1:], others), 1))

    following = batches()
    batch = next(following)
    while batch is not None:
        functional.binary_cross_entropy_with_logits(model(*batch), wanted, reduction="sum").div(size).backward()
        batch = next(following, None)
        if batch is not None:
            model.next(*batch)
        model.step()
    return model.eval()


def main():
    """Trains, tells how much was learnt, and which words are alike."""
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", type=pathlib.Path, nargs="*", default=LICENCES)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=1024, help="pairs of all workers together")
    parser.add_argument("--drawn", type=int, default=5, help="words for each pair that do not belong to it")
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--window", type=int, default=4)
    args = parser.parse_args()

    psd.init()
    torch.set_num_threads(1)
    text = [word for path in args.texts for word in re.findall(r"[a-z]+", path.read_text(encoding="utf-8").lower())]
    words, numbers, counts = np.unique(text, return_inverse=True, return_counts=True)
    known = np.array([id_of(word) for word in words])
    places, pairs = pairs_of(known[numbers], args.window)
    held_out = places // 100 % 10 == 0
    model = train(pairs[~held_out], known, counts, args)

    with torch.no_grad():
        tried = pairs[held_out]
        others = known[drawn(counts, len(tried), np.random.default_rng(3))]
        scores = model(torch.from_numpy(tried[:, 0].copy()), torch.from_numpy(np.stack((tried[:, 1], others), 1)))
        vectors = functional.normalize(model.words(torch.from_numpy(known)))
    right = (scores[:, 0] > scores[:, 1]).float().mean().item()
    if psd.rank() == 0:
        often = np.argsort(-counts, kind="stable")
        for word in often[100:105]:
            alike = often[:500][(vectors[often[:500]] @ vectors[word]).argsort(descending=True)[1:5]]
            print(f"{words[word]}: {' '.join(words[alike])}")
    print(f"worker {psd.rank()}: right {right:.4f}, vectors {hashlib.sha256(vectors.numpy().tobytes()).hexdigest()}")


if __name__ == "__main__":
    main()
