# SPDX-License-Identifier: Apache-2.0
"""A plain script of accelerate: prepare, accumulate, clipping, gather_for_metrics in training and evaluation, states that
are saved, and a second run that goes on in the middle of an epoch (skip_first_batches). Arguments: batch size, batches to a
step, samples, float64 or float32, dropout."""

import json
import sys

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, PASSES, SAMPLES, KIND, DROPOUT = *map(int, sys.argv[1:4]), sys.argv[4], float(sys.argv[5])
EPOCHS, STOP_AFTER = 3, 2 * PASSES
TYPE = torch.float64 if KIND == "float64" else torch.float32


def make(count, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 4, generator=generator, dtype=TYPE)
    return TensorDataset(torch.arange(count), points, (points.sum(1) > 2).long())


def prepare():
    set_seed(7)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(DROPOUT), nn.Linear(16, 2)).to(TYPE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    training = DataLoader(make(SAMPLES, 1), BATCH, shuffle=True)
    evaluation = DataLoader(make(50, 2), 16)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=PASSES,
                              dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    steps = EPOCHS * -(-len(training) // PASSES)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=steps)
    return accelerator, accelerator.prepare(model, optimizer, training, evaluation, schedule)


def evaluate(accelerator, model, loader):
    model.eval()
    right = []
    for index, points, labels in loader:
        with torch.no_grad():
            found = model(points).argmax(1)
        found, labels, index = accelerator.gather_for_metrics((found, labels, index))
        right += [(number, ok) for number, ok in zip(index.tolist(), (found == labels).tolist())]
    return len(right), sum(ok for _, ok in right)


def train(accelerator, prepared, seen, rates, tested, begin=0, end=None):
    """From one batch of the whole training to another."""
    model, optimizer, training, evaluation, schedule = prepared
    number, length = 0, len(training)
    for epoch in range(EPOCHS):
        batches = training
        if begin >= number + length:
            number += length
            continue
        if begin > number:
            batches = skip_first_batches(training, begin - number)
            number = begin
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(epoch)
        model.train()
        for index, points, labels in batches:
            seen += index.tolist()
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(points), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
                rates.append(schedule.get_last_lr()[0])
                schedule.step()
                optimizer.zero_grad()
            number += 1
            if number == end:
                return
        tested.append(evaluate(accelerator, model, evaluation))


def main():
    torch.set_num_threads(1)
    seen, rates, tested = [], [], []
    accelerator, prepared = prepare()
    train(accelerator, prepared, seen, rates, tested, end=STOP_AFTER)
    accelerator.save_state("state")
    accelerator.wait_for_everyone()
    second, prepared = prepare()
    second.load_state("state")
    print("NOISE", json.dumps(torch.rand(3).tolist()))
    train(second, prepared, seen, rates, tested, begin=STOP_AFTER)
    model = second.unwrap_model(prepared[0])
    second.save(model.state_dict(), "model.pt")
    print("SEEN", json.dumps(seen))
    print("TESTED", json.dumps(tested))
    print("RATES", json.dumps(rates))
    print("PROCESSES", second.num_processes)
    print("VALUES", json.dumps([value for parameter in model.parameters() for value in parameter.flatten().tolist()]))


if __name__ == "__main__":
    main()
