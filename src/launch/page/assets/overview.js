/* overview.js - at a glance: how far, how fast, who is waited for, what went wrong; and the story. */

const tiles = new Map();
const SCALAR_TILES = 2;

/* key: a scalar may have the name of a tile of the page. */
function setTile(name, value, more, key = name) {
  if (!tiles.has(key)) {
    const tile = { value: element("span"), more: element("small") };
    tile.node = element("div", {}, element("dt", { title: name }, name), element("dd", {}, tile.value, " ", tile.more));
    byId("tiles").append(tile.node);
    tiles.set(key, tile);
  }
  setText(tiles.get(key).value, value);
  setText(tiles.get(key).more, more || "");
  return tiles.get(key).node;
}

/* The first scalars, and every one that is no number any more. */
function showScalarTiles() {
  const shown = new Set();
  [...state.scalars].forEach(([name, byWorker], i) => {
    const { text, more, broken } = newest(byWorker);
    if (i >= SCALAR_TILES && !broken) return;
    setTile(name, text, more, "scalar " + name).classList.toggle("broken", broken);
    shown.add("scalar " + name);
  });
  for (const [key, tile] of tiles) {
    if (key.startsWith("scalar ") && !shown.has(key)) { tile.node.remove(); tiles.delete(key); }
  }
}

/* On purpose: that is no failure. */
const isStopped = () => Boolean(state.cause && state.cause.stopped);

function phaseWord() {
  if (isStopped()) return state.job.phase === "ended" ? "stopped" : "stopping";
  if (state.cause) return state.job.phase === "ended" ? "failed" : "failing";
  return state.job.phase || "connecting";
}

/* What is left at the rate of now; null: nobody knows. */
function leftMs(job) {
  if (job.phase !== "running" || !isNumber(job.steps_total) || !(job.rate > 0) || job.steps_total < job.step) return null;
  return ((job.steps_total - job.step) / job.rate) * 1000;
}

function showTiles() {
  const { job } = state;
  const left = leftMs(job);
  const workers = state.processes.filter((process) => process.role === "worker");
  const running = workers.filter((process) => process.state === "running").length;
  const total = isNumber(job.steps_total) ? "of " + formatStep(job.steps_total) : "";
  setTile("elapsed", formatDuration(job.elapsed_ms));
  setTile("step", formatStep(job.step), total);
  const over = job.phase === "ended";
  setTile("rate", formatNumber(over ? (1000 * job.step) / job.elapsed_ms : job.rate, 3), over ? "steps/s on average" : "steps/s");
  if (isNumber(job.steps_total)) setTile("expected end", left === null ? UNKNOWN : formatClock(Date.now() + left), left === null ? "" : "in " + formatDuration(left));
  setTile("workers", !isNumber(job.workers) ? UNKNOWN : over ? job.workers : `${running} / ${job.workers}`, over ? "" : "running");
  setTile("traffic", formatRate(state.rate));
  showScalarTiles();
  byId("progress").hidden = !isNumber(job.steps_total) || !(job.steps_total > 0);
  byId("progress").firstElementChild.style.width = Math.min(100, (100 * (job.step || 0)) / (job.steps_total || 1)) + "%";
}

function showCause() {
  const { cause } = state;
  byId("cause").hidden = !cause;
  if (!cause) return;
  byId("cause").classList.toggle("stopped", isStopped());
  setText(byId("cause-head"), isStopped() ? "Stopped on purpose" : "What went wrong");
  setText(byId("cause-text"), cause.text);
  const parts = [cause.process ? nameOf(cause.process) : "", isNumber(cause.code) ? "exit code " + cause.code : "",
    isNumber(cause.at_ms) ? "after " + formatDuration(cause.at_ms) : ""];
  setText(byId("cause-more"), parts.filter(Boolean).join(" \u00b7 "));
}

function endWord() {
  if (isStopped()) return "The job was stopped.";
  if (state.cause) return "The job has failed.";
  return state.job.survived ? `The job has ended well, after ${state.job.survived}.` : "The job has ended well.";
}

/* Who is waited for; where nobody is, or nothing is known of it, how the job is doing. Of one that is over, who was. */
function sentence() {
  const { job } = state;
  const words = { starting: "The job is starting." };
  if (job.phase === "ended" || job.phase === "ending") {
    return [job.phase === "ended" ? endWord() : "The job is ending.", state.verdict ? capital(state.verdict) + "." : ""].filter(Boolean).join(" ");
  }
  if (state.sentence) return state.sentence;
  if (job.phase === "running" && state.waits.length > 0) return "Nobody is waited for in particular.";
  if (job.phase === "running" && job.rate > 0) return `The job makes ${formatNumber(job.rate, 3)} steps a second.`;
  return job.phase === "running" ? "The job is running." : words[job.phase] || "Waiting for the job.";
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function showSentence() {
  setText(byId("sentence"), capital(sentence()));
  setText(byId("whole"), capital(state.whole || ""));
}

function showEvents() {
  const node = byId("events");
  const newest = state.events.length > 0 ? state.events[state.events.length - 1].n : 0;
  const mark = newest + " " + state.events.length;
  if (node.dataset.mark === mark) return;
  node.dataset.mark = mark;
  const kinds = new Set(["start", "lost", "failover", "cause", "end", "note"]);
  node.replaceChildren(...[...state.events].reverse().slice(0, 200).map((event) => element("li", {},
    element("time", {}, formatClock(wallTime(event.at_ms))),
    element("span", { class: kinds.has(event.kind) ? "is-" + event.kind : null }, event.text))));
}

function showFacts() {
  const { job } = state;
  const facts = [["name", job.name], ["id", job.id], ["command", job.command], ["workers", job.workers], ["servers", job.servers],
    ["started", isNumber(job.started_unix_ms) ? new Date(job.started_unix_ms).toLocaleString("en-GB") : ""], ["logs", job.log_directory], ["Poseidon", job.version],
    ...Object.entries(state.configuration || {})];
  const known = facts.filter(([, value]) => value !== undefined && value !== null && value !== "");
  const mark = JSON.stringify(known);
  if (byId("facts").dataset.mark === mark) return;
  byId("facts").dataset.mark = mark;
  byId("facts").replaceChildren(...known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : value)]));
}

function showOverview() {
  const phase = byId("phase"), word = phaseWord();
  setText(byId("job-name"), state.job.name || "Poseidon");
  setText(phase, word);
  phase.className = "pill " + (word === "failing" ? "failed" : ["running", "ended", "failed"].includes(word) ? word : "");
  document.title = clean(`${isNumber(state.job.step) ? "step " + state.job.step + " \u00b7 " : ""}${state.job.name || "Poseidon"}`);
  showCause();
  showSentence();
  showTiles();
  showEvents();
  showFacts();
}
