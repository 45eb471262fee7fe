# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts drawn at random: a seed decides the model, the optimizer, the data, the loop and the rest.

    generate.py 17          prints the script of seed 17
    generate.py 17 --run    runs it as a job and by itself, and says what differs

The script has one argument, the batch size, and so runs as a job of W workers as well as by itself with W times the
batch: the weights must be the same. Where it draws noise, or sets no seed, they cannot be: then all workers must have
the same weights, and every sample must have been trained on as often as one process would."""

import dataclasses
import random
import sys
import textwrap

SEED_LIMIT = 200  # those that make test-all runs


@dataclasses.dataclass
class Plan:
    """What a script is made of."""

    seed: int
    workers: int
    model: str
    task: str
    batch: int
    count: int
    epochs: int
    data: str
    loader: str
    processes: int
    optimizer: str
    scheduler: str
    loop: str
    train_mode: str
    evaluation: str
    evaluation_style: str
    clipping: str
    penalty: bool
    averaged: bool
    checkpoint: str
    randomness: str
    layout: str

    @property
    def normalizes(self):
        return self.model in ("mlp_norm", "cnn_norm")

    @property
    def noisy(self):
        return self.randomness in ("dropout", "input noise")

    @property
    def exact(self):
        """Whether it can be compared with one process."""
        return self.randomness == "seeded"

    @property
    def refused(self):
        """Words of the reason why it has to be stopped at its first step, or None."""
        if self.optimizer == "lbfgs":
            return "LBFGS"
        if self.loader == "sequential" and self.train_mode == "late" and self.evaluation == "before" and \
                self.evaluation_style != "no_grad_only":
            return "in eval() mode"  # the loader looks like one to evaluate with until it has trained
        return None


def draw(seed):
    """The plan of a seed."""
    dice = random.Random(seed)

    def pick(**chances):
        return dice.choices(list(chances), list(chances.values()))[0].replace("__", " ")

    plan = Plan(
        seed=seed, workers=int(pick(**{"2": 6, "3": 3, "4": 1})),
        model=pick(mlp=4, mlp_norm=2, cnn=1, cnn_norm=1, rnn=2, embedding=2, frozen=1),
        task=pick(regression=1, classes=1), batch=dice.randint(3, 7), count=dice.randint(40, 110), epochs=dice.randint(2, 3),
        data=pick(tensors=3, own=3, dictionary=2, split=2, split_by_hand=1, joined=1),
        loader=pick(shuffle=5, sequential=2, drop_last=2, batch_sampler=1, weighted=1, subset=1, generator=1),
        processes=int(pick(**{"0": 9, "2": 1})),
        optimizer=pick(sgd=2, momentum=2, adam=2, adamw=2, rmsprop=1, adagrad=1, groups=1, two=2, lbfgs=0.3),
        scheduler=pick(none=4, step=2, cosine=2, onecycle=1, plateau=2, warmup=1),
        loop=pick(plain=4, accumulate=2, ahead=2, cycle=1, breaks=1, closure=1, endless=1, trainer=2),
        train_mode=pick(epoch=4, once=1, never=1, late=2),
        evaluation=pick(none=1, before=1, epoch=4, middle=2, training_set=1),
        evaluation_style=pick(usual=4, eval_only=1, no_grad_only=1),
        clipping=pick(none=3, norm=2, value=1), penalty=dice.random() < 0.2, averaged=dice.random() < 0.15,
        checkpoint=pick(none=3, best=2, last=1, resume=2), randomness=pick(seeded=8, unseeded=1, dropout=1, input__noise=1),
        layout=pick(module=2, main=1))
    make_consistent(plan, dice)
    return plan


def make_consistent(plan, dice):
    """Takes out what one process could not be compared in, or what makes no sense."""
    if plan.normalizes:
        # Each worker normalizes by its own samples: of incomplete steps nobody promises which those are.
        plan.loader = "drop_last"
        if plan.evaluation_style == "no_grad_only":
            plan.evaluation_style = "usual"  # an evaluation in training mode would move the statistics
        if plan.train_mode == "never":
            plan.train_mode = "epoch"
        plan.batch = max(plan.batch, 4)
    if plan.noisy and plan.evaluation_style == "no_grad_only":
        plan.evaluation_style = "usual"
    if plan.loader == "sequential" and plan.scheduler == "onecycle":
        plan.scheduler = "cosine"  # a line says that its length was wrong
    if plan.scheduler == "plateau" and plan.evaluation in ("none", "before"):
        plan.evaluation = "epoch"
    if plan.checkpoint == "best" and plan.evaluation in ("none", "before"):
        plan.evaluation = "epoch"
    if plan.evaluation == "training_set" and plan.loader == "drop_last":
        plan.evaluation = "epoch"  # with other batches, other samples are left out
    if plan.loop in ("cycle", "endless"):  # they have no epochs
        if plan.scheduler in ("plateau", "onecycle", "step"):
            plan.scheduler = "cosine"
        plan.evaluation = dice.choice(["none", "before", "middle"])
        plan.checkpoint = dice.choice(["none", "last"])
    if plan.optimizer in ("two", "lbfgs"):
        plan.scheduler = "none"
        if plan.loop == "closure" or plan.optimizer == "lbfgs":
            plan.loop = "plain"
    if plan.optimizer == "lbfgs":
        plan.loop = "closure"
    if plan.loop == "closure" and plan.clipping != "none":
        plan.clipping = "none"
    if plan.loop == "accumulate":
        plan.averaged = False
    if plan.loader == "weighted" and plan.randomness != "seeded":
        plan.loader = "shuffle"  # what is seen how often is a matter of luck
    if plan.randomness == "unseeded" and plan.loop in ("cycle", "endless", "breaks", "ahead"):
        plan.loop = "plain"


# ---- the pieces of a script

MODELS = {
    "mlp": "nn.Sequential(nn.Linear(6, 8), nn.Tanh(), {dropout}nn.Linear(8, OUT))",
    "mlp_norm": "nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), {dropout}nn.Linear(8, OUT))",
    "cnn": "nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), {dropout}nn.Linear(16, OUT))",
    "cnn_norm": "nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), "
                "{dropout}nn.Linear(16, OUT))",
    "rnn": "Recurrent()",
    "embedding": "Embedded()",
    "frozen": "nn.Sequential(nn.Linear(6, 8).requires_grad_(False), nn.Tanh(), {dropout}nn.Linear(8, OUT))",
}

CLASSES = {
    "rnn": """
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = nn.GRU(2, 5, batch_first=True)
                self.head = nn.Sequential({dropout}nn.Linear(5, OUT))

            def forward(self, x):
                states, _ = self.cell(x.reshape(len(x), 3, 2))
                return self.head(states[:, -1])
        """,
    "embedding": """
        class Embedded(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(10, 4)
                self.head = nn.Sequential({dropout}nn.Linear(10, OUT))

            def forward(self, x):
                words = (x[:, 0].abs() * 5).long() % 10
                return self.head(torch.cat([self.table(words), x], dim=1))
        """,
}

DATA = {
    "tensors": """
        training_set = TensorDataset(torch.arange(COUNT), inputs, targets)
        """,
    "own": """
        class Samples(torch.utils.data.Dataset):
            def __len__(self):
                return COUNT

            def __getitem__(self, index):
                return index, inputs[index], targets[index]


        training_set = Samples()
        """,
    "dictionary": """
        training_set = [{"index": index, "x": inputs[index], "y": targets[index]} for index in range(COUNT)]
        """,
    "split": """
        whole = TensorDataset(torch.arange(COUNT), inputs, targets)
        training_set, _ = torch.utils.data.random_split(whole, [COUNT - 5, 5])
        """,
    "split_by_hand": """
        order = list(range(COUNT))
        random.shuffle(order)
        whole = TensorDataset(torch.arange(COUNT), inputs, targets)
        training_set = torch.utils.data.Subset(whole, order[5:])
        """,
    "joined": """
        half = COUNT // 2
        training_set = torch.utils.data.ConcatDataset([
            TensorDataset(torch.arange(half), inputs[:half], targets[:half]),
            TensorDataset(torch.arange(half, COUNT), inputs[half:], targets[half:])])
        """,
}

LOADERS = {
    "shuffle": "DataLoader(training_set, BATCH, shuffle=True{processes})",
    "sequential": "DataLoader(training_set, batch_size=BATCH{processes})",
    "drop_last": "DataLoader(training_set, BATCH, shuffle=True, drop_last=True{processes})",
    "batch_sampler": "DataLoader(training_set, batch_sampler=BatchSampler(RandomSampler(training_set), BATCH, False){processes})",
    "weighted": "DataLoader(training_set, BATCH, sampler=WeightedRandomSampler(torch.linspace(1, 3, len(training_set)), "
                "len(training_set)){processes})",
    "subset": "DataLoader(training_set, BATCH, sampler=SubsetRandomSampler(range(0, len(training_set), 2)){processes})",
    "generator": "DataLoader(training_set, BATCH, shuffle=True, generator=torch.Generator().manual_seed({seed}){processes})",
}

OPTIMIZERS = {
    "sgd": "torch.optim.SGD(model.parameters(), lr=0.05)",
    "momentum": "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)",
    "adam": "torch.optim.Adam(model.parameters(), lr=0.01)",
    "adamw": "torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)",
    "rmsprop": "torch.optim.RMSprop(model.parameters(), lr=0.005)",
    "adagrad": "torch.optim.Adagrad(model.parameters(), lr=0.05)",
    "lbfgs": "torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)",
    "groups": "torch.optim.AdamW([{'params': [p for p in model.parameters() if p.ndim > 1], 'weight_decay': 0.1}, "
              "{'params': [p for p in model.parameters() if p.ndim <= 1], 'weight_decay': 0.0, 'lr': 0.02}], lr=0.01)",
    "two": "torch.optim.Adam([p for p in model.parameters() if p.ndim > 1], lr=0.01)",
}

SCHEDULERS = {
    "step": ("torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)", "epoch"),
    "cosine": ("torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)", "step"),
    "onecycle": ("torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=EPOCHS * len(loader) + 1, "
                 "cycle_momentum=False)", "step"),
    "warmup": ("torch.optim.lr_scheduler.LambdaLR(optimizer, lambda number: min(1.0, (number + 1) / 5))", "step"),
    "plateau": ("torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)", "loss"),
}


class Writer:
    """Lines of a script, at the place where it is."""

    def __init__(self):
        self.lines, self.depth = [], 0

    def add(self, text, condition=True):
        if condition:
            for line in textwrap.dedent(text).strip("\n").splitlines():
                self.lines.append("    " * self.depth + line if line.strip() else "")

    def gap(self, lines=2):
        self.lines += [""] * lines

    def text(self):
        return "\n".join(self.lines) + "\n"


def write_head(out, plan):
    out.add(f'''
        """Drawn from seed {plan.seed}: {', '.join(f"{key}={value}" for key, value in dataclasses.asdict(plan).items())}"""
        ''')
    out.lines = textwrap.wrap(out.lines[0], 118) + [""]
    out.add("""
        import copy
        import itertools
        import json
        import os
        import random
        import sys

        import torch
        from torch import nn
        from torch.utils.data import (BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler, TensorDataset,
                                      WeightedRandomSampler)
        """)
    out.gap(1)
    out.add(f"""
        BATCH, COUNT, EPOCHS, OUT = int(sys.argv[1]), {plan.count}, {plan.epochs}, {3 if plan.task == "classes" else 1}
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        """)
    if plan.randomness == "unseeded":
        out.add("fixed = torch.Generator().manual_seed(1)  # of the data; the rest has no seed")
    else:
        out.add(f"torch.manual_seed({plan.seed})\nrandom.seed({plan.seed})")
    given = ", generator=fixed" if plan.randomness == "unseeded" else ""
    out.add(f"""
        inputs, held = torch.randn(COUNT, 6{given}), torch.randn(23, 6{given})
        """)
    if plan.task == "classes":
        out.add("targets, held_targets = inputs[:, :3].argmax(1), held[:, :3].argmax(1)")
    else:
        out.add("targets, held_targets = inputs[:, :1] - inputs[:, 1:2] ** 2, held[:, :1] - held[:, 1:2] ** 2")


def write_objects(out, plan):
    dropout = "nn.Dropout(0.2), " if plan.randomness == "dropout" else ""
    processes = f", num_workers={plan.processes}" if plan.processes else ""
    out.gap(2 if plan.data == "own" else 0)
    out.add(DATA[plan.data])
    if plan.model in CLASSES:
        out.gap()
        out.add(CLASSES[plan.model].replace("{dropout}", dropout))
        out.gap()
    out.add(f"model = {MODELS[plan.model].replace('{dropout}', dropout)}")
    out.add("loader = " + LOADERS[plan.loader].format(processes=processes, seed=plan.seed))
    out.add("held_loader = DataLoader(TensorDataset(held, held_targets), 5)")
    out.add(f"optimizer = {OPTIMIZERS[plan.optimizer]}")
    out.add("second = torch.optim.SGD([p for p in model.parameters() if p.ndim <= 1], lr=0.02)", plan.optimizer == "two")
    if plan.scheduler != "none":
        out.add(f"scheduler = {SCHEDULERS[plan.scheduler][0]}")
    out.add("average = copy.deepcopy(model)", plan.averaged)
    out.add("criterion = " + ("nn.CrossEntropyLoss()" if plan.task == "classes" else "nn.MSELoss()"))
    out.add("seen, evaluated, steps, best = [], [], 0, float('inf')")


def write_loss(out, plan):
    out.gap()
    out.add("def loss_of(batch):")
    out.depth += 1
    if plan.data == "dictionary":
        out.add("index, x, y = batch['index'], batch['x'], batch['y']")
    else:
        out.add("index, x, y = batch")
    out.add("seen.extend(index.tolist())")
    out.add("x = x + 0.01 * torch.randn_like(x)", plan.randomness == "input noise")
    out.add("loss = criterion(model(x), y)")
    out.add("loss = loss + 1e-3 * sum(p.square().sum() for p in model.parameters())", plan.penalty)
    out.add("return loss")
    out.depth -= 1


def write_evaluate(out, plan):
    if plan.evaluation == "none":
        return
    of_training = plan.evaluation == "training_set"
    out.gap()
    out.add("""
        def evaluate():
            global best
            total, samples = 0.0, 0
        """)
    out.depth += 1
    out.add("model.eval()", plan.evaluation_style != "no_grad_only")
    body = "for batch in loader:" if of_training else "for x, y in held_loader:"
    if plan.evaluation_style != "eval_only":
        out.add("with torch.no_grad():")
        out.depth += 1
    out.add(body)
    out.depth += 1
    if of_training:
        out.add("x, y = (batch['x'], batch['y']) if isinstance(batch, dict) else batch[1:]")
    out.add("total += criterion(model(x), y).item() * len(x)\nsamples += len(x)")
    out.depth -= 2 if plan.evaluation_style != "eval_only" else 1
    out.add("evaluated.append(total / samples)")
    out.add("model.train()", plan.train_mode in ("once", "never") and plan.evaluation_style != "no_grad_only")
    if plan.checkpoint == "best":
        out.add("""
            if evaluated[-1] < best:
                best = evaluated[-1]
                torch.save({"model": model.state_dict(), "loss": best}, "best.pt")
            """)
    out.add("return evaluated[-1]")
    out.depth -= 1


def write_update(out, plan):
    """What follows a backward."""
    out.add("nn.utils.clip_grad_norm_(model.parameters(), 0.5)", plan.clipping == "norm")
    out.add("nn.utils.clip_grad_value_(model.parameters(), 0.1)", plan.clipping == "value")
    out.add("optimizer.step()")
    out.add("second.step()", plan.optimizer == "two")


def write_zero(out, plan):
    out.add("optimizer.zero_grad()")
    out.add("second.zero_grad()", plan.optimizer == "two")


def write_step(out, plan):
    out.gap()
    out.add("def train_on(batch):\n    global steps")
    out.depth += 1
    out.add("model.train()", plan.train_mode == "late")
    if plan.loop == "closure":
        out.gap(1)
        out.add("""
            def closure():
                optimizer.zero_grad()
                loss = loss_of(batch)
                loss.backward()
                return loss

            optimizer.step(closure)
            """)
    elif plan.loop == "accumulate":
        out.add("(loss_of(batch) / 2).backward()\nsteps += 1\nif steps % 2 == 0:")
        out.depth += 1
        write_update(out, plan)
        write_zero(out, plan)
        out.depth -= 1
    else:
        write_zero(out, plan)
        out.add("loss_of(batch).backward()")
        write_update(out, plan)
    out.add("steps += 1", plan.loop != "accumulate")
    out.add("print('STEP', steps, flush=True)")
    if plan.scheduler != "none" and SCHEDULERS[plan.scheduler][1] == "step":
        out.add("scheduler.step()")
    if plan.averaged:
        out.add("""
            with torch.no_grad():
                for kept, current in zip(average.parameters(), model.parameters()):
                    kept.mul_(0.9).add_(current, alpha=0.1)
            """)
    out.add("if steps % 3 == 0:\n    evaluate()", plan.evaluation == "middle")
    out.depth -= 1


BATCHES = {
    "ahead": """
        def ahead(batches):
            batches = iter(batches)
            current = next(batches)
            for following in batches:
                yield current
                current = following
            yield current
        """,
    "endless": """
        def endless(batches):
            while True:
                yield from batches
        """,
    "trainer": """
        class Trainer:
            def __init__(self, step):
                self.step, self.number = step, 0

            def fit(self, batches):
                for self.number, batch in enumerate(batches, self.number):
                    self.step(batch)
        """,
}


def write_epoch(out, plan):
    """The inside of the loop over epochs."""
    out.add("model.train()", plan.train_mode == "epoch")
    if plan.loop == "trainer":
        out.add("trainer.fit(loader)")
    elif plan.loop == "breaks":
        out.add("for number, batch in enumerate(loader):\n    if number == 3:\n        break\n    train_on(batch)")
    else:
        out.add(f"for batch in {'ahead(loader)' if plan.loop == 'ahead' else 'loader'}:\n    train_on(batch)")
    evaluates = plan.evaluation in ("epoch", "middle", "training_set")
    out.add("loss = evaluate()", evaluates)
    if plan.scheduler != "none" and SCHEDULERS[plan.scheduler][1] != "step":
        out.add(f"scheduler.step({'loss' if plan.scheduler == 'plateau' else ''})")
    if plan.checkpoint in ("last", "resume"):
        out.add("torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, 'new.pt')\n"
                "os.replace('new.pt', 'last.pt')")
    if plan.checkpoint == "resume":
        out.add("if os.path.exists('last.pt'):")
        out.depth += 1
        out.add("with torch.no_grad():\n    for parameter in model.parameters():\n        parameter.zero_()\n"
                "kept = torch.load('last.pt')\n"
                "model.load_state_dict(kept['model'])\noptimizer.load_state_dict(kept['optimizer'])")
        out.depth -= 1


def write_loop(out, plan):
    if plan.loop in BATCHES:
        out.gap()
        out.add(BATCHES[plan.loop])
    out.gap()
    if plan.layout == "main":
        out.add("def main():")
        out.depth += 1
    out.add("trainer = Trainer(train_on)", plan.loop == "trainer")
    out.add("evaluate()", plan.evaluation == "before")
    out.add("model.train()", plan.train_mode == "once")
    if plan.loop in ("cycle", "endless"):
        out.add("model.train()", plan.train_mode == "epoch")
        source = {"cycle": "itertools.cycle(loader)", "endless": "endless(loader)"}[plan.loop]
        out.add(f"for batch in itertools.islice({source}, 17):\n    train_on(batch)")
        out.add("torch.save(model.state_dict(), 'last.pt')", plan.checkpoint == "last")
    else:
        out.add("for epoch in range(EPOCHS):")
        out.depth += 1
        write_epoch(out, plan)
        out.depth -= 1
    if plan.layout == "main":
        out.depth -= 1
        out.gap()
        out.add('if __name__ == "__main__":\n    main()')


def write_end(out, plan):
    out.add("model.load_state_dict(torch.load('best.pt')['model'])", plan.checkpoint == "best")
    values = "[*model.state_dict().values(), *average.parameters()]" if plan.averaged else "model.state_dict().values()"
    out.add(f"""
        print("SEEN", json.dumps(seen))
        print("EVALUATED", json.dumps(evaluated))
        print("VALUES", json.dumps([number for tensor in {values} for number in tensor.double().flatten().tolist()]))
        """)


def render(plan):
    """The text of the script."""
    out = Writer()
    write_head(out, plan)
    write_objects(out, plan)
    write_loss(out, plan)
    write_evaluate(out, plan)
    write_step(out, plan)
    write_loop(out, plan)
    write_end(out, plan)
    return out.text()


def main():
    seed = int(sys.argv[1])
    if "--run" not in sys.argv:
        print(render(draw(seed)), end="")
        return 0
    from generated_jobs import replay

    return replay(seed)


if __name__ == "__main__":
    sys.exit(main())
