"use strict";
// The page: draws what the server tells, and asks it for what is clicked. No state of the fabric is kept here only.

const $ = (id) => document.getElementById(id);
const TOKEN = new URLSearchParams(location.search).get("token");
// Nine colours of rails that stay apart for colour-blind eyes (Okabe and Ito's set and two greys); rails also carry their number.
const RAILS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a642", "#7a7a7a"];
// Utilisation from pale to dark (light page) or dark to pale (dark page): order shows without colour; width grows too.
const RAMP = { light: [[214, 219, 226], [86, 120, 178], [90, 20, 80]], dark: [[62, 70, 80], [110, 140, 210], [255, 226, 120]] };
const MOST_LINES = 30;

let drawing = null;
let graph = null;
let loads = null;
let wrong = new Map();
let picked = [];
const placeOf = new Map();

const theme = () => document.documentElement.dataset.theme;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rate = (mbps) => (mbps >= 1000 ? `${(mbps / 1000).toFixed(2)} Gbit/s` : `${mbps.toFixed(mbps < 10 ? 2 : 1)} Mbit/s`);

function colour(share) {
  const stops = RAMP[theme()];
  const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  return `rgb(${stops[low].map((from, k) => Math.round(from + (stops[low + 1][k] - from) * (at - low))).join(",")})`;
}

function railColour(rail) { return rail < 0 ? css("--soft") : RAILS[rail % RAILS.length]; }

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// ------------------------------------------------------------------ the drawing

function style() {
  const ink = css("--ink"), edge = css("--edge"), box = css("--box"), bad = css("--bad"), accent = css("--accent");
  return [
    { selector: "node", style: { label: "data(label)", color: ink, "font-size": 20, "text-valign": "center", "background-color": box, "border-width": 2, "border-color": edge, width: 38, height: 38 } },
    { selector: "node[kind='domain']", style: { shape: "round-rectangle", "text-valign": "bottom", "text-margin-y": 5, "font-size": 19, "background-color": box, "background-opacity": 0.6, padding: 14 } },
    { selector: "node[kind='domain'][gpus > 0]", style: { "text-valign": "center", "text-margin-y": 0, width: 48, height: 30, padding: 8, "background-opacity": 1 } },
    { selector: "node[kind='gpu']", style: { shape: "ellipse", "background-color": css("--paper"), "border-width": 5, "border-color": "data(tint)" } },
    { selector: "node[kind='nvswitch']", style: { shape: "round-rectangle", width: 76, height: 26, "font-size": 15 } },
    { selector: "node[kind='rail'],node[kind='rail-leaf'],node[kind='rail-spine'],node[kind='leaf'],node[kind='spine']", style: { shape: "rectangle", width: "data(wide)", height: 40, "font-size": 19, "border-width": 4, "border-color": "data(tint)" } },
    { selector: "node[kind='spine'],node[kind='rail-spine']", style: { shape: "cut-rectangle" } },
    { selector: "edge", style: { width: "data(thick)", "line-color": "data(load)", "curve-style": "bezier", "underlay-color": "data(tint)", "underlay-opacity": 0.5, "underlay-padding": 3, "font-size": 16, color: bad, "text-background-color": css("--paper"), "text-background-opacity": 0.9, "text-background-padding": 3, label: "data(mark)", "z-index": 1 } },
    { selector: "edge[state='down']", style: { "line-style": "dashed", "line-dash-pattern": [7, 7], "line-color": bad, "underlay-opacity": 0, width: 3 } },
    { selector: "edge[state='blackhole']", style: { "line-style": "dotted", "line-color": bad, width: 5 } },
    { selector: "edge[state='degraded']", style: { "line-style": "dashed", "line-dash-pattern": [14, 4] } },
    { selector: ".way", style: { "underlay-color": accent, "underlay-opacity": 0.75, "underlay-padding": 6 } },
    { selector: ".picked", style: { "overlay-color": accent, "overlay-opacity": 0.25, "overlay-padding": 6 } },
  ];
}

