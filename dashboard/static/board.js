// One fabric on the page: its drawing, the load of its links, what is wrong with them, and its charts.

import { Chart } from "./chart.js";
import { css, element, gbps, loadColour, percent, railColour, rate, size } from "./words.js";

const PADDING = 24;

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
    { selector: "edge[state!='up']", style: { "z-index": 9, "font-size": 22 } },
    { selector: "edge[state='down']", style: { "line-style": "dashed", "line-dash-pattern": [7, 7], "line-color": bad, "underlay-opacity": 0, width: 3 } },
    { selector: "edge[state='blackhole']", style: { "line-style": "dotted", "line-color": bad, width: 5 } },
    { selector: "edge[state='degraded']", style: { "line-style": "dashed", "line-dash-pattern": [14, 4] } },
    { selector: ".way", style: { "underlay-color": accent, "underlay-opacity": 0.75, "underlay-padding": 6 } },
    { selector: ".suspect", style: { "overlay-color": bad, "overlay-opacity": 0.3, "overlay-padding": 9 } },
    { selector: "node.suspect", style: { "border-style": "double", "border-width": 10 } },
    { selector: ".picked", style: { "overlay-color": accent, "overlay-opacity": 0.25, "overlay-padding": 6 } },
  ];
}

function mark(state) {
  if (state.down) return "✕ down";
  if (state.blackhole.length) return "● black hole";
  if (state.rate_mbps !== null) return `▼ ${rate(state.rate_mbps)}`;
  return state.loss_share ? `▲ loses ${percent(state.loss_share)}` : `◆ ${state.delay_ms} ms`;
}

export function words(state) {
  const said = [];
  if (state.down) said.push("down");
  if (state.blackhole.length) said.push(`black hole (${state.blackhole.join(", ")})`);
  if (state.rate_mbps !== null) said.push(`only ${rate(state.rate_mbps)} of ${rate(state.own_rate_mbps)}`);
  if (state.delay_ms) said.push(`${state.delay_ms} ms late`);
  if (state.loss_share) said.push(`loses ${percent(state.loss_share)}`);
  return said.join(", ");
}

export class Board {
  // `tell` is called with this board when a link or a node of it is chosen: tell(board, id, isGpu).
  constructor(name, tell) {
    this.name = name;
    this.tell = tell;
    this.graph = null;
    this.drawing = null;
    this.loads = null;
    this.wrong = new Map();
    this.placeOf = new Map();
    this.hovered = null;
    this.suspected = "";
    this.heading = element("h2", name);
    this.canvas = element("div", "", { class: "graph", role: "img", "aria-label": "Drawing of the fabric; everything on it can also be chosen by name at the side" });
    this.tip = element("div", "", { class: "tip", role: "tooltip", hidden: "" });
    this.run = element("p", "", { class: "run", role: "status" });
    const charts = [element("figure"), element("figure")];
    this.stage = element("div", "", { class: "stage" }, this.canvas, this.tip);
    this.box = element("section", "", { class: "board", "aria-label": `The fabric ${name}` }, this.heading, this.stage, this.run, element("div", "", { class: "strip" }, ...charts));
    this.moved = false; // whether somebody has zoomed or moved the drawing: then a new size of the page leaves it alone
    new ResizeObserver(() => (this.moved ? this.graph?.resize() : this.fit())).observe(this.stage);
    this.nicLoad = new Chart(charts[0], "NICs, mean load", percent, 1);
    this.busbw = new Chart(charts[1], "bus bandwidth", gbps, 1);
  }

  draw(message) {
    this.drawing = message;
    this.loads = null;
    this.wrong = new Map();
    this.suspected = "";
    this.placeOf = new Map(message.link_ids.map((id, place) => [id, place]));
    this.run.textContent = "";
    const kind = message.name === message.kind ? "" : `${message.kind}, `;
    this.heading.textContent = `${message.name}: ${kind}${message.gpu_ids.length} GPUs`;
    this.nics = message.lines.filter((line) => line.kind === "nic").map((line) => this.placeOf.get(line.id));
    this.thinner = message.summary ? 0.45 : message.gpu_ids.length > 32 ? 0.6 : 1;
    const elements = [
      ...message.nodes.map((node) => ({
        data: { ...node, parent: node.box || undefined, tint: railColour(node.rail), wide: node.width || 12 * node.label.length + 22, label: node.gpus ? `d${node.label}` : node.label },
        position: { x: node.x, y: node.y },
        grabbable: false,
      })),
      ...message.lines.map((line) => ({ data: { id: line.id, source: line.a, target: line.b, tint: line.kind === "nvlink" ? css("--soft") : railColour(line.rail), load: loadColour(0), thick: 3 * this.thinner, mark: "", state: "up" } })),
    ];
    if (this.graph) this.graph.destroy();
    const graph = (this.graph = cytoscape({ container: this.canvas, elements, style: style(), layout: { name: "preset", fit: true, padding: PADDING }, minZoom: 0.05, maxZoom: 4, autoungrabify: true, boxSelectionEnabled: false }));
    graph.on("tap", "edge", (event) => this.tell(this, event.target.id(), false));
    graph.on("tap", "node", (event) => { if (event.target.data("kind") !== "domain") this.tell(this, event.target.id(), event.target.data("kind") === "gpu"); });
    graph.on("scrollzoom pinchzoom dragpan", () => { this.moved = true; });
    graph.on("mouseover", "edge,node", (event) => { this.hovered = event.target; this.showTip(event); });
    graph.on("mousemove", "edge,node", (event) => this.showTip(event));
    graph.on("mouseout", "edge,node", () => { this.hovered = null; this.tip.hidden = true; });
  }

