// A small chart of the last minute of one value, with marks at the moments when something broke or was mended.

import { svg } from "./words.js";

const SPAN_S = 60;
const WIDTH = 300, HEIGHT = 44, TOP = 10;

export class Chart {
  // `box` is filled; `name` and `unit` are what the value is called; `least` is the smallest top of the scale.
  constructor(box, name, write, least) {
    this.write = write;
    this.least = least;
    this.points = [];
    this.marks = [];
    this.label = document.createElement("figcaption");
    this.name = name;
    this.drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.line = svg("polyline", { fill: "none", class: "trace", "vector-effect": "non-scaling-stroke" });
    this.ticks = svg("g", { class: "marks" });
    this.drawn.append(svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1, class: "floor" }), this.ticks, this.line);
    box.append(this.label, this.drawn);
    this.say(null);
  }

  say(value) { this.label.textContent = `${this.name}: ${value === null ? "–" : this.write(value)}`; }

  // `at_s` never goes back by more than a jump in a replay does; then the chart begins anew.
  add(at_s, value) {
    const last = this.points.at(-1);
    if (last && at_s < last[0]) { this.points = []; this.marks = []; }
    this.points.push([at_s, value]);
    this.points = this.points.filter(([t]) => t >= at_s - SPAN_S);
    this.marks = this.marks.filter((t) => t >= at_s - SPAN_S);
    this.say(value);
    this.draw(at_s);
  }

  mark() { if (this.points.length) this.marks.push(this.points.at(-1)[0]); }

  draw(now_s) {
    const top = Math.max(this.least, ...this.points.map(([, value]) => value ?? 0));
    const x = (t) => WIDTH * (1 - (now_s - t) / SPAN_S);
    const y = (value) => HEIGHT - 1 - ((HEIGHT - TOP) * value) / top;
    this.line.setAttribute("points", this.points.filter(([, value]) => value !== null).map(([t, value]) => `${x(t).toFixed(1)},${y(value).toFixed(1)}`).join(" "));
    this.ticks.replaceChildren(...this.marks.map((t) => svg("line", { x1: x(t), x2: x(t), y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke" })));
  }
}
