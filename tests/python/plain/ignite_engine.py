# SPDX-License-Identifier: Apache-2.0
"""A plain script of Ignite: supervised trainer and evaluators, of the training data and of others, after every epoch,
checkpoints of which the best two are kept, early stopping, a schedule, and a second trainer that goes on from what the
first has saved. Arguments: batch size, batches to a step, samples, float64 or float32."""

import json
import sys

import torch
from ignite.handlers.tqdm_logger import ProgressBar
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, ModelCheckpoint
from ignite.metrics import Accuracy, Loss, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, PASSES, SAMPLES, KIND = *map(int, sys.argv[1:4]), sys.argv[4]
STOP_AFTER, EPOCHS = 2, 6
TYPE = torch.float64 if KIND == "float64" else torch.float32


def make(count, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 4, generator=generator, dtype=TYPE)
    return TensorDataset(points, (points.sum(1) > 2).long())


def loss_on(engine):
    return -engine.state.metrics["loss"]


def prepare(training, validation, tested, rates):
    """Everything that is saved, all of it new, and what saves it."""
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)).to(TYPE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    criterion = nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, criterion, gradient_accumulation_steps=PASSES)
    metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
    on_training, on_validation = (create_supervised_evaluator(model, metrics=metrics) for _ in range(2))
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "average")
    ProgressBar().attach(trainer, ["average"])

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        on_training.run(training)
        on_validation.run(validation)
        tested.append([on_training.state.metrics["loss"], on_training.state.metrics["accuracy"],
                       on_validation.state.metrics["loss"], on_validation.state.metrics["accuracy"]])
        rates.append(schedule.get_last_lr()[0])
        schedule.step()

    best = ModelCheckpoint("kept", "best", n_saved=2, require_empty=False, score_name="loss", score_function=loss_on)
    on_validation.add_event_handler(Events.COMPLETED, best, {"model": model})
    stop = EarlyStopping(patience=2, score_function=loss_on, trainer=trainer, threshold=0.03)
    on_validation.add_event_handler(Events.COMPLETED, stop)
    everything = {"trainer": trainer, "model": model, "optimizer": optimizer, "schedule": schedule, "best": best, "stop": stop}
    saver = Checkpoint(everything, DiskSaver("states", require_empty=False), n_saved=1)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
    return everything, saver


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    training = DataLoader(make(SAMPLES, 1), BATCH, shuffle=True)
    validation = DataLoader(make(50, 2), 16)
    tested, rates = [], []
    first, saver = prepare(training, validation, tested, rates)
    first["trainer"].run(training, max_epochs=STOP_AFTER)
    second, _ = prepare(training, validation, tested, rates)
    Checkpoint.load_objects(second, torch.load(saver.last_checkpoint))
    state = second["trainer"].run(training, max_epochs=EPOCHS)
    Checkpoint.load_objects({"model": second["model"]}, torch.load(second["best"].last_checkpoint))
    print("STEPS", state.iteration, state.epoch, state.epoch_length)
    print("TESTED", json.dumps(tested))
    print("RATES", json.dumps(rates))
    print("BEST", str(second["best"].last_checkpoint).rsplit("/", 1)[-1])
    parameters = second["model"].parameters()
    print("VALUES", json.dumps([value for parameter in parameters for value in parameter.flatten().tolist()]))


if __name__ == "__main__":
    main()
