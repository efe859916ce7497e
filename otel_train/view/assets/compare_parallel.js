// Draws parallel coordinates: an axis for each value, a line for each run; brushes on axes choose runs.
const COMPARE_PARALLEL = { height: 380, top: 64, bottom: 34, side: 60, gap: 128 };
const COMPARE_NONE = 18;

function compareAxes() {
  const named = address.list("axes").map(compareColumn).filter(Boolean);
  const result = compareDefaultResult();
  const chosen = named.length ? named : [...compareVaried().slice(0, 6), ...(result ? [result] : [])];
  // A brush is never out of sight.
  return [...new Set([...chosen, ...[...compareBrushes().keys()].map(compareColumn)])];
}

function compareSetAxes(columns) {
  address.setList("axes", columns.map((column) => column.key));
  compareParallel();
}

// In the address the brush of an axis is in.<key>: low~high, both within and either left out, or the names of categories.
const COMPARE_NOT_SET = "∅";

function compareBrushes() {
  const found = new Map();
  for (const column of compare.payload.columns) {
    const text = address.get("in." + column.key);
    if (!text) continue;
    const range = /^([^~]*)~([^~]*)$/.exec(text);
    if (column.kind === "category") found.set(column.key, { names: new Set(address.list("in." + column.key).map((name) => (name === COMPARE_NOT_SET ? null : name))) });
    else if (range) {
      const [low, high] = [range[1] === "" ? -Infinity : Number(range[1]), range[2] === "" ? Infinity : Number(range[2])];
      if (low <= high) found.set(column.key, { low, high });
    }
  }
  return found;
}

function compareSetBrush(key, brush) {
  const end = (value) => (Number.isFinite(value) ? value : "");
  if (brush && brush.names) address.setList("in." + key, [...brush.names].map((name) => name ?? COMPARE_NOT_SET));
  else address.set({ ["in." + key]: brush ? `${end(brush.low)}~${end(brush.high)}` : null });
  compareParallel();
}

function compareClearBrushes() {
  address.set(Object.fromEntries(compare.payload.columns.map((column) => ["in." + column.key, null])));
  compareParallel();
}

function compareIsWithin(column, brush, value) {
  if (brush.names) return brush.names.has(value);
  return typeof value === "number" && value >= brush.low && value <= brush.high;
}

// The places of the runs that are drawn and within all brushes.
function compareWithin(brushes) {
  return compareRuns().map((run, place) => place).filter((place) => !compare.hidden.has(compareRuns()[place].id)
    && [...brushes].every(([key, brush]) => { const column = compareColumn(key); return compareIsWithin(column, brush, column.values[place]); }));
}

function compareParallel() {
  compareKeepingFocus("compare-parallel", compareParallelSection);
}

function compareParallelSection() {
  const node = section("compare-parallel", "Parallel coordinates", null,
    "Each line is a run. Drag along an axis to choose a range, drag a title to move its axis; the list below does both by keyboard.");
  const columns = compare.payload.columns;
  if (compareRuns().length < 2 || columns.length < 2) { empty(node, "Two runs or more with differing configuration have parallel coordinates."); return; }
  const axes = compareAxes();
  const brushes = compareBrushes();
  const within = compareWithin(brushes);
  const inkColumn = address.get("pc") === "run" ? null : compareColumn(address.get("pc")) || compareDefaultResult();
  const ink = compareInk(inkColumn);
  const again = (changes) => { address.set(changes); compareParallel(); };
  const rest = columns.filter((column) => !axes.includes(column));
  const add = compareColumnSelect("add an axis", "", rest, (key) => { if (key) compareSetAxes([...axes, compareColumn(key)]); }, "choose…");
  const hue = compareColumnSelect("colour", inkColumn ? inkColumn.key : "", columns, (key) => again({ pc: key || "run" }), "run");
  node.append(el("div", { class: "card" }, el("div", { class: "filters" }, hue, add, brushes.size ? button("clear brushes", "Choose all runs again", compareClearBrushes) : null),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Parallel coordinates" }, compareParallelPlot(axes, brushes, new Set(within), ink)),
    compareInkKey(inkColumn, ink), compareChosen(within, brushes), compareAxisList(axes, brushes), compareParallelTable(axes, within)));
}

