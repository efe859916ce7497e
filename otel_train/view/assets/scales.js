// Chooses axes, units and ranges of charts.
const AXIS_NAMES = { step: "Step", time: "Time", epoch: "Epoch", relative: "Relative time", clock: "Clock" };
// What holds for all charts of the page.
const view = { axis: "step", smoothing: 0, logAll: null, linked: false, range: null, mark: null, filter: "", drawn: new Map(), finer: null };
const ranges = new Map();

function isTimeAxis(axis) {
  return axis === "time" || axis === "relative";
}

function timeUnit() {
  const longest = (data && data.elapsed_s) || 0;
  if (longest > 172800) return { unit: "d", scale: 86400 };
  if (longest > 7200) return { unit: "h", scale: 3600 };
  if (longest > 180) return { unit: "min", scale: 60 };
  return { unit: "s", scale: 1 };
}

function axisScale(axis) {
  return isTimeAxis(axis) ? timeUnit().scale : 1;
}

function unitOf(unit, largest) {
  const binary = [["KiB", 1024], ["MiB", 1024 ** 2], ["GiB", 1024 ** 3], ["TiB", 1024 ** 4]];
  const rate = unit === "By/s" ? "/s" : "";
  if (unit === "By" || unit === "By/s") {
    let chosen = ["B", 1];
    for (const step of binary) if (largest >= step[1]) chosen = step;
    return { name: chosen[0] + rate, scale: chosen[1] };
  }
  if (unit === "s" && largest > 0) {
    if (largest < 1e-3) return { name: "µs", scale: 1e-6 };
    if (largest < 1) return { name: "ms", scale: 1e-3 };
    if (largest > 7200) return { name: "h", scale: 3600 };
    if (largest > 180) return { name: "min", scale: 60 };
  }
  if (unit === "Cel") return { name: "°C", scale: 1 };
  return { name: (unit || "").replace(/[{}]/g, "").replace(/^1$/, ""), scale: 1 };
}

function axisOf(chart) {
  if (chart.kind === "timeline") return "time";
  if (chart.kind === "map") return chart.x[view.axis] ? view.axis : "time";
  if (chart.kind === "distribution") return chart.layers[chart.chosen].x[view.axis] ? view.axis : "time";
  const has = (axis) => chart.lines.some((line) => line.x[axis]);
  return has(view.axis) ? view.axis : has("time") ? "time" : view.axis;
}

function axisTitle(axis, chart) {
  if (isTimeAxis(axis)) return `${axis === "time" ? "elapsed" : "relative time"} (${timeUnit().unit})`;
  if (axis === "clock") return "time (UTC)";
  return axis === "step" ? (chart.axis && chart.axis !== "step" ? chart.axis : "step") : axis;
}

function placesOf(line, axis) {
  const places = line.x[axis];
  const scale = axisScale(axis);
  return places && scale !== 1 ? places.map((x) => (x === null ? null : x / scale)) : places;
}

// The charts of one page line up: all have the range of all of them.
function rangeOf(axis) {
  if (!ranges.has(axis)) ranges.set(axis, commonRange(axis));
  return ranges.get(axis);
}

function commonRange(axis) {
  let low = Infinity;
  let high = -Infinity;
  for (const chart of Object.values(data.charts).flat()) {
    for (const line of chart.lines) {
      for (const x of line.x[axis] || []) {
        if (x === null) continue;
        if (x < low) low = x;
        if (x > high) high = x;
      }
    }
  }
  if (axis === "time") { low = Math.min(low, 0); high = Math.max(high, data.elapsed_s); }
  if (low > high) return undefined;
  const room = (high - low) * 0.015 || 0.5;
  return [(low - room) / axisScale(axis), (high + room) / axisScale(axis)];
}

// Where a place on one axis lies on another, by the line that knows most points of both; null where none does.
function converted(value, from, to) {
  if (from === to) return value;
  let best = null;
  for (const line of Object.values(data.charts).flat().flatMap((chart) => chart.lines)) {
    if (line.x[from] && line.x[to] && (!best || line.x[from].length > best.x[from].length)) best = line;
  }
  if (!best) return null;
  const index = nearest(best.x[from], value);
  return index < 0 || best.x[to][index] === null ? null : best.x[to][index];
}

// The index of the place nearest to a value, -1 where there is none. Places are in order but for restarts.
function nearest(places, value) {
  let found = -1;
  let least = Infinity;
  for (let index = 0; index < places.length; index += 1) {
    const away = places[index] === null ? Infinity : Math.abs(places[index] - value);
    if (away < least) { least = away; found = index; }
  }
  return found;
}
