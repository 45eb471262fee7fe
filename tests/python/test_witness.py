# SPDX-License-Identifier: Apache-2.0
"""What the witness of plain scripts holds to be right and wrong, by its words alone: no job is needed."""

import importlib
import importlib.util
import math
import pathlib
import sys

import pytest

# The package of the witness under a name of its own, and none around it.
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "python" / "poseidon" / "auto" / "common"
spec = importlib.util.spec_from_file_location("poseidon_auto_common", FOLDER / "__init__.py",
                                              submodule_search_locations=[str(FOLDER)])
common = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = common
spec.loader.exec_module(common)
witness = importlib.import_module(f"{spec.name}.witness")
positions = importlib.import_module(f"{spec.name}.positions")


@pytest.fixture(autouse=True, params=["closely", "at a glance first"])
def looks(request, monkeypatch):
    """What is found does not depend on whether a glance comes first, as it does in jobs."""
    monkeypatch.setattr(Workers, "glances", request.param != "closely")


STEP = ("share", "rows", "rates", "sample_bits")  # what a glance is told


class Workers:
    """Witnesses of a few workers, and what they complain of."""

    glances = False

    def __init__(self, world):
        self.said = []
        self.all = [witness.Witness(world, rank, lambda *words: self.said.append(words)) for rank in range(world)]
        for each in self.all:
            each.add_source("a loader")
            each.add_source("another loader")
        self.steps = self.nothing()

    def tell(self, **words):
        """Words of one round: one for all, or a list with one for each."""
        for rank, each in enumerate(self.all):
            mine = {name: value[rank] if isinstance(value, list) else value for name, value in words.items()}
            self.steps[rank] = [mine.pop(name, self.steps[rank][number]) for number, name in enumerate(STEP)]
            each.means = mine.pop("means", math.nan)
            each.note(**mine)

    def glance(self):
        """Everybody's at this round."""
        told, self.steps = self.steps, self.nothing()
        return [each.glance(share, rows, (rates,), bits) for each, (share, rows, rates, bits) in zip(self.all, told)]

    def nothing(self):
        return [[math.nan] * len(STEP) for _ in self.all]

    def meet(self):
        """One round. Returns the kinds of breaches so far, which all workers see alike."""
        glances = self.glance()
        rows = [each.words_behind_glance() for each in self.all]
        if not self.glances or not holds_at_a_glance(self.all, glances):
            for each in self.all:
                each.hear(rows)
        return self.kinds()

    def end(self, steps=3):
        rows = [each.words(over=True) for each in self.all]
        return [each.hear_end(rows, steps) for each in self.all]

    def kinds(self):
        kinds = {kind for kind, _, _ in self.said}
        assert len(self.said) == len(kinds) * len(self.all), "each worker says it once"
        return kinds

    def epoch(self, batches, dealt=True, meets=True, drops_last=False, source=0):
        """Deals batches out as it should be, one to each worker in turn, and ends the epoch."""
        world = len(self.all)
        for rank, each in enumerate(self.all):
            reading = each.read(source)
            for batch in batches:
                reading.drew(batch)
            full = len(batches) // world * world if drops_last else len(batches)
            for batch in batches[:full][rank::world] if dealt else batches:
                reading.gave(batch, dealt)
            reading.finish(dealt, drops_last)
        return self.meet() if meets else None


def holds_at_a_glance(workers, glances):
    """As all workers see it."""
    numbers = [number for numbers in zip(*glances) for number in numbers]
    found = {each.holds_at_a_glance(numbers) for each in workers}
    assert len(found) == 1, "they look closely together, or not at all"
    return found.pop()


def batches(count, size=2):
    return [list(range(at, at + size)) for at in range(0, count * size, size)]


@pytest.mark.parametrize("world", [2, 3])
def test_a_right_job_is_verified(world):
    """If this fails, scripts that train right are stopped, or nobody is told that they did."""
    workers = Workers(world)
    for number in range(3):
        workers.tell(share=1.0, rows=2, rates=7, sample=0.5, sample_size=1.0, norm=2.0, direction=-1.0, bits=9)
        assert workers.epoch(batches(6)) == set()
        for each in workers.all:
            each.read(1).gave([number], dealt=False, may_train=False)
        assert workers.meet() == set()
    workers.tell(norm=2.0, direction=-1.0, bits=9)
    assert workers.end() == [f"12 samples, each once per epoch; weights equal to the bit on {world} workers after 3 "
                             "steps; learning rates equal in every step; evaluation with the same data "
                             "everywhere"] * world


