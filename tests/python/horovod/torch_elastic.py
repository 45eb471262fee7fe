"""Written for Horovod, in the shape of its elastic examples: the import alone is another.

The model has one number for each sample, and its gradient is one at the places of the batch. So the averaged gradient of a step
says which samples are in it, and how often: 1 / n at n places. What is asserted of it does not ask the sampler."""

import argparse
import hashlib
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import poseidon.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=70_000)  # more than a chunk: servers add it in parts
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batches-per-commit", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--workers", type=int, default=0, help="of the loader")
parser.add_argument("--hold", help="STEP:FILE: before that step it waits for the file")
args = parser.parse_args()
hold_step, hold_file = args.hold.split(":") if args.hold else (-1, "")


def say(*words):
    print(*words, flush=True)


hvd.init()
say("pid", os.getpid())
torch.manual_seed(hvd.rank())
dataset = TensorDataset(torch.arange(args.samples))
train_sampler = hvd.elastic.ElasticSampler(dataset)
loader = DataLoader(dataset, batch_size=args.batch_size, sampler=train_sampler, num_workers=args.workers)
model = torch.nn.Sequential(torch.nn.Embedding(args.samples, 1), torch.nn.BatchNorm1d(1, affine=False))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.none)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.9)


def check(gradient, state):
    """What the sums have counted."""
    there = gradient != 0
    count = int(there.sum())
    assert torch.allclose(gradient[there], torch.full((count,), 1 / count), rtol=1e-5), gradient[there]
    state.seen += there
    return count


@hvd.elastic.run
def train(state):
    say("begin", "epoch", state.epoch, "batch", state.batch, "worker", hvd.rank(), "of", hvd.size())
    assert [group["lr"] for group in optimizer.param_groups][0] > 0
    while state.epoch < args.epochs:
        state.train_sampler.set_epoch(state.epoch)
        for index, (data,) in enumerate(loader):
            if state.step == int(hold_step):
                say("holding")
                while not os.path.exists(hold_file):
                    time.sleep(0.01)
            state.batch = index
            if index % args.batches_per_commit == 0:
                state.commit()
            optimizer.zero_grad()
            values = model[0](data)
            if len(values) > 1:
                model[1](values.detach())
            values.mean().backward()
            time.sleep(args.pause)
            state.train_sampler.record_batch(index, args.batch_size)
            optimizer.step()
            scheduler.step()
            check(model[0].weight.grad[:, 0], state)
            state.step += 1
            if state.step % 10 == 0:
                means.append(hvd.allreduce(torch.tensor(float(state.step)), name="step").item())
                assert means[-1] == state.step, (means[-1], state.step)
        assert (state.seen == state.epoch + 1).all(), state.seen[state.seen != state.epoch + 1]
        say("epoch", state.epoch, "every sample counted", int(state.seen.max()), "times")
        state.epoch += 1
        state.batch = 0
        state.commit()


means = []
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, train_sampler=train_sampler, scheduler=scheduler, epoch=0, batch=0,
                               step=0, seen=torch.zeros(args.samples, dtype=torch.int64))
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
train(state)
digest = hashlib.sha256(model[0].weight.detach().numpy().tobytes()).hexdigest()[:16]
score = hvd.allreduce(torch.tensor(1.0), op=hvd.Sum).item()
say("DONE", "steps", state.step, "weights", digest, "lr", f"{optimizer.param_groups[0]['lr']:.6f}", "score", score)
say("resets", resets)
hvd.shutdown()
