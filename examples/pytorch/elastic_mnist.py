# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits, by workers that come and go while they train. Each sample is in exactly one step of an epoch, whatever
happens. It is written as for elastic Horovod; docs/elastic.md explains it.

    psd_run secret job.secret
    psd_run --secret_file job.secret --workers 2 --max_workers 16 --on_worker_death=continue \\
        "python3 examples/pytorch/elastic_mnist.py"

Kill a worker, or send it SIGTERM; or add one, from anywhere that reaches the master (psd_run prints where it is):

    PSD_SECRET_FILE=job.secret PSD_MASTER_ADDRESS=tcp://HOST:PORT python3 examples/pytorch/elastic_mnist.py"""

import argparse

import torch
from mnist import draw
from torch.utils.data import DataLoader

import poseidon.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--samples", type=int, default=6000)
args = parser.parse_args()

dataset = draw(args.samples, 1)  # what takes long comes before init(): from there on the others count on this worker
hvd.init()
sampler = hvd.elastic.ElasticSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 5, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 144, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state):
    print(f"epoch {state.epoch}: worker {hvd.rank()} of {hvd.size()}, {len(sampler.left())} samples are left", flush=True)
    while state.epoch < args.epochs:
        sampler.set_epoch(state.epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            state.loss = loss.item()
            state.commit()  # here workers come and go
        state.epoch += 1
        if hvd.rank() == 0:
            print(f"epoch {state.epoch} done: loss {state.loss:.3f}", flush=True)


train(hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, loss=0.0))
images, labels = draw(1000, 2).tensors
with torch.no_grad():
    right = (model(images).argmax(1) == labels).float().mean().item()
print(f"worker {hvd.rank()}: {right:.1%} of 1000 unseen digits are right", flush=True)