def test_incomplete_steps_that_are_dropped_are_no_breach():
    """If this fails, drop_last stops good scripts, or samples that nobody trains on are not missed."""
    workers = Workers(2)
    assert workers.epoch(batches(5), drops_last=True) == set()
    assert "8 samples, each once per epoch" in workers.end()[0]
    workers = Workers(2)
    for rank, each in enumerate(workers.all):
        reading = each.read(0)
        for batch in batches(5):
            reading.drew(batch)
        for batch in batches(4)[rank::2]:
            reading.gave(batch, dealt=True)
        reading.finish(dealt=True)
    assert workers.meet() == {"samples"}


def test_equal_batches_of_a_sampler_with_replacement_are_no_breach():
    """If this fails, samplers with replacement stop good scripts by chance."""
    workers = Workers(2)
    assert workers.epoch([[3], [3], [1], [3]]) == set()
    assert "4 samples, each as often as one process draws it" in workers.end()[0]


def test_samples_that_are_trained_on_twice():
    """If this fails, workers whose parts overlap train some samples more often than others in silence."""
    workers = Workers(2)
    for rank, each in enumerate(workers.all):
        reading = each.read(0)
        for batch in ([0, 1], [2, 3]):
            reading.drew(batch)
        reading.gave([0, 1] if rank == 0 else [1, 2], dealt=True)
        reading.finish(dealt=True)
    assert workers.meet() == {"samples"}
    assert workers.end() == ["", ""]


def test_the_same_data_from_the_first_step():
    """If this fails, W workers train W times the same."""
    workers = Workers(2)
    for each in workers.all:
        each.read(0).gave([4, 5], dealt=False)
    assert workers.meet() == {"same data"}
    assert "a loader" in workers.said[0][1]


def test_the_same_data_in_a_later_epoch():
    """If this fails, a loader that is no longer dealt out in its second epoch trains wrong in silence."""
    workers = Workers(2)
    assert workers.epoch(batches(4)) == set()
    for each in workers.all:
        each.read(0).gave([0, 1], dealt=False)
    assert workers.meet() == {"same data"}


def test_an_evaluation_before_the_last_batch_is_no_breach():
    """If this fails, scripts that fetch a batch ahead, and evaluate, are stopped though they train right."""
    workers = Workers(2)
    readings = [each.read(0) for each in workers.all]
    for rank, reading in enumerate(readings):
        reading.gave([rank], dealt=True)
        reading.gave([2 + rank], dealt=True)
    assert workers.meet() == set()
    for each in workers.all:
        each.read(1).gave([0, 1, 2], dealt=False)  # in eval mode, say, with gradients on
    assert workers.meet() == set()
    workers.all[0].is_given(1, None)
    assert workers.meet() == set(), "a thread reads ahead on one of them"


def test_bytes_that_are_equal_by_chance_are_no_breach_and_for_long_they_are():
    """If this fails, toy data stop good scripts, or streams that nobody deals out are trained on W times."""
    workers = Workers(2)
    for number in range(3):
        for each in workers.all:
            each.is_given(0, number)
        assert workers.meet() == (set() if number < 2 else {"same data"})
        assert workers.meet() == workers.kinds(), "rounds without new data tell nothing"
    workers = Workers(2)
    for _ in range(5):
        for each in workers.all:
            each.is_given(0, 1)
        assert workers.meet() == set(), "all data are ones, say"


def test_a_user_who_was_told_is_not_stopped():
    """If this fails, loops in which all workers train on the same cannot be run."""
    workers = Workers(2)
    for each in workers.all:
        each.expect_same_data()
        each.read(0).gave([1], dealt=True)
    assert workers.meet() == set()


