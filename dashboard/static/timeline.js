// What happened after a failure, as a line of time, and what the controller says.

import { $, element, svg } from "./words.js";

const MOST_LINES = 30;

function axis(message) {
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

export function clear(on) {
  for (const list of ["timeline", "events"])
    [...$(list).children].filter((item) => on === undefined || item.dataset.on === on).forEach((item) => item.remove());
}

// `where` begins a sentence about a fabric: its name, where the page shows several.
export function showTimeline(message, where) {
  const item = element("li", "", { "data-target": message.target, "data-on": message.on || "" });
  const verb = message.action === "fail" ? "failed" : "restored";
  if (!message.changed) item.append(element("div", `${where}${message.target} ${message.action === "fail" ? "was down already" : "was not down; whatever else was wrong with it is undone"}`));
  else {
    item.append(element("div", `${where}${message.target} ${verb}${message.elsewhere ? ", not by a button of this page" : ""}`));
    const gap = message.gap_ms !== null ? `gap ${message.gap_ms} ms` : message.stream ? "traffic did not come back" : "gap not measured";
    const who = message.stream ? `, stream ${message.stream.join(" to ")}` : "";
    item.append(element("div", gap + who, { class: "gap" }), axis(message));
    item.append(element("div", message.steps.map((step) => `${step.name} ${step.at_ms} ms`).join(" · ")));
  }
  prepend("timeline", item);
}

export function showAction(message, where) {
  const values = Object.entries(message.values).map(([name, value]) => `${name} ${value}`).join(", ");
  prepend("timeline", element("li", `${where}${message.target}: ${message.action} ${values}`, { "data-target": message.target, "data-on": message.on || "" }));
}

export function showController(message, where) {
  const { event, t_s, number, ...rest } = message.what;
  const known = ["link", "switch", "links_down", "computed_s", "elapsed_s", "rules_added", "count", "message", "hold_s"];
  const said = known.filter((name) => name in rest).map((name) => `${name} ${Array.isArray(rest[name]) ? rest[name].join(", ") || "none" : rest[name]}`);
  prepend("events", element("li", `${where}${event} ${said.join(" · ")}`, { "data-on": message.on || "" }));
  if (event !== "placed") return;
  const took = rest.elapsed_s === undefined ? "" : ` within ${Math.round(rest.elapsed_s * 1000)} ms`;
  prepend("timeline", element("li", `${where}the plan moves traffic: ${rest.connections} connections have links of their own${took}`, { "data-on": message.on || "" }));
}

export function showVerdict(message, where) {
  const item = element("li", "", { "data-on": message.on || "", "data-verdict": message.component });
  item.append(element("div", `${where}diagnosed ${message.t_s} s after the start of the run`), element("div", message.text, { class: "gap" }), element("div", message.evidence));
  prepend("timeline", item);
}
