// Draws any value of the runs against any other: a point is a run, reached by pointer or by keyboard, and opens it.
const COMPARE_SCATTER = { width: 480, height: 400, left: 74, right: 18, top: 14, bottom: 52 };

function compareScatter() {
  compareKeepingFocus("compare-scatter", compareScatterSection);
}

function compareScatterSection() {
  const node = section("compare-scatter", "Scatter", null, "Each point is a run: point at it for its values, open it with a click or Enter; arrow keys go from point to point.");
  const columns = compare.payload.columns;
  if (compareRuns().length < 2 || !columns.length) { empty(node, "Two runs or more with a metric or differing configuration have a scatter."); return; }
  const chosen = compareScatterChoice(columns);
  const again = (changes) => { address.set(changes); compareScatter(); };
  const logs = ["x", "y"].map((axis) => {
    const column = chosen[axis];
    const is = compareIsLog(column, chosen[axis + "log"]);
    return button(`log ${axis}`, `Logarithmic ${axis} axis`, () => again({ [axis + "log"]: is ? "0" : "1" }), { "aria-pressed": String(is), disabled: !compareCanLog(column) });
  });
  const controls = el("div", { class: "filters" },
    compareColumnSelect("x", chosen.x.key, columns, (key) => again({ x: key, xlog: null })), compareColumnSelect("y", chosen.y.key, columns, (key) => again({ y: key, ylog: null })),
    compareColumnSelect("colour", chosen.c ? chosen.c.key : "", columns, (key) => again({ c: key }), "run"), ...logs,
    button("⇄", "Swap the axes", () => again({ x: chosen.y.key, y: chosen.x.key, xlog: address.get("ylog"), ylog: address.get("xlog") }), { "aria-label": "Swap the axes" }));
  const { plot, left } = compareScatterPlot(chosen);
  node.append(el("div", { class: "card" }, controls, plot, compareInkKey(chosen.c, compareInk(chosen.c)), compareScatterWords(chosen, left)));
}

function compareScatterChoice(columns) {
  const y = compareColumn(address.get("y")) || compareDefaultResult() || columns[0];
  const x = compareColumn(address.get("x")) || compareVaried()[0] || columns.find((column) => column.key === "started") || columns[0];
  return { x, y, c: compareColumn(address.get("c")), xlog: compareFlag("xlog"), ylog: compareFlag("ylog") };
}

