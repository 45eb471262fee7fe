/* cluster.js - a picture of the cluster: workers around servers, lines as thick as their traffic. */

const STATE_COLOURS = { running: "--good", starting: "--warn", lost: "--bad", failed: "--bad", ended: "--accent" };
const EDGES_MOVING = 40, ROW_MAX = 14;
const cluster = { shape: "", nodes: new Map(), edges: new Map() };

/* Places on an ellipse, the first at the top. */
function around(count, width, height, rx, ry) {
  return Array.from({ length: count }, (unused, i) => {
    const angle = (2 * Math.PI * i) / count - Math.PI / 2;
    return [width / 2 + rx * Math.cos(angle), height / 2 + ry * Math.sin(angle)];
  });
}

/* Places in a row, each in the middle of its share. */
const row = (count, width, y) => Array.from({ length: count }, (unused, i) => [(width * (i + 0.5)) / count, y]);

/* Few stand face to face; many workers surround their servers. */
function layout(workers, servers) {
  const many = workers > ROW_MAX || servers > ROW_MAX, width = 560, height = many ? 460 : 240, size = many ? 11 : 17;
  if (!many) return { width, height, size, workers: row(workers, width, 34), servers: row(servers, width, height - 34), master: [22, height / 2] };
  return {
    width, height, size, workers: around(workers, width, height, width / 2 - 19, height / 2 - 19),
    servers: servers === 1 ? [[width / 2, height / 2 + 40]] : around(servers, width, height, width / 5.5, height / 4), master: [width / 2, height / 2],
  };
}

function drawNode(svg, process, [x, y], size) {
  const label = process.role === "master" ? "M" : (process.role === "server" ? "S" : "") + process.index;
  const shape = process.role === "worker" ? vector("circle", { cx: x, cy: y, r: size })
    : vector("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, rx: 5 });
  const text = vector("text", { x, y, class: "on" });
  const title = vector("title");
  shape.append(title);
  text.textContent = clean(label);
  svg.append(shape, text);
  cluster.nodes.set(process.name, { shape, title, at: [x, y] });
}

/* Lines that carried nothing yet are there, too. */
function linesOf(workers, servers) {
  if (state.edges.length > 0) return state.edges;
  return workers.flatMap((worker) => servers.map((server) => ({ worker: worker.index, server: server.index })));
}

function drawCluster(workers, servers, masters) {
  const svg = byId("cluster-svg"), lines = vector("g"), places = layout(workers.length, servers.length);
  cluster.nodes.clear(); cluster.edges.clear();
  svg.setAttribute("viewBox", `0 0 ${places.width} ${places.height}`);
  svg.replaceChildren(lines);
  workers.forEach((process, i) => drawNode(svg, process, places.workers[i], places.size));
  servers.forEach((process, i) => drawNode(svg, process, places.servers[i], places.size + 1));
  masters.forEach((process) => drawNode(svg, process, places.master, 11));
  for (const edge of linesOf(workers, servers)) {
    const from = places.workers[workers.findIndex((process) => process.index === edge.worker)];
    const to = places.servers[servers.findIndex((process) => process.index === edge.server)];
    if (!from || !to) continue;
    const line = vector("line", { class: "edge", x1: from[0], y1: from[1], x2: to[0], y2: to[1] });
    line.style.strokeOpacity = 0.15;
    line.append(vector("title"));
    lines.append(line);
    cluster.edges.set(edge.worker + " " + edge.server, line);
  }
  svg.classList.toggle("few", cluster.edges.size <= EDGES_MOVING);
}

function paintCluster() {
  const busiest = Math.max(1, ...state.edges.map((edge) => edge.rate || 0));
  const colours = Object.fromEntries(Object.entries(STATE_COLOURS).map(([name, colour]) => [name, styleOf(colour)]));
  const slow = waitedFor();
  for (const process of state.processes) {
    const node = cluster.nodes.get(process.name);
    if (!node) continue;
    node.shape.style.fill = process.role === "server" && process.state === "running" ? styleOf("--server") : colours[process.state] || "#8a94a3";
    node.shape.classList.toggle("slow", isWaitedFor(process, slow));
    setText(node.title, `${process.name} on ${process.host}, ${process.state}${isWaitedFor(process, slow) ? ", waited for" : ""}`);
  }
  for (const edge of state.edges) {
    const line = cluster.edges.get(edge.worker + " " + edge.server);
    if (!line) continue;
    const share = (edge.rate || 0) / busiest;
    line.style.strokeWidth = (cluster.edges.size > 100 ? 0.4 : 1) + 4 * share * (cluster.edges.size > 100 ? 0.4 : 1);
    line.style.strokeOpacity = 0.12 + 0.6 * share;
    line.classList.toggle("busy", edge.rate > 0);
    setText(line.firstElementChild, `worker ${edge.worker} and server ${edge.server}: ${formatRate(edge.rate)}`);
  }
}

function showCluster() {
  const of = (role) => state.processes.filter((process) => process.role === role);
  const [workers, servers, masters] = ["worker", "server", "master"].map(of);
  if (!isVisible(byId("cluster-svg").parentElement)) return;
  const shape = [workers.length, servers.length, masters.length, state.edges.length].join(" ");
  if (shape !== cluster.shape) { drawCluster(workers, servers, masters); cluster.shape = shape; }
  paintCluster();
  const busiest = state.edges.reduce((best, edge) => ((edge.rate || 0) > (best ? best.rate || 0 : 0) ? edge : best), null);
  setText(byId("cluster-read"), busiest ? `Busiest line: worker ${busiest.worker} and server ${busiest.server}, ${formatRate(busiest.rate)}.` : "");
}
