// The page: takes what the server tells to the part that shows it, and asks the server for what is clicked.

import { Board, words } from "./board.js";
import { clear, showAction, showController, showTimeline, showVerdict } from "./timeline.js";
import { $, element, loadColour, theme } from "./words.js";
import { clearFinished, showCalls, showFinished, showOffers, showQuestion, showRun, showWorkload } from "./work.js";

const TOKEN = new URLSearchParams(location.search).get("token");
const CHANGING = "#break button, #show-path, #work-box button, #mystery-box button"; // what a replay can't do
const boards = new Map();
let chosen = null; // the board that names at the side are of
let picked = [];
let lost = new Set(); // boards whose fabric has ended

window.railbedBoards = boards; // for tests, and for curious people at the browser's console

const several = () => boards.size > 1;
const where = (message) => (several() && message.on ? `${message.on}: ` : "");

// ------------------------------------------------------------------ boards

function showBoards(message) {
  boards.clear();
  lost = new Set();
  chosen = null;
  $("boards").replaceChildren();
  clear();
  clearFinished();
  $("work-state").textContent = "";
  $("path").replaceChildren();
  $("title").textContent = message.title || "";
  $("note").textContent = message.note || "";
  message.names.forEach(addBoard);
}

function addBoard(name) {
  const board = new Board(name, choose);
  boards.set(name, board);
  $("boards").append(board.box);
  $("boards").dataset.count = boards.size;
  $("side-by-side").hidden = !several();
  $("on").replaceChildren(...[...boards.keys()].map((one) => element("option", one, { value: one })));
  if (!chosen) setBoard(board);
  return board;
}

const boardOf = (message) => boards.get(message.on || "") || [...boards.values()][0];

function showFabric(message) {
  const board = boards.get(message.on || "") || addBoard(message.on || "");
  lost.delete(board.name);
  clear(message.on || "");
  clearFinished(message.on);
  board.draw(message);
  board.mystery = "";
  $("mystery-state").textContent = "nothing is hidden";
  window.railbedGraph = [...boards.values()][0].graph;
  setBoard(chosen || board);
  fit();
  if ($("replay-box").hidden) connected("live");
}

function setBoard(board) {
  chosen = board;
  $("on").value = board.name;
  if (!board.drawing) return;
  options("ids", board.ids);
  options("gpus", board.drawing.gpu_ids);
}

function options(list, values) { $(list).replaceChildren(...values.map((value) => element("option", "", { value }))); }

// ------------------------------------------------------------------ choosing and asking

function choose(board, id, isGpu) {
  if (board !== chosen) { setBoard(board); picked = []; }
  $("target").value = id;
  pick();
  if (!isGpu) return;
  picked = [...picked, id].slice(-2);
  $("src").value = picked[0];
  $("dst").value = picked[1] || "";
  if (picked.length === 2 && picked[0] !== picked[1]) { showPath(); picked = []; }
}

function pick() {
  if (!chosen || !chosen.graph) return;
  for (const board of boards.values()) if (board.graph) board.pick(board === chosen ? $("target").value.trim() : "");
  $("target-facts").textContent = chosen.facts($("target").value.trim());
}

function say(text) { $("said").textContent = text; }

async function ask(path, order) {
  say("");
  try {
    const headers = { "content-type": "application/json", "x-railbed": "1", ...(TOKEN ? { "x-railbed-token": TOKEN } : {}) };
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(order) });
    const said = await answer.json();
    if (!answer.ok) say(said.error);
  } catch {
    say("the server does not answer");
  }
}

const on = () => (several() ? { on: chosen.name } : {});

function act(verb) {
  const target = $("target").value.trim();
  if (!target) { say("choose a link, a GPU or a switch first"); $("target").focus(); return; }
  const order = { verb, target, ...on() };
  if (several()) order.both = $("both").checked;
  if (verb === "degrade") {
    if (!chosen.placeOf.has(target)) { say("only a link can be degraded"); return; }
    order.rate_mbps = (chosen.drawing.rates_mbps[chosen.placeOf.get(target)] * Number($("share").value)) / 100;
  }
  if (verb === "blackhole") order.direction = "both";
  if (verb === "flap") Object.assign(order, { down_s: 1, up_s: 1, count: 5 });
  ask("/act", order);
}

function showPath() { ask("/act", { verb: "path", src: $("src").value.trim(), dst: $("dst").value.trim(), ...on() }); }

// ------------------------------------------------------------------ what is told

function showWrong(message) {
  boardOf(message).showWrong(message);
  const items = [...boards.values()].flatMap((board) => [...board.wrong.values()].map((state) => element("li", `${several() ? `${board.name}: ` : ""}${state.link}: ${words(state)}`, { "data-bad": "" })));
  $("wrong").replaceChildren(...(items.length ? items : [element("li", "nothing")]));
}

