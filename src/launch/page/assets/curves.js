/* curves.js - every scalar over steps or time: mean with spread, or each worker. */

const curves = new Map(); /* name -> {card, chart, ...} */
const curveSettings = () => ({
  each: byId("curve-mode").value === "each", time: byId("curve-x").value === "time",
  log: byId("curve-log").checked, weight: Number(byId("curve-smooth").value),
});

function makeCurve(name) {
  const value = element("b", {}), chart = element("div", { class: "chart" }), read = element("p", { class: "read" });
  const card = element("div", { class: "card" }, element("div", { class: "curve-top" }, element("h3", {}, name), value), chart, read);
  card.dataset.scalar = name;
  byId("curve-list").append(card);
  return { card, value, read, node: chart, chart: new Chart(chart, 190, `curve of ${clean(name)} over steps or time`) };
}

function curveOptions(workers, settings, curve) {
  const accent = styleOf("--accent");
  const axes = [axis(28, settings.time ? undefined : (plot, values) => values.map(short)), axis(52, (plot, values) => values.map(short))];
  const options = {
    axes, scales: { x: { time: settings.time }, y: { distr: settings.log ? 3 : 1 } },
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
    hooks: { setCursor: [(plot) => setText(curve.read, describeCursor(plot, workers, settings))] },
  };
  if (settings.each) {
    options.series = [{}, ...workers.map((worker, i) => ({ stroke: colourOf(i, workers.length), width: workers.length > 8 ? 1 : 1.6, points: { show: false }, spanGaps: true }))];
    return options;
  }
  const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
  options.series = [{}, edge, edge, { stroke: accent, width: 2, points: { show: false }, spanGaps: true }];
  options.bands = [{ series: [2, 1], fill: accent + "33" }];
  return options;
}

function describeCursor(plot, workers, settings) {
  const at = plot.cursor.idx;
  if (at === null || at === undefined) return "";
  const where = settings.time ? formatClock(plot.data[0][at] * 1000) : "step " + formatStep(plot.data[0][at]);
  if (!settings.each) {
    const [low, high, mean] = [1, 2, 3].map((i) => formatNumber(plot.data[i][at]));
    return workers.length > 1 ? `${where}: mean ${mean}, lowest ${low}, highest ${high}` : `${where}: ${mean}`;
  }
  const named = workers.map((worker, i) => [worker, plot.data[i + 1][at]]).filter((pair) => isNumber(pair[1]));
  if (named.length <= 8) return `${where}: ` + named.map(([worker, value]) => `worker ${worker} ${formatNumber(value)}`).join(", ");
  named.sort((a, b) => a[1] - b[1]);
  const [lowest, highest] = [named[0], named[named.length - 1]];
  return `${where}: lowest worker ${lowest[0]} ${formatNumber(lowest[1])}, highest worker ${highest[0]} ${formatNumber(highest[1])}`;
}

/* A scale of logarithms has no place for zero and below. */
const positive = (row) => row.map((value) => (value > 0 ? value : null));

function curveData(byWorker, workers, settings) {
  const { x, times, rows } = align(workers.map((worker) => byWorker.get(worker)), !settings.each);
  const lines = settings.each ? rows.map((row) => smooth(row, settings.weight)) : (() => {
    const { mean, low, high } = spread(rows, x.length);
    return [smooth(low, settings.weight), smooth(high, settings.weight), smooth(mean, settings.weight)];
  })();
  return [settings.time ? times : x, ...(settings.log ? lines.map(positive) : lines)];
}

function showCurve(name, byWorker, settings) {
  if (!curves.has(name)) curves.set(name, makeCurve(name));
  const curve = curves.get(name);
  const workers = [...byWorker.keys()].sort((a, b) => a - b);
  const { text, more, broken } = newest(byWorker);
  setText(curve.value, [text, more].filter(Boolean).join(" "));
  curve.card.classList.toggle("broken", broken);
  if (!isVisible(curve.card)) return;
  const shape = JSON.stringify([settings.each ? workers : workers.length > 1, settings.time, settings.log]);
  curve.chart.show(shape, () => curveOptions(workers, settings, curve), curveData(byWorker, workers, settings));
}

function showCurves() {
  const settings = curveSettings();
  for (const [name, byWorker] of state.scalars) showCurve(name, byWorker, settings);
  for (const [name, curve] of curves) {
    if (!state.scalars.has(name)) { curve.chart.drop(); curve.card.remove(); curves.delete(name); }
  }
  const none = byId("curve-none");
  if (state.scalars.size === 0 && !none) {
    byId("curve-list").append(element("div", { class: "card none", id: "curve-none" }, "No worker has reported a number yet. A worker reports one with psd_report(), or poseidon.report() in Python."));
  } else if (state.scalars.size > 0 && none) none.remove();
}

for (const id of ["curve-mode", "curve-x", "curve-log", "curve-smooth"]) byId(id).addEventListener("input", showCurves);
