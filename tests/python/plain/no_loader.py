# SPDX-License-Identifier: Apache-2.0
"""A plain script that trains without a loader. Arguments: how; and perhaps a file with what the workers of a job
have drawn in each step: then this process trains on all of that together.

actor_critic     an environment of its own, actions drawn at random, one step an episode
graph            one graph as a whole, in every step
graph_noise      the same, with dropout
slices           one slice of the data after the other
in_order         the same, by numbers
permuted         slices of a permutation, drawn anew in every epoch; numpy, sample: by those; split: all at once
buffer           slices of a permutation of what each worker has drawn for itself
chosen           a permutation chooses what to train on, when there is an optimizer; chosen_closure: steps by a closure
raw              a random batch for a tensor that no module has
late             a second optimizer comes when the first has made some steps"""

import hashlib
import json
import random
import sys

import numpy as np
import torch
from torch import nn

KIND, STEPS = sys.argv[1], 6
if len(sys.argv) > 2:
    with open(sys.argv[2], encoding="utf-8") as file:
        DRAWN = json.load(file)  # by worker and step
else:
    DRAWN = None
torch.set_num_threads(1)
torch.manual_seed(3)
np.random.seed(3)
random.seed(3)
points, targets = torch.randn(48, 4), torch.randn(48, 1)
record = []  # what each step was computed from, and its gradients


def note(what, parameters):
    record.append([what, [value for each in parameters for value in each.grad.flatten().tolist()]])


def mean_of(loss_of, step):
    """The loss of what is drawn, and what that was; or the mean loss of what others have drawn."""
    if DRAWN is None:
        return loss_of(None)
    losses = [loss_of(drawn[step])[0] for drawn in DRAWN]
    return sum(losses) / len(losses), None


def finish(*parameters):
    print("RECORD", json.dumps(record))
    print("HASH", hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in parameters)).hexdigest())
    print("VALUES", json.dumps([value for each in parameters for value in each.flatten().tolist()]))


def actor_critic():
    """A walk on a line: to the right is better. Episodes differ in length from worker to worker."""
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.actor, self.critic = nn.Linear(2, 16), nn.Linear(16, 2), nn.Linear(16, 1)

        def forward(self, state):
            body = torch.tanh(self.body(state))
            return torch.softmax(self.actor(body), dim=-1), self.critic(body)

    model = Policy()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)

    def loss_of(told):
        place, saved, rewards, actions = 0, [], [], []
        while abs(place) < 3 and len(rewards) < 20:
            chances, value = model(torch.tensor([place / 3, 1.0]))
            chosen = torch.distributions.Categorical(chances)
            action = chosen.sample() if told is None else torch.tensor(told[len(actions)])
            place += 2 * action.item() - 1
            saved.append((chosen.log_prob(action), value))
            rewards.append(float(place))
            actions.append(action.item())
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        return torch.stack([-log * (back - value.item()) + nn.functional.smooth_l1_loss(value, back[None])
                            for (log, value), back in zip(saved, returns)]).sum(), actions

    for step in range(STEPS):
        loss, actions = mean_of(loss_of, step)
        optimizer.zero_grad()
        loss.backward()
        note(actions, model.parameters())
        optimizer.step()
    finish(*model.parameters())


def graph(dropout):
    """Two layers of graph convolution; some of the nodes have labels."""
    nodes = torch.randn(20, 5)
    adjacency = (torch.rand(20, 20) < 0.2).float() + torch.eye(20)
    adjacency /= adjacency.sum(1, keepdim=True)
    labels = torch.randint(3, (20,))

    class Convolutions(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.drop, self.second = nn.Linear(5, 8), nn.Dropout(dropout), nn.Linear(8, 3)

        def forward(self, features, neighbours):
            return neighbours @ self.second(self.drop(torch.relu(neighbours @ self.first(features))))

    model = Convolutions()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(STEPS):
        model.train()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(nodes, adjacency)[:10], labels[:10]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(nodes, adjacency)
    finish(*model.parameters())


def batches_of(count):
    """Slices, or the numbers of samples, batch by batch."""
    begins = range(0, count, 8)
    if KIND == "slices":
        return [slice(begin, begin + 8) for begin in begins]
    if KIND == "split":
        return torch.randperm(count).split(8)
    order = {"in_order": torch.arange, "numpy": np.random.permutation,
             "sample": lambda count: random.sample(range(count), count)}.get(KIND, torch.randperm)(count)
    return (order[begin:begin + 8] for begin in begins)


def walk():
    inputs, wanted = points[:45], targets[:45]  # the last batch is smaller
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for chosen in batches_of(len(inputs)):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs[chosen]), wanted[chosen], reduction="sum").mul(0.01).backward()
            optimizer.step()
            print("MADE A STEP")
            with torch.no_grad():
                record.append(model(points[torch.randperm(len(points))[:5]]).sum().item())  # no training: not cut
    finish(*model.parameters())


def buffer():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(states):
        return model(torch.tensor(states)).square().mean(), states

    for step in range(STEPS // 2):
        with torch.no_grad():
            states = torch.randn(16, 4)
        order = torch.randperm(16)
        for half in range(2):
            taken = states[order[8 * half:8 * half + 8]].tolist()
            loss = loss_of(taken)[0] if DRAWN is None else sum(loss_of(each[2 * step + half])[0] for each in DRAWN) / len(DRAWN)
            optimizer.zero_grad()
            loss.backward()
            note(taken, model.parameters())
            optimizer.step()
    finish(*model.parameters())


def choose(by_closure):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    chosen = torch.randperm(len(points))[:32]

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points[chosen]), targets[chosen])
        loss.backward()
        return loss

    for _ in range(STEPS):
        if by_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        print("MADE A STEP")


def raw(late):
    weight = torch.zeros(4, 1, requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    optimizers = [torch.optim.SGD([weight] if late else [weight, bias], lr=0.1)]

    def loss_of(told):
        chosen = torch.randint(len(points), (8,)) if told is None else torch.tensor(told)
        return ((points[chosen] @ weight + bias - targets[chosen]) ** 2).mean(), chosen.tolist()

    for step in range(STEPS):
        if late and step == 3:
            optimizers.append(torch.optim.SGD([bias], lr=0.1))
        loss, chosen = mean_of(loss_of, step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        note(chosen, [weight])
        for optimizer in optimizers:
            optimizer.step()
    finish(weight, bias)


if KIND == "actor_critic":
    actor_critic()
elif KIND.startswith("graph"):
    graph(0.5 if KIND == "graph_noise" else 0.0)
elif KIND in ("slices", "in_order", "permuted", "numpy", "sample", "split"):
    walk()
elif KIND == "buffer":
    buffer()
elif KIND in ("chosen", "chosen_closure"):
    choose(KIND == "chosen_closure")
else:
    raw(KIND == "late")