def test_a_borrowed_batch_counts_nothing():
    """If this fails, an epoch whose last step has fewer samples than workers stops good scripts."""
    workers = Workers(2)
    for rank, each in enumerate(workers.all):
        reading = each.read(0)
        reading.drew([0, 1])
        reading.gave([0, 1], dealt=True, borrowed=rank == 1)
        reading.finish(dealt=True)
    workers.tell(share=[2.0, 0.0], rows=2)
    assert workers.meet() == set()


@pytest.mark.parametrize("words,kind", [
    ({"rates": [1, 2]}, "learning rates"),
    ({"bits": [1, 2]}, "weights"),
    ({"sample": [1.0, 1.001], "sample_size": 1.0}, "weights"),
    ({"sample": [1.0, math.inf], "sample_size": [1.0, math.inf]}, "weights"),
    ({"norm": [1.0, 1.1]}, "weights"),
    ({"norm": [1.0, math.nan]}, "weights"),
    ({"norm": 1.0, "direction": [0.1, 0.2]}, "weights"),
    ({"bits": [1, 2]}, "weights"),
    ({"share": [1.0, 0.5]}, "shares"),
    ({"share": [1.6, 0.4], "rows": 8}, "shares"),
    ({"share": [1.6, 0.4], "rows": [8, 2]}, None),
    ({"share": [1.6, 0.4], "rows": [8, math.nan]}, None),
    ({"sample": [1.0, 1.00001], "sample_size": 1.0}, None),
    ({"norm": math.nan, "direction": math.nan}, None),
])
def test_what_must_be_equal(words, kind):
    """If this fails, workers that train apart go on, or workers that rounding tells apart are stopped."""
    workers = Workers(2)
    workers.tell(**words)
    assert workers.meet() == ({kind} if kind else set())


def test_a_glance_is_enough_in_ordinary_rounds_alone():
    """If this fails, every step of every script pays for a close look, or what must be looked at closely is not."""
    workers = Workers(2)
    readings = [each.read(0) for each in workers.all]

    def glances(share=1.0, batches=([0], [1]), **words):
        for reading, batch in zip(readings, batches):
            reading.gave(batch, dealt=True)
        workers.tell(share=share, rates=7, sample=0.5, sample_size=1.0, **words)
        return holds_at_a_glance(workers.all, workers.glance())

    assert not glances(batches=([10], [11])), "whether this source is dealt out is seen once"
    assert workers.meet() == set()
    assert glances()
    assert glances(batches=([2], [3]), rows=4)
    assert not glances(share=0.5), "shares must add up to the number of workers"
    assert not glances(rows=[1, 2])
    assert not glances(batches=([4], [4]))
    for each in workers.all:
        each.note_streams([5.0] * witness.STREAMS)
    assert not glances(batches=([6], [7]))
    for reading in readings:
        reading.finish(dealt=True)
    assert not glances(batches=([8], [9])), "an epoch is over: were all samples used?"


def test_weights_that_differ_in_the_end():
    """If this fails, a job of workers with different models is told to be right."""
    workers = Workers(2)
    workers.tell(norm=1.0, direction=[0.1, 0.5], bits=[1, 2])
    assert workers.end() == ["", ""] and workers.kinds() == {"weights"}
    workers = Workers(2)
    workers.tell(norm=1.0, direction=[0.1, 0.10001], bits=[1, 2])
    assert "weights equal but for rounding on 2 workers" in workers.end()[1]


def test_orders_evaluations_and_random_numbers():
    """If this fails, workers that draw differently, evaluate with different data, or have one noise are not seen."""
    workers = Workers(2)
    for rank, each in enumerate(workers.all):
        each.drew_step(rank)
    assert workers.meet() == {"order"} and "different orders" in workers.said[0][1]
    workers = Workers(2)
    for rank, each in enumerate(workers.all):
        for number in range(1 + rank):  # worker 1 trains on the second one
            each.read(0).gave([rank, number], dealt=True)
        each.drew_step(rank)
    assert workers.meet() == {"order"} and "worker 1 has left out a batch" in workers.said[0][1]
    workers = Workers(2)
    for rank, each in enumerate(workers.all):
        each.tests_on(1, rank)
    assert workers.meet() == {"evaluation"}
    workers = Workers(2)
    for rank, each in enumerate(workers.all):
        each.read(1, fingerprint=rank).gave([1, 2], dealt=False, may_train=False)
    assert workers.meet() == {"evaluation"}, "other samples have the same positions"
    workers = Workers(2)
    for rank, each in enumerate(workers.all):
        reading = each.read(1)
        reading.gave([rank], dealt=True)
        reading.gave([1 - rank], dealt=False, may_train=False)
        reading.finish(dealt=False)
    assert workers.meet() == set(), "the order is of no interest"
    workers = Workers(2)
    workers.all[0].tests_on(1, 5)
    assert workers.meet() == set()
    assert "evaluations differ in number" in workers.end()[0]
    workers = Workers(2)
    for each in workers.all:
        each.note_streams([1.0, math.nan])
    assert workers.meet() == {"random numbers"}


