# SPDX-License-Identifier: Apache-2.0
"""Workers that leave while the job runs, and who counts in a step, from Python."""


def test_who_counts_and_a_planned_leave(run):
    """If this fails, Python programs are told another set of workers than counts, or cannot leave while the job runs."""
    said = run("""
        job = poseidon.init()
        table = poseidon.Table("w", 10, rule="add", reduce="sum")
        values = table.pull().wait()
        for step in range(table.step, 8):
            members = job.members(step)
            say(step, members.version, members.since, members.count, list(members.ranks), members.index)
            if job.rank == 1 and step == 4:
                poseidon.leave()
                poseidon.leave()  # once more is nothing
                say(attempt(table.push, np.ones(10, np.float32)).split()[0])
                break
            table.push_pull(np.ones(10, np.float32), values).wait()
        say(attempt(poseidon.members).split()[0] if job.rank == 1 else values[0])
        poseidon.close()
    """, workers=3)
    for rank, lines in enumerate(said):
        left = rank == 1
        steps = [f"{step} 0 0 3 [0, 1, 2] {rank}" for step in range(5)]
        assert lines[:5] == steps
        assert lines[5:] == (["ClosedError", "ClosedError"] if left else [
            f"{step} 1 5 2 [0, 2] {rank // 2}" for step in range(5, 8)] + ["20.0"])
