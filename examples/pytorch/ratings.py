# SPDX-License-Identifier: Apache-2.0
"""Who likes which movie: matrix factorization on ratings in MovieLens' format, with factors that are with the servers.

    python3 examples/pytorch/ratings_draw.py data/ratings        draws such ratings, or take MovieLens' ratings.csv
    psd_run --workers 2 --servers 2 "python3 examples/pytorch/ratings.py data/ratings"

Each tenth rating is held out. The error of what is drawn comes within 0.02 of that of the model that drew it, which nobody can
beat. The numbers of users and movies in the file are their ids."""

import argparse
import hashlib
import pathlib

import numpy as np
import torch
from ratings_draw import HELD_OUT
from torch import nn

import poseidon.torch as psd


class Factors(nn.Module):
    """A rating is the mean of all, what the user tends to give, what the movie tends to get, and how their tastes agree."""

    def __init__(self, mean, tastes, rate, steps):
        super().__init__()
        how = dict(rule="adagrad", learning_rate=rate, schedule="cosine", period=steps, init="normal", init_value=0.1)
        self.users = psd.Embedding("users", 1 + tastes, seed=1, **how)
        self.movies = psd.Embedding("movies", 1 + tastes, seed=2, **how)
        self.mean = mean

    def forward(self, users, movies):
        """The ratings, and how large the factors are: small ones are likelier."""
        user, movie = self.users(users), self.movies(movies)
        size = user.square().sum(1) + movie.square().sum(1)
        return self.mean + user[:, 0] + movie[:, 0] + (user[:, 1:] * movie[:, 1:]).sum(1), size

    def next(self, users, movies):
        """Their factors come with the answer to the push."""
        self.users.next(users)
        self.movies.next(movies)

    def step(self):
        """All that is learnt here is on the servers: there is no optimizer."""
        self.users.step()
        self.movies.step()


def read(path):
    """Users, movies and ratings of those to learn from, and of those held out."""
    table = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 1, 2), ndmin=2)
    ids, ratings = torch.from_numpy(table[:, :2].astype(np.int64)), torch.from_numpy(table[:, 2].astype(np.float32))
    held_out = torch.arange(len(ratings)) % HELD_OUT == HELD_OUT - 1
    return (ids[~held_out], ratings[~held_out]), (ids[held_out], ratings[held_out])


def train(ids, ratings, args):
    """Every worker has each size()th rating, and makes equally many steps."""
    size = args.batch // psd.size()
    steps = len(ratings) // args.batch
    model = Factors(ratings.mean().item(), args.tastes, args.rate, args.epochs * steps)
    ids, ratings = ids[psd.rank()::psd.size()], ratings[psd.rank()::psd.size()]
    order = torch.Generator().manual_seed(psd.rank())
    batches = torch.cat([torch.randperm(len(ratings), generator=order)[:steps * size].view(steps, size)
                         for _ in range(args.epochs)])
    for step, batch in enumerate(batches):
        found, size_of_factors = model(*ids[batch].T)
        ((found - ratings[batch]).square() + args.decay * size_of_factors).mean().backward()
        if step + 1 < len(batches):
            model.next(*ids[batches[step + 1]].T)
        model.step()
    return model.eval()


def main():
    """Trains, and tells how large the error is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=1024, help="of all workers together")
    parser.add_argument("--tastes", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--decay", type=float, default=0.01)
    args = parser.parse_args()

    psd.init()
    torch.set_num_threads(1)
    known, held_out = read(args.directory / "ratings.csv")
    model = train(*known, args)
    ids, ratings = held_out
    with torch.no_grad():
        found = model(*ids.T)[0].clamp(0.5, 5)
    error = (found - ratings).square().mean().sqrt().item()
    print(f"worker {psd.rank()}: RMSE {error:.4f}, ratings {hashlib.sha256(found.numpy().tobytes()).hexdigest()}")


if __name__ == "__main__":
    main()