def test_a_step_without_anything_exchanged():
    """If this fails, a job in which every worker trains by itself ends well."""
    workers = Workers(2)
    for _ in range(2):
        workers.all[0].nothing_exchanged()
    assert [kind for kind, _, _ in workers.said] == ["nothing exchanged"], "once"


def test_a_worker_that_died_leaves_no_claim_about_its_samples():
    """If this fails, the last line claims that all samples were trained on when a worker's were not."""
    workers = Workers(3)
    assert workers.epoch(batches(6), meets=False) is None
    rows = [each.words() for each in workers.all[:2]] + [[0.0] * witness.COUNT]
    for each in workers.all[:2]:
        each.hear(rows, steps=1)
    assert not workers.said
    rows = [each.words(over=True) for each in workers.all[:2]] + [[0.0] * witness.COUNT]
    found = workers.all[0].hear_end(rows, 3)
    assert "samples" not in found and workers.all[0].heading() == "verified in part"
    assert "worker 2 was lost after step 1: from then on its part of each epoch was not trained on" in found
    assert "weights equal to the bit on 2 workers after 3 steps; learning rates equal in every step" in found


def test_a_worker_that_is_left_alone_claims_nothing_of_what_came_then():
    """If this fails, a worker that had no other to compare with says that weights were equal, and epochs whole."""
    workers = Workers(2)
    assert workers.epoch(batches(6)) == set()
    alone, dead = workers.all[0], [0.0] * witness.COUNT
    reading = alone.read(0)
    for batch in batches(8):
        reading.drew(batch)
        reading.gave(batch, dealt=True)
    reading.finish(True)
    alone.hear([alone.words(), dead], steps=3)
    assert alone.hear_end([alone.words(over=True), dead], 7) == \
        "worker 1 was lost after step 3: from then on its part of each epoch was not trained on; until then 12 samples, " \
        "each once per epoch; weights after 7 steps are those of one worker, with no other to compare them with; until " \
        "then learning rates equal in every step"
    assert alone.heading() == "verified in part" and not workers.said


def test_workers_that_are_lost_together_are_named_together():
    """If this fails, people do not learn which parts of their data were left out, or since when."""
    workers = Workers(4)
    dead, here = [0.0] * witness.COUNT, workers.all[2:]
    here[0].hear([each.words() for each in workers.all[:1]] + [dead] + [each.words() for each in here], steps=2)
    here[0].hear([dead, dead] + [each.words() for each in here], steps=5)
    assert here[0].lost.here() == [2, 3]
    assert here[0].hear_end([dead, dead] + [each.words() for each in here], 9).startswith(
        "worker 1 was lost after step 2: from then on its part of each epoch was not trained on; worker 0 was lost after step "
        "5: from then on its part of each epoch was not trained on; weights equal")
    both = Workers(3).all[0]
    both.hear([both.words(), dead, dead], steps=4)
    assert "workers 1 and 2 were lost after step 4: from then on their part" in both.hear_end([both.words(), dead, dead], 5)


