# SPDX-License-Identifier: Apache-2.0
"""How samples are dealt to workers that come and go. Nothing here runs a job: the rounds are imagined, and a ledger notes which
samples were in them."""

import itertools
import random

import numpy as np
import pytest

import conftest  # noqa: F401
from poseidon import _elastic
from poseidon._errors import InvalidError, MismatchError
from poseidon.elastic import Deal, ElasticSampler, HostsUpdatedInterrupt
from poseidon.elastic.deal import order


GOLDEN = ([0, 3, 5, 7, 9, 6, 11, 2, 8, 1, 10, 4], [7, 3, 1, 0, 6, 2, 10, 9, 5, 11, 8, 4],
          [8, 0, 10, 4, 7, 2, 9, 5, 11, 1, 3, 6])


class Member:
    """A worker, and what it knows of its group."""

    def __init__(self, job, rank):
        self.job, self.rank = job, rank
        self.members = ()
        self.sampler = ElasticSampler(job.length, batch_size=job.batch_size, seed=5)

    def interrupt_if_changed(self):
        if self.job.changed:
            raise HostsUpdatedInterrupt("")


class Job:
    """Workers in lockstep. What happens before each step: nothing, or some die, come or leave."""

    def __init__(self, monkeypatch, length, batch_size, workers, commit_every=1):
        self.length, self.batch_size, self.commit_every = length, batch_size, commit_every
        self.alive = {}
        self.born = 0
        self.changed = False
        self.coming = self.leaving = 0
        self.steps = 0
        self.ledger = np.zeros(length, int)
        self._acting = None
        monkeypatch.setattr(_elastic, "current", lambda: self._acting)
        for _ in range(workers):
            self._add()

    def _add(self):
        self.alive[self.born] = Member(self, self.born)
        self.born += 1

    def _each(self, do):
        """What every living worker gets; all must get the same kind of thing."""
        found = {}
        for rank, self._acting in self.alive.items():
            found[rank] = do(self._acting)
        self._acting = None
        return found

    def _regroup(self):
        """What elastic.run does: those who leave are gone, those who have come get the state of one that has it."""
        for rank in sorted(self.alive)[len(self.alive) - min(self.leaving, len(self.alive) - 1):]:
            del self.alive[rank]
        state = self.alive[min(self.alive)].sampler.state_dict()
        for _ in range(self.coming):
            self._add()
            self.alive[max(self.alive)].sampler.load_state_dict(state)
        for member in self.alive.values():
            member.members = tuple(sorted(self.alive))
            member.sampler.reset()
        self.changed, self.coming, self.leaving = False, 0, 0

    def train(self, epoch, happens):
        """An epoch. happens(step): how many die in it before they have given their gradients, come, and are told to leave."""
        for member in self.alive.values():
            member.sampler.set_epoch(epoch)
        while True:
            self._regroup()
            loops = self._each(lambda member: member.sampler.batches())
            if self._loop(loops, happens):
                return

    def _loop(self, loops, happens):
        while True:
            batches = self._each(lambda member: _next(loops[member.rank]))
            kinds = {type(batch) for batch in batches.values()}
            assert len(kinds) == 1, "workers have different numbers of batches"
            if kinds == {StopIteration}:
                return True
            if kinds == {HostsUpdatedInterrupt}:
                return False
            self._step(batches, *happens(self.steps))
            self.steps += 1
            if self.steps % self.commit_every == 0 and self.changed:
                return False

    def _step(self, batches, dying, coming, leaving):
        for rank in random.Random(self.steps).sample(sorted(self.alive), min(dying, len(self.alive) - 1)):
            del self.alive[rank]  # its gradient is in no round
            self.changed = True
        shares = self._each(lambda member: member.sampler.share())
        for rank, share in shares.items():
            assert share.samples in (len(batches[rank]), 0) and (share.samples or len(batches[rank]) == 1)
            np.add.at(self.ledger, batches[rank][:share.samples], 1)
        self._each(lambda member: member.sampler.count(shares))
        self.coming, self.leaving = self.coming + coming, self.leaving + leaving
        self.changed = self.changed or bool(self.coming or self.leaving)


def _next(loop):
    try:
        return next(loop)
    except (StopIteration, HostsUpdatedInterrupt) as end:
        return end


EVENTS = ((0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0))  # dying, coming, leaving


