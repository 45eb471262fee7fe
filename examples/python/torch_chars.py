# SPDX-License-Identifier: Apache-2.0
"""A small character transformer that learns to write like a text: by default its own source.

    psd_run --workers 2 --servers 1 "python examples/python/torch_chars.py"
    psd_run --workers 2 --servers 1 "python examples/python/torch_chars.py --text book.txt --steps 2000"

Gradients travel during backward and during the next forward (overlap="forward"): step() is made
module by module, each just before it computes."""

import argparse
import pathlib

import torch
from torch import nn
from torch.nn import functional

import poseidon.torch as psd


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__))
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=16, help="pieces of a step, on each worker")
    parser.add_argument("--context", type=int, default=48, help="characters that it looks back")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--write", type=int, default=80, help="characters to write at the end")
    return parser.parse_args()


class Block(nn.Module):
    """Attention to what was before, then a small network, each added to its input."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                     nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, dim=2)
        split = [part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts]
        seen = functional.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.network(self.before_network(x))


class Writer(nn.Module):
    """Which character comes next, for every place of a piece of text."""

    def __init__(self, letters, args):
        super().__init__()
        self.letters = nn.Embedding(letters, args.width)
        self.places = nn.Embedding(args.context, args.width)
        self.blocks = nn.Sequential(*(Block(args.width) for _ in range(args.layers)))
        self.out = nn.Linear(args.width, letters)

    def forward(self, text):
        places = torch.arange(text.shape[1])
        return self.out(self.blocks(self.letters(text) + self.places(places)))


def pieces(text, args, random):
    """Some pieces of the text, and the same moved by one: what comes next."""
    begins = torch.randint(0, len(text) - args.context - 1, (args.batch,), generator=random)
    rows = torch.stack([text[begin:begin + args.context + 1] for begin in begins.tolist()])
    return rows[:, :-1], rows[:, 1:]


def write(model, alphabet, args, begin="def "):
    text = torch.tensor([[alphabet.index(letter) for letter in begin]])
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(args.write):
            chances = functional.softmax(model(text[:, -args.context:])[0, -1], 0)
            text = torch.cat([text, torch.multinomial(chances, 1, generator=random)[None]], 1)
    return "".join(alphabet[number] for number in text[0].tolist())


def main():
    args = parse()
    torch.set_num_threads(1)
    psd.init()
    source = args.text.read_text(encoding="utf-8")
    alphabet = sorted(set(source))
    text = torch.tensor([alphabet.index(letter) for letter in source])
    torch.manual_seed(0)
    model = Writer(len(alphabet), args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    psd.broadcast_parameters(model.state_dict())
    psd.DistributedOptimizer(optimizer, model=model, overlap="forward")
    random = torch.Generator().manual_seed(psd.rank())  # every worker draws other pieces
    for step in range(args.steps):
        inputs, targets = pieces(text, args, random)
        loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 50 == 0 or step == args.steps - 1:
            mean = psd.allreduce(loss.detach(), name="loss").item()
            if psd.rank() == 0:
                print(f"step {step}: loss {mean:.3f}", flush=True)
    optimizer.finish()
    if psd.rank() == 0:
        print(write(model, alphabet, args))


if __name__ == "__main__":
    main()
