// Workloads: what can be started, how far a run is on each fabric, and what came out.

import { $, element, emulated, gbps, percent, real } from "./words.js";

const MOST_FINISHED = 24;
const plain = (value) => (value === null || value === undefined ? "–" : value.toFixed(1));

export function showOffers(message) {
  const chosen = $("workload").value;
  const groups = new Map();
  for (const offer of message.offers) {
    if (!groups.has(offer.experiment)) groups.set(offer.experiment, element("optgroup", "", { label: offer.experiment }));
    groups.get(offer.experiment).append(element("option", offer.id, { value: offer.id, title: offer.question }));
  }
  $("workload").replaceChildren(...groups.values());
  if (message.offers.some((offer) => offer.id === chosen)) $("workload").value = chosen;
  $("work-box").hidden = false;
  showQuestion();
}

export function showQuestion() {
  const option = $("workload").selectedOptions[0];
  $("workload").title = $("question").textContent = option ? option.title : "";
}

export function showWorkload(message) {
  const expected = Object.entries(message.expected_s || {}).map(([name, s]) => (Object.keys(message.expected_s).length > 1 ? `${name} ${emulated(s)}` : emulated(s)));
  const takes = expected.length && !expected.includes("–") ? `, expected to take ${expected.join(", ")}` : "";
  const words = { planning: `${message.workload}: being planned`, running: `${message.workload}: runs${takes}`, over: "" };
  $("work-state").textContent = words[message.state];
  const replayed = !$("replay-box").hidden;
  $("stop").disabled = replayed || message.state === "over";
  $("start").disabled = replayed || message.state !== "over";
}

export function showRun(message, board) {
  const failed = message.failed ? `, ${message.failed} failed` : "";
  const counted = message.ended || message.engine === "agent" ? `${message.ended} of ${message.transfers} transfers ended${failed}` : `${message.transfers} transfers`;
  const share = message.share === null || message.share === undefined ? "" : `, ${percent(message.share)} of the bytes`;
  const busbw = message.busbw_gbps ? `, bus bandwidth so far ${gbps(message.busbw_gbps)}` : "";
  const t = emulated(message.t_s);
  board.run.textContent = message.running ? `run '${message.name}': ${counted}${share}${busbw}, ${t}` : `run '${message.name}' ended after ${t}: ${counted}${share}`;
  board.nowGbps = message.running ? message.now_gbps : null;
  board.calls = message;
}

// One table for each fabric: the collectives of its run, and the calls that ended last.
export function showCalls(boards) {
  const made = [];
  for (const board of boards) {
    const run = board.calls;
    if (!run || !run.calls || !run.calls.length) continue;
    if (boards.length > 1) made.push(element("h3", board.name));
    const bar = element("progress", "", { max: 1, value: run.share ?? 0, "aria-label": `${board.name}: share of the bytes that have arrived` });
    made.push(bar);
    for (const row of run.calls)
      made.push(element("div", `${row.collective}: ${row.ended} of ${row.calls} ended${row.mean_s === null ? "" : `, mean ${emulated(row.mean_s)}`}`));
    const rows = [...run.last].reverse().map((call) => element("tr", "", {}, element("td", call.name), element("td", emulated(call.duration_s)), element("td", real(call.real_s)), element("td", plain(call.busbw_gbps))));
    if (rows.length) made.push(table(["ended last", "took", "real", "bus Gbit/s"], rows));
  }
  $("calls").replaceChildren(...made);
}

function table(headings, rows) {
  const head = element("tr", "", {}, ...headings.map((heading) => element("th", heading, { scope: "col" })));
  return element("table", "", {}, element("thead", "", {}, head), element("tbody", "", {}, ...rows));
}

const finished = [];

export function clearFinished(on) {
  for (let place = finished.length - 1; place >= 0; place--) if (on === undefined || finished[place].on === on) finished.splice(place, 1);
  drawFinished();
}

export function showFinished(message) {
  finished.unshift(message);
  finished.length = Math.min(finished.length, MOST_FINISHED);
  drawFinished();
}

function drawFinished() {
  const rows = finished.map((run) => {
    const good = run.status === "complete";
    const remarks = [...(good ? [] : [run.status, ...run.problems]), ...(run.faithful || !good ? [] : ["machine overloaded: not faithful"]), ...(run.condition === "failure" ? ["with a failure"] : [])];
    const row = element("tr", "", { "data-status": run.status, title: [run.formula, ...run.notes].filter(Boolean).join("\n") },
      element("td", run.workload), element("td", run.on && run.on !== run.label ? `${run.on} (${run.label})` : run.label), element("td", emulated(run.duration_s)), element("td", emulated(run.predicted_s)), element("td", plain(run.busbw_gbps)));
    return remarks.length ? [row, element("tr", "", { class: "remark" }, element("td", remarks.join("; "), { colspan: 5 }))] : [row];
  });
  $("finished").replaceChildren(...(rows.length ? [table(["workload", "fabric", "took", "expected", "bus Gbit/s"], rows.flat())] : []));
}
