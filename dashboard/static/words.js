// What every part of the page uses: elements, colours, and numbers as people read them.

export const $ = (id) => document.getElementById(id);

export function element(tag, text = "", attributes = {}, ...children) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function svg(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// Colours of rails that stay apart for colour-blind eyes (Okabe and Ito's set); rails also carry their number.
const RAILS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a642", "#7a7a7a"];
// Utilisation from pale to dark (light page) or dark to pale (dark page): order shows without colour; width grows too.
const RAMP = { light: [[214, 219, 226], [86, 120, 178], [90, 20, 80]], dark: [[62, 70, 80], [110, 140, 210], [255, 226, 120]] };

export const theme = () => document.documentElement.dataset.theme;
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const railColour = (rail) => (rail < 0 ? css("--soft") : RAILS[rail % RAILS.length]);

export function loadColour(share) {
  const stops = RAMP[theme()];
  const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  return `rgb(${stops[low].map((from, k) => Math.round(from + (stops[low + 1][k] - from) * (at - low))).join(",")})`;
}

export const rate = (mbps) => (mbps >= 1000 ? `${(mbps / 1000).toFixed(2)} Gbit/s` : `${mbps.toFixed(mbps < 10 ? 2 : 1)} Mbit/s`);
export const size = (bytes) => (bytes >= 1e6 ? `${(bytes / 1e6).toFixed(2)} MB` : `${Math.round(bytes / 1e3)} kB`);
export const percent = (share) => `${Math.round(share * 100)} %`;
export const emulated = (s) => (s === null || s === undefined ? "–" : s >= 0.1 || s === 0 ? `${s.toFixed(s < 10 ? 2 : 1)} s` : `${(s * 1e3).toFixed(2)} ms`);
export const gbps = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(value < 10 ? 2 : 1)} Gbit/s`);

export function real(s) {
  if (s === null || s === undefined) return "–";
  return s < 0.001 ? `${(s * 1e6).toFixed(0)} µs` : s < 1 ? `${(s * 1e3).toFixed(1)} ms` : `${s.toFixed(2)} s`;
}