function draw(message) {
  drawing = message;
  loads = null;
  wrong = new Map();
  picked = [];
  placeOf.clear();
  message.link_ids.forEach((id, place) => placeOf.set(id, place));
  for (const list of ["timeline", "events"]) $(list).replaceChildren();
  $("path").replaceChildren();
  $("run").textContent = "";
  $("fabric-name").textContent = `${message.name}: ${message.kind}, ${message.gpu_ids.length} GPUs`;
  const elements = [
    ...message.nodes.map((node) => ({
      data: { ...node, parent: node.box || undefined, tint: railColour(node.rail), wide: 12 * node.label.length + 22, label: node.gpus ? `d${node.label}` : node.label },
      position: { x: node.x, y: node.y },
      grabbable: false,
    })),
    ...message.lines.map((line) => ({ data: { id: line.id, source: line.a, target: line.b, tint: line.kind === "nvlink" ? css("--soft") : railColour(line.rail), load: colour(0), thick: message.summary ? 1.4 : 3, mark: "", state: "up" } })),
  ];
  if (graph) graph.destroy();
  graph = cytoscape({ container: $("graph"), elements, style: style(), layout: { name: "preset", fit: true, padding: 26 }, minZoom: 0.05, maxZoom: 4, autoungrabify: true, boxSelectionEnabled: false });
  graph.on("tap", "edge", (event) => choose(event.target.id()));
  graph.on("tap", "node", (event) => chooseNode(event.target));
  graph.on("mouseover", "edge,node", (event) => { hovered = event.target; tip(event); });
  graph.on("mousemove", "edge,node", tip);
  graph.on("mouseout", "edge,node", () => { hovered = null; $("tip").hidden = true; });
  window.railbedGraph = graph; // for tests, and for curious people at the browser's console
  const switches = message.nodes.filter((node) => node.kind !== "gpu" && node.kind !== "domain").map((node) => node.id);
  options("ids", [...message.link_ids, ...message.gpu_ids, ...switches]);
  options("gpus", message.gpu_ids);
  ramp();
}

function options(list, values) { $(list).replaceChildren(...values.map((value) => element("option", "", { value }))); }

function ramp() {
  const stops = [0, 0.25, 0.5, 0.75, 1].map(colour).join(",");
  document.querySelector(".ramp").style.background = `linear-gradient(90deg, ${stops})`;
}

let hovered = null;

function facts(id) {
  if (!drawing || !placeOf.has(id)) return "";
  const place = placeOf.get(id);
  const lines = [`rate ${rate(drawing.rates_mbps[place])} each way`];
  if (loads) {
    const [out, back] = [loads.a_to_b_mbps[place], loads.b_to_a_mbps[place]];
    lines.push(`now ${rate(out)} out, ${rate(back)} back (${Math.round(share(place) * 100)} %)`);
  }
  if (wrong.has(id)) lines.push(words(wrong.get(id)));
  return lines.join("\n");
}

function tip(event) {
  const target = event ? event.target : hovered;
  const text = target.isEdge() ? `${target.id()}\n${facts(target.id())}` : target.data("kind") === "gpu" ? `GPU ${target.id()}\ndomain ${target.id().slice(1).split("r")[0]}, rail ${target.data("rail")}` : target.id();
  const at = event && event.renderedPosition;
  $("tip").textContent = text;
  $("tip").hidden = false;
  if (at) {
    $("tip").style.left = `${Math.min(at.x + 14, $("stage").clientWidth - 260)}px`;
    $("tip").style.top = `${Math.min(at.y + 14, $("stage").clientHeight - 90)}px`;
  }
}

function share(place) {
  const state = wrong.get(drawing.link_ids[place]);
  const most = (state && state.rate_mbps) || drawing.rates_mbps[place];
  return Math.max(loads.a_to_b_mbps[place], loads.b_to_a_mbps[place]) / most;
}

function paint() {
  if (!graph) return;
  graph.batch(() => {
    drawing.lines.forEach((line) => {
      const now = loads ? share(placeOf.get(line.id)) : 0;
      const state = wrong.get(line.id);
      graph.getElementById(line.id).data({
        load: colour(now), thick: (3 + 7 * Math.min(1, now)) * (drawing.summary ? 0.45 : 1),
        state: !state ? "up" : state.down ? "down" : state.blackhole.length ? "blackhole" : "degraded",
        mark: state ? mark(state) : "",
      });
    });
  });
  if ($("target").value) $("target-facts").textContent = facts($("target").value);
  if (hovered && hovered.isEdge()) tip(null);
}

function mark(state) {
  if (state.down) return "✕ down";
  if (state.blackhole.length) return "● black hole";
  if (state.rate_mbps !== null) return `▼ ${rate(state.rate_mbps)}`;
  return state.loss_share ? `▲ loses ${Math.round(state.loss_share * 100)} %` : `◆ ${state.delay_ms} ms`;
}

function words(state) {
  const said = [];
  if (state.down) said.push("down");
  if (state.blackhole.length) said.push(`black hole (${state.blackhole.join(", ")})`);
  if (state.rate_mbps !== null) said.push(`only ${rate(state.rate_mbps)} of ${rate(state.own_rate_mbps)}`);
  if (state.delay_ms) said.push(`${state.delay_ms} ms late`);
  if (state.loss_share) said.push(`loses ${Math.round(state.loss_share * 100)} %`);
  return said.join(", ");
}

