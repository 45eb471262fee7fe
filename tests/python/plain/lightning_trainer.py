# SPDX-License-Identifier: Apache-2.0
"""A plain script of Lightning: validation, two batches to a step, clipping, a schedule over all steps, checkpoints of
which the best two are kept, early stopping, and the best model tested. Arguments: batch size, batches to a step, samples,
float64 or float32."""

import json
import sys
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, PASSES, SAMPLES, KIND = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
EPOCHS = 6
TYPE = torch.float64 if KIND == "float64" else torch.float32


def make(count, seed):
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 4, generator=generator, dtype=TYPE)
    return TensorDataset(torch.arange(count), points, (points.sum(1) > 2).long())


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)).to(TYPE)
        self.seen, self.tested, self.rates = [], [], []

    def training_step(self, batch, number):
        index, points, labels = batch
        self.seen += index.tolist()
        loss = nn.functional.cross_entropy(self.layers(points), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, number):
        index, points, labels = batch
        loss = nn.functional.cross_entropy(self.layers(points), labels)
        self.log("val_loss", loss, batch_size=len(index))

    def test_step(self, batch, number):
        _, points, labels = batch
        self.log("test_loss", nn.functional.cross_entropy(self.layers(points), labels), batch_size=len(labels))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.tested.append(float(self.trainer.callback_metrics["val_loss"]))

    def on_train_batch_end(self, outputs, batch, number):
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lightning.seed_everything(3)
    model = Classifier()
    keep = ModelCheckpoint(dirpath="kept", filename="{epoch}-{step}", monitor="val_loss", save_top_k=2, save_last=True)
    stop = EarlyStopping(monitor="val_loss", patience=2, min_delta=0.03)
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=EPOCHS, accumulate_grad_batches=PASSES,
                                gradient_clip_val=0.1, callbacks=[keep, stop, LearningRateMonitor()],
                                logger=CSVLogger("logged"), log_every_n_steps=1, enable_model_summary=False)
    trainer.fit(model, DataLoader(make(SAMPLES, 1), BATCH, shuffle=True), DataLoader(make(50, 2), 16))
    values = [value for parameter in model.parameters() for value in parameter.flatten().tolist()]
    result = trainer.test(model, DataLoader(make(50, 3), 16), ckpt_path="best", verbose=False)
    print("STEPS", trainer.global_step)
    print("STOPPED", stop.stopped_epoch, trainer.current_epoch)
    print("SEEN", json.dumps(model.seen))
    print("TESTED", json.dumps(model.tested + [result[0]["test_loss"]]))
    print("RATES", json.dumps(model.rates))
    print("BEST", keep.best_model_path.rsplit("/", 1)[-1])
    print("PROCESSES", trainer.world_size)
    print("VALUES", json.dumps(values))


if __name__ == "__main__":
    main()
