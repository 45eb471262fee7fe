# SPDX-License-Identifier: Apache-2.0
"""What can be done with the curves of a page, in a real browser."""

import browser
import recorded_feed
from helpers import wait_for
from test_page import READ_ALONG, needs_browser, needs_charts, open_page, replay, served  # noqa: F401 (fixtures)


def drag(looks, name, begin, end):
    """The mouse over a curve, from a share of its width to another one."""
    left, top, width = looks.run("const box = document.querySelector('[data-scalar=' + arguments[0] + '] .u-over').getBoundingClientRect();"
                                 "return [box.left, box.top + box.height / 2, box.width]", name)
    for kind, share in (("mousePressed", begin), ("mouseMoved", (begin + end) / 2), ("mouseMoved", end), ("mouseReleased", end)):
        looks.devtools("Input.dispatchMouseEvent", {"type": kind, "x": left + share * width, "y": top, "button": "left", "buttons": 1, "clickCount": 1})


PAINTED = "return document.querySelector('[data-scalar=zigzag] canvas').toDataURL()"
SET = "const node = document.getElementById(arguments[0]); node[arguments[1]] = arguments[2]; node.dispatchEvent(new Event('input'))"


@needs_browser
@needs_charts
def test_curves_are_zoomed_smoothed_and_shown_by_worker(served):  # noqa: F811
    """If this fails, the controls over the curves do nothing, or news takes away what somebody looks at."""
    points = {worker: [[step, 1_700_000_000_000 + 100 * step, (worker + 1) * (1 + step % 2)] for step in range(1, 201)] for worker in (0, 1)}
    recorded_feed.write(served.process.stdin, "W", dict(served.feed.whole(), scalars=[
        {"name": "zigzag", "worker": worker, "points": each} for worker, each in points.items()]))
    recorded_feed.write(served.process.stdin, "D", {})

    def read():
        return [line.replace("\u2009", "") for line in looks.run(READ_ALONG, "zigzag") if line]

    def steps():
        found = [int(line.split(":")[0].split()[1]) for line in read()]
        return min(found), max(found)

    with browser.Browser() as looks:
        open_page(looks, served.address)
        looks.until("return document.querySelectorAll('#curve-list canvas').length >= 2", what="the curve, beside the loss of the feed")
        assert steps()[0] < 10 and steps()[1] > 190
        assert {line.partition(": ")[2] for line in read()} == {"mean 1.5, lowest 1, highest 2", "mean 3, lowest 2, highest 4"}
        looks.run(SET, "curve-mode", "value", "each")
        assert {line.partition(": ")[2] for line in read()} == {"worker 0 1, worker 1 2", "worker 0 2, worker 1 4"}
        drag(looks, "zigzag", 0.25, 0.5)
        wait_for(lambda: steps()[1] < 105, 10, lambda: f"the part that was dragged over: {steps()}")
        near = steps()
        assert near[0] >= 45, near
        recorded_feed.write(served.process.stdin, "D", {"scalars": [{"name": "zigzag", "worker": worker, "points": [[300, 1_700_000_030_000, 40]]}
                                                                    for worker in (0, 1)]})
        looks.until("return document.querySelector('[data-scalar=zigzag] b').innerText === '40'", what="news")
        assert steps() == near
        looks.run("document.querySelector('[data-scalar=zigzag] .u-over').dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))")
        wait_for(lambda: steps()[1] > 190 and steps()[0] < 10, 10, lambda: f"all of it: {steps()}")
        looks.run(SET, "curve-smooth", "value", "0.9")
        late = [float(line.split()[4].rstrip(",")) for line in read() if 100 <= int(line.split(":")[0].split()[1]) <= 200]
        assert late and all(1.3 < value < 1.7 for value in late), late  # neither 1 nor 2
        even = looks.run(PAINTED)
        looks.run(SET, "curve-log", "checked", True)
        looks.until(PAINTED + " !== arguments[0]", even, what="another scale")
    assert served.end() == 0
