// Draws charts with plotly, when they come into sight, in the reader's colours and on the axis chosen.
const view = { axis: data.axes.includes("step") ? "step" : "time", drawn: new Map() };
const AXIS_NAMES = { step: "Step", time: "Time", epoch: "Epoch" };

function isDark() {
  const forced = document.documentElement.style.colorScheme;
  return forced ? forced === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function colour(role) {
  const both = data.palette[role] || data.palette.value;
  return both[isDark() ? 1 : 0];
}

function faded(hex, alpha) {
  const part = (at) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

const time = (() => {
  const longest = data.elapsed_s || 0;
  if (longest > 172800) return { unit: "d", scale: 86400 };
  if (longest > 7200) return { unit: "h", scale: 3600 };
  if (longest > 180) return { unit: "min", scale: 60 };
  return { unit: "s", scale: 1 };
})();

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
  const has = (axis) => chart.lines.some((line) => line.x[axis]);
  return has(view.axis) ? view.axis : "time";
}

function placesOf(line, axis) {
  const places = line.x[axis];
  return places && axis === "time" && time.scale !== 1 ? places.map((x) => (x === null ? null : x / time.scale)) : places;
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

function lineTraces(line, index, chart, axis, unit, hidden) {
  const x = placesOf(line, axis);
  if (!x) return [];
  const scaled = (values) => (unit.scale === 1 ? values : values.map((v) => (v === null ? null : v / unit.scale)));
  const ink = colour(line.role);
  const common = { legendgroup: String(index), visible: !hidden, name: literal(line.label), showlegend: false };
  const y = scaled(line.y);
  const traces = [];
  if (line.low && !line.replaced) {
    const shape = band(x, scaled(line.low), scaled(line.high));
    traces.push({ ...common, ...shape, type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip",
      fillcolor: faded(ink, line.faint ? 0.1 : 0.24), line: { width: 0 } });
  }
  const dots = line.replaced ? null : sizes(y);
  traces.push({ ...common, x, y, type: "scatter", connectgaps: false, mode: dots ? "lines+markers" : "lines",
    opacity: line.replaced ? 0.45 : line.faint ? 0.5 : 1,
    line: { color: ink, width: line.faint || line.replaced ? 1.1 : line.low ? 1.4 : 1.9, dash: line.replaced ? "dot" : "solid" },
    ...(dots ? { marker: { color: ink, size: dots, line: { width: 0 } } } : {}),
    hovertemplate: "%{y:.6~g}" + (unit.name ? " " + literal(unit.name) : "") + "<extra>" + literal(line.label).slice(0, 60) + "</extra>" });
  if (line.marks) traces.push(markTrace(line, x, common));
  if (line.best && !line.faint && line.best.x[axis] !== undefined) {
    const place = line.best.x[axis];
    traces.push({ ...common, x: [axis === "time" ? place / time.scale : place], y: [line.best.value / unit.scale], type: "scatter",
      mode: "markers", marker: { symbol: "star", size: 12, color: ink, line: { width: 1.2, color: isDark() ? "#151b23" : "#ffffff" } },
      hovertemplate: "best %{y:.6~g}<extra>" + literal(line.label).slice(0, 60) + "</extra>" });
  }
  return traces;
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
  return { ...common, x: marks.x, y: marks.y, text: marks.text, yaxis: "y2", type: "scatter", mode: "markers", meta: "non-finite",
    marker: { symbol: marks.symbol, size: 6.5, color: isDark() ? "#ff8088" : "#c02434", opacity: 0.8 }, hovertemplate: "%{text}<extra></extra>" };
}

function layoutOf(axis, chart) {
  const dark = isDark();
  const grid = dark ? "#2a3340" : "#e9ecf1";
  const soft = dark ? "#a6b1c0" : "#4a5566";
  const title = axis === "time" ? `elapsed (${time.unit})` : axis === "step" ? literal(chart.axis && chart.axis !== "step" ? chart.axis : "step") : "epoch";
  const line = { gridcolor: grid, zeroline: false, linecolor: grid, tickfont: { size: 11 }, automargin: true };
  return {
    margin: { l: 46, r: 10, t: 8, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "x unified",
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", size: 12, color: soft }, dragmode: "zoom",
    hoverlabel: { bgcolor: dark ? "#1c232d" : "#ffffff", bordercolor: grid, font: { size: 12, color: dark ? "#e8edf3" : "#131a24" }, namelength: 40 },
    xaxis: { ...line, title: { text: title, font: { size: 11 }, standoff: 6 }, showgrid: false, hoverformat: axis === "time" ? ".5~g" : "" },
    yaxis: { ...line, type: chart.log ? "log" : "linear", exponentformat: "power", nticks: 6 },
    yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
  };
}

// What is usual, as a band, and where an alert begins, as a dashed line; neither widens the axis by much.
function levels(chart, unit, largest) {
  const shapes = [];
  const annotations = [];
  const name = (y, label, ink) => annotations.push({ xref: "paper", x: 1, xanchor: "right", y: chart.log ? Math.log10(y) : y, yanchor: "bottom", text: literal(label), showarrow: false, font: { size: 10.5, color: ink } });
  if (chart.band) {
    const [low, high] = [chart.band.low / unit.scale, chart.band.high / unit.scale];
    shapes.push({ type: "rect", xref: "paper", x0: 0, x1: 1, y0: low, y1: high, line: { width: 0 }, fillcolor: faded(colour("series-2"), 0.13), layer: "below" });
    name(high, chart.band.label, colour("series-2"));
  }
  if (chart.threshold && chart.threshold.value <= 3 * largest) {
    const y = chart.threshold.value / unit.scale;
    shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { width: 1.2, dash: "dash", color: colour("error") } });
    name(y, chart.threshold.label, colour("error"));
  }
  return { shapes, annotations };
}

// The charts of one page line up: all have the range of all of them.
const ranges = new Map();

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
  const scale = axis === "time" ? time.scale : 1;
  return [(low - room) / scale, (high + room) / scale];
}