function compareScatterPlot(chosen) {
  const { height, left, right, top, bottom } = COMPARE_SCATTER;
  const width = Math.min(1100, compareWidth(COMPARE_SCATTER.width));
  const scales = { x: compareScale(chosen.x, compareIsLog(chosen.x, chosen.xlog)), y: compareScale(chosen.y, compareIsLog(chosen.y, chosen.ylog)) };
  const px = (at) => left + at * (width - left - right);
  const py = (at) => height - bottom - at * (height - top - bottom);
  const frame = compareSvg("g", { class: "compare-grid", "aria-hidden": "true" },
    scales.x.ticks.map(([at, text], place) => [compareSvg("line", { x1: px(at), x2: px(at), y1: top, y2: height - bottom }), compareSvg("text", { x: px(at), y: height - bottom + 16 + (scales.x.ticks.length > 9 && place % 2 ? 12 : 0), "text-anchor": "middle" }, compareCut(text, 16))]),
    scales.y.ticks.map(([at, text]) => [compareSvg("line", { x1: left, x2: width - right, y1: py(at), y2: py(at) }), compareSvg("text", { x: left - 8, y: py(at) + 4, "text-anchor": "end" }, compareCut(text, 10))]),
    compareSvg("text", { x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle", class: "title" }, compareCut(compareColumnWords(chosen.x), 80)),
    compareSvg("text", { transform: `translate(15,${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle", class: "title" }, compareCut(compareColumnWords(chosen.y), 46)));
  const ink = compareInk(chosen.c);
  const taken = new Map();
  const without = [];
  const points = [];
  compareRuns().forEach((run, place) => {
    if (compare.hidden.has(run.id)) return;
    const at = [scales.x.at(chosen.x.values[place]), scales.y.at(chosen.y.values[place])];
    if (at.includes(null)) { without.push(run); return; }
    const spot = [px(at[0]), py(at[1])];
    const key = spot.map(Math.round).join();
    const count = taken.get(key) || 0;
    taken.set(key, count + 1);
    // Runs at one place stand side by side.
    points.push(compareScatterPoint(run, place, spot[0] + (count % 8) * 7, spot[1], ink, chosen));
  });
  const svg = compareSvg("svg", { viewBox: `0 0 ${width} ${height}`, class: "compare-plot", role: "group", "aria-label": `Scatter of ${compareColumnWords(chosen.y)} against ${compareColumnWords(chosen.x)}, ${points.length} runs` }, frame, points);
  compareRove(svg, points);
  svg.style.width = width + "px";
  return { plot: el("div", { class: "compare-plot-box" }, svg), left: without };
}

function compareScatterPoint(run, place, x, y, ink, chosen) {
  const texts = [chosen.x, chosen.y, chosen.c].filter(Boolean).map((column) => `${compareColumnWords(column)}: ${compareValueText(column, column.values[place])}`);
  const words = [run.label, run.state, ...new Set(texts)].join("\n");
  const point = compareSvg("a", { href: compareRunUrl(run), class: "compare-point", "data-run": run.id, tabindex: "-1", "aria-label": words.replaceAll("\n", ", ") },
    compareSvg("title", {}, words), compareSvg("circle", { cx: x, cy: y, r: 12, class: "reach" }), compareShape(x, y, 5.5, ink.shape(place), ink.of(place)),
    compareRuns().length <= COMPARE_MOST_COLUMNS ? compareSvg("text", { x: x + 8, y: y - 7, class: "tag", "aria-hidden": "true" }, run.number) : null);
  point.addEventListener("pointerenter", () => compareHighlight(run.id));
  point.addEventListener("pointerleave", () => compareHighlight(null));
  point.addEventListener("focus", () => compareHighlight(run.id));
  point.addEventListener("blur", () => compareHighlight(null));
  return point;
}

// One stop for the tab key; arrows go through the points from left to right.
function compareRove(svg, points) {
  const ordered = [...points].sort((a, b) => Number(a.querySelector(".reach").getAttribute("cx")) - Number(b.querySelector(".reach").getAttribute("cx")));
  if (ordered.length) ordered[0].setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const place = ordered.indexOf(event.target.closest(".compare-point"));
    const next = event.key === "Home" ? 0 : event.key === "End" ? ordered.length - 1 : by ? place + by : -1;
    if (place < 0 || next < 0 || next >= ordered.length) return;
    event.preventDefault();
    ordered[place].setAttribute("tabindex", "-1");
    ordered[next].setAttribute("tabindex", "0");
    ordered[next].focus();
  });
}

function compareScatterWords(chosen, without) {
  const words = [];
  if (chosen.x.kind === "number" && chosen.y.kind === "number") {
    const pairs = chosen.x.values.map((value, place) => [value, chosen.y.values[place]]).filter((pair, place) => pair.every((value) => typeof value === "number") && !compare.hidden.has(compareRuns()[place].id));
    const found = compareRankCorrelation(pairs);
    if (found !== null) words.push(`Rank correlation (Spearman) ${found.toFixed(2).replace("-", "−")} over ${plural(pairs.length, "run")}.`);
  }
  if (without.length) words.push(`Not drawn, for lack of a value: ${without.slice(0, 6).map((run) => run.label).join(", ")}${without.length > 6 ? ` and ${without.length - 6} more` : ""}.`);
  return words.length ? el("p", { class: "compare-words" }, words.join(" ")) : null;
}

// Spearman's: the correlation of ranks, equal values having the mean of their ranks; null below three pairs.
function compareRankCorrelation(pairs) {
  if (pairs.length < 3) return null;
  const ranks = [0, 1].map((side) => {
    const order = pairs.map((pair) => pair[side]).map((value, place) => [value, place]).sort((a, b) => a[0] - b[0]);
    const result = new Array(order.length);
    for (let from = 0; from < order.length;) {
      let to = from;
      while (to < order.length && order[to][0] === order[from][0]) to += 1;
      for (let place = from; place < to; place += 1) result[order[place][1]] = (from + to - 1) / 2;
      from = to;
    }
    return result;
  });
  const middle = (pairs.length - 1) / 2;
  let both = 0;
  let left = 0;
  let right = 0;
  ranks[0].forEach((rank, place) => { const [a, b] = [rank - middle, ranks[1][place] - middle]; both += a * b; left += a * a; right += b * b; });
  return left && right ? both / Math.sqrt(left * right) : null;
}

function compareCut(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}