function compareAxisScale(column) {
  return compareScale(column, compareIsLog(column, compareFlag("log." + column.key)));
}

function compareParallelPlot(axes, brushes, within, ink) {
  const { height, top, bottom, side, gap } = COMPARE_PARALLEL;
  const width = Math.max(compareWidth(480), 2 * side + (axes.length - 1) * gap);
  const step = axes.length > 1 ? (width - 2 * side) / (axes.length - 1) : 0;
  const at = (place) => (axes.length > 1 ? side + place * step : width / 2);
  const floor = height - bottom - COMPARE_NONE;
  const py = (where) => (where === null ? height - bottom : floor - where * (floor - top));
  const scales = axes.map(compareAxisScale);
  const lines = compareRuns().map((run, place) => ({ run, place, isWithin: within.has(place) })).filter((one) => !compare.hidden.has(one.run.id)).sort((a, b) => a.isWithin - b.isWithin);
  const drawn = lines.map(({ run, place, isWithin }) => {
    const points = axes.map((column, index) => `${at(index)},${py(scales[index].at(column.values[place])).toFixed(1)}`);
    const words = [run.label, ...axes.map((column) => `${compareColumnWords(column)}: ${compareValueText(column, column.values[place])}`)].join("\n");
    const line = compareSvg("polyline", { points: points.join(" "), class: "compare-line" + (isWithin ? "" : " out"), "data-run": run.id, stroke: isWithin ? ink.of(place) : null, "stroke-dasharray": isWithin ? ["", "7 3", "2 3", "9 3 2 3", "12 4"][ink.shape(place)] || null : null },
      compareSvg("title", {}, words));
    line.addEventListener("pointerenter", () => compareHighlight(run.id));
    line.addEventListener("pointerleave", () => compareHighlight(null));
    return [line, isWithin && compareRuns().length <= COMPARE_MOST_COLUMNS ? compareSvg("text", { x: at(axes.length - 1) + 9, y: py(scales.at(-1).at(axes.at(-1).values[place])) + 4, class: "tag", "data-run": run.id }, run.number) : null];
  });
  const svg = compareSvg("svg", { viewBox: `0 0 ${width} ${height}`, class: "compare-plot parallel", role: "img", "aria-label": `Parallel coordinates of ${axes.map(compareColumnWords).join(", ")}; the table below has the values` }, drawn);
  svg.style.width = width + "px";
  // Where many lines lie over each other, each lets those below through.
  svg.style.setProperty("--line-opacity", lines.length > 60 ? Math.max(0.25, 20 / Math.sqrt(lines.length * 10)).toFixed(2) : "1");
  axes.forEach((column, index) => svg.append(compareAxisNode(svg, axes, index, at, { top, floor, height, bottom, scale: scales[index], brush: brushes.get(column.key), py, width })));
  return svg;
}

function compareAxisNode(svg, axes, index, at, place) {
  const { top, floor, height, bottom, scale, brush, py } = place;
  const column = axes[index];
  const x = at(index);
  const hasNone = scale.kind === "number" && column.values.some((value) => value === null);
  const title = compareSvg("text", { x, y: index % 2 ? 18 : 36, class: "title grab", "text-anchor": "middle" }, compareSvg("title", {}, `${compareColumnWords(column)}${scale.isLog ? ", logarithmic" : ""}: drag to move the axis`), compareCut(compareColumnWords(column), 24) + (scale.isLog ? " (log)" : ""));
  const reach = compareSvg("rect", { x: x - 16, y: top - 8, width: 32, height: floor - top + 16, class: "reach" });
  const node = compareSvg("g", { class: "compare-axis", "data-key": column.key }, compareSvg("line", { x1: x, x2: x, y1: top, y2: floor }),
    hasNone ? [compareSvg("line", { x1: x - 4, x2: x + 4, y1: height - bottom, y2: height - bottom }), compareSvg("text", { x: x - 7, y: height - bottom + 4, "text-anchor": "end" }, "none")] : null,
    scale.ticks.map(([where, text]) => [compareSvg("line", { x1: x - 3, x2: x + 3, y1: py(where), y2: py(where) }), compareSvg("text", { x: x - 7, y: py(where) + 4, "text-anchor": "end", class: "halo" }, compareCut(text, 14))]),
    brush ? compareBrushShape(scale, brush, x, py) : null, title, reach);
  compareDragBrush(svg, reach, column, scale, top, floor);
  compareDragAxis(svg, title, node, axes, index, at);
  return node;
}

