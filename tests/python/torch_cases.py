# SPDX-License-Identifier: Apache-2.0
"""Workers of test_torch.py: torch_cases.py CASE [ARGUMENT]. Each rank leaves what it found in
rankN.pt in its working directory. `alone` in a name: a process without a job, for comparison."""

import contextlib
import os
import sys

import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
RANKS = 2
STEPS = 20


def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 300), nn.ReLU(),
                         nn.Linear(300, 5))


class Convolutions(nn.Module):
    """Several kinds of layers, with more than one bucket of parameters."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3)
        self.second = nn.Conv2d(8, 16, 3, stride=2)
        self.hidden = nn.Linear(16 * 5 * 5, 800)
        self.last = nn.Linear(800, 10)

    def forward(self, images):
        hidden = functional.relu(self.second(functional.relu(self.first(images))))
        return self.last(functional.relu(self.hidden(hidden.flatten(1))))


def batch(step, rank, rows=16):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (torch.randn(rows, 20, generator=generator),
            torch.randint(0, 5, (rows,), generator=generator))


def both(step):
    """What all ranks together see."""
    parts = [batch(step, rank) for rank in range(RANKS)]
    return tuple(torch.cat(pieces) for pieces in zip(*parts))


def images(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (torch.randn(8, 1, 14, 14, generator=generator),
            torch.randint(0, 10, (8,), generator=generator))


def loss_of(model, pair):
    return functional.cross_entropy(model(pair[0]), pair[1])


def values(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


def save(rank, found):
    torch.save(found, f"rank{rank}.pt")


def psd():
    import poseidon.torch  # a process without a job needs no libpsd

    poseidon.torch.init()
    return poseidon.torch


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


def train(model, optimizer, data, steps=STEPS, after_backward=lambda: None):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, data(step)).backward()
        after_backward()
        optimizer.step()


# ---- the same as others


def fifty_steps(model, rank):
    train(model, sgd(model, lr=0.05), lambda step: images(step, rank), steps=50)
    save(rank, values(model))


def ddp_alone(rank):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=int(rank),
                            world_size=RANKS)
    torch.manual_seed(int(rank))
    fifty_steps(nn.parallel.DistributedDataParallel(Convolutions()), int(rank))
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads sometimes abort an interpreter that ends by itself


def ours(bucket_bytes="100000"):
    hub = psd()
    torch.manual_seed(hub.rank())
    fifty_steps(hub.DataParallel(Convolutions(), bucket_bytes=int(bucket_bytes)), hub.rank())


def replace_step(optimizer):
    """As programs do that count steps, or time them."""
    original = optimizer.step
    optimizer.step = lambda: original()


def plain(overlap="backward", before="nothing"):
    """A DistributedOptimizer, a scheduler that changes its rate, gradients that are clipped; before:
    what took hold of the optimizer's step() when it was not a DistributedOptimizer yet."""
    hub = psd()
    model = make_model()
    optimizer = sgd(model)
    scheduler = None
    held_step = optimizer.step if before == "holder" else lambda: optimizer.step()
    if before == "replacement":
        replace_step(optimizer)
    if before == "scheduler":
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    hub.DistributedOptimizer(optimizer, model=model, overlap=overlap, bucket_bytes=8192)
    if before == "nothing":
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    under_way = []  # whether gradients were, after each step
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, batch(step, hub.rank())).backward()
        if overlap == "forward" and step % 2:
            optimizer.synchronize()
        if overlap == "backward" or step % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5 if step % 2 else 1e9)
        held_step()
        if scheduler is not None:
            scheduler.step()
        elif step % 5 == 4:  # what StepLR does, which wants a step() of its own
            optimizer.param_groups[0]["lr"] *= 0.5
        under_way.append(optimizer._poseidon._open)
    model.state_dict()
    save(hub.rank(), (values(model), under_way, optimizer._poseidon.rounds))


