// Makes plotly's figure of a chart: traces, axes, levels, and the place that the reader marked.
function layoutOf(axis, chart, isLog) {
  const dark = isDark();
  const grid = dark ? "#2a3340" : "#e9ecf1";
  const soft = dark ? "#a6b1c0" : "#4a5566";
  const line = { gridcolor: grid, zeroline: false, linecolor: grid, tickfont: { size: 11 }, automargin: true };
  const dated = axis === "clock" ? { type: "date" } : {};
  return {
    margin: { l: 46, r: 10, t: 8, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "x unified",
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", size: 12, color: soft }, dragmode: isTouched() ? false : "zoom",
    hoverlabel: { bgcolor: dark ? "rgba(28,35,45,0.85)" : "rgba(255,255,255,0.85)", bordercolor: grid, font: { size: 12, color: dark ? "#e8edf3" : "#131a24" }, namelength: 40 },
    xaxis: { ...line, ...dated, title: { text: literal(axisTitle(axis, chart)), font: { size: 11 }, standoff: 6 }, showgrid: false, hoverformat: isTimeAxis(axis) ? ".5~g" : "" },
    yaxis: { ...line, type: isLog ? "log" : "linear", exponentformat: "power", nticks: 6 },
    yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
    shapes: [], annotations: [],
  };
}

// Under a finger a chart scrolls with the page; on the full screen it is zoomed.
function isTouched() {
  return matchMedia("(pointer: coarse)").matches && !document.querySelector("dialog.full");
}

// What is usual, as a band whose name stands below the chart, and where an alert begins, as a dashed line; neither widens the axis by much.
function addLevels(layout, chart, unit, largest, isLog) {
  const name = (y, label, ink) => layout.annotations.push({ xref: "paper", x: 1, xanchor: "right", y: isLog ? Math.log10(y) : y, yanchor: "bottom",
    text: literal(label), showarrow: false, font: { size: 10.5, color: ink } });
  if (chart.band) {
    const [low, high] = [chart.band.low / unit.scale, chart.band.high / unit.scale];
    layout.shapes.push({ type: "rect", xref: "paper", x0: 0, x1: 1, y0: low, y1: high, line: { width: 0 }, fillcolor: faded(colour("series-2"), 0.13), layer: "below" });
  }
  if (chart.threshold && chart.threshold.value <= 3 * largest) {
    const y = chart.threshold.value / unit.scale;
    layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { width: 1.2, dash: "dash", color: colour("error") } });
    name(y, chart.threshold.label, colour("error"));
  }
}

// A short name at the end of a line, where a line has one.
function addEnds(layout, lines, place, axis, unit, isLog) {
  for (const { line } of lines) {
    if (!line.end || place.hidden.has(line.label) || !line.x[axis]) continue;
    let last = line.y.length - 1;
    while (last >= 0 && (line.y[last] === null || line.x[axis][last] === null)) last -= 1;
    // Plotly draws nothing beyond a ten thousandth of the largest number, and fails at a text there.
    if (last < 0 || (isLog && line.y[last] <= 0) || Math.abs(line.y[last]) > Number.MAX_VALUE * 1e-4) continue;
    const y = line.y[last] / unit.scale;
    layout.annotations.push({ x: line.x[axis][last] / axisScale(axis), y: isLog ? Math.log10(y) : y, xanchor: "left", yanchor: "middle", text: " " + literal(line.end),
      showarrow: false, font: { size: 10.5, color: colour(line.role) } });
  }
}

// The step or moment that a record, a bar or a notice led to.
function addMark(layout, axis) {
  const x = markOn(axis);
  if (x === null) return;
  const ink = isDark() ? "#f0b357" : "#8a5300";
  layout.shapes.push({ type: "line", name: "mark", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { width: 1.6, dash: "dashdot", color: ink } });
}

function markOn(axis) {
  if (!view.mark) return null;
  const place = converted(view.mark.value, view.mark.axis, axis);
  return place === null ? null : place / axisScale(axis);
}

function isLogChart(chart) {
  if (chart.kind === "timeline" || chart.kind === "map" || chart.kind === "distribution") return false;
  return Boolean(chart.chosenLog !== undefined ? chart.chosenLog : view.logAll !== null ? view.logAll : chart.log);
}

function lineFigure(place, axis) {
  const { chart } = place;
  const isLog = isLogChart(chart);
  const lines = shownLines(place, axis);
  let largest = 0;
  for (const { line } of lines) for (const value of line.high || line.y) if (value !== null && Math.abs(value) > largest) largest = Math.abs(value);
  const unit = unitOf(chart.unit, largest);
  const placed = ownPlaces(lines, axis, chart);
  const traces = lines.flatMap(({ line, index }) => lineTraces(line, index, { axis, unit, isLog, hidden: place.hidden.has(line.label), place: placed(line) }));
  const layout = layoutOf(axis, chart, isLog);
  addLevels(layout, chart, unit, largest, isLog);
  addEnds(layout, lines, place, axis, unit, isLog);
  if (["%", "By", "By/s", "samples/s", "tokens/s"].includes(chart.unit)) layout.yaxis.rangemode = "tozero";
  const words = [unit.name, axis !== view.axis && chart.kind === "metric" ? "by time: it has no " + view.axis : "", withoutPlace(lines, axis), isLog ? lostOnLog(lines) : ""];
  return { data: traces, layout, words: words.filter(Boolean).join(" · ") };
}

// Lines that have no point on this axis are not drawn: they are named, so that nobody looks for them.
function withoutPlace(lines, axis) {
  const names = lines.filter(({ line }) => !line.x[axis]).map(({ line }) => line.label);
  if (!names.length || names.length === lines.length) return "";
  return `${names.length > 3 ? plural(names.length, "line") : names.join(", ")} only by time`;
}

function lostOnLog(lines) {
  let lost = 0;
  for (const { line } of lines) for (const value of line.y) if (value !== null && value <= 0) lost += 1;
  return lost ? `${number(lost)} at or below 0 have no place on a logarithmic axis` : "";
}

// The lines as the page holds them, or finer ones of the range that is zoomed to; of many ranks those chosen.
function shownLines(place, axis) {
  const finer = place.finer && place.finer.axis === axis ? place.finer.lines : null;
  return chosenLines(place, axis).map(({ line, index }) => ({ index, line: finer && finer.has(line.id) ? { ...line, ...finer.get(line.id) } : line }));
}

function figureOf(place) {
  const { chart } = place;
  if (chart.kind === "timeline") return timelineFigure(chart, place);
  const axis = axisOf(chart);
  let figure;
  if (chart.kind === "map" || chart.kind === "distribution") {
    figure = chart.kind === "map" ? { ...mapFigure(chart, axis), layout: layoutOf(axis, chart, false) } : distributionFigure(chart, axis);
    figure.layout.hovermode = "closest";
    if (chart.kind === "map") Object.assign(figure.layout.yaxis, { type: "category", autorange: "reversed", showgrid: false, nticks: 16 });
    figure.words = chart.unit;
  } else {
    figure = lineFigure(place, axis);
  }
  // Plotly writes into the range that it is given.
  const range = rangeOf(axis);
  figure.layout.xaxis.range = range && [...range];
  addMark(figure.layout, axis);
  return applyZoom(place, figure, axis);
}
