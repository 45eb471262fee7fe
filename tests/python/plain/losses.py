# SPDX-License-Identifier: Apache-2.0
"""A plain script that trains with one kind of loss after the other. Arguments: the batch size, the number of samples, and
the kinds. One process with W times the batch divides by W times the constant."""

import json
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

BATCH, SAMPLES, KINDS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def masked_mean(errors, mask):
    return (errors * mask).sum() / mask.sum()


EIGHT = torch.cos(torch.arange(24.0)).reshape(3, 8)  # columns: as many as samples of a worker
PARTS = torch.arange(8.0) / 28


LOSSES = {  # of the outputs, classes, values, masks and the model
    "sum": lambda out, classes, values, mask, model: F.mse_loss(out, values, reduction="sum"),
    "vae": lambda out, classes, values, mask, model: F.l1_loss(out, values, reduction="sum") - 0.5 * out.cos().sum(),
    "sum_and_mean": lambda out, classes, values, mask, model: 0.1 * out.square().sum() + F.cross_entropy(out, classes),
    "by_length": lambda out, classes, values, mask, model: F.mse_loss(out, values, reduction="sum") / len(out),
    "by_constant": lambda out, classes, values, mask, model: F.mse_loss(out, values, reduction="sum") / BATCH,
    "times_constant": lambda out, classes, values, mask, model: F.mse_loss(out, values, reduction="sum") * (1 / BATCH),
    "accumulated": lambda out, classes, values, mask, model: F.mse_loss(out, values, reduction="sum") / 3,
    "divided_first": lambda out, classes, values, mask, model: ((out - values).square() / BATCH).sum(),
    "divided_by_row": lambda out, classes, values, mask, model: ((out - values).square().sum(1) * (1 / BATCH)).sum(),
    "mean_then_sum": lambda out, classes, values, mask, model: (out @ EIGHT).square().mean(0).sum(),
    "sum_then_mean": lambda out, classes, values, mask, model: (out @ EIGHT).square().sum(0).mean(),
    "balanced": lambda out, classes, values, mask, model: F.cross_entropy(out, classes) + 8 * (
        (out @ EIGHT).softmax(1).mean(0) * PARTS).sum(),
    "class_weights": lambda out, classes, values, mask, model: F.cross_entropy(
        out, classes, weight=torch.tensor([1.0, 5.0, 0.2])),
    "ignored": lambda out, classes, values, mask, model: F.cross_entropy(out, classes, ignore_index=1),
    "ignored_by_default": lambda out, classes, values, mask, model: F.cross_entropy(
        out, torch.where(mask, classes, -100)),
    "smoothed": lambda out, classes, values, mask, model: F.cross_entropy(out, classes, label_smoothing=0.1),
    "masked": lambda out, classes, values, mask, model: masked_mean((out - values).square().sum(1), mask),
    "picked": lambda out, classes, values, mask, model: F.mse_loss(out[mask], values[mask]),
    "penalty": lambda out, classes, values, mask, model: F.cross_entropy(out, classes) + 0.01 * sum(
        each.square().sum() for each in model.parameters()),
    "sum_and_penalties": lambda out, classes, values, mask, model: F.mse_loss(out, values, reduction="sum") + sum(
        0.01 * (each + shift).square().sum() for each in model.parameters() for shift in range(5)),
    "orthogonal": lambda out, classes, values, mask, model: F.cross_entropy(out, classes) + 0.01 * (
        model[0].weight @ model[0].weight.T - torch.eye(8)).square().sum() + 0.01 * model[0].weight.norm(dim=1).sum(),
    "words": lambda out, classes, values, mask, model: F.mse_loss(  # each sample has another number of them
        out.repeat_interleave(classes + 1, 0), values.repeat_interleave(classes + 1, 0)),
    "sum_of_words": lambda out, classes, values, mask, model: F.mse_loss(
        out.repeat_interleave(classes + 1, 0), values.repeat_interleave(classes + 1, 0), reduction="sum"),
    "many": lambda out, classes, values, mask, model: sum(F.mse_loss(out, times * values) for times in range(9)) / 9,
    "two": lambda out, classes, values, mask, model: torch.stack(
        [F.cross_entropy(out, classes), F.mse_loss(out, values)]).sum(),
}
FEW = {"sum", "vae", "sum_and_mean", "accumulated", "mean_then_sum", "sum_then_mean", "sum_and_penalties",
       "sum_of_words"}  # their steps are large
torch.manual_seed(4)
data = TensorDataset(torch.randn(SAMPLES, 4), torch.randint(3, (SAMPLES,)), torch.randn(SAMPLES, 3),
                     torch.rand(SAMPLES) < 0.8)  # two samples are left in the end: not both masked
state = []
for kind in KINDS:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002 if kind in FEW else 0.2)
    for epoch in range(2):
        for points, *targets in DataLoader(data, BATCH, shuffle=True):
            optimizer.zero_grad()
            LOSSES[kind](model(points), *targets, model).backward()
            optimizer.step()
    state += [value for each in model.parameters() for value in each.flatten().tolist()]
print("HASH", sum(state))
print("VALUES", json.dumps(state))