// ------------------------------------------------------------------ choosing

function choose(id) {
  $("target").value = id;
  $("target-facts").textContent = facts(id);
  graph.elements().removeClass("picked");
  graph.getElementById(id).addClass("picked");
}

function chooseNode(node) {
  if (node.data("kind") === "domain") return;
  choose(node.id());
  if (node.data("kind") !== "gpu") return;
  picked = [...picked, node.id()].slice(-2);
  $("src").value = picked[0];
  $("dst").value = picked[1] || "";
  if (picked.length === 2 && picked[0] !== picked[1]) { showPath(); picked = []; }
}

async function ask(where, order) {
  $("said").textContent = "";
  try {
    const headers = { "content-type": "application/json", "x-railbed": "1", ...(TOKEN ? { "x-railbed-token": TOKEN } : {}) };
    const answer = await fetch(where, { method: "POST", headers, body: JSON.stringify(order) });
    const said = await answer.json();
    if (!answer.ok) $("said").textContent = said.error;
    return answer.ok ? said : null;
  } catch {
    $("said").textContent = "the server does not answer";
    return null;
  }
}

async function act(verb) {
  const target = $("target").value.trim();
  if (!target) { $("said").textContent = "choose a link, a GPU or a switch first"; $("target").focus(); return; }
  const order = { verb, target };
  if (verb === "degrade") {
    if (!placeOf.has(target)) { $("said").textContent = "only a link can be degraded"; return; }
    order.rate_mbps = (drawing.rates_mbps[placeOf.get(target)] * Number($("share").value)) / 100;
  }
  if (verb === "blackhole") order.direction = "both";
  if (verb === "flap") Object.assign(order, { down_s: 1, up_s: 1, count: 5 });
  await ask("/act", order);
}

async function showPath() { await ask("/act", { verb: "path", src: $("src").value.trim(), dst: $("dst").value.trim() }); }

// ------------------------------------------------------------------ what is told

function showWrong(message) {
  wrong = new Map(message.links.map((state) => [state.link, state]));
  const items = message.links.map((state) => element("li", `${state.link}: ${words(state)}`, { "data-bad": "" }));
  $("wrong").replaceChildren(...(items.length ? items : [element("li", "nothing")]));
  paint();
}

function showTimeline(message) {
  const item = element("li", "", { "data-target": message.target });
  const verb = message.action === "fail" ? "failed" : "restored";
  if (!message.changed) item.append(element("div", `${message.target} ${message.action === "fail" ? "was down already" : "was not down; whatever else was wrong with it is undone"}`));
  else {
    item.append(element("div", `${message.target} ${verb}`));
    const gap = message.gap_ms !== null ? `gap ${message.gap_ms} ms` : message.stream ? "traffic did not come back" : "gap not measured (no stream crosses it)";
    const who = message.stream ? `, stream ${message.stream.join(" to ")}` : "";
    item.append(element("div", gap + who, { class: "gap" }), axis(message));
    item.append(element("div", message.steps.map((step) => `${step.name} ${step.at_ms} ms`).join(" · ")));
  }
  prepend("timeline", item);
}