function draw(place) {
  const { chart, hidden } = place;
  let figure;
  if (chart.kind === "timeline") figure = timelineFigure(chart);
  else if (chart.kind === "map" || chart.kind === "distribution") {
    const axis = axisOf(chart);
    figure = chart.kind === "map" ? { ...mapFigure(chart, axis), layout: layoutOf(axis, chart) } : distributionFigure(chart);
    if (chart.kind === "map") {
      Object.assign(figure.layout.yaxis, { type: "category", autorange: "reversed", showgrid: false, nticks: 16 });
      figure.layout.hovermode = "closest";
      figure.layout.xaxis.range = rangeOf(axis);
    }
    place.unit.textContent = chart.unit;
  } else {
    const axis = axisOf(chart);
    let largest = 0;
    for (const line of chart.lines) for (const value of line.high || line.y) if (value !== null && Math.abs(value) > largest) largest = Math.abs(value);
    const unit = unitOf(chart.unit, largest);
    place.unit.textContent = [unit.name, axis !== view.axis && chart.kind === "metric" ? "by time: it has no " + view.axis : ""].filter(Boolean).join(" · ");
    const traces = chart.lines.flatMap((line, index) => lineTraces(line, index, chart, axis, unit, hidden.has(index)));
    figure = { data: traces, layout: layoutOf(axis, chart) };
    figure.layout.xaxis.range = rangeOf(axis);
    Object.assign(figure.layout, levels(chart, unit, largest));
    if (["%", "By", "By/s", "samples/s", "tokens/s"].includes(chart.unit)) figure.layout.yaxis.rangemode = "tozero";
  }
  Plotly.react(place.plot, figure.data, figure.layout, { displayModeBar: false, responsive: false, doubleClick: "reset" });
  place.node.dataset.drawn = "yes";
}

function redrawAll() {
  for (const place of view.drawn.values()) draw(place);
  document.querySelectorAll("[data-role]").forEach((dot) => dot.style.setProperty("--c", colour(dot.dataset.role)));
}

const widths = new ResizeObserver((entries) => {
  for (const entry of entries) if (entry.target.data && entry.contentRect.width) Plotly.Plots.resize(entry.target);
});

const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const place = entry.target.place;
    if (entry.isIntersecting && !view.drawn.has(entry.target)) {
      view.drawn.set(entry.target, place);
      draw(place);
      widths.observe(place.plot);
    }
  }
}, { rootMargin: "700px 0px" });

function dot(role) {
  return el("span", { class: "dot", "data-role": role, colour: colour(role) });
}

function chartCard(chart) {
  const place = { chart, hidden: new Set(), unit: el("span", { class: "unit" }), plot: el("div", { class: "plot" }) };
  const chips = el("div", { class: "chips" });
  const single = chart.lines.length === 1 && chart.lines[0].label === "value";
  if (!single) {
    chart.lines.forEach((line, index) => chips.append(el("button", { type: "button", class: "chip", "aria-pressed": "true",
      onclick: (event) => {
        const hide = !place.hidden.has(index);
        if (hide) place.hidden.add(index); else place.hidden.delete(index);
        event.currentTarget.setAttribute("aria-pressed", String(!hide));
        draw(place);
      } }, dot(line.role), line.label)));
  }
  const lines = chart.kind !== "map" && chart.kind !== "distribution";
  const wide = el("button", { type: "button", class: "quiet", "aria-pressed": "false", title: "Wider",
    onclick: () => wide.setAttribute("aria-pressed", String(place.node.classList.toggle("wide"))) }, "wide");
  const log = el("button", { type: "button", class: "quiet", "aria-pressed": "false", title: "Logarithmic scale",
    onclick: () => {
      chart.log = !chart.log;
      log.setAttribute("aria-pressed", String(chart.log));
      draw(place);
    } }, "log");
  place.node = el("article", { class: "card chart" },
    el("header", {}, el("h3", {}, chart.title), place.unit, el("div", { class: "buttons" }, lines ? log : null, wide)),
    chips, place.plot,
    chart.notes.length || chart.note ? el("ul", { class: "notes" }, chart.note ? el("li", {}, chart.note) : null,
      chart.notes.map((note) => el("li", { class: note.kind }, (note.kind === "best" ? "★ " : note.kind === "bad" ? "✕ " : "") + note.text))) : null);
  place.plot.setAttribute("role", "img");
  place.plot.setAttribute("aria-label", `Chart of ${chart.title}`);
  place.node.place = place;
  sight.observe(place.node);
  return place.node;
}

function chartGrid(node, charts, reason) {
  if (!charts.length) { if (reason) empty(node, reason); return; }
  node.append(el("div", { class: "charts" }, charts.map(chartCard)));
}
