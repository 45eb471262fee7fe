# SPDX-License-Identifier: Apache-2.0
"""Draws ratings in MovieLens' format, from a model that is known: so the smallest error that anybody can reach is, too.

    python3 examples/pytorch/ratings_draw.py DIRECTORY [--ratings N]     writes ratings.csv, and prints that error

A line has userId, movieId, rating, timestamp. A rating is what the user tends to give, and the movie to get, and how their
tastes agree, and chance, in steps of a half from 0.5 to 5."""

import argparse
import math
import pathlib

import numpy as np

USERS, MOVIES, TASTES = 600, 300, 2
HELD_OUT = 10  # each so many lines one is for the test


def expected(wanted, chance):
    """Of a rating: chance has a normal distribution, and the rating is cut off and rounded."""
    values = np.arange(1, 11) / 2
    borders = (values[:-1] + 0.25 - wanted[:, None]) / chance
    below = (1 + np.vectorize(math.erf)(borders / math.sqrt(2))) / 2
    ends = np.ones((len(wanted), 1))
    return np.diff(np.concatenate((0 * ends, below, ends), 1)) @ values


def draw(ratings, chance=0.4, seed=1):
    """Users, movies, their ratings, and what these ratings are on average."""
    model, data = np.random.default_rng(7), np.random.default_rng(seed)
    gives, gets = model.normal(0, 0.4, USERS), model.normal(0, 0.4, MOVIES)
    likes, has = model.normal(0, 0.6, (USERS, TASTES)), model.normal(0, 0.6, (MOVIES, TASTES))
    pairs = data.choice(USERS * MOVIES, ratings, replace=False)  # nobody rates a movie twice
    users, movies = pairs // MOVIES, pairs % MOVIES
    wanted = 3.2 + gives[users] + gets[movies] + (likes[users] * has[movies]).sum(1)
    given = np.clip(np.round(2 * (wanted + data.normal(0, chance, ratings))) / 2, 0.5, 5)
    return users + 1, movies + 1, given, expected(wanted, chance)


def main():
    """Writes the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--ratings", type=int, default=90000)
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    users, movies, given, known = draw(args.ratings)
    lines = [f"{user},{movie},{rating:.1f},{978300000 + number}\n"
             for number, (user, movie, rating) in enumerate(zip(users.tolist(), movies.tolist(), given.tolist()))]
    (args.directory / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(lines), encoding="ascii")
    error = (known - given)[HELD_OUT - 1::HELD_OUT]
    print(f"RMSE of the planted model: {np.sqrt(np.square(error).mean()):.4f}")


if __name__ == "__main__":
    main()
