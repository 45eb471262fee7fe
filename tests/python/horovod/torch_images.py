"""Written for Horovod, in the style of its PyTorch examples: the import alone is another. Each way of
training ends where one process ends that takes both workers' batches at once."""

import argparse
import json
import math
import os

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import poseidon.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--base-lr", type=float, default=0.05)
parser.add_argument("--warmup-epochs", type=float, default=1)
parser.add_argument("--checkpoint-format", default="checkpoint-{epoch}.pth.tar")
args = parser.parse_args()


class Metric:
    """A running mean over all workers."""

    def __init__(self, name):
        self.name, self.sum, self.n = name, torch.tensor(0.0), torch.tensor(0.0)

    def update(self, value):
        self.sum += hvd.allreduce(value.detach().cpu().float(), name=self.name)
        self.n += 1

    @property
    def avg(self):
        return self.sum / self.n


def make_model():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(3 * 16, 4)).double()


def images():
    generator = torch.Generator().manual_seed(3)
    return TensorDataset(torch.randn(32, 1, 6, 6, generator=generator, dtype=torch.float64),
                         torch.randint(4, (32,), generator=generator))


def rate(epoch, batch, batches, passes):
    if epoch < args.warmup_epochs:
        epoch += (batch + 1) / batches
        scale = 1 / hvd.size() * (epoch * (hvd.size() - 1) / args.warmup_epochs + 1)
    else:
        scale = 1.0
    return args.base_lr * hvd.size() * passes * scale


def train(model, optimizer, loader, sampler, epoch, passes, *, clipped=False):
    model.train()
    if sampler is not None:
        sampler.set_epoch(epoch)
    loss_of_epoch = Metric("train_loss")
    for batch, (data, target) in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = rate(epoch, batch, len(loader), passes)
        optimizer.zero_grad()
        parts = math.ceil(len(data) / (len(data) // passes))
        for part in range(parts):
            rows = slice(part * len(data) // parts, (part + 1) * len(data) // parts)
            loss = F.cross_entropy(model(data[rows]), target[rows])
            loss_of_epoch.update(loss)
            loss.div_(parts)
            loss.backward()
        if clipped and hasattr(optimizer, "synchronize"):
            optimizer.synchronize()
        if clipped:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if clipped and hasattr(optimizer, "skip_synchronize"):
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
    return loss_of_epoch.avg.item()


def distributed(passes=1, op=hvd.Average, compression=hvd.Compression.none, predivide=1.0, clipped=False):
    """One training as the examples have it."""
    data = images()
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
    loader = DataLoader(data, batch_size=args.batch_size * passes, sampler=sampler)
    torch.manual_seed(100 + hvd.rank())  # only rank 0's weights count
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.base_lr, momentum=0.9, weight_decay=5e-5)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression,
        backward_passes_per_step=passes, op=op, gradient_predivide_factor=predivide)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    losses = []
    for epoch in range(args.epochs):
        losses.append(train(model, optimizer, loader, sampler, epoch, passes, clipped=clipped))
        if hvd.rank() == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                       args.checkpoint_format.format(epoch=epoch + 1))
    return model, losses


def alone(passes=1, op=hvd.Average, clipped=False):
    """The same by one process, with torch alone, on the batches of all workers."""
    loader = DataLoader(images(), batch_size=args.batch_size * passes * hvd.size())
    torch.manual_seed(100)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.base_lr, momentum=0.9, weight_decay=5e-5)
    if op == hvd.Sum:
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient * hvd.size())
    for epoch in range(args.epochs):
        train(model, optimizer, loader, None, epoch, passes, clipped=clipped)
    return model


def distance(model, other):
    pairs = list(zip(model.parameters(), other.parameters()))
    return math.sqrt(sum(float((a - b).square().sum()) for a, b in pairs)
                     / sum(float(b.square().sum()) for _, b in pairs))


def attempt(function):
    try:
        return f"no error: {function()!r}"
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"{type(error).__name__}: {error}"