def plain_alone():
    model = make_model()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, both(step)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5 if step % 2 else 1e9)
        optimizer.step()
        scheduler.step()
    save(0, values(model))


def error_after_training(steps="60"):
    """A noisy line: the error of what was learned, mean of several problems."""
    hub = psd()
    errors = []
    for problem in range(5):
        generator = torch.Generator().manual_seed(problem)
        truth = torch.randn(30, 1, generator=generator)
        own = torch.Generator().manual_seed(100 * problem + hub.rank() + 1)
        torch.manual_seed(problem)
        model = hub.DataParallel(nn.Linear(30, 1, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(int(steps)):
            inputs = torch.randn(8, 30, generator=own)
            targets = inputs @ truth + torch.randn(8, 1, generator=own)
            optimizer.zero_grad()
            functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        errors.append((model.module.weight.detach().T - truth).square().mean().item())
    save(hub.rank(), sum(errors) / len(errors))


# ---- accumulation


def backward_of(loss):
    loss.backward()
    return loss


def accumulate(hub, how):
    """Two batches for each step, in one of several ways: values, and rounds that it took."""
    model = make_model()
    optimizer = sgd(model)
    if how == "no_sync":
        model = hub.DataParallel(model)
    else:
        passes = 2 if how == "passes" else 1
        hub.DistributedOptimizer(optimizer, model.named_parameters(),
                                 backward_passes_per_step=passes)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=how != "zeroed")
        if how == "closure":
            optimizer.step(lambda batches=(2 * step, 2 * step + 1): sum(
                backward_of(loss_of(model, batch(number, hub.rank())) / 2) for number in batches))
            continue
        quiet = model.no_sync() if how == "no_sync" else contextlib.nullcontext()
        with quiet:
            (loss_of(model, batch(2 * step, hub.rank())) / 2).backward()
        (loss_of(model, batch(2 * step + 1, hub.rank())) / 2).backward()
        optimizer.step()
    engine = model.engine if how == "no_sync" else optimizer._poseidon
    return values(model), engine.rounds


def accumulated():
    hub = psd()
    result = {how: accumulate(hub, how) for how in ("no_sync", "passes", "twice", "zeroed",
                                                   "closure")}
    model = make_model()
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        (loss_of(model, both(2 * step)) / 2).backward()
        (loss_of(model, both(2 * step + 1)) / 2).backward()
        optimizer.step()
    save(hub.rank(), {**result, "alone": values(model)})


# ---- parameters that a rank, or nobody, uses


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.trunk = nn.Linear(20, 30)
        self.left = nn.Linear(30, 5)
        self.right = nn.Linear(30, 5)
        self.never = nn.Linear(30, 5)

    def forward(self, inputs, left):
        hidden = functional.relu(self.trunk(inputs))
        return self.left(hidden) if left else self.right(hidden)


def unused():
    """Rank 0 goes left, rank 1 right; now and then both go left; once no backward at all."""
    hub = psd()
    model = hub.DataParallel(Branches(), bucket_bytes=600)
    optimizer = hub.DistributedOptimizer(sgd(model, weight_decay=0.1))
    never = model.module.never.weight.detach().clone()
    for step in range(STEPS):
        optimizer.zero_grad()
        if not (step == 7 and hub.rank() == 1):
            inputs, labels = batch(step, hub.rank())
            left = hub.rank() == 0 or step % 3 == 0
            functional.cross_entropy(model(inputs, left), labels).backward()
        optimizer.step()
    save(hub.rank(), (values(model), torch.equal(never, model.module.never.weight),
                      model.module.never.weight.grad is None,
                      model.module.right.weight.grad is None))


# ---- sparse gradients


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.table = nn.Embedding(50, 16, sparse=True)
        self.out = nn.Linear(16, 5)

    def forward(self, words):
        return self.out(self.table(words).mean(1))


def few_calls():
    """How many calls copy gradients in a step of many parameters, and what gradients a rank has whose own hook takes one
    away before it has left."""
    hub = psd()
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12)))
    wrapped = hub.DataParallel(model)
    calls, copy = [], torch._foreach_copy_

    def counted(*words):
        calls.append(len(words[0]))
        return copy(*words)

    torch._foreach_copy_ = counted
    kept = model[3].weight
    if hub.rank() == 0:
        kept.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
    for step in range(3):
        model.zero_grad()
        calls.clear()
        wrapped(torch.full((2, 8), 1.0 + hub.rank() + step)).square().sum().backward()
    save(hub.rank(), {"calls": list(calls), "gradients": [parameter.grad for parameter in model.parameters()]})


