# SPDX-License-Identifier: Apache-2.0
"""A plain script of skorch: a classifier with its split for validation, scoring, a schedule, checkpoints and early
stopping; another one without a split, which predicts while it is still in training mode. Arguments: batch size, batches to
a step, samples, float64 or float32."""

import json
import sys

import numpy
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Checkpoint, EarlyStopping, EpochScoring, LRScheduler
from torch import nn

BATCH, PASSES, SAMPLES, KIND = *map(int, sys.argv[1:4]), sys.argv[4]
EPOCHS = 6
TYPE = torch.float64 if KIND == "float64" else torch.float32


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)).to(TYPE)

    def forward(self, points):
        return self.layers(points)


class Accumulating(NeuralNetClassifier):
    """Several batches to a step, in the way that skorch's documentation has it."""

    def get_loss(self, *args, training=False, **kwargs):
        loss = super().get_loss(*args, training=training, **kwargs)
        return loss / PASSES if training else loss

    def train_step(self, batch, **fit_params):
        step = self.train_step_single(batch, **fit_params)
        if len(self.history[-1, "batches"]) % PASSES == 0:
            self.optimizer_.step()
            self.optimizer_.zero_grad()
        return step


def make(count, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 4, generator=generator, dtype=TYPE)
    return points.numpy(), (points.sum(1) > 2).long().numpy()


def values(net):
    return [value for parameter in net.module_.parameters() for value in parameter.flatten().tolist()]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    numpy.random.seed(4)
    points, labels = make(SAMPLES, 1)
    others, _ = make(41, 2)
    common = {"criterion": nn.CrossEntropyLoss, "optimizer": torch.optim.Adam, "lr": 0.05, "batch_size": BATCH,
              "iterator_valid__batch_size": 8, "verbose": 0}
    kind = NeuralNetClassifier if PASSES == 1 else Accumulating
    net = kind(
        Layers, max_epochs=EPOCHS, iterator_train__shuffle=True, **common,
        callbacks=[EpochScoring("roc_auc", lower_is_better=False), LRScheduler("StepLR", step_size=2, gamma=0.5),
                   Checkpoint(dirname="kept", monitor="valid_loss_best"), EarlyStopping(patience=3, threshold=0.02)])
    net.fit(points, labels)
    net.load_params(checkpoint=Checkpoint(dirname="kept"))
    plain = kind(Layers, max_epochs=2, train_split=None, **common)
    plain.fit(points, labels)
    print("STEPS", [entry["train_batch_count"] for entry in net.history], len(plain.history))
    print("TESTED", json.dumps([[entry["valid_loss"], entry["valid_acc"], entry["roc_auc"]] for entry in net.history]))
    print("RATES", json.dumps([entry["event_lr"] for entry in net.history]))
    print("PREDICTED", json.dumps(plain.predict_proba(others).flatten().tolist() + net.predict(others).tolist()))
    print("VALUES", json.dumps(values(net) + values(plain)))


if __name__ == "__main__":
    main()
