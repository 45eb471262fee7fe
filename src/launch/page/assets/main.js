/* main.js - where the data comes from: the element of a report, or psd_run's events; and the theme. */

const connection = { at: 0, over: false, opened: false };

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  repaintCharts();
  if (connection.at > 0) showAll();
}

const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
systemDark.addEventListener("change", () => { if (!connection.themeChosen) setTheme(systemDark.matches ? "dark" : "light"); });
byId("theme").addEventListener("click", () => {
  connection.themeChosen = true; /* by hand: the system's evening does not change it */
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});

function showAll() {
  showOverview(); showCurves(); showWaits(); showProcesses(); showCluster(); showTables(); showLogs(false);
}

function setLine(kind, text) {
  byId("line").className = "line " + kind;
  setText(byId("line"), text);
}

function take(text, whole) {
  merge(JSON.parse(text), whole, Date.now());
  connection.at = Date.now();
  document.documentElement.dataset.updates = String(Number(document.documentElement.dataset.updates || 0) + 1);
  showAll();
}

function nameReport() {
  const report = state.report;
  byId("ended").hidden = false;
  byId("ended").replaceChildren(isStopped() ? "The job was stopped." : state.cause ? "The job has failed." : "The job has ended.", " This page keeps what it shows",
    ...(report ? ["; the report that stays is ", element("code", {}, report)] : []), ".");
}

function listen() {
  const source = new EventSource("events");
  source.addEventListener("open", () => { connection.opened = true; });
  source.addEventListener("snapshot", (event) => {
    take(event.data, connection.opened);
    connection.opened = false;
    setLine("live", "live");
  });
  source.addEventListener("end", (event) => {
    take(event.data, true);
    connection.over = true;
    source.close();
    setLine("", "ended");
    nameReport();
  });
  source.addEventListener("error", () => {
    if (connection.over) return;
    const since = connection.at > 0 ? " for " + formatDuration(Date.now() - connection.at) : "";
    setLine("lost", "no answer" + since);
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
}

setTheme(systemDark.matches ? "dark" : "light");
if (byId("data").textContent.trim() !== "") {
  take(byId("data").textContent, true);
  setLine("", "report");
  state.job.phase = "ended";
  showOverview();
} else {
  setLine("", "connecting");
  listen();
}
window.addEventListener("resize", () => showAll());
document.addEventListener("scroll", () => { if (!connection.scrolled) { connection.scrolled = true; requestAnimationFrame(() => { connection.scrolled = false; if (connection.over || state.at > 0) { showCurves(); showWaits(); showCluster(); } }); } }, { passive: true });
