// Turns lines into plotly's traces: band, raw and smoothed line, marks of what was not finite, the best value.
const DASHES = ["solid", "solid", "solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const SYMBOLS = ["circle", "square", "diamond", "cross", "triangle-up", "pentagon", "hexagram", "star-square"];

// A line of a split has the split's dash; of others colour alone tells the first three of a chart apart.
function dashOf(line, index) {
  return line.dash || (line.replaced ? "dot" : line.faint ? "solid" : DASHES[index % DASHES.length]);
}

// Closed shapes, one for each stretch without a gap: a fill between two lines would bridge the gaps.
function band(x, low, high) {
  const shape = { x: [], y: [] };
  let from = -1;
  for (let i = 0; i <= low.length; i += 1) {
    const open = i < low.length && low[i] !== null && x[i] !== null;
    if (open && from < 0) from = i;
    if (!open && from >= 0) {
      for (let k = from; k < i; k += 1) { shape.x.push(x[k]); shape.y.push(high[k]); }
      for (let k = i - 1; k >= from; k -= 1) { shape.x.push(x[k]); shape.y.push(low[k]); }
      shape.x.push(null); shape.y.push(null);
      from = -1;
    }
  }
  return shape;
}

// A point between two gaps has no line, so it is drawn as a dot.
function sizes(y) {
  const few = y.length <= 60;
  let any = few;
  const result = y.map((value, i) => {
    const alone = value !== null && (i === 0 || y[i - 1] === null) && (i === y.length - 1 || y[i + 1] === null);
    any = any || alone;
    return alone ? 6 : few ? 4 : 0;
  });
  return any ? result : null;
}

function scaledBy(values, scale) {
  return scale === 1 ? values : values.map((v) => (v === null ? null : v / scale));
}

// A logarithmic axis has no place for zero and less: the band then reaches down to the least value that has one.
function floored(values, isLog, other) {
  if (!isLog) return values;
  let least = Infinity;
  for (const value of other) if (value > 0 && value < least) least = value;
  return values.map((value) => (value === null || value > 0 ? value : least === Infinity ? null : least));
}

// A line would fall to the edge at the place of a zero: there it has a gap.
function aboveZero(values, isLog) {
  return isLog ? values.map((value) => (value > 0 ? value : null)) : values;
}

function lineTraces(line, index, settings) {
  const { axis, unit, isLog, hidden, place } = settings;
  const x = placesOf(line, axis);
  if (!x) return [];
  const ink = colour(line.role);
  const label = literal(line.label);
  const common = { legendgroup: String(index), visible: !hidden, name: label, showlegend: false, type: "scatter" };
  const all = scaledBy(line.y, unit.scale);
  const weight = line.replaced ? 0 : view.smoothing;
  const [raw, y] = [aboveZero(all, isLog), aboveZero(smoothed(all, weight), isLog)];
  const traces = [];
  if (line.low && !line.replaced) {
    const high = scaledBy(line.high, unit.scale);
    const shape = band(x, floored(scaledBy(line.low, unit.scale), isLog, high), high);
    traces.push({ ...common, ...shape, mode: "lines", fill: "toself", hoverinfo: "skip", meta: "band",
      fillcolor: faded(ink, line.faint || weight ? 0.1 : 0.24), line: { width: 0 } });
  }
  if (weight) {
    traces.push({ ...common, x, y: raw, mode: "lines", connectgaps: false, opacity: 0.28, meta: "raw", line: { color: ink, width: 1.1 },
      hovertemplate: "%{y:.6~g} raw<extra>" + hovered(line.label) + "</extra>" });
  }
  traces.push(mainTrace(line, index, { ...common, x, y, meta: weight ? "smoothed" : "line" }, ink, unit, place));
  if (line.marks) traces.push(markTrace(line, x, common));
  if (line.best && !line.faint && line.best.x[axis] !== undefined && !(isLog && line.best.value <= 0)) traces.push(bestTrace(line, axis, unit, ink, common));
  return traces;
}

function mainTrace(line, index, common, ink, unit, place) {
  const dots = line.replaced ? null : sizes(common.y);
  return { ...common, connectgaps: false, mode: dots ? "lines+markers" : "lines",
    opacity: line.replaced ? 0.45 : line.faint ? 0.5 : 1,
    line: { color: ink, width: line.faint || line.replaced ? 1.1 : line.low ? 1.4 : 1.9, dash: dashOf(line, index) },
    ...(dots ? { marker: { color: ink, size: dots, symbol: SYMBOLS[index % SYMBOLS.length], line: { width: 0 } } } : {}),
    hovertemplate: "%{y:.6~g}" + (unit.name ? " " + hovered(unit.name) : "") + (place || "") + "<extra>" + hovered(line.label) + "</extra>" };
}

// Lines that have points at other places than the longest of their chart say beside a value where its point is.
function ownPlaces(lines, axis, chart) {
  let longest = null;
  for (const { line } of lines) if (line.x[axis] && (!longest || line.x[axis].length > longest.length)) longest = line.x[axis];
  const words = isTimeAxis(axis) ? ` (%{x:.5~g} ${timeUnit().unit})` : axis === "clock" ? " (%{x|%H:%M:%S})" : ` (${literal((axis === "step" && chart.axis) || axis)} %{x})`;
  return (line) => {
    const own = line.x[axis];
    if (!own || !longest || (own.length === longest.length && own[0] === longest[0] && own[own.length - 1] === longest[longest.length - 1])) return "";
    return words;
  };
}

function bestTrace(line, axis, unit, ink, common) {
  return { ...common, x: [line.best.x[axis] / axisScale(axis)], y: [line.best.value / unit.scale], mode: "markers", meta: "best",
    marker: { symbol: "star", size: 12, color: ink, line: { width: 0 } },
    hovertemplate: "best %{y:.6~g}<extra>" + hovered(line.label) + "</extra>" };
}

function markTrace(line, x, common) {
  const marks = { x: [], y: [], symbol: [], text: [] };
  const kinds = [["NaN", "x", 0.04], ["+Inf", "triangle-up", 0.96], ["-Inf", "triangle-down", 0.04]];
  for (const [row, ...counts] of line.marks) {
    counts.forEach((count, kind) => {
      if (!count) return;
      marks.x.push(x[row]); marks.y.push(kinds[kind][2]); marks.symbol.push(kinds[kind][1]);
      marks.text.push(`${literal(line.label)}: ${count === 1 && !line.points ? "" : number(count) + " "}${kinds[kind][0]}`);
    });
  }
  return { ...common, x: marks.x, y: marks.y, text: marks.text, yaxis: "y2", mode: "markers", meta: "non-finite",
    marker: { symbol: marks.symbol, size: 6.5, color: colour("error"), opacity: 0.8 }, hovertemplate: "%{text}<extra></extra>" };
}