  get ids() {
    const switches = this.drawing.nodes.filter((node) => node.kind !== "gpu" && node.kind !== "domain").map((node) => node.id);
    return [...this.drawing.link_ids, ...this.drawing.gpu_ids, ...switches];
  }

  facts(id) {
    if (!this.drawing || !this.placeOf.has(id)) return "";
    const place = this.placeOf.get(id);
    const drawing = this.drawing;
    const lines = [`rate ${rate(drawing.rates_mbps[place])} each way`];
    if (drawing.bursts_bytes) lines.push(`shaped: burst ${size(drawing.bursts_bytes[place])}, queue ${size(drawing.queues_bytes[place])}`);
    if (this.loads) {
      const [out, back] = [this.loads.a_to_b_mbps[place], this.loads.b_to_a_mbps[place]];
      lines.push(`now ${rate(out)} out, ${rate(back)} back (${percent(this.share(place))})`);
      if (this.loads.carried_mb) lines.push(`carried ${this.loads.carried_mb[place]} MB so far`);
    }
    if (this.wrong.has(id)) lines.push(words(this.wrong.get(id)));
    return lines.join("\n");
  }

  showTip(event) {
    const target = event ? event.target : this.hovered;
    const id = target.id();
    this.tip.textContent = target.isEdge() ? `${id}\n${this.facts(id)}` : target.data("kind") === "gpu" ? `GPU ${id}\ndomain ${id.slice(1).split("r")[0]}, rail ${target.data("rail")}` : id;
    this.tip.hidden = false;
    const at = event && event.renderedPosition;
    if (at) {
      this.tip.style.left = `${Math.max(0, Math.min(at.x + 14, this.stage.clientWidth - this.tip.offsetWidth - 4))}px`;
      this.tip.style.top = `${Math.max(0, Math.min(at.y + 14, this.stage.clientHeight - this.tip.offsetHeight - 4))}px`;
    }
  }

  share(place) {
    const state = this.wrong.get(this.drawing.link_ids[place]);
    const most = (state && state.rate_mbps) || this.drawing.rates_mbps[place];
    return Math.max(this.loads.a_to_b_mbps[place], this.loads.b_to_a_mbps[place]) / most;
  }

  showLoads(message) {
    if (!this.drawing) return;
    this.loads = message;
    const mean = this.nics.length ? this.nics.reduce((sum, place) => sum + this.share(place), 0) / this.nics.length : 0;
    this.nicLoad.add(message.t_s, mean);
    this.busbw.add(message.t_s, this.nowGbps ?? null);
    this.paint();
  }

  showWrong(message) {
    const changed = message.links.length !== this.wrong.size || message.links.some((state) => !this.wrong.has(state.link));
    this.wrong = new Map(message.links.map((state) => [state.link, state]));
    if (changed) [this.nicLoad, this.busbw].forEach((chart) => chart.mark());
    this.paint();
  }

  paint() {
    if (!this.graph) return;
    this.graph.batch(() => {
      this.drawing.lines.forEach((line) => {
        const now = this.loads ? this.share(this.placeOf.get(line.id)) : 0;
        const state = this.wrong.get(line.id);
        this.graph.getElementById(line.id).data({
          load: loadColour(now), thick: (3 + 7 * Math.min(1, now)) * this.thinner,
          state: !state ? "up" : state.down ? "down" : state.blackhole.length ? "blackhole" : "degraded",
          mark: state ? mark(state) : line.id === this.suspected ? "⚠ diagnosed" : "",
        });
      });
    });
    if (this.hovered && this.hovered.isEdge()) this.showTip(null);
  }

  pick(id) {
    this.graph.elements().removeClass("picked");
    if (id) this.graph.getElementById(id).addClass("picked");
  }

  showWay(links) {
    this.graph.elements().removeClass("way");
    for (const id of links) this.graph.getElementById(id).addClass("way");
  }

  // What a diagnosis has found at fault is marked until the next one, or the next workload ("").
  suspect(id) {
    this.suspected = id;
    if (!this.graph) return;
    this.graph.elements().removeClass("suspect");
    if (id) this.graph.getElementById(id).addClass("suspect");
    this.paint();
  }

  restyle() { if (this.graph) { this.graph.style(style()); this.paint(); } }

  fit() {
    if (!this.graph) return;
    this.moved = false;
    this.graph.resize();
    this.graph.fit(undefined, PADDING);
  }

  zoom(by) {
    if (!this.graph) return;
    this.moved = true;
    this.graph.zoom({ level: this.graph.zoom() * by, renderedPosition: { x: this.stage.clientWidth / 2, y: this.stage.clientHeight / 2 } });
  }

  move(x, y) {
    if (!this.graph) return;
    this.moved = true;
    this.graph.panBy({ x, y });
  }
}