@pytest.mark.parametrize("commit_every", [1, 2, 1000])
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_every_sequence_of_a_small_job(monkeypatch, length, commit_every):
    """If this fails, a sample is trained on twice in an epoch, or not at all, when workers die, come or leave."""
    for workers, batch_size in itertools.product((1, 2, 3), (1, 2)):
        for events in itertools.product(EVENTS, repeat=3):
            job = Job(monkeypatch, length, batch_size, workers, commit_every)
            job.train(0, lambda step: events[step] if step < len(events) else (0, 0, 0))
            assert (job.ledger == 1).all(), (workers, batch_size, events, job.ledger)


@pytest.mark.parametrize("seed", range(30))
def test_long_jobs_at_random(monkeypatch, seed):
    """If this fails, samples are lost or counted twice in longer jobs, with other epochs and sizes."""
    chance = random.Random(seed)
    job = Job(monkeypatch, chance.randrange(1, 3000), chance.choice((1, 3, 16, 64)), chance.randrange(1, 9),
              chance.choice((1, 1, 3, 17)))

    def happens(_step):
        return (chance.random() < 0.05) * chance.randrange(1, 4), (chance.random() < 0.05) * 1, (chance.random() < 0.03) * 1

    for epoch in range(3):
        job.train(epoch, happens)
        assert (job.ledger == epoch + 1).all()


def test_all_have_equally_many_batches_that_are_as_even_as_can_be():
    """If this fails, workers wait for each other at the end of an epoch, or the last step is dealt unevenly."""
    for length, workers, batch_size in itertools.product(range(30), range(1, 6), range(1, 5)):
        deal = Deal(np.arange(length), workers, batch_size)
        seen = []
        for step in range(deal.steps):
            parts = [deal.batch(index, step) for index in range(workers)]
            sizes = [len(part) for part in parts]
            assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1 and max(sizes) > 0
            assert step == deal.steps - 1 or set(sizes) == {batch_size}
            seen += np.concatenate(parts).tolist()
        assert seen == list(range(length))
        whole = Deal(np.arange(length), workers, batch_size, drop_last=True)
        assert whole.steps == length // (workers * batch_size)


def test_the_order_is_the_same_everywhere():
    """If this fails, a worker with another NumPy, or another release of this package, deals other samples than those it
    joins."""
    assert order(12, 0, 0).tolist() == GOLDEN[0] and order(12, 1, 0).tolist() == GOLDEN[1]
    assert order(12, 0, 7).tolist() == GOLDEN[2] and order(5, 3, 1, shuffle=False).tolist() == [0, 1, 2, 3, 4]
    for epoch in range(5):
        assert sorted(order(1000, epoch, 3).tolist()) == list(range(1000))
    assert abs(np.corrcoef(order(20_000, 0, 1), order(20_000, 1, 1))[0, 1]) < 0.03


def test_the_loop_of_a_job_that_does_not_change():
    """If this fails, len() is not what the loop has, an epoch cannot be begun again, or one is when nobody asked."""
    sampler = ElasticSampler(10, batch_size=4)
    assert len(sampler) == 10 and len(list(sampler)) == 10
    assert sampler.get_indices(0, 4) == list(sampler)[:4]
    sampler.record_indices([3])
    assert len(sampler) == 9 and 3 not in list(sampler)
    sampler.set_epoch(0)  # the one that it is
    assert len(sampler) == 9
    sampler.set_epoch(1)
    assert len(sampler) == 10
    again = ElasticSampler(10, batch_size=4)
    again.load_state_dict(sampler.state_dict())
    assert list(again) == list(sampler) and again.epoch == 1


def test_bad_input():
    """If this fails, a sampler that cannot know what it deals deals something."""
    with pytest.raises(InvalidError, match="how many samples has a batch"):
        next(iter(ElasticSampler(10)))
    with pytest.raises(InvalidError, match="at least 1 of each"):
        Deal(np.arange(3), 0, 1)
    with pytest.raises(MismatchError, match="here are 9 samples, where the state comes from 10"):
        ElasticSampler(9).load_state_dict(ElasticSampler(10).state_dict())
    one, other = ElasticSampler(10, batch_size=2), ElasticSampler(10, batch_size=2, seed=1)
    for sampler in (one, other):
        next(sampler.batches())
    with pytest.raises(MismatchError, match="another deal of the samples"):
        one.count({0: other.share()})