function showThePath(message) {
  $("src").value = message.src;
  $("dst").value = message.dst;
  const box = $("path");
  const via = message.relays.length ? `, relayed by ${message.relays.join(", ")}` : "";
  box.replaceChildren(element("div", `${where(message)}${message.src} to ${message.dst}${via}: ${message.agree ? "declared, rules and probes agree" : message.disagreement}`));
  for (const [name, hops] of [["declared", message.declared], ["by the rules", message.rules], ["probe", message.probe]])
    box.append(element("div", `${name}: ${hops.filter((hop) => hop.endsWith(" out")).map((hop) => hop.slice(0, -4)).join(" → ") || "none"}`));
  const details = element("details", "", {}, element("summary", "rules on the way that carried packets"));
  for (const [id, rules] of Object.entries(message.entries)) details.append(element("div", id), element("pre", rules.join("\n")));
  box.append(details);
  boardOf(message).showWay(message.links);
}

function showMystery(message) {
  const board = boardOf(message);
  const answer = message.answer;
  const hidden = message.open ? `a fault is hidden on one link (seed ${message.seed}; ${message.kinds.join(" or ")}), tries so far: ${message.tries}` : "nothing is hidden";
  board.mystery = answer ? `${answer.sentence} (after ${answer.tries} ${answer.tries === 1 ? "try" : "tries"})${answer.fault ? `; ${answer.fault.link}: ${words(answer.fault)}; Restore mends it` : ""}` : hidden;
  $("mystery-state").replaceChildren(...[...boards.values()].filter((one) => one.mystery).map((one) => element("div", `${several() ? `${one.name}: ` : ""}${one.mystery}`)));
}

function showReplay(message) {
  $("replay-box").hidden = false;
  connected("a replay: nothing can be broken here");
  const speed = [...$("speed").options].find((option) => Number(option.value) === message.speed);
  $("speed").value = speed ? speed.value : "";
  document.querySelectorAll(CHANGING).forEach((button) => { button.disabled = true; });
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

function gone(message) {
  lost.add(message.on || "");
  connected(`${where(message)}the fabric has ended; waiting for it to come up again`, true);
}

const SHOW = {
  boards: showBoards,
  fabric: showFabric,
  loads: (message) => { boardOf(message)?.showLoads(message); if ($("target").value) $("target-facts").textContent = chosen.facts($("target").value.trim()); },
  impairments: showWrong,
  timeline: (message) => showTimeline(message, where(message)),
  controller: (message) => showController(message, where(message)),
  verdict: (message) => { showVerdict(message, where(message)); boardOf(message).suspect(message.component); },
  action: (message) => showAction(message, where(message)),
  run: (message) => { showRun(message, boardOf(message)); showCalls([...boards.values()]); },
  path: showThePath, replay: showReplay, gone, mystery: showMystery,
  offers: showOffers, finished: showFinished,
  workload: (message) => { showWorkload(message); if (message.state === "running") for (const board of boards.values()) board.suspect(""); },
  said: (message) => say(message.text),
};

function listen() {
  const stream = new EventSource(`/events${TOKEN ? `?token=${encodeURIComponent(TOKEN)}` : ""}`);
  stream.onmessage = (event) => { const message = JSON.parse(event.data); SHOW[message.event]?.(message); };
  stream.onerror = () => {
    connected("no connection; trying again", true);
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 1000);
  };
  stream.onopen = () => { // what is served at this address now may be another thing than before
    $("replay-box").hidden = true;
    document.querySelectorAll(CHANGING).forEach((button) => { button.disabled = button.id === "stop"; });
    if (!lost.size) connected("live");
  };
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  document.querySelector(".ramp").style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(loadColour).join(",")})`;
  for (const board of boards.values()) board.restyle();
}

const fit = () => { for (const board of boards.values()) board.fit(); };
const KEYS = {
  0: fit, t: () => $("theme").click(), "+": () => chosen?.zoom(1.25), "-": () => chosen?.zoom(0.8),
  ArrowLeft: () => chosen?.move(60, 0), ArrowRight: () => chosen?.move(-60, 0), ArrowUp: () => chosen?.move(0, 60), ArrowDown: () => chosen?.move(0, -60),
};

document.querySelectorAll("[data-verb]").forEach((button) => button.addEventListener("click", () => act(button.dataset.verb)));
$("target").addEventListener("input", pick);
$("on").addEventListener("change", () => { setBoard(boards.get($("on").value)); pick(); });
$("show-path").addEventListener("click", showPath);
$("start").addEventListener("click", () => ask("/act", { verb: "start", workload: $("workload").value }));
$("stop").addEventListener("click", () => ask("/act", { verb: "stop" }));
$("hide").addEventListener("click", () => ask("/act", { verb: "mystery", seed: $("seed").value === "" ? null : Number($("seed").value), ...on() }));
$("solve").addEventListener("click", () => ($("target").value.trim() ? ask("/act", { verb: "solve", target: $("target").value.trim(), ...on() }) : say("name the link, GPU or switch that is at fault first")));
$("give-up").addEventListener("click", () => ask("/act", { verb: "give-up", ...on() }));
$("workload").addEventListener("change", showQuestion);
$("fit").addEventListener("click", fit);
$("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
$("pause").addEventListener("click", () => ask("/replay", { paused: $("pause").dataset.paused !== "true" }));
$("speed").addEventListener("change", () => ask("/replay", { speed: Number($("speed").value) }));
$("at").addEventListener("change", () => ask("/replay", { at_s: Number($("at").value) }));
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const action = KEYS[event.key] || KEYS[event.key.toLowerCase()];
  if (action) { event.preventDefault(); action(); }
});
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
listen();
