/* charts.js - uPlot, with the page's colours. Without it (the build had none) charts say so. */

const haveCharts = typeof uPlot === "function";
const charts = new Set();

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* Colours of workers: told apart as long as there are few. */
const FEW = ["#2f6fde", "#e8710a", "#1d8a4e", "#a142c4", "#c92a2a", "#0b98a5", "#b8860b", "#6b7280"];
const colourOf = (index, count) => (count <= FEW.length ? FEW[index % FEW.length] : `hsl(${Math.round(index * 137.5) % 360} 62% 52%)`);

function axis(size, values) {
  return {
    stroke: styleOf("--faint"), size, values, font: "11px system-ui, sans-serif",
    grid: { stroke: styleOf("--rule"), width: 1 }, ticks: { show: false },
  };
}

/* Large numbers short: 12k, 3.4M. */
function short(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1e9) return Number((value / 1e9).toFixed(3)) + "G";
  if (size >= 1e6) return Number((value / 1e6).toFixed(3)) + "M";
  if (size >= 1e4) return Number((value / 1e3).toFixed(2)) + "k";
  return size !== 0 && size < 1e-3 ? value.toExponential(0) : String(Number(value.toPrecision(4)));
}

/* A chart in an element: options of uPlot without size. Keeps what is zoomed when data comes. */
class Chart {
  constructor(node, height, label) {
    this.node = node; this.label = label; this.height = height; this.plot = null; this.zoomed = false; this.shape = "";
    charts.add(this);
  }

  /* shape: what the options depend on; when it changes, the chart is made anew. */
  show(shape, options, data) {
    const width = Math.floor(this.node.clientWidth);
    if (!haveCharts) {
      setText(this.node, "This psd_run was built without its library of charts: no curves here.");
      return;
    }
    if (width === 0) return;
    if (this.plot && this.shape === shape && this.plot.width === width) {
      this.plot.setData(data, !this.zoomed);
      if (this.zoomed) this.plot.redraw();
      return;
    }
    if (this.plot) this.plot.destroy();
    const made = options();
    this.zoomed = false;
    this.shape = shape;
    made.width = width; made.height = this.height; made.legend = { show: false };
    made.padding = [8, 8, 0, 0];
    made.hooks = Object.assign({ setScale: [(plot, key) => this.watchZoom(plot, key)] }, made.hooks);
    this.plot = new uPlot(made, data, this.node);
    this.node.setAttribute("role", "img");
    this.node.setAttribute("aria-label", this.label);
  }

  watchZoom(plot, key) {
    const x = plot.data[0];
    if (key !== "x" || !x || x.length === 0) return;
    this.zoomed = plot.scales.x.min > x[0] || plot.scales.x.max < x[x.length - 1];
  }

  forget() { if (this.plot) this.plot.destroy(); this.plot = null; }

  drop() { this.forget(); charts.delete(this); }
}

/* Colours have changed: all are made anew with the next data. */
function repaintCharts() { for (const chart of charts) chart.forget(); }

const isVisible = (node) => {
  const box = node.getBoundingClientRect();
  return box.bottom > -200 && box.top < window.innerHeight + 200;
};
