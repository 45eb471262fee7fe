# SPDX-License-Identifier: Apache-2.0
"""What is known of a script of PyTorch, and what is done about it.

It is distributed when its first loader is read for training, or something is trained without one (loose.py):
weights become those of worker 0, gradients are averaged."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from ..common import children, files, notes
from ..common.session import TIMEOUT_S
from ..common.witness import UNKNOWN, Witness
from . import by_hand, huggingface, tails
from .by_hand import ByHand
from .growth import Growth
from .in_use import InUse, Turns, parameters_of
from .points import Points
from .roles import Roles
from .shards import COUNTED, weights_of

if TYPE_CHECKING:
    from .models import Owners
    from .checks import Checks
    from .lineage import Lineage
    from .loose import Loose
    from .losses import Losses
    from .seen import Seen
    from .shards import Delivery, Shard
    from .streams import Streams
    from .walks import Walks


def _travel_as() -> str:
    word = os.environ.get("PSD_TORCH_GRADIENTS", "")
    return {"bf16": " as bfloat16", "fp16": " as float16"}.get(word, "")


class TorchSession(Roles):
    """Thread: that of the script which trains."""

    package = "poseidon.torch"
    writes_privately = True
    goes_on = True

    def __init__(self, watch: Any):
        super().__init__(watch)
        self.optimizers: list[weakref.ref] = []
        self._by_hand = ByHand()
        self._engine: Any = None  # poseidon.torch's, of all parameters
        self._checks: Checks | None = None  # the engine's
        self._rounds_before = 0  # of engines before this one
        self._owners: Owners | None = None
        # How many optimizers and parameters they were looked up for.
        self._owners_of: tuple[int, int] | None = None
        self._turns = Turns()
        # How much the batch that is being trained on counts in the mean; unknown: the loss itself is divided by what
        # all workers have counted. Asked for in every step, so it is found when one of these has changed.
        self.share = 1.0
        self._wanted = 1.0  # what the weight is to be
        self._share = 1.0  # of the samples of a step that this worker's batch has, as a multiple of the mean
        self._weight = 1.0  # of its gradients
        self._is_counted = False  # a loss that was divided by the number of samples of all workers
        self._weight_hooks: list[Any] = []
        self._rounds_at_delivery = -1  # rounds() when the script got its last batch
        self._newest: Delivery | None = None
        self.borrows = False  # the newest is somebody else's, and counts nothing
        self._trained: Delivery | None = None  # what the loss is of that is being differentiated
        self._last_shard: Callable[[], Any] = lambda: None  # where it comes from
        self._looks_at_tails = False  # at the next backward
        self._ahead = False  # the script takes batches before it has trained on those before
        self.lineage: Lineage | None = None  # of losses; patches.py sets it
        self.losses: Losses | None = None  # what they are made of; patches.py sets it
        self.loose: Loose | None = None  # training without a loader; patches.py sets it
        self.walks: Walks | None = None  # by permutations; walks.py sets it
        # Groups of parameters of the optimizers that stepped since gradients were averaged last. They, not the
        # optimizers: those are to go when the script lets go of them. Of these the learning rates are compared: an
        # optimizer that nobody has any more may live on until Python collects its garbage, on one worker longer than on
        # another.
        self.stepped: list[list] = []
        self._stepped_after = -1  # rounds() then
        self._in_use = InUse()
        self.samples = 0  # of the last step of all workers
        self._progress: Any = None  # from the first step on
        self._loss: Any = None  # what was differentiated last
        self._first_step = ""  # what it was, until that is told
        self._first_told = False
        self.streams: Streams | None = None  # of random numbers; patches.py sets it
        self.witness = Witness(self.world, self.rank, self.breach)
        self.seen: Seen | None = None  # by the witness; patches.py sets it
        self.points = Points(self)  # from which the job can go on
        self.growth = Growth(self)  # of the job, while it trains

    def _join(self) -> None:
        """All workers have views of files of their own, or none trusts in them."""
        if self.joined:
            return
        if self._watch.script_was_told_rank():
            self.refuse("it asks which worker it is, as scripts for torchrun do, but trains without torch.distributed: "
                        "whether it deals its data out itself cannot be told",
                        "let it call torch.distributed.init_process_group before it trains, or ask for nothing")
        super()._join()
        self.growth.begin()
        from poseidon.torch import collectives

        self.private_files = all(each == b"yes" for each in collectives.allgather_bytes(
            b"yes" if files.can_be_private() else b"no"))
        self.points.join()

    def _declare(self) -> None:
        self.growth.declare()

    def _is_joinable(self) -> bool:
        return self.growth.is_on

    def _why_not_joinable(self) -> str:
        return self.growth.obstacle or super()._why_not_joinable()

    # ---- how it ends

    def refuse(self, reason: str, advice: str) -> NoReturn:
        """Stops the script. One that comes late leaves, and the others go on."""
        if self.growth.newcomer is not None and not self._is_child():
            self.growth.decline(f"{reason}; {advice}")
        super().refuse(reason, advice)

    def at_exit(self) -> None:
        """The script is over. One that was refused leaves without a farewell to the job, also when
        it has caught the exit."""
        failed = hasattr(sys, "last_value")
        if self.points.replay is not None and not self.refused:
            self.points.replay.script_failed()
        with contextlib.suppress(SystemExit):  # it was refused: see below
            self._compare_at_end()
            self._look_at_children()
        if not self.aside and not self.refused and not failed and not self.optimizers and \
                not self._is_child() and self._by_hand.trained():
            self.refused = True
            notes.explain_refusal(by_hand.REASON, by_hand.ADVICE)
        super().at_exit()

    def _compare_at_end(self) -> None:
        """The job ends when its last worker does, so it costs no time to wait for it here."""
        checks, self._checks = self._checks, None
        if checks is None or self._steps == 0 or self.refused or self._is_child():
            return
        import poseidon
        from poseidon._leaving import failing

        if failing():
            return
        try:
            found = checks.compare_at_end(self._steps)
        except poseidon.Error:
            return  # somebody died, or the job is over: psd_run knows
        self.tell_what_is_done()
        if self.rank == min(self.witness.lost.here()):
            notes.tell(f"{self.witness.heading()}: {found}" if found else f"not right: {', '.join(sorted(self.witness.breaches))}")

    def _look_at_children(self) -> None:
        """What was refused in processes of the script is refused here, too: nothing was trained."""
        if not self._is_child() and not self.refused and (children.refused() or children.ended_as_refused()):
            self.refuse("it trained in processes that it started itself, which were stopped, so nothing was trained",
                        "use poseidon.torch in them, or run it with --auto off")

    # ---- optimizers

    def live_optimizers(self) -> list:
        """Those that still exist, in the order of their making."""
        return [found for found in (reference() for reference in self.optimizers)
                if found is not None]

    def add_optimizer(self, optimizer: Any) -> None:
        """One was made."""
        self.optimizers.append(weakref.ref(optimizer))
        self.loose.watch()
        if not self.aside and not self._is_child():
            files.be_certain()

    def _parameters(self) -> list:
        """Those of all optimizers, each once."""
        found = {id(parameter): parameter for optimizer in self.live_optimizers()
                 for group in optimizer.param_groups for parameter in group["params"]}
        return list(found.values())

    def before_step(self, optimizer: Any) -> None:
        """An optimizer is about to use the gradients."""
        if not self.active():
            return
        parameters = parameters_of(optimizer)
        if not self.joined and all(parameter.grad is None for parameter in parameters):
            return  # nothing happens in this step; in a job, other workers may have gradients
        self._check_step(optimizer, parameters)
        if self.points.replay is not None:
            self.points.replay.before_step(optimizer)
            self._note_step(optimizer)
            return
        self.walks.before_step(optimizer)
        self.loose.before_step()
        self._average(optimizer, parameters)
        self._count_step(optimizer, parameters)

    def before_step_with(self, optimizer: Any, closure: Callable) -> Callable:
        """An optimizer is about to make its gradients by a closure, and to use them: the closure to
        call instead."""
        if not self.active():
            return closure
        parameters = parameters_of(optimizer)
        self._check_step(optimizer, parameters)
        if self.points.replay is not None:
            self.points.replay.before_step(optimizer)
            self._note_step(optimizer)
            return closure
        self.loose.before_closure()
        self._count_step(optimizer, parameters)
        of_this_step = [optimizer]  # until a closure has taken its batch: some are called several times in a step

        @functools.wraps(closure)
        def averaging(*args, **kwargs):
            loss = closure(*args, **kwargs)
            if of_this_step:
                self.walks.before_step(of_this_step.pop())
            self.loose.before_step()
            self._average(optimizer, parameters)
            return loss

        return averaging

    def _check_step(self, optimizer: Any, parameters: list) -> None:
        name = type(optimizer).__name__
        if self._is_child():
            children.note_refusal()
            self.refuse("it trains in a process that it started itself",
                        "use poseidon.torch in it, or run it with --auto off")
        if name == "LBFGS":
            self.refuse("LBFGS evaluates the loss several times in a step and decides by it, and "
                        "each worker sees only the loss of its own samples",
                        "use another optimizer, or run it with --auto off and one worker")
        if not self._turns.take(optimizer, parameters):
            self.refuse("two optimizers step the same parameters in turn", "give every parameter to one optimizer")

    def _average(self, optimizer: Any, parameters: list) -> None:
        """Gradients are the means of all workers afterwards, wherever they came from."""
        from poseidon.torch.engine import engine_of

        for parameter in parameters:
            if parameter.grad is not None and engine_of(parameter) is None:
                self.refuse(
                    f"{type(optimizer).__name__} has parameters that were not there, or not trained, when the epoch "
                    "began, and whose gradients are those of one worker",
                    "make optimizers and unfreeze parameters before the training loader is read")
        self._engine.before_step(optimizer)
        exchanged, rounds = self.witness.exchanged, self._rounds_before + self._engine.rounds
        if exchanged.get(id(optimizer), 0) == rounds:
            self.witness.nothing_exchanged()
        exchanged[id(optimizer)] = rounds

    def _count_step(self, optimizer: Any, parameters: list) -> None:
        first = not self._first_told
        self._note_step(optimizer)
        self._tell_step()
        if first:
            self._first_told = True
            values = sum(parameter.numel() for parameter in parameters)
            self._first_step = (f"gradients of {type(optimizer).__name__} averaged{_travel_as()} ({len(parameters)} tensors, "
                                f"{values} values)")
            if not self.loose.begun or self.walks.divides:
                self.tell_what_is_done()

    def _note_step(self, optimizer: Any) -> None:
        self._steps += 1
        rounds = self.rounds()
        if self._stepped_after != rounds:
            self._stepped_after, self.stepped = rounds, []
        self.stepped.append(optimizer.param_groups)
        self._in_use.add_step(optimizer)

    def _tell_step(self) -> None:
        from poseidon._progress import Progress, loss_of

        if self._progress is None:
            self._progress = Progress()
        self._progress.loss, self._loss = loss_of(self._loss), None
        self._progress.remaining = self.remaining
        self._progress.step(self._steps, self.samples)

    def tell_what_is_done(self) -> None:
        """Once, as soon as it is known: how batches without a loader differ is seen after some steps."""
        told, self._first_step = self._first_step, ""
        if not told or self.rank != 0:
            return
        data = self.loose.finding() if self.loose.begun else f"training data dealt out ({self.samples} samples a step)"
        notes.tell(f"automatic distribution of {notes.script_name()}: {self.world} workers, weights of worker 0 for all, "
                   f"{told}, {data}, evaluation whole, {'files (not below /tmp)' if self.private_files else 'torch.save'} by worker 0; "
                   "a training loss that the script prints is that of the worker's own samples; --auto off turns it off")

    # ---- loaders

    def _look_up_owners(self) -> Owners:
        optimizers = (len(self.optimizers), len(self._parameters()))
        if self._owners is None or self._owners_of != optimizers:
            from .models import Owners

            self._owners, self._owners_of = Owners(self._parameters()), optimizers
        return self._owners

    def begin_epoch(self, loader: Any) -> None:
        """A loader is about to be read for training: the workers come together."""
        self.loose.leave_to_loader()
        self.growth.consider(loader)
        self._join()
        huggingface.apply(self)
        mine = self.seen.fingerprint(loader.dataset)
        self.growth.meet(mine)
        self._attach()
        from . import randomness

        found, first = self.growth.agree([randomness.state(loader), mine])
        if mine != first:
            self.refuse("its training data are not the same on all workers", self._advice_on_data())
        wanted = self.points.begin_epoch(found)
        if self.rank != 0 or wanted is not found:
            randomness.restore(loader, wanted)
        self.streams.part()
        self._in_use.begin_epoch()
        self._ahead = False
        self.lineage.rest()
        self.lineage.forget()
        if self._told_lengths.pop(loader, True) is False and self.rank == 0:
            notes.tell("len() of a training loader without shuffle was asked for before its first "
                       f"epoch and told its own batches; an epoch has {len(loader)} steps now: if a "
                       "learning-rate schedule was made of it, it is too long")

    def _advice_on_data(self) -> str:
        if self.streams.began():
            return ("since training began what the script draws is noise, each worker's own, also after a seed was set: "
                    "make all data before that, or draw them from a generator of their own, such as "
                    "torch.Generator().manual_seed(1) or numpy.random.default_rng(1)")
        return ("set a seed (torch, numpy.random and random) before data are made or split, and do not depend on the "
                "order of directories")

    def delivered(self, shard: Shard, batch: Any) -> Delivery | None:
        """The script gets the data of a step; None: of an evaluation."""
        delivery = shard.deliveries.popleft()
        if delivery is None:
            shard.rounds_before = self.rounds()
            return None
        self.samples = delivery.samples
        again = self._rounds_at_delivery == self.rounds()  # nothing was trained on the batch before
        of_another = again and self._last_shard() is not shard
        if of_another and shard.handed_out == 0:  # one step from two loaders: perhaps one loss, too
            self._looks_at_tails = True
            self.lineage.follow()
        if of_another or (again and shard.handed_out > 0):
            self._ahead = True
        self._rounds_at_delivery, self._last_shard = self.rounds(), weakref.ref(shard)
        shard.handed_out += 1
        self.lineage.add(delivery, batch)
        self._newest, self.borrows = delivery, delivery.weight == 0.0
        if self._ahead and delivery.weight != 1.0:
            self.lineage.follow()
        if not self.lineage.follows():
            self._trained = delivery
            if delivery.weight != self._share:
                self._set_share(delivery.weight)
        return delivery

    def deliver_by_hand(self, delivery: Delivery) -> None:
        """The script takes its data of a step itself (walks.py)."""
        self.witness.drew_step(delivery.digest)
        self.samples, self._newest, self._trained = delivery.samples, delivery, delivery
        self.borrows = delivery.weight == 0.0
        self._set_share(delivery.weight)

    def batch_size(self) -> int:
        """Of the loader that the newest batch is from; 0: it has none."""
        return getattr(getattr(self._last_shard(), "loader", None), "batch_size", None) or 0

    def has_borrowed(self, values: Any = None) -> bool:
        """Whether the batch that the script got last, or that values were computed from, is somebody else's, and counts
        nothing."""
        sources = self.lineage.sources([values]) if values is not None and self.lineage.follows() else None
        if sources:
            return weights_of(sources) == {0.0}
        return self.borrows

    def _set_share(self, share: float) -> None:
        self._share = share
        self._find_share()

    def _find_share(self) -> None:
        done = self._share if self._weight == self._wanted else self._weight  # what is done counts, not what was meant
        self.share = UNKNOWN if self._is_counted else done

    def gradient_weight(self) -> float:
        """What gradients of parameters are multiplied by before their mean is taken."""
        return self._weight

    def epoch_ended(self) -> None:
        """A loader was read to its end. Its last batch may still be trained on, and those before it once more
        (itertools.cycle)."""
        if self._newest is not None and self._newest.weight != 1.0:
            self.lineage.follow()

    def passes_over(self) -> bool:
        """The script goes on from a checkpoint, and has not come to its place: nothing is differentiated. A round counts."""
        if self.points.replay is None or not self.joined:
            return False
        self._rounds_before += 1
        return True

    def before_backward(self, tensors: Any) -> None:
        """Gradients count by the batch that they come from."""
        self._loss = tensors
        self.loose.before_backward(tensors)
        if self._is_counted:
            self._is_counted = False
            self._find_share()
        if not self.joined or not self.lineage.follows():
            return
        sources = self.lineage.sources(tensors)
        weights, self._is_counted = weights_of(sources), COUNTED in sources
        if len(weights) > 1 or tails.cannot_be_weighed(sources):
            self.refuse("it computes one loss from several batches, of which one is smaller than the others, now or "
                        "when a loader comes to its end: how each counts in the mean cannot be told",
                        "make the loaders with drop_last=True")
        if self._looks_at_tails and sources:
            self._looks_at_tails = False
            if weights == {1.0}:
                self.lineage.rest()
        self._trained = next((each for each in sources if each is not COUNTED), self._trained)
        # A loss of no batch, such as a penalty, counts as the last one did.
        self._set_share(next(iter(weights), self._share))

    def weigh_gradients(self, tensors: Any, backward: bool) -> None:
        """The gradients of what is differentiated now count by their batch; those of a backward also by what the loss
        makes of it."""
        if not self.joined or self._engine is None:
            return
        weight, delivery = self._share, self._trained
        if backward and delivery is not None and (not self.loose.begun or self.walks.divides) and self.active():
            rows = round(delivery.weight * delivery.samples / self.world)
            with self.lineage.looking_away():
                weight = self.losses.weigh(tensors, weight, rows, delivery.samples)
        if weight != self._wanted:
            self._wanted = weight
            self._set_weight(weight)
            self._find_share()

    def before_backward_by_hand(self, tensors: Any, inputs: Any = None) -> None:
        """Something is differentiated, and there is no optimizer."""
        if self.active() and self._by_hand.before_backward(tensors, inputs):
            self.refuse(by_hand.REASON, by_hand.ADVICE)

    # ---- gradients

    def rounds(self) -> int:
        """How often gradients were averaged."""
        return self._rounds_before + (self._engine.rounds if self._engine is not None else 0)

    def has_new_parameters(self) -> bool:
        """Whether an optimizer has some whose gradients are not averaged yet."""
        from poseidon.torch.engine import engine_of

        return any(parameter.requires_grad and parameter.numel() > 0
                   and engine_of(parameter) is None for parameter in self._parameters())

    def can_begin(self) -> bool:
        """Whether something may be trained in this process, and is to be distributed."""
        return self.active() and bool(self.live_optimizers()) and not self._is_child()

    def is_in_training_mode(self) -> bool:
        """Whether a model of an optimizer is."""
        return self._in_training_mode()

    def trains_with(self, module: Any) -> bool:
        """Whether a module has parameters of an optimizer, and training goes on."""
        return self._in_training_mode() and self._look_up_owners().holds(module)

    def begin_together(self, before_forward: bool) -> None:
        """Something is about to be trained that no loader has to do with: the workers come together. Once a
        forward is under way weights can no longer become those of worker 0: they must be that already."""
        self._join()
        self.points.lead_nowhere("it trains on data that no loader of torch hands out")
        self._attach(broadcast=before_forward)

    def _attach(self, broadcast: bool = True) -> None:
        """Parameters that are new, since the last epoch or at all, become those of worker 0, and
        their gradients are averaged from now on.

        One engine has them all: a worker whose batch does without one of two models still answers
        for it, and nobody waits in one engine for somebody who waits in the other."""
        from poseidon.torch import collectives
        from poseidon.torch.buffers import Buffers
        from poseidon.torch.engine import Engine

        from .checks import Checks

        if not self.has_new_parameters():
            return
        if self._engine is not None:
            self._rounds_before += self._engine.rounds
            self._engine.detach()
        gc.collect()  # optimizers that nobody has any more are gone on all workers alike
        owners = self._look_up_owners()
        named = owners.named(self._parameters())
        shared = named + owners.fixed + owners.buffers
        if not self.growth.is_alone():  # else it is told which they are when it is one of the others
            collectives.check_same(shared, "automatic distribution")
            if broadcast:
                collectives.broadcast_tensors_([tensor.data for _, tensor in shared])
            else:
                self._check_equal([tensor for _, tensor in named + owners.fixed])
        if self.growth.is_on:
            self._engine, self._checks = self.growth.engine(named, owners.buffers)
        else:
            self._engine = Engine(named, timeout=TIMEOUT_S, sparse=owners.sparse)
            self._checks = Checks(self, self._engine, TIMEOUT_S)
            self._engine.companions.append(self._checks)
            if owners.buffers:
                self._engine.companions.append(
                    Buffers(self._engine.name, owners.buffers, TIMEOUT_S))
        self._weigh_gradients()
        self.losses.forget()

    @staticmethod
    def all_have(digest: bytes) -> bool:
        """Whether all workers have the same, and not nothing."""
        from poseidon.torch import collectives

        return set(collectives.allgather_bytes(digest)) == {digest} and digest != b""

    def _check_equal(self, tensors: list) -> None:
        from poseidon.torch import collectives

        from .weights import digest

        if len(set(collectives.allgather_bytes(b"%d" % digest(tensors)))) > 1:
            self.refuse("the workers' weights differ before the first step",
                        "give the model its initial weights before it is used, from torch's own generator")

    def _set_weight(self, weight: float) -> None:
        if weight != self._weight:
            self._weight = weight
            self._weigh_gradients()

    def _weigh_gradients(self) -> None:
        """Gradients of the batch that is being trained on count by its share of the samples."""
        import torch

        for handle in self._weight_hooks:
            handle.remove()
        self._weight_hooks = []
        if self._weight == 1.0:
            return
        weight = self._weight

        def scale(gradient):
            return gradient * weight if weight != 0.0 else torch.zeros_like(gradient)  # also of what is no number

        self._weight_hooks = [slot.parameter.register_hook(scale)
                              for slot in self._engine.slots]

    # ---- files

    def keeps_file(self, target: Any) -> bool:
        """Whether torch.save writes on this worker."""
        opened = not isinstance(target, (str, os.PathLike))
        if opened:
            name = getattr(target, "name", None)
            if not isinstance(name, str) or not hasattr(target, "fileno"):
                return True  # memory
            target = name
        if self.points.replay is not None:
            return False  # it was saved before
        if not self.active() or self._is_child() or not self.optimizers:
            return True
        if self.has_for_itself(target):
            return True
        self._saved.add(os.path.abspath(os.fspath(target)))
        if opened and self.joined:
            from poseidon import _elastic

            _elastic.barrier(int(TIMEOUT_S * 1000))  # all have emptied it by opening it
        return self.rank == 0

    def to_load(self, source: Any) -> Any:
        """What torch.load reads: the file that worker 0 has saved, or a copy of it."""
        if not self.before_load(source):
            return source
        from . import saved

        return saved.as_worker_0_has_it(source)