def words(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (torch.randint(0, 50, (8, 3), generator=generator),
            torch.randint(0, 5, (8,), generator=generator))


def train_words(model, inner, data, wrap=lambda optimizers: None):
    optimizers = [torch.optim.SparseAdam(inner.table.parameters(), lr=0.01),
                  torch.optim.SGD(inner.out.parameters(), lr=0.1)]
    wrap(optimizers)
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(model, data(step)).backward()
        kind = inner.table.weight.grad.layout
        for optimizer in optimizers:
            optimizer.step()
    return values(inner), kind


def sparse():
    hub = psd()
    model = hub.DataParallel(Words())
    save(hub.rank(), train_words(model, model.module, lambda step: words(step, hub.rank())))


def sparse_alone():
    model = Words()
    together = lambda step: tuple(torch.cat(pieces) for pieces in
                                  zip(*(words(step, rank) for rank in range(RANKS))))
    save(0, train_words(model, model, together))


# ---- other types of numbers


def train_type(hub, kind):
    """Values, the first loss and the last."""
    model = hub.DataParallel(make_model().to(kind))
    optimizer = sgd(model, lr=0.05, momentum=0)
    losses = []
    for step in range(40):
        inputs, labels = batch(step % 4, hub.rank())
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs.to(kind)).float(), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return values(model), losses[0], losses[-1]


def types():
    hub = psd()
    save(hub.rank(), {name: train_type(hub, getattr(torch, name))
                      for name in ("float64", "bfloat16", "float16")})


ROOM = 260  # numbers
ROOM_ROUNDS = 3


def numbers_of(rank, number):
    """Many, and the largest."""
    return [(7 * rank + 13 * number + at * at * at * 999) % 2**20 for at in range(ROOM - 2)] + [2**20 - 1, 0]


def rounds_with(model, room, rank, kind):
    """Gradients of some rounds, the numbers that went with them, and those that came."""
    gradients, told, heard = [], [], []
    for number in range(ROOM_ROUNDS):
        model.zero_grad()
        there = room is not None and room.is_there
        told.append(numbers_of(rank, number) if there else [])
        if there:
            room.put(*told[-1])
        model(torch.full((2, 5), 1.1 + rank + number, dtype=kind)).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        heard.append(room.take() if there else [])
    return gradients, told, heard


def farewells(engine, model, room, rank, last, kind):
    """The last rank ends, the others have one round more, and end, too: the gradients that each has then, the numbers
    that went, and those that came."""
    told = [numbers_of(rank, 98), numbers_of(rank, 99)]
    room.put(*told[0])
    if rank == last:
        engine.send_room()
    else:
        model.zero_grad()
        model(torch.full((2, 5), 1.0 + rank, dtype=kind)).sum().backward()
    heard = [room.take()]
    room.put(*told[1])
    engine.send_room()
    return [parameter.grad for parameter in model.parameters()], told, [*heard, room.take()]


def room():
    from poseidon.torch.engine import attach

    hub = psd()
    found = {}
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        for reserves in (False, True):
            torch.manual_seed(0)
            width = 9343 if kind == torch.float64 else 3  # gradients that end just before the end of a chunk, or do not
            model = torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.Linear(width, 1)).to(kind)
            engine = attach(model.named_parameters())
            place = engine.reserve(ROOM) if reserves else None
            found[kind, reserves] = rounds_with(model, place, hub.rank(), kind)
        if place.is_there:
            found[kind] = farewells(engine, model, place, hub.rank(), hub.size() - 1, kind)
    save(hub.rank(), found)


