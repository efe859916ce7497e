// Groups charts by the part of their name before the slash, filters them by name, and holds what steers all of them.
const grids = new Map();

function chartGrid(node, charts, reason) {
  if (!charts.length) { if (reason) empty(node, reason); return; }
  const grid = { node, charts, place: el("div", { class: "grids" }) };
  node.append(grid.place);
  grids.set(node, grid);
  fillGrid(grid);
}

function matchesFilter(chart) {
  const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const name = chart.title.toLowerCase();
  return words.every((word) => name.includes(word));
}

function fillGrid(grid) {
  const found = view.filter ? grid.charts.filter(matchesFilter) : grid.charts;
  const left = grid.charts.length - found.length;
  const parts = [];
  const groups = groupsOf(found, grid.charts.length);
  let shown = 0;
  for (const [name, charts] of groups) {
    if (groups.size === 1) parts.push(el("div", { class: "charts" }, charts.map((chart) => chartCard(chart))));
    else parts.push(groupNode(grid, name, charts, Boolean(view.filter) || shown < OPEN_CHARTS));
    shown += charts.length;
  }
  if (left && !found.length) parts.push(el("p", { class: "empty" }, `None of ${plural(left, "chart")} here has “${view.filter}” in its name.`));
  grid.place.replaceChildren(...parts);
}

const OPEN_CHARTS = 600;
const GROUPED_FROM = 9;

function groupsOf(charts, all) {
  const groups = new Map();
  const prefix = (chart) => (chart.title.includes("/") ? chart.title.split("/", 1)[0] : "");
  const several = all >= GROUPED_FROM && new Set(charts.map(prefix)).size > 1;
  for (const chart of charts) {
    const name = several ? prefix(chart) : "";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(chart);
  }
  return groups;
}

function groupNode(grid, name, charts, isOpen) {
  const toggled = address.list("groups");
  const key = `${grid.node.id}/${name}`;
  const place = el("div", { class: "charts" });
  const node = el("details", { class: "group", open: view.filter ? isOpen : isOpen !== toggled.includes(key) },
    el("summary", {}, name || "without a group", el("span", { class: "count" }, ` ${number(charts.length)}`)), place);
  const fill = () => { if (node.open && !place.childElementCount) place.replaceChildren(...charts.map((chart) => chartCard(chart))); };
  fill();
  node.addEventListener("toggle", () => {
    fill();
    if (view.filter) return;
    const others = address.list("groups").filter((other) => other !== key);
    address.setList("groups", node.open === isOpen ? others : [...others, key]);
  });
  return node;
}

function filterCharts(text) {
  if (text === view.filter) return;
  view.filter = text;
  address.set({ charts: text });
  refilter();
}

function refilter() {
  const text = view.filter;
  document.querySelectorAll(".toolbar .search").forEach((node) => { if (node.value.trim() !== text) node.value = text; });
  for (const [node, grid] of grids) if (node.isConnected) fillGrid(grid); else grids.delete(node);
  const all = [...grids.values()].flatMap((grid) => grid.charts);
  const words = text ? `${number(all.filter(matchesFilter).length)} of ${plural(all.length, "chart")}` : "";
  document.querySelectorAll(".toolbar .found").forEach((node) => { node.textContent = words; });
}

function setSmoothing(weight) {
  view.smoothing = Math.min(0.99, Math.max(0, Math.round(weight * 100) / 100));
  address.set({ smoothing: view.smoothing || null });
  document.querySelectorAll(".toolbar .smoothing input").forEach((node) => { node.value = view.smoothing; });
  document.querySelectorAll(".toolbar .smoothing output").forEach((node) => { node.textContent = view.smoothing ? view.smoothing.toFixed(2) : "off"; });
  redrawAll();
}