function axis(message) {
  const svg = (tag, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const drawn = svg("svg", { viewBox: "0 0 340 58", "aria-hidden": "true" });
  const end = Math.max(1, ...message.steps.map((step) => step.at_ms));
  const x = (ms) => 8 + (ms / end) * 280;
  const back = message.steps.find((step) => step.name === "traffic back");
  if (back && message.gap_ms !== null) drawn.append(svg("rect", { x: x(Math.max(0, back.at_ms - message.gap_ms)), y: 22, width: Math.max(2, x(back.at_ms) - x(Math.max(0, back.at_ms - message.gap_ms))), height: 14 }));
  drawn.append(svg("line", { x1: 8, x2: 288, y1: 29, y2: 29 }));
  const free = [0, 0]; // where the next label may begin, above and below the line; one without room is only in the text
  message.steps.forEach((step) => {
    const at = Math.min(x(step.at_ms), 260);
    drawn.append(svg("circle", { cx: x(step.at_ms), cy: 29, r: 4 }));
    const row = free.findIndex((from) => at >= from);
    if (row < 0) return;
    drawn.append(svg("text", { x: at, y: row ? 52 : 16 }, step.name));
    free[row] = at + 7 * step.name.length;
  });
  return drawn;
}

function prepend(list, item) {
  $(list).prepend(item);
  while ($(list).children.length > MOST_LINES) $(list).lastChild.remove();
}

function showController(message) {
  const { event, t_s, number, ...rest } = message.what;
  const known = ["link", "switch", "links_down", "computed_s", "elapsed_s", "rules_added", "count", "message", "hold_s"];
  const said = known.filter((name) => name in rest).map((name) => `${name} ${Array.isArray(rest[name]) ? rest[name].join(", ") || "none" : rest[name]}`);
  prepend("events", element("li", `${event} ${said.join(" · ")}`));
}

function showAction(message) {
  const values = Object.entries(message.values).map(([name, value]) => `${name} ${value}`).join(", ");
  prepend("timeline", element("li", `${message.target}: ${message.action} ${values}`, { "data-target": message.target }));
}

function showRun(message) {
  const failed = message.failed ? `, ${message.failed} failed` : "";
  const counted = message.engine === "agent" ? `${message.ended} of ${message.transfers} transfers ended${failed}, ` : `${message.transfers} transfers, `;
  $("run").textContent = message.running ? `run '${message.name}': ${counted}${message.t_s.toFixed(1)} s` : `run '${message.name}' ended after ${message.t_s.toFixed(1)} s`;
}

function showThePath(message) {
  $("src").value = message.src;
  $("dst").value = message.dst;
  const box = $("path");
  const via = message.relays.length ? `, relayed by ${message.relays.join(", ")}` : "";
  box.replaceChildren(element("div", `${message.src} to ${message.dst}${via}: ${message.agree ? "declared, rules and probes agree" : message.disagreement}`));
  for (const [name, hops] of [["declared", message.declared], ["by the rules", message.rules], ["probe", message.probe]])
    box.append(element("div", `${name}: ${hops.filter((hop) => hop.endsWith(" out")).map((hop) => hop.slice(0, -4)).join(" → ") || "none"}`));
  const details = element("details", "");
  details.append(element("summary", "rules on the way that carried packets"));
  for (const [id, rules] of Object.entries(message.entries)) details.append(element("div", id), element("pre", rules.join("\n")));
  box.append(details);
  mapWay(message);
}

function mapWay(message) {
  graph.elements().removeClass("way");
  for (const id of message.links) graph.getElementById(id).addClass("way");
}

function showReplay(message) {
  $("replay-box").hidden = false;
  document.querySelectorAll("#break button, #show-path").forEach((button) => { button.disabled = true; });
  $("pause").textContent = message.paused ? "Play" : "Pause";
  $("pause").dataset.paused = message.paused;
  $("at").max = message.length_s;
  if (document.activeElement !== $("at")) $("at").value = message.at_s;
  $("at-text").textContent = `${message.at_s.toFixed(1)} of ${message.length_s.toFixed(1)} s`;
}

function connected(text, bad) {
  $("connection").textContent = text;
  $("connection").dataset.state = bad ? "bad" : "good";
}

const SHOW = {
  fabric: (message) => { draw(message); connected("live"); },
  loads: (message) => { loads = message; paint(); },
  impairments: showWrong, timeline: showTimeline, controller: showController, action: showAction, run: showRun,
  path: showThePath, replay: showReplay,
  gone: () => connected("the fabric has ended; waiting for it to come up again", true),
};

function listen() {
  const stream = new EventSource(`/events${TOKEN ? `?token=${encodeURIComponent(TOKEN)}` : ""}`);
  stream.onmessage = (event) => { const message = JSON.parse(event.data); SHOW[message.event]?.(message); };
  stream.onerror = () => {
    connected("no connection; trying again", true);
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 1000);
  };
  stream.onopen = () => connected("live");
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  ramp();
  if (graph) { graph.style(style()); paint(); }
}

document.querySelectorAll("[data-verb]").forEach((button) => button.addEventListener("click", () => act(button.dataset.verb)));
$("target").addEventListener("input", () => graph && choose($("target").value.trim()));
$("show-path").addEventListener("click", showPath);
$("fit").addEventListener("click", () => graph && graph.fit(undefined, 26));
$("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
$("pause").addEventListener("click", () => ask("/replay", { paused: $("pause").dataset.paused !== "true" }));
$("speed").addEventListener("change", () => ask("/replay", { speed: Number($("speed").value) }));
$("at").addEventListener("change", () => ask("/replay", { at_s: Number($("at").value) }));
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "0") $("fit").click();
  if (event.key.toLowerCase() === "t") $("theme").click();
});
window.addEventListener("resize", () => graph && graph.resize() && graph.fit(undefined, 26));
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
listen();