def scaler(overlap="backward", fused=""):
    """Rank 1 has an infinity in step 5: no rank may make that step. Fused optimizers get the scale
    through attributes of the optimizer, others have their gradients unscaled before."""
    hub = psd()
    model = make_model()
    optimizer = sgd(model, fused=bool(fused))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    hub.DistributedOptimizer(optimizer, model=model, overlap=overlap)
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scales, kept = [], True
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, batch(step, hub.rank()))
        if step == 5 and hub.rank() == 1:
            loss = loss * float("inf")
        before = values(model)
        grad_scaler.scale(loss).backward()
        if overlap == "forward":
            optimizer.synchronize()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        scheduler.step()
        if step == 5:
            kept = all(map(torch.equal, before, values(model)))
        scales.append(grad_scaler.get_scale())
    save(hub.rank(), (values(model), scales, kept, values(make_model())))


class CallsItsBase(torch.optim.SGD):
    """Its base class's step() has hooks, too, as soon as there was one of that class."""

    def step(self, closure=None):
        return super().step(closure)


EVERY = ("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam",
         "RMSprop", "Rprop", "SGD")


def every_optimizer():
    """overlap="forward" beside "backward", each with a scheduler that was there first."""
    hub = psd()
    found = {}
    for kind in [*(getattr(torch.optim, name) for name in EVERY), CallsItsBase]:
        found[kind.__name__] = [make_model()]
        for overlap in ("backward", "forward"):
            model = make_model()
            optimizer = kind(model.parameters(), lr=0.01)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            hub.DistributedOptimizer(optimizer, model=model, overlap=overlap, bucket_bytes=8192)
            for step in range(4):
                optimizer.zero_grad()
                loss_of(model, batch(step, hub.rank())).backward()
                optimizer.step()
                scheduler.step()
            model.state_dict()
            found[kind.__name__].append(model)
    save(hub.rank(), {name: [values(model) for model in models] for name, models in found.items()})


def layouts():
    """Channels last, a parameter without elements, a scalar, one that does not train."""
    hub = psd()

    class Odd(Convolutions):
        def __init__(self):
            super().__init__()
            self.empty = nn.Parameter(torch.zeros(0, 3))
            self.scale = nn.Parameter(torch.tensor(1.0))
            self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

        def forward(self, pictures):
            return super().forward(pictures) * self.scale + self.empty.sum() + self.frozen.sum()

    torch.manual_seed(0)
    inner = Odd()
    if os.environ.get("CHANNELS_LAST"):
        inner = inner.to(memory_format=torch.channels_last)
    model = hub.DataParallel(inner)
    fifty_steps(model, hub.rank())


# ---- buffers


def buffers():
    hub = psd()
    torch.manual_seed(hub.rank())
    model = hub.DataParallel(nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30),
                                           nn.Linear(30, 5)))
    train(model, sgd(model), lambda step: batch(step, hub.rank()))
    save(hub.rank(), dict(model.named_buffers()))


# ---- ranks with different numbers of batches


def uneven(how):
    """Rank r has 10 + 5 * r batches in each of two epochs."""
    hub = psd()
    model = make_model()
    optimizer = sgd(model)
    if how == "model":
        model = hub.DataParallel(model)
        join = lambda: model.join(optimizer)
    else:
        overlap = "forward" if how == "forward" else "backward"
        hub.DistributedOptimizer(optimizer, model=model, overlap=overlap)
        join = optimizer.join if how != "nothing" else contextlib.nullcontext
    counts = [10 + 5 * hub.rank()] * 2
    for epoch, count in enumerate(counts):
        with join():
            train(model, optimizer, lambda step: batch(100 * epoch + step, hub.rank()), count)
        if how != "nothing":
            hub.allreduce(torch.ones(1), name="metric")
    momentum = [state["momentum_buffer"] for state in optimizer.state.values()]
    save(hub.rank(), (values(model), momentum))


