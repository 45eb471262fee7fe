# SPDX-License-Identifier: Apache-2.0
"""A plain script with loops of many kinds. Two arguments: which of them, with commas between them, and the batch size."""

import json
import sys

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset
from torch.utils.data import WeightedRandomSampler

KINDS, BATCH = sys.argv[1].split(","), int(sys.argv[2])
COUNT, EPOCHS = 108, 3


class Stream(IterableDataset):
    """Of numbers, for evaluation."""

    def __iter__(self):
        return iter(range(30))


def make_loader():
    if KIND == "own_batches":
        return DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), BATCH, False))
    if KIND == "bulk":
        return DataLoader(data, batch_size=None,
                          sampler=BatchSampler(RandomSampler(data), BATCH, True))
    if KIND == "weighted":
        chances = torch.linspace(1, 2, COUNT)
        return DataLoader(data, BATCH, sampler=WeightedRandomSampler(chances, 90))
    if KIND == "persistent":
        return DataLoader(data, BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    return DataLoader(data, BATCH, shuffle=True)


def make_model():
    made = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    return made, torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.5)


def values():
    return [value for part in (model, other) for parameter in part.parameters()
            for value in parameter.flatten().tolist()]


def step_with_closure(index, points, targets):
    del index

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points), targets)
        loss.backward()
        return loss

    optimizer.step(closure)


def step_in_turn(index, points, targets):
    """Two models with an optimizer each; the loss of the second reaches the first, too."""
    del index
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points), targets).backward()
    optimizer.step()
    second.zero_grad()
    nn.functional.mse_loss(other(model(points)), targets).backward()
    second.step()


def step_sometimes_unused(index, points, targets):
    """A part of the model that takes part in some steps alone."""
    del index
    optimizer.zero_grad()
    second.zero_grad()
    outputs = model(points)
    if len(shown) % 3 == 1:
        outputs = other(outputs)
    nn.functional.mse_loss(outputs, targets).backward()
    optimizer.step()
    second.step()


def step_routed(index, points, targets):
    """A part of the model that few samples go through: there are batches without any."""
    optimizer.zero_grad()
    second.zero_grad()
    outputs = model(points)
    routed = index % 8 == 0
    if routed.any():
        outputs = torch.where(routed[:, None], other(outputs), outputs)
    nn.functional.mse_loss(outputs, targets).backward()
    optimizer.step()
    second.step()


def step_by_grad(index, points, targets):
    """Gradients that no backward has put into place, one of them in a closure."""
    del index
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points), targets).backward()
    optimizer.step()

    def closure():
        loss = nn.functional.mse_loss(other(model(points)), targets)
        parameters = list(other.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
            parameter.grad = gradient
        return loss

    if len(shown) % 2 == 0:
        second.step(closure)
    else:
        closure()
        second.step()


def step_with_kept(index, points, targets):
    """The gradient of one loss is kept while that of another is computed."""
    del index
    parameters = list(model.parameters())
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points), targets).backward()
    kept = [parameter.grad for parameter in parameters]
    optimizer.zero_grad()
    nn.functional.l1_loss(model(points), targets).backward()
    for parameter, gradient in zip(parameters, kept):
        parameter.grad = 0.7 * gradient + 0.3 * parameter.grad
    optimizer.step()


def step_plainly(index, points, targets):
    del index
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points), targets).backward()
    optimizer.step()


def evaluate():
    """The loader of the training, too, is read whole."""
    with torch.no_grad():
        samples = sum(len(index) for index, _, _ in loader)
        numbers = sum(len(batch) for batch in DataLoader(Stream(), 7))
    return samples, numbers


STEPS = {"closure": step_with_closure, "in_turn": step_in_turn, "by_grad": step_by_grad, "kept": step_with_kept,
         "unused": step_sometimes_unused, "routed": step_routed}
torch.set_num_threads(1)
torch.manual_seed(2)
data = TensorDataset(torch.arange(COUNT), torch.randn(COUNT, 3), torch.randn(COUNT, 1))
for KIND in KINDS:
    print("KIND", KIND)
    torch.manual_seed(2)
    other = nn.Linear(1, 1)
    model, optimizer = make_model()
    second = torch.optim.RMSprop(other.parameters(), lr=0.01)
    step = STEPS.get(KIND, step_plainly)
    loader = make_loader()
    shown = []
    for epoch in range(EPOCHS):
        if KIND == "folds" and epoch == 1:  # everything once more, with a fresh model
            model, optimizer = make_model()
        for batch in loader:
            step(*batch)
            shown.append(values())
        print("EVALUATED", *evaluate())
    for line in shown[:20]:
        print("STEP", json.dumps(line))
