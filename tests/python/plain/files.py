"""A plain script that does to files what public scripts do. It prints what it finds; two workers must print the same.
no_programs: it starts none."""

import csv
import glob
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def found(what, value):
    print("FOUND", what, json.dumps(value), flush=True)


def names(place):
    return sorted(os.listdir(place))


# ---- before anybody can know that something will be trained

found("at first", [os.path.exists("run"), glob.glob("ru*")])
os.mkdir("run")  # fails where it is there
os.makedirs("run/checkpoints")
pathlib.Path("run/plots").mkdir()
with open("run/config.json", "x", encoding="ascii") as file:  # fails where it is there
    json.dump({"lr": 0.1}, file)
os.remove("old.txt")
shutil.rmtree("older")
os.rename("last.txt", "previous.txt")
found("older", [glob.glob("old*"), pathlib.Path("previous.txt").read_text("ascii")])
logging.basicConfig(filename="run/log.txt", level=logging.INFO, format="%(message)s")
if "no_programs" not in sys.argv:
    subprocess.run(["sh", "-c", "mkdir run/made && echo program > run/made/file"], check=True)
    found("made", pathlib.Path("run/made/file").read_text("ascii"))

# ---- training

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
data = TensorDataset(torch.randn(32, 2), torch.randn(32, 1))
loader = DataLoader(data, 8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def weights():
    return [round(value, 6) for tensor in model.state_dict().values() for value in tensor.flatten().tolist()]


def save_checkpoint(state, is_best):
    """As the public imagenet example does it."""
    torch.save(state, "run/checkpoint.pth.tar")
    if is_best:
        shutil.copyfile("run/checkpoint.pth.tar", "run/model_best.pth.tar")


table = open("table.csv", "a", newline="", encoding="ascii")
writer = csv.writer(table)
for epoch in range(4):
    for points, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(points), targets).backward()
        optimizer.step()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1]).item()
    writer.writerow([epoch, f"{loss:.6f}"])
    table.flush()
    logging.info("epoch %d", epoch)
    if os.path.exists("run/best.pt"):
        found("loaded", sorted(torch.load("run/best.pt")))
    save_checkpoint({"epoch": epoch, "model": model.state_dict()}, is_best=epoch % 2 == 0)
    torch.save(model.state_dict(), "run/best.pt.tmp")
    os.replace("run/best.pt.tmp", "run/best.pt")
    with open(f"run/checkpoints/epoch{epoch}.pt", "wb") as file:
        torch.save(model.state_dict(), file)
    for old in sorted(glob.glob("run/checkpoints/epoch*.pt"))[:-2]:  # rotation
        os.remove(old)
    found("kept", names("run/checkpoints"))
table.close()

# ---- after it

found("epoch", torch.load("run/model_best.pth.tar")["epoch"])
model.load_state_dict(torch.load("run/best.pt"))
found("weights", weights())
numpy.save("run/weights.npy", numpy.array(weights()))
found("array", numpy.load("run/weights.npy", mmap_mode="r").tolist() == weights())
shutil.move("run/checkpoint.pth.tar", "run/final.pth.tar")
shutil.copytree("run/checkpoints", "run/copies")
os.symlink("final.pth.tar", "run/latest")
found("latest", torch.load("run/latest")["epoch"])
torch.jit.save(torch.jit.trace(model, data.tensors[0]), "run/traced.pt")  # native code writes and reads
found("traced", sorted(torch.jit.load("run/traced.pt").state_dict()))
try:
    from safetensors.torch import load_file, save_file

    save_file(model.state_dict(), "run/model.safetensors")
    found("safetensors", sorted(load_file("run/model.safetensors")))
except ImportError:
    pathlib.Path("run/model.safetensors").write_text("not here", "ascii")
try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.plot([1, 2])
    pyplot.savefig("run/plots/loss.png")
except ImportError:
    pathlib.Path("run/plots/loss.png").write_text("not here", "ascii")


class Writer(threading.Thread):
    """As TensorBoard's: a thread of its own, and a name that no other process has."""

    def __init__(self, place):
        super().__init__()
        os.makedirs(place, exist_ok=True)
        self._file = open(f"{place}/events.out.{time.time():.0f}.{os.getpid()}", "wb")
        self.start()

    def run(self):
        with self._file:
            self._file.write(b"event")


Writer("run/board").join()
found("board", len(os.listdir("run/board")))
for root, folders, files in os.walk("run"):
    folders.sort()
    found(root, sorted("events" if name.startswith("events") else name for name in files))
found("table", pathlib.Path("table.csv").read_text("ascii"))