def uneven_alone():
    model = make_model()
    optimizer = sgd(model)
    for epoch in range(2):
        train(model, optimizer, lambda step: both(100 * epoch + step) if step < 10
              else batch(100 * epoch + step, 1), 15)
    save(0, values(model))


def astray():
    """Rank 1 has a batch less and goes to a barrier: nobody may wait for ever."""
    import poseidon

    hub = psd()
    model = hub.DataParallel(make_model(), timeout=2.0)
    train(model, sgd(model), lambda step: batch(step, hub.rank()), 3 - hub.rank())
    poseidon.barrier()


# ---- states


def state_round_trip():
    """Ten steps, saved and read again on all ranks, ten more: as if nothing had happened."""
    hub = psd()

    def build(seed):
        model = hub.DataParallel(make_model(seed))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        return model, hub.DistributedOptimizer(optimizer)

    model, optimizer = build(0)
    train(model, optimizer, lambda step: batch(step, hub.rank()), 10)
    if hub.rank() == 0:
        torch.save((model.state_dict(), optimizer.state_dict()), "checkpoint.pt")
    train(model, optimizer, lambda step: batch(10 + step, hub.rank()), 10)
    again, its_optimizer = build(5)
    if hub.rank() == 0:
        states = torch.load("checkpoint.pt")
        again.load_state_dict(states[0])
        its_optimizer.load_state_dict(states[1])
    hub.broadcast_parameters(again.state_dict(), root_rank=0)
    hub.broadcast_optimizer_state(its_optimizer, root_rank=0)
    train(again, its_optimizer, lambda step: batch(10 + step, hub.rank()), 10)
    save(hub.rank(), (values(model), values(again), sorted(model.state_dict())))


# ---- servers make the steps


RULES = {"sgd": lambda p: torch.optim.SGD(p, lr=0.1),
         "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
         "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
         "adam": lambda p: torch.optim.Adam(p, lr=0.01),
         "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
         "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
         "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.005)}


def train_losses(model, optimizer, data):
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, data(step % 4))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def server_side():
    """Every rule, made by servers and made here with both batches."""
    hub = psd()
    result = {}
    for name, make in RULES.items():
        model = make_model(hub.rank())  # rank 0's counts
        optimizer = hub.DistributedOptimizer(make(model.parameters()), model=model,
                                             server_side=True, bucket_bytes=8192)
        train_losses(model, optimizer, lambda step: batch(step, hub.rank()))
        alone = make_model(0)
        train_losses(alone, make(alone.parameters()), both)
        result[name] = values(model), values(alone)
    save(hub.rank(), result)


def asynchronous():
    hub = psd()
    result = {}
    for staleness in (2, None):
        model = make_model(hub.rank())
        optimizer = hub.DistributedOptimizer(RULES["adam"](model.parameters()), model=model,
                                             server_side=True, staleness=staleness)
        result[staleness] = train_losses(model, optimizer, lambda step: batch(step, hub.rank()))
    save(hub.rank(), result)


# ---- Horovod's names


