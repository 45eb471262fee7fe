/* tables.js - the job's tables: how large, where, how much goes in and out. */

function fillPlaces(cell, table) {
  const places = list(table.places);
  const most = Math.max(1, ...places);
  const mark = places.join(" ");
  if (cell.dataset.mark === mark) return;
  cell.dataset.mark = mark;
  const bars = element("span", { class: "places", title: places.map((count, i) => `server ${i}: ${count}`).join(", ") });
  for (const count of places.slice(0, 64)) {
    const bar = element("i");
    bar.style.height = (100 * count) / most + "%";
    bars.append(bar);
  }
  cell.replaceChildren(bars);
}

const tableTable = new Table(byId("table-table"), [
  { title: "table", left: true, text: (row) => row.name, sort: (row) => String(row.name) },
  number("size", "bytes", formatBytes),
  number("chunks", "chunks"),
  { title: "on servers", left: true, fill: fillPlaces, sort: (row) => list(row.places).length },
  { title: "rule", left: true, text: (row) => row.rule || UNKNOWN, sort: (row) => String(row.rule) },
  number("staleness", "staleness", (value) => (value === null || value === undefined ? UNKNOWN : String(value))),
  number("pushed", "in_rate", formatRate),
  number("pulled", "out_rate", formatRate),
  number("pushed in all", "bytes_in", formatBytes),
  number("pulled in all", "bytes_out", formatBytes),
]);

function showTables() {
  byId("tables").hidden = state.tables.length === 0;
  tableTable.show(state.tables);
}