def collectives():
    """Every operation by its name."""
    rank = hvd.rank()
    tensor = torch.tensor([1.0, 2.0]) * (rank + 1)
    first = hvd.allreduce_async(tensor, name="first", op=hvd.Sum)
    more = [hvd.allreduce_async(tensor + number, average=False) for number in range(3)]
    inplace = tensor.clone()
    hvd.allreduce_(inplace, name="inplace")
    handle = hvd.broadcast_async_(torch.full((2,), float(rank)), root_rank=1)
    ready = hvd.poll(handle)
    weight = torch.tensor([1.0 + rank], requires_grad=True)
    (hvd.allreduce(weight * 3.0) ** 2).sum().backward()
    return {
        "first": hvd.synchronize(first).tolist(), "polled": hvd.poll(first), "ready": ready,
        "more": [hvd.synchronize(each).tolist() for each in more], "inplace": inplace.tolist(),
        "rooted": hvd.synchronize(handle).tolist(),
        "gathered": hvd.synchronize(hvd.allgather_async(torch.full((rank + 1, 1), rank))).tolist(),
        "half": hvd.allreduce(tensor / 3, compression=hvd.Compression.fp16).tolist(),
        "scaled": hvd.allreduce(tensor, prescale_factor=0.5, postscale_factor=10.0).tolist(),
        "least": hvd.allreduce(tensor, op=hvd.Min).tolist(),
        "most": hvd.allreduce(torch.tensor([rank, 7]), op=hvd.Max).tolist(),
        "product": hvd.allreduce(torch.tensor([rank + 2]), op=hvd.Product).tolist(),
        "count": hvd.allreduce(torch.tensor(5 + rank), op=hvd.Sum).item(),
        "group": [each.tolist() for each in hvd.grouped_allreduce([tensor, tensor * 2], name="g")],
        "objects": hvd.allgather_object({"rank": rank}),
        "object": hvd.broadcast_object({"epoch": 3 + rank}, root_rank=0),
        "gradient": weight.grad.tolist(),
        "place": [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.is_initialized()],
        "built": [hvd.nccl_built(), hvd.mpi_built(), hvd.gloo_built(), hvd.mpi_threads_supported(),
                  hvd.cuda_built(), hvd.rocm_built(), hvd.ccl_built(), hvd.ddl_built(),
                  hvd.mpi_enabled(), hvd.gloo_enabled()],
    }


def refusals():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        "adasum": attempt(lambda: hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)),
        "minimum": attempt(lambda: hvd.DistributedOptimizer(optimizer, op=hvd.Min)),
        "predivide": attempt(lambda: hvd.DistributedOptimizer(
            optimizer, op=hvd.Sum, gradient_predivide_factor=2.0)),
        "compression": attempt(lambda: hvd.DistributedOptimizer(optimizer, compression=Metric)),
        "set": attempt(lambda: hvd.allreduce(torch.ones(1), process_set=[0])),
        "sets": attempt(lambda: hvd.ProcessSet([0])),
        "mean": attempt(lambda: hvd.allreduce(torch.tensor(5))),
        "gather": attempt(lambda: hvd.allgather(torch.ones(1, requires_grad=True) * 2)),
        "unknown": attempt(lambda: hvd.no_such_name)}


def uneven():
    """Rank 1 has a batch more than rank 0: join() ends the epoch for both."""
    torch.manual_seed(100)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    data, target = images().tensors
    reference = make_model()
    reference.load_state_dict(model.state_dict())
    single = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(2 + hvd.rank()):
        rows = slice(8 * step + 4 * hvd.rank(), 8 * step + 4 * hvd.rank() + 4)
        optimizer.zero_grad()
        F.cross_entropy(model(data[rows]), target[rows]).backward()
        optimizer.step()
    last = hvd.join()
    for rows in (slice(0, 8), slice(8, 16), slice(20, 24)):
        single.zero_grad()
        F.cross_entropy(reference(data[rows]), target[rows]).backward()
        single.step()
    return {"last": last, "distance": distance(model, reference)}


if __name__ == "__main__":
    hvd.init()
    begin = hvd.broadcast(torch.tensor(3 * hvd.rank()), root_rank=0, name="resume_from_epoch").item()
    found = {"begin": begin, "uneven": uneven(), "collectives": collectives(), "refusals": refusals()}
    ways = {"plain": {}, "passes": {"passes": 2}, "sum": {"op": hvd.Sum}, "clipped": {"clipped": True},
            "sum, passes, clipped": {"op": hvd.Sum, "passes": 2, "clipped": True}}
    for way, options in ways.items():
        found[way] = distance(distributed(**options)[0], alone(**options))
    found["predivide"] = distance(distributed(predivide=4.0)[0], alone())
    model, found["losses"] = distributed(compression=hvd.Compression.fp16)
    found["half"] = distance(model, alone())
    found["weights"] = [float(each.sum()) for each in model.parameters()]
    found["saved"] = os.path.exists("checkpoint-2.pth.tar")
    print("FOUND " + json.dumps(found), flush=True)
    hvd.shutdown()