def test_digests_do_not_depend_on_how_a_sampler_writes_numbers():
    """If this fails, samplers that yield something other than ints are not compared right."""
    class Number:
        def __index__(self):
            return 3

    assert positions.in_order([3, 4]) == positions.in_order((Number(), 4)) != positions.in_order([4, 3])
    assert positions.in_any_order([4, 3]) == positions.in_any_order([Number(), 4])
    assert (positions.in_any_order([1]) + positions.in_any_order([2, 5])) % witness.MODULUS == positions.in_any_order([5, 1, 2])
    assert positions.in_order(["a", "b"]) != positions.in_order(["b", "a"])
    assert positions.in_order(7) == positions.in_order([7])


@pytest.mark.parametrize("means,unequal", [([3.0, 3.0], False), ([3.0, 2.5], True), ([-1.0, 3.0], True),
                                           ([-math.inf, 3.0], True), ([witness.UNKNOWN, 3.0], False)])
def test_losses_that_are_means_of_other_numbers_are_seen_by_all(means, unequal):
    """If this fails, workers whose losses count differently do not find out, or not all of them in the same step."""
    workers = Workers(2)
    workers.tell(means=means)
    assert not workers.meet()
    assert [each.unequal_means for each in workers.all] == [unequal] * 2


def test_one_batch_more_is_told_like_any_other():
    """If this fails, what nearly every step tells differs from what is meant, and workers that train right are stopped, or
    wrong ones are not."""
    told = []
    for at_once in (False, True):
        workers = Workers(2)
        for rank, each in enumerate(workers.all):
            reading = each.read(0)
            list(reading.drawing(iter(batches(8)), stay=at_once))
            reading.gave(batches(8)[rank], dealt=True)
            assert reading.is_steady
            for batch in batches(8)[rank + 2::2]:
                if at_once:
                    assert reading.gave_another(batch, step=3)
                else:
                    reading.gave(batch, dealt=True)
                    each.drew_step(3)
            reading.finish(dealt=True)
        told.append([str(each.words()) for each in workers.all])
    assert told[0] == told[1]


@pytest.mark.parametrize("news", [[7], (6, 7), [6.5, 7], ["6", "7"]], ids=str)
def test_what_is_new_about_a_batch_is_not_passed_over(news):
    """If this fails, batches of another size or kind are taken for ordinary ones."""
    reading = Workers(2).all[0].read(0)
    list(map(reading.drew, batches(3)))
    reading.gave([0, 1], dealt=True)
    assert reading.gave_another([4, 5], 1)
    assert not reading.gave_another(news, 2)


def test_a_smaller_batch_is_seen_when_it_is_drawn():
    """If this fails, nobody looks at how many samples each worker trains on in the last step of an epoch."""
    reading = Workers(2).all[0].read(0)
    drawn = [*batches(5), [10]]
    source = reading.drawing(iter(drawn), stay=True)
    for number in (0, 2):
        assert [next(source), next(source)] == drawn[number:number + 2]
        if not (reading.is_steady and reading.gave_another(drawn[number], 1)):
            reading.gave(drawn[number], dealt=True)
    assert reading.is_steady and not reading.uneven
    assert [*source] == drawn[4:]
    assert not reading.gave_another(drawn[4], 1), "of this step another worker's is smaller"
    reading.gave(drawn[4], dealt=True)
    assert reading.uneven and not reading.is_steady


def test_batches_drawn_twice_are_seen_while_there_is_time():
    """If this fails, samplers with replacement are said to give several workers the same."""
    each = Workers(2).all[0]
    reading = each.read(0)
    source = reading.drawing(iter([[0, 1], [2, 3], [0, 1]]), stay=True)
    next(source)
    reading.gave([0, 1], dealt=True)
    assert reading.is_steady and len(list(source)) == 2
    each.catch_up()
    assert reading.repeats() and not reading.is_steady


@pytest.mark.parametrize("same", [(0, 1), (0, 2), (1, 2)])
def test_any_two_of_three_with_the_same_data_are_seen(same):
    """If this fails, of more than two workers only neighbours are compared."""
    workers = Workers(3)
    readings = [each.read(0) for each in workers.all]
    for number in range(2):
        for rank, reading in enumerate(readings):
            reading.gave([3 * number + rank], dealt=True)
        assert workers.meet() == set()
    for rank, reading in enumerate(readings):
        reading.gave([6 + (same[0] if rank == same[1] else rank)], dealt=True)
    assert workers.meet() == {"same data"}
