/* text.js - elements and words. All text goes in through textContent: nothing that a job says is ever
 * read as HTML. */

const byId = (id) => document.getElementById(id);

/* An element with attributes (class, title, ...) and children: text or elements. */
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.map((child) => (child instanceof Node ? child : clean(child))));
  return made;
}

function vector(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

/* Sets text only where it differs: the browser lays out less. */
function setText(node, text) {
  const wanted = clean(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/* Colours of terminals are taken out; what would hide, reorder or overwrite text becomes visible. */
const ANSI = /\u001b\[[0-9;:?<=>]*[ -\/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[@-Z\\-_]/g;
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function clean(text) {
  return String(text === undefined || text === null ? "" : text)
    .replace(ANSI, "")
    .replace(HIDDEN, (c) => "\u2423" + c.codePointAt(0).toString(16).padStart(4, "0") + "\u2423");
}

/* Files of the log call "worker0" what the tables call "worker 0". */
const nameOf = (process) => String(process).replace(/^(worker|server)(\d+)$/, "$1 $2");

const UNKNOWN = "\u2013";
const NO_NUMBER = "NaN or \u221e"; /* JSON has neither: the feed does not say which */
const isNumber = (value) => typeof value === "number" && isFinite(value);

const formatWhole = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 0 }).replace(/,/g, "\u2009");

/* Steps are found again in logs and files: all digits, however many. */
const formatStep = (value) => (isNumber(value) ? formatWhole(value) : UNKNOWN);

function formatNumber(value, digits) {
  if (!isNumber(value)) return UNKNOWN;
  if (value !== 0 && (Math.abs(value) >= 1e7 || Math.abs(value) < 1e-4)) return value.toExponential(2);
  if (Number.isInteger(value)) return formatWhole(value);
  return String(Number(value.toPrecision(digits || 4)));
}

function formatBytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  if (!isNumber(value)) return UNKNOWN;
  while (Math.abs(value) >= 1000 && unit < units.length - 1) { value /= 1000; unit++; }
  return (value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)) + " " + units[unit];
}

const formatRate = (value) => (isNumber(value) ? formatBytes(value) + "/s" : UNKNOWN);

function formatDuration(ms) {
  if (!isNumber(ms) || ms < 0) return UNKNOWN;
  const s = Math.floor(ms / 1000);
  if (s < 60) return (s < 10 ? (ms / 1000).toFixed(1) : s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

function formatMicroseconds(us) {
  if (!isNumber(us)) return UNKNOWN;
  if (us >= 1e6) return (us / 1e6).toFixed(2) + " s";
  return us >= 1000 ? (us / 1000).toFixed(us >= 1e5 ? 0 : 1) + " ms" : us.toFixed(0) + " \u00b5s";
}

function formatClock(ms) {
  return isNumber(ms) ? new Date(ms).toLocaleTimeString("en-GB") : UNKNOWN;
}