def horovod():
    import poseidon.torch as hvd

    hvd.init()
    model = make_model(hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    train(model, optimizer, lambda step: batch(step, hvd.rank()))
    rows = torch.full((hvd.rank() + 1, 2), hvd.rank(), dtype=torch.int64)
    save(hvd.rank(), {
        "values": values(model), "lr": optimizer.param_groups[0]["lr"],
        "place": (hvd.rank(), hvd.size(), hvd.local_rank()),
        "mean": hvd.allreduce(torch.tensor([1.0, 2.0]) * (hvd.rank() + 1), name="x"),
        "sum": hvd.allreduce(torch.tensor(3.0), op=hvd.Sum),
        "gathered": hvd.allgather(rows),
        "root": hvd.broadcast(torch.arange(3) * hvd.rank(), root_rank=1),
        "object": hvd.broadcast_object({"a": (1, None, float("inf")), 2: [hvd.rank()]}, 1)})


# ---- what must be refused


def different(what):
    hub = psd()
    inner = make_model()
    if hub.rank() == 1 and what == "more":
        inner.add_module("extra", nn.Linear(5, 5))
    if hub.rank() == 1 and what == "shape":
        inner[2] = nn.Linear(64, 301)
    if hub.rank() == 1 and what == "type":
        inner[4] = inner[4].double()
    if what == "layout":
        inner = Convolutions()
        if hub.rank() == 1:
            inner = inner.to(memory_format=torch.channels_last)
    hub.DataParallel(inner)


def wrap_twice(hub):
    model = make_model()
    hub.DistributedOptimizer(sgd(model))
    hub.DistributedOptimizer(torch.optim.Adam(model.parameters()))


def wrap_a_part(hub):
    model, more = hub.DataParallel(make_model()), nn.Linear(2, 2)
    hub.DistributedOptimizer(torch.optim.SGD([*model.parameters(), *more.parameters()], lr=0.1))


def change_the_rate(hub):
    model = make_model()
    optimizer = hub.DistributedOptimizer(sgd(model), server_side=True)
    loss_of(model, batch(0, 0)).backward()
    optimizer.param_groups[0]["lr"] = 0.01
    optimizer.step()


def push_twice(hub):
    model = make_model()
    hub.DistributedOptimizer(sgd(model), model=model, server_side=True)
    loss_of(model, batch(0, 0)).backward()
    loss_of(model, batch(1, 0)).backward()


def push_a_nan(hub):
    model = hub.DataParallel(make_model(), nan_policy="reject")
    (loss_of(model, batch(0, 0)) * float("nan")).backward()


REFUSED = {
    "twice": wrap_twice, "part": wrap_a_part,
    "complex": lambda hub: hub.attach([("wave", nn.Parameter(torch.zeros(3) + 0j))]),
    "lbfgs": lambda hub: hub.DistributedOptimizer(torch.optim.LBFGS(make_model().parameters())),
    "frozen": lambda hub: hub.DataParallel(make_model().requires_grad_(False)),
    "rule": lambda hub: hub.DistributedOptimizer(torch.optim.Adamax(make_model().parameters()),
                                                 server_side=True),
    "staleness": lambda hub: hub.DistributedOptimizer(sgd(make_model()), staleness=3),
    "rate": change_the_rate, "again": push_twice, "nan": push_a_nan}


def refused():
    import poseidon

    hub = psd()
    said = {}
    for what, attempt in REFUSED.items():
        try:
            attempt(hub)
            said[what] = "not refused"
        except (poseidon.Error, ValueError) as error:
            said[what] = f"{type(error).__name__}: {error}"
    save(hub.rank(), said)


def traced():
    hub = psd()
    model = hub.DataParallel(Convolutions(), bucket_bytes=50_000)
    train(model, sgd(model), lambda step: images(step, hub.rank()), 5)


def after_close():
    """Gradients outlive the job."""
    import poseidon

    hub = psd()
    model = hub.DataParallel(make_model())
    train(model, sgd(model), lambda step: batch(step, hub.rank()), 3)
    rank, norms = hub.rank(), [parameter.grad.norm().item() for parameter in model.parameters()]
    poseidon.close()
    save(rank, norms == [parameter.grad.norm().item() for parameter in model.parameters()])


def cuda():
    hub = psd()
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cuda", hub.local_rank() % torch.cuda.device_count())
    model = hub.DataParallel(make_model().to(device), bucket_bytes=8192)
    train(model, sgd(model), lambda step: tuple(part.to(device) for part in
                                                batch(step, hub.rank())))
    save(hub.rank(), [value.cpu() for value in values(model)])


def cuda_alone():
    model = make_model()
    train(model, sgd(model), both)
    save(0, values(model))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
