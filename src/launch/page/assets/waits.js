/* waits.js - where the time of a step goes: stacked over steps, and the last steps one by one. */

const WAIT_COLOURS = { compute: "#2f6fde", encode: "#7aa7f0", send: "#0b98a5", server: "#a142c4", worker: "#e8710a", receive: "#3bb273", apply: "#9aa4b2" };
const WAIT_WORDS = {
  compute: "compute", encode: "encode", send: "send", server: "wait for a server",
  worker: "wait for a worker", receive: "receive", apply: "apply",
};
const TIMELINE_STEPS = 14;
const waitChart = new Chart(byId("wait-chart"), 240, "where the time of each step went");

for (const part of WAIT_PARTS) {
  const colour = element("i");
  colour.style.background = WAIT_COLOURS[part];
  byId("wait-key").append(element("span", {}, colour, WAIT_WORDS[part]));
}

/* [steps, parts] with a row for each part, in milliseconds. */
function waitRows() {
  if (byId("wait-span").value === "last") {
    return [state.waits.map((wait) => wait.step), WAIT_PARTS.map((part) => state.waits.map((wait) => (wait[part + "_us"] || 0) / 1000))];
  }
  const all = WAIT_PARTS.map((part) => state.waitHistory[part]);
  return [all[0].keys.map((key, i) => all[0].stepAt(i)), all.map((series) => series.sums.map((sum, i) => sum / series.counts[i] / 1000))];
}

/* uPlot paints in order: the sum of all parts first, the lowest part last. */
function stacked(rows) {
  const sums = [];
  rows.forEach((row, part) => sums.push(part === 0 ? row : row.map((value, i) => value + sums[part - 1][i])));
  return sums.reverse();
}

function waitOptions() {
  const bars = uPlot.paths.bars({ size: [1, 60], gap: 0 });
  return {
    axes: [axis(28, (plot, values) => values.map(short)), axis(58, (plot, values) => values.map((value) => formatMicroseconds(value * 1000)))],
    scales: { x: { time: false }, y: { range: (plot, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
    cursor: { drag: { x: true, y: false }, points: { show: false } },
    series: [{}, ...[...WAIT_PARTS].reverse().map((part) => ({ fill: WAIT_COLOURS[part], stroke: WAIT_COLOURS[part], width: 0, paths: bars, points: { show: false } }))],
    hooks: { setCursor: [(plot) => setText(byId("wait-read"), describeWait(plot.cursor.idx))] },
  };
}

function describeWait(at) {
  if (at === null || at === undefined || !waitChart.rows) return "";
  const [steps, rows] = waitChart.rows;
  const parts = WAIT_PARTS.map((part, i) => [WAIT_WORDS[part], rows[i][at]]).filter((pair) => pair[1] > 0);
  return `step ${formatStep(steps[at])}: ` + parts.map(([word, ms]) => `${word} ${formatMicroseconds(ms * 1000)}`).join(", ");
}

function whoWasWaitedFor(wait) {
  const share = (us) => Math.round((100 * us) / (wait.total_us || 1));
  if (wait.worker_us > 0.1 * wait.total_us && isNumber(wait.worker)) return `worker ${wait.worker}, ${share(wait.worker_us)} %`;
  if (wait.server_us > 0.1 * wait.total_us && isNumber(wait.server)) return `server ${wait.server}, ${share(wait.server_us)} %`;
  return "";
}

/* Whom the sentence names, as {role, index, share}; null: nobody stands out. */
const waitedFor = () => (state.job.phase === "running" ? state.waited_for || null : null);

const isWaitedFor = (process, slow) => slow !== null && process.role === slow.role && process.index === slow.index;

function timelineRow(wait, longest) {
  const bars = element("div", { class: "bars" });
  for (const part of WAIT_PARTS) {
    const us = wait[part + "_us"] || 0;
    if (us <= 0) continue;
    const bar = element("i", { title: `${WAIT_WORDS[part]} ${formatMicroseconds(us)}` });
    bar.style.background = WAIT_COLOURS[part];
    bar.style.width = (100 * us) / longest + "%";
    bars.append(bar);
  }
  const who = [formatMicroseconds(wait.total_us), whoWasWaitedFor(wait)].filter(Boolean).join(" \u00b7 ");
  return element("div", { class: "step" }, element("span", {}, formatStep(wait.step)), bars, element("span", { class: "who", title: who }, who));
}

function showWaits() {
  const timeline = byId("timeline");
  byId("waiting").hidden = state.waits.length === 0;
  if (state.waits.length === 0 || !isVisible(byId("waiting"))) return;
  waitChart.rows = waitRows();
  const [steps, rows] = waitChart.rows;
  waitChart.show("waits " + byId("wait-span").value, waitOptions, [steps, ...stacked(rows)]);
  const last = state.waits.slice(-TIMELINE_STEPS).reverse();
  const longest = Math.max(1, ...last.map((wait) => wait.total_us || 0));
  timeline.replaceChildren(...last.map((wait) => timelineRow(wait, longest)));
}

byId("wait-span").addEventListener("input", showWaits);
