# SPDX-License-Identifier: Apache-2.0
"""Draws clicks in Criteo's format, from a model that is known: so the best AUC that anybody can reach is, too.

    python3 examples/pytorch/clicks_draw.py DIRECTORY [--samples N]     writes train.txt and test.txt, and prints that AUC

A line has the label, 13 counts and 26 categories, with tabs between them; some fields are empty. What decides about a click
are an effect of each category and the logarithms of the counts."""

import argparse
import pathlib

import numpy as np

COUNTS, CATEGORIES, VALUES = 13, 26, 8


def auc(clicked, scores):
    """The share of (click, no click) pairs in which the click has the higher score."""
    values, place, many = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(many) - (many - 1) / 2  # equal scores share their ranks
    ranks, clicks = middle[place], int(clicked.sum())
    return (ranks[clicked == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(clicked) - clicks))


def draw(samples, seed):
    """Labels, counts, categories, and the probabilities that the labels were drawn with."""
    model, data = np.random.default_rng(7), np.random.default_rng(seed)
    effects = model.normal(0, 0.25, (CATEGORIES, VALUES))
    slopes = model.normal(0, 0.1, COUNTS)
    counts = data.geometric(0.1, (samples, COUNTS)) - 1
    categories = np.minimum(data.zipf(1.3, (samples, CATEGORIES)) - 1, VALUES - 1)
    logits = -1 + effects[np.arange(CATEGORIES), categories].sum(1) + (np.log1p(counts) - 2) @ slopes
    chances = 1 / (1 + np.exp(-logits))
    return (data.random(samples) < chances).astype(int), counts, categories, chances


def write(path, labels, counts, categories):
    """As Criteo does: categories are hashes, and what is 0, or the last category, is empty."""
    names = [[f"{(column * 2654435761 + value * 40503) % 2**32:08x}" for value in range(VALUES - 1)] + [""]
             for column in range(CATEGORIES)]
    with open(path, "w", encoding="ascii") as file:
        for label, some, others in zip(labels.tolist(), counts.tolist(), categories.tolist()):
            fields = [str(label), *(str(count or "") for count in some),
                      *(names[column][value] for column, value in enumerate(others))]
            file.write("\t".join(fields) + "\n")


def main():
    """Writes both files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=60000)
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    for name, samples, seed in (("train", args.samples, 1), ("test", 20000, 2)):
        labels, counts, categories, chances = draw(samples, seed)
        write(args.directory / f"{name}.txt", labels, counts, categories)
    print(f"AUC of the planted model: {auc(labels, chances):.4f}")


if __name__ == "__main__":
    main()