function compareBrushShape(scale, brush, x, py) {
  if (brush.names) return scale.names.filter((name) => brush.names.has(name)).map((name) => { const half = 0.5 / scale.names.length; return compareSvg("rect", { x: x - 7, width: 14, y: py(scale.at(name) + half), height: py(scale.at(name) - half) - py(scale.at(name) + half), class: "brush" }); });
  const limit = (value, otherwise) => { const where = scale.at(value); return where === null ? otherwise : Math.min(1, Math.max(0, where)); };
  const [low, high] = [limit(brush.low, 0), limit(brush.high, 1)];
  return compareSvg("rect", { x: x - 7, width: 14, y: py(high), height: Math.max(2, py(low) - py(high)), class: "brush" });
}

function compareSvgPoint(svg, event) {
  const box = svg.getBoundingClientRect();
  const view_ = svg.viewBox.baseVal;
  return { x: (event.clientX - box.left) * (view_.width / box.width), y: (event.clientY - box.top) * (view_.height / box.height) };
}

// A drag chooses a range, a click takes it away; of a category those whose name lies in the range.
function compareDragBrush(svg, reach, column, scale, top, floor) {
  reach.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    reach.setPointerCapture(event.pointerId);
    const start = compareSvgPoint(svg, event).y;
    const mark = compareSvg("rect", { x: Number(reach.getAttribute("x")) + 9, width: 14, y: start, height: 0, class: "brush" });
    reach.before(mark);
    let end = start;
    const move = (moved) => { end = Math.min(floor + 8, Math.max(top - 8, compareSvgPoint(svg, moved).y)); mark.setAttribute("y", Math.min(start, end)); mark.setAttribute("height", Math.abs(end - start)); };
    const stop = () => {
      reach.removeEventListener("pointermove", move);
      if (Math.abs(end - start) < 4) { compareSetBrush(column.key, null); return; }
      const [low, high] = [Math.max(start, end), Math.min(start, end)].map((y) => (floor - y) / (floor - top));
      if (scale.kind === "category") {
        const names = scale.names.filter((name) => scale.at(name) >= low && scale.at(name) <= high);
        compareSetBrush(column.key, names.length ? { names: new Set(names) } : null);
      } else compareSetBrush(column.key, { low: Number(scale.value(low).toPrecision(6)), high: Number(scale.value(high).toPrecision(6)) });
    };
    reach.addEventListener("pointermove", move);
    reach.addEventListener("pointerup", stop, { once: true });
    reach.addEventListener("pointercancel", stop, { once: true });
  });
}

function compareDragAxis(svg, title, node, axes, index, at) {
  title.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    title.setPointerCapture(event.pointerId);
    const start = compareSvgPoint(svg, event).x;
    let away = 0;
    const move = (moved) => { away = compareSvgPoint(svg, moved).x - start; node.setAttribute("transform", `translate(${away},0)`); };
    title.addEventListener("pointermove", move);
    title.addEventListener("pointerup", () => {
      title.removeEventListener("pointermove", move);
      const x = at(index) + away;
      const others = axes.filter((_, place) => place !== index);
      const before = axes.filter((_, place) => place !== index && at(place) < x).length;
      if (Math.abs(away) > 8) compareSetAxes([...others.slice(0, before), axes[index], ...others.slice(before)]); else compareParallel();
    }, { once: true });
  });
}
