/* state.js - what is known of the job: snapshots come in, whole or with what is new, and are merged. */

const LOG_LINES_MAX = 4000, EVENTS_MAX = 500, WAITS_MAX = 200;
const WAIT_PARTS = ["compute", "encode", "send", "server", "worker", "receive", "apply"];

const state = {
  job: {}, cause: null, sentence: "", whole: "", verdict: "", waited_for: null, processes: [], tables: [], edges: [], report: null,
  scalars: new Map(), /* name -> worker -> Series */
  waits: [], waitHistory: {}, logs: [], events: [],
  logTotal: 0, at: 0, traffic: new Map(),
};

function forget() {
  state.scalars = new Map();
  state.waits = []; state.logs = []; state.events = []; state.logTotal = 0;
  state.waitHistory = Object.fromEntries([...WAIT_PARTS, "total"].map((part) => [part, new Series()]));
}
forget();

/* Bytes that only grow, as a rate: what it was before is kept by name. */
function rateOf(name, bytes, now) {
  const before = state.traffic.get(name);
  if (!isNumber(bytes)) return NaN;
  if (before && now - before.at < 200) return before.rate;
  const rate = before && now > before.at ? Math.max(0, ((bytes - before.bytes) * 1000) / (now - before.at)) : NaN;
  const steady = before && isNumber(before.rate) && isNumber(rate) ? 0.5 * before.rate + 0.5 * rate : rate;
  state.traffic.set(name, { bytes, at: now, rate: steady });
  return steady;
}

/* Logs and events count from the start of the job. */
const wallTime = (ms) => (state.job.started_unix_ms || 0) + ms;

const list = (value) => (Array.isArray(value) ? value : []);

function mergeScalars(scalars) {
  for (const { name, worker, points } of list(scalars)) {
    const key = String(name);
    if (!state.scalars.has(key)) state.scalars.set(key, new Map());
    const workers = state.scalars.get(key);
    if (!workers.has(worker)) workers.set(worker, new Series());
    const series = workers.get(worker);
    series.guessed = false;
    for (const [step, time, value] of list(points)) series.add(step, time, value);
  }
}

/* Workers that send no points still say their last number: it becomes one. */
function mergeLastValues(now) {
  for (const process of state.processes) {
    for (const [name, value] of Object.entries(process.scalars || {})) {
      const series = state.scalars.has(name) ? state.scalars.get(name).get(process.index) : undefined;
      if (process.role === "worker" && (!series || (series.guessed && series.lastStep !== process.step))) {
        mergeScalars([{ name, worker: process.index, points: [[process.step, now, value]] }]);
        state.scalars.get(name).get(process.index).guessed = true;
      }
    }
  }
}

function mergeWaits(waits) {
  for (const wait of list(waits)) {
    if (!isNumber(wait.step)) continue;
    state.waits.push(wait);
    state.waitHistory.total.add(wait.step, 0, wait.total_us || 0);
    for (const part of WAIT_PARTS) state.waitHistory[part].add(wait.step, 0, wait[part + "_us"] || 0);
  }
  if (state.waits.length > WAITS_MAX) state.waits.splice(0, state.waits.length - WAITS_MAX);
}

/* Rows that have a number come once. */
function mergeRows(rows, news, max) {
  const newest = rows.length > 0 ? rows[rows.length - 1].n : -1;
  const fresh = list(news).filter((row) => !(row.n <= newest));
  rows.push(...fresh);
  if (rows.length > max) rows.splice(0, rows.length - max);
  return fresh.length;
}

function mergeRates(now) {
  let sum = 0, known = false;
  for (const process of state.processes) {
    process.in_rate = rateOf("in " + process.name, process.bytes_in, now);
    process.out_rate = rateOf("out " + process.name, process.bytes_out, now);
  }
  for (const edge of state.edges) {
    const name = edge.worker + " " + edge.server;
    edge.rate = rateOf("edge " + name, (edge.bytes_in || 0) + (edge.bytes_out || 0), now);
    if (isNumber(edge.rate)) { sum += edge.rate; known = true; }
  }
  for (const table of state.tables) {
    table.in_rate = rateOf("table in " + table.name, table.bytes_in, now);
    table.out_rate = rateOf("table out " + table.name, table.bytes_out, now);
  }
  state.rate = known ? sum : NaN;
}

/* whole: a new beginning, after the line was lost. */
function merge(snapshot, whole, now) {
  if (whole) forget();
  for (const key of ["job", "cause", "sentence", "whole", "verdict", "waited_for", "processes", "tables", "edges", "report", "configuration"]) {
    if (snapshot[key] !== undefined) state[key] = snapshot[key];
  }
  state.job = state.job || {};
  for (const key of ["processes", "tables", "edges"]) state[key] = list(state[key]);
  mergeScalars(snapshot.scalars);
  mergeLastValues(now);
  mergeWaits(snapshot.waits);
  state.logTotal += mergeRows(state.logs, snapshot.logs, LOG_LINES_MAX);
  mergeRows(state.events, snapshot.events, EVENTS_MAX);
  mergeRates(now);
  state.at = now;
}
