/* logs.js - what processes print: the last lines, filtered, with what was searched for marked. */

const LOG_SHOWN = 800;
const logView = { at: 0, follow: true, filter: null };

function logFilter() {
  const wanted = byId("log-find").value;
  const pattern = /^\/(.+)\/$/.exec(wanted);
  let search = null;
  if (pattern) {
    try { search = new RegExp(pattern[1], "i"); } catch { search = /$^/; }
  } else if (wanted) search = new RegExp(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
  return { process: byId("log-process").value, stream: byId("log-stream").value, search };
}

const isWanted = (log, filter) => (!filter.process || log.process === filter.process) && (!filter.stream || log.stream === filter.stream)
  && (!filter.search || filter.search.test(clean(log.line)));

function logLine(log, filter) {
  const text = element("bdi"), line = clean(log.line);
  const found = filter.search ? filter.search.exec(line) : null;
  if (found && found[0]) {
    text.append(line.slice(0, found.index), element("mark", {}, found[0]), line.slice(found.index + found[0].length));
  } else text.append(line);
  return element("div", { class: log.stream === "err" ? "err" : null }, element("b", { title: formatClock(wallTime(log.at_ms)) }, nameOf(log.process)), text);
}

/* Whoever has printed something can be chosen. */
function fillProcesses(lines) {
  const select = byId("log-process"), known = new Set([...select.options].map((option) => option.value));
  const fresh = [...new Set(lines.map((log) => log.process))].filter((name) => !known.has(name));
  for (const name of fresh.sort((a, b) => a.localeCompare(b, "en", { numeric: true }))) select.append(element("option", { value: name }, nameOf(name)));
}

/* all: the filter has changed, or the line was lost; else only what is new is added. */
function showLogs(all) {
  const node = byId("log-lines");
  const filter = all || !logView.filter ? logFilter() : logView.filter;
  if (all || state.logTotal < logView.at) { node.replaceChildren(); logView.at = 0; }
  logView.filter = filter;
  const fresh = Math.min(state.logs.length, state.logTotal - logView.at);
  const news = fresh > 0 ? state.logs.slice(-fresh) : [];
  const lines = news.filter((log) => isWanted(log, filter)).slice(-LOG_SHOWN);
  fillProcesses(news);
  logView.at = state.logTotal;
  node.append(...lines.map((log) => logLine(log, filter)));
  while (node.childElementCount > LOG_SHOWN) node.firstElementChild.remove();
  if (logView.follow) node.scrollTop = node.scrollHeight;
  setText(byId("log-count"), state.logTotal === 0 ? "nothing was printed yet" : filter.search || filter.process || filter.stream ? `${node.childElementCount} lines found` : `${formatNumber(state.logTotal)} lines`);
}

byId("log-lines").addEventListener("scroll", (event) => {
  const node = event.target;
  logView.follow = node.scrollHeight - node.scrollTop - node.clientHeight < 30;
  byId("log-follow").hidden = logView.follow;
});
byId("log-follow").addEventListener("click", () => { logView.follow = true; byId("log-lines").scrollTop = byId("log-lines").scrollHeight; });
for (const id of ["log-process", "log-stream", "log-find"]) byId(id).addEventListener("input", () => showLogs(true));
