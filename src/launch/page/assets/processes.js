/* processes.js - the table of processes; and what both tables of the page share. */

/* A table whose rows are kept by name and whose columns sort: {title, text(row), sort(row), left}. */
class Table {
  constructor(node, columns) {
    this.body = node.tBodies[0]; this.columns = columns; this.rows = new Map(); this.by = null; this.down = false;
    this.heads = columns.map((column, i) => {
      const button = element("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sortBy(i));
      return element("th", { class: column.left ? "left" : null, scope: "col" }, button);
    });
    node.tHead.append(element("tr", {}, ...this.heads));
  }

  sortBy(i) {
    this.down = this.by === i ? !this.down : !this.columns[i].left;
    this.by = i;
    this.heads.forEach((head, k) => { if (k === i) head.setAttribute("aria-sort", this.down ? "descending" : "ascending"); else head.removeAttribute("aria-sort"); });
    if (this.last) this.show(this.last);
  }

  sorted(items) {
    if (this.by === null) return items;
    const { sort } = this.columns[this.by];
    const order = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    const known = (value) => (typeof value === "string" ? true : isNumber(value));
    return [...items].sort((a, b) => {
      const [x, y] = [sort(a), sort(b)];
      if (!known(x) || !known(y)) return known(y) - known(x);
      return this.down ? order(y, x) : order(x, y);
    });
  }

  show(items) {
    this.last = items;
    const order = this.sorted(items).map((item) => {
      if (!this.rows.has(item.name)) this.rows.set(item.name, element("tr", {}, ...this.columns.map((column) => element("td", { class: column.left ? "left" : null }))));
      const row = this.rows.get(item.name);
      this.columns.forEach((column, i) => (column.fill ? column.fill(row.cells[i], item) : setText(row.cells[i], column.text(item))));
      return row;
    });
    if (order.length !== this.body.rows.length || order.some((row, i) => this.body.rows[i] !== row)) this.body.replaceChildren(...order);
  }
}

const PROCESS_STATES = new Set(["starting", "running", "lost", "ended", "failed"]);

function fillState(cell, process) {
  const known = PROCESS_STATES.has(process.state) ? process.state : "";
  if (!cell.firstElementChild) cell.append(element("span"));
  cell.firstElementChild.className = "dot " + known;
  setText(cell.firstElementChild, process.state || UNKNOWN);
}

const loss = (process) => {
  const values = Object.entries(process.scalars || {});
  return values.length > 0 ? values[0] : ["", NaN];
};
const number = (title, key, text) => ({ title, text: (row) => (text || formatNumber)(row[key]), sort: (row) => row[key] });

const processTable = new Table(byId("process-table"), [
  { title: "process", left: true, text: (row) => row.name, sort: (row) => String(row.name) },
  { title: "host", left: true, text: (row) => row.host || UNKNOWN, sort: (row) => String(row.host) },
  { title: "state", left: true, fill: fillState, sort: (row) => String(row.state) },
  number("step", "step", formatStep),
  number("lag", "lag"),
  number("steps/s", "rate", (value) => formatNumber(value, 3)),
  { title: "value", text: (row) => (loss(row)[0] ? loss(row)[0] + " " + (loss(row)[1] === null ? NO_NUMBER : formatNumber(loss(row)[1])) : UNKNOWN), sort: (row) => loss(row)[1] },
  { title: "CPU", text: (row) => (isNumber(row.cpu) ? Math.round(100 * row.cpu) + " %" : UNKNOWN), sort: (row) => row.cpu },
  number("memory", "memory_bytes", (value) => (value > 0 ? formatBytes(value) : UNKNOWN)),
  number("GPU", "gpu_bytes", (value) => (value > 0 ? formatBytes(value) : UNKNOWN)),
  number("in", "in_rate", formatRate),
  number("out", "out_rate", formatRate),
  { title: "pid", text: (row) => (row.pid > 0 ? String(row.pid) : UNKNOWN), sort: (row) => row.pid },
]);

/* Who is waited for stands on top, as long as nobody has sorted the table. */
function showProcesses() {
  const wanted = byId("process-find").value.toLowerCase(), slow = waitedFor();
  const found = state.processes.filter((process) => (process.name + " " + process.host).toLowerCase().includes(wanted));
  processTable.show(found.sort((a, b) => isWaitedFor(b, slow) - isWaitedFor(a, slow)));
  for (const process of found) {
    const row = processTable.rows.get(process.name);
    row.classList.toggle("slow", isWaitedFor(process, slow));
    row.title = isWaitedFor(process, slow) ? `waited for: ${Math.round(100 * slow.share)} % of the last steps` : "";
  }
}

byId("process-find").addEventListener("input", showProcesses);