function setLogAll(isLog) {
  view.logAll = isLog;
  for (const node of cards.values()) {
    delete node.place.chart.chosenLog;
    if (node.place.zoom) node.place.zoom.y = null;
    if (node.place.logButton) node.place.logButton.setAttribute("aria-pressed", String(isLogChart(node.place.chart)));
  }
  address.set({ logs: isLog === null ? null : isLog ? "1" : "0", log: null });
  document.querySelectorAll(".toolbar .log-all").forEach((node) => node.setAttribute("aria-pressed", String(Boolean(isLog))));
  redrawAll();
}

function chartToolbar() {
  const search = el("input", { class: "search", type: "search", placeholder: "Filter charts by name", "aria-label": "Filter charts by name", value: view.filter });
  let waiting = null;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => filterCharts(search.value.trim()), 80); });
  const slider = el("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: view.smoothing, "aria-label": "Smoothing",
    oninput: (event) => setSmoothing(Number(event.target.value)) });
  const log = button("log all", "Logarithmic scale for all charts", () => setLogAll(view.logAll ? null : true), { class: "quiet log-all", "aria-pressed": String(Boolean(view.logAll)) });
  const link = button("link zoom", "Zoom all charts of an axis together", () => {
    setLinked(!view.linked);
    link.setAttribute("aria-pressed", String(view.linked));
  }, { "aria-pressed": String(view.linked) });
  return el("div", { class: "toolbar", role: "group", "aria-label": "All charts" }, search, el("span", { class: "found", role: "status" }),
    el("label", { class: "smoothing", title: "Exponential moving average without bias, over the drawn points; raw values stay behind it" }, "smoothing", slider,
      el("output", {}, view.smoothing ? view.smoothing.toFixed(2) : "off")), log, link, el("span", { class: "marked", role: "status" }, markWords()));
}

function showAxes(axes) {
  const box = document.getElementById("axis");
  if (!box) return;
  box.replaceChildren(...(axes.length < 2 ? [] : axes.map((axis) => el("button", { type: "button", "aria-pressed": String(axis === view.axis), onclick: () => chooseAxis(axis), "data-axis": axis }, AXIS_NAMES[axis] || axis))));
}

function chooseAxis(axis) {
  view.axis = axis;
  view.range = view.range && view.range.axis === axis ? view.range : null;
  document.querySelectorAll("#axis button").forEach((node) => node.setAttribute("aria-pressed", String(node.dataset.axis === axis)));
  address.set({ axis: axis === defaultAxis() ? null : axis });
  if (view.axisChosen) view.axisChosen(axis);
  redrawAll();
}

function defaultAxis() {
  return data.axes.includes("step") ? "step" : data.axes[0] || "time";
}

// The axis that the reader chose, else the usual one: a run that was opened before its first step has steps only later.
function settleAxis() {
  const before = view.axis;
  const chosen = address.get("axis");
  view.axis = chosen && data.axes.includes(chosen) ? chosen : defaultAxis();
  return view.axis !== before;
}

// What the address says of all charts.
function restoreCharts() {
  settleAxis();
  const weight = Number(address.get("smoothing"));
  view.smoothing = weight > 0 && weight <= 0.99 ? weight : 0;
  view.logAll = { 1: true, 0: false }[address.get("logs")] ?? null;
  view.filter = address.get("charts") || "";
  view.linked = address.get("linked") === "1";
  view.range = view.linked ? zoomFromAddress() : null;
  restoreMark();
}

function startChartKeys() {
  shortcut("f", "full screen of the chart under the pointer", () => { const place = chartAtHand() || firstChartInSight(); if (place && place.fullButton) fullScreen(place); });
  shortcut("l", "logarithmic axis of the chart under the pointer, else of all", () => {
    const place = chartAtHand();
    if (place && place.logButton) setLog(place, !isLogChart(place.chart)); else setLogAll(view.logAll ? null : true);
  });
  shortcut("[", "less smoothing", () => setSmoothing(view.smoothing - 0.1));
  shortcut("]", "more smoothing", () => setSmoothing(view.smoothing >= 0.9 ? 0.99 : view.smoothing + 0.1));
}
