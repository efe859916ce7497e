// Places values on axes of the scatter and of the parallel coordinates: numbers, logarithms, categories, nothing.
function compareColumn(key) {
  return compare.payload.columns.find((column) => column.key === key) || null;
}

function compareColumnWords(column) {
  return column.group === "config" ? column.label : column.label + (column.unit ? ` (${column.unit})` : "");
}

function compareFinite(column) {
  return column.values.filter((value) => typeof value === "number" && Number.isFinite(value));
}

function compareFlag(key) {
  const text = address.get(key);
  return text === "1" ? true : text === "0" ? false : null;
}

// From two decades on, an axis of positive numbers is logarithmic by itself.
function compareIsLog(column, chosen) {
  if (column.kind !== "number") return false;
  const values = compareFinite(column);
  const low = Math.min(...values);
  if (!values.length || low <= 0) return false;
  return chosen === null || chosen === undefined ? Math.max(...values) / low >= 100 : chosen;
}

function compareCanLog(column) {
  const values = compareFinite(column);
  return column.kind === "number" && values.length > 0 && Math.min(...values) > 0;
}

function compareCategories(column) {
  return [...new Set(column.values.filter((value) => value !== null))].sort((a, b) => String(a).localeCompare(String(b), "en", { numeric: true }));
}

// Returns {kind, ticks: [[place 0…1, text]], at(value) → 0…1 or null, value(place) → number}.
function compareScale(column, isLog) {
  if (column.kind === "category") {
    const names = compareCategories(column);
    const hasNone = column.values.includes(null);
    const all = hasNone ? [...names, null] : names;
    const at = (value) => { const place = all.indexOf(value); return place < 0 ? null : (place + 0.5) / all.length; };
    const step = Math.ceil(all.length / 24);
    return { kind: "category", names: all, at, ticks: all.map((name) => [at(name), name === null ? "not set" : String(name)]).filter((_, place) => place % step === 0) };
  }
  const values = compareFinite(column);
  if (!values.length) return { kind: "number", ticks: [], at: () => null, value: () => null, low: 0, high: 1 };
  const to = isLog ? Math.log10 : (value) => value;
  const from = isLog ? (value) => 10 ** value : (value) => value;
  let low = to(Math.min(...values));
  let high = to(Math.max(...values));
  const room = (high - low) * 0.04 || Math.abs(low) * 0.05 || 0.5;
  low -= room;
  high += room;
  const at = (value) => (typeof value === "number" && Number.isFinite(value) && (!isLog || value > 0) ? (to(value) - low) / (high - low) : null);
  const ticks = compareFewTicks(column, values, at) || (isLog ? compareLogTicks(low, high) : compareTicks(low, high));
  return { kind: "number", isLog, low, high, at, value: (place) => from(low + place * (high - low)), ticks: ticks.map((tick) => [at(tick), compareTickText(column, tick)]) };
}

// A few values that were tried are themselves the ticks, where they are apart enough to be read.
function compareFewTicks(column, values, at) {
  const tried = [...new Set(values)].sort((a, b) => a - b);
  if (column.group !== "config" || tried.length > 7) return null;
  return tried.every((value, place) => place === 0 || at(value) - at(tried[place - 1]) > 0.06) ? tried : null;
}

function compareTicks(low, high) {
  const raw = (high - low) / 5;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * ([1, 2, 5, 10].find((factor) => factor * size >= raw) || 10);
  const ticks = [];
  for (let count = Math.ceil(low / step); count * step <= high; count += 1) ticks.push(Number((count * step).toPrecision(12)));
  return ticks;
}

function compareLogTicks(low, high) {
  const ticks = [];
  const every = Math.ceil((high - low) / 8);
  for (let power = Math.ceil(low); power <= high; power += every) ticks.push(10 ** power);
  if (ticks.length > 2) return ticks;
  for (let power = Math.floor(low); power <= high; power += 1) for (const factor of [2, 5]) { const tick = factor * 10 ** power; if (Math.log10(tick) >= low && Math.log10(tick) <= high) ticks.push(tick); }
  return ticks.sort((a, b) => a - b);
}

function compareTickText(column, value) {
  if (column.key === "started") return new Date(value * 1000).toISOString().slice(0, 16).replace("T", " ");
  if (column.key === "duration") return duration(value);
  return number(Number(value.toPrecision(4)));
}

function compareValueText(column, value) {
  if (value === null || value === undefined) return column.kind === "number" ? "none" : "not set";
  return typeof value === "number" ? (["started", "duration"].includes(column.key) ? compareTickText(column, value) : number(value)) : String(value);
}

// Blue by grey to orange for numbers, which the usual colour blindnesses tell apart; the eight colours for categories.
function compareInk(column) {
  if (!column) return { of: (place) => colour(compareRuns()[place].role), shape: () => 0 };
  if (column.kind === "category") {
    const names = compareCategories(column);
    const place = (value) => names.indexOf(value);
    return { names, of: (index) => (column.values[index] === null ? colour("rest") : colour(`series-${place(column.values[index]) % 8}`)), shape: (index) => (column.values[index] === null ? 0 : place(column.values[index]) % 5) };
  }
  const scale = compareScale(column, compareIsLog(column));
  const stops = [colour("series-0"), colour("rest"), colour("series-1")];
  return { scale, stops, of: (index) => { const at = scale.at(column.values[index]); return at === null ? colour("rest") : compareMixed(stops, at); }, shape: () => 0 };
}

function compareMixed(stops, at) {
  const place = Math.min(0.9999, Math.max(0, at)) * (stops.length - 1);
  const [from, to] = [stops[Math.floor(place)], stops[Math.floor(place) + 1]];
  const part = (hex, start) => parseInt(hex.slice(start, start + 2), 16);
  const mix = (start) => Math.round(part(from, start) + (part(to, start) - part(from, start)) * (place % 1));
  return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
}

function compareInkKey(column, ink) {
  if (!column) return null;
  if (ink.names) return el("div", { class: "legend" }, ink.names.slice(0, 16).map((name, place) => el("span", {}, compareSvg("svg", { width: 12, height: 12, "aria-hidden": "true" }, compareShape(6, 6, 5, place % 5, colour(`series-${place % 8}`))), name)));
  const [low, high] = [Math.min(...compareFinite(column)), Math.max(...compareFinite(column))];
  const bar = el("span", { class: "compare-ramp" });
  bar.style.background = `linear-gradient(to right, ${ink.stops.join(", ")})`;
  return el("div", { class: "legend" }, el("span", {}, compareColumnWords(column), ": ", compareTickText(column, low), bar, compareTickText(column, high)));
}

// Circle, square, diamond, triangle, cross: told apart without colour.
function compareShape(x, y, size, shape, ink) {
  const path = ["", `M${x - size},${y - size}h${2 * size}v${2 * size}h${-2 * size}z`, `M${x},${y - size * 1.3}L${x + size * 1.3},${y}L${x},${y + size * 1.3}L${x - size * 1.3},${y}z`,
    `M${x},${y - size * 1.2}L${x + size * 1.2},${y + size}L${x - size * 1.2},${y + size}z`, `M${x - size},${y - size}L${x + size},${y + size}M${x + size},${y - size}L${x - size},${y + size}`][shape];
  if (!shape) return compareSvg("circle", { cx: x, cy: y, r: size, fill: ink, class: "mark" });
  return compareSvg("path", { d: path, fill: shape === 4 ? "none" : ink, stroke: shape === 4 ? ink : null, "stroke-width": shape === 4 ? 2.4 : null, class: "mark" });
}

function compareColumnSelect(words, chosen, columns, choose, none) {
  const groups = { config: "Configuration", metric: "Metrics", run: "Run" };
  const option = (column) => { const node = el("option", { value: column.key }, compareColumnWords(column)); node.selected = column.key === chosen; return node; };
  const select = el("select", { class: "search", "aria-label": words, onchange: (event) => choose(event.target.value || null) },
    none !== undefined ? el("option", { value: "" }, none) : null,
    Object.entries(groups).map(([group, title]) => { const own = columns.filter((column) => column.group === group); return own.length ? el("optgroup", { label: title }, own.map(option)) : null; }));
  return el("label", { class: "compare-select" }, words, select);
}

function compareDefaultResult() {
  const columns = compare.payload.columns.filter((column) => column.group === "metric");
  return columns.find((column) => column.key.startsWith("best.")) || columns[0] || compare.payload.columns.find((column) => column.key === "duration") || null;
}

// What was varied comes first: numbers of the configuration, of many runs those with which the result goes most; then
// its categories. A seed explains nothing.
function compareVaried() {
  const config = compare.payload.columns.filter((column) => column.group === "config");
  const isSeed = (column) => /(^|[._])seed$/.test(column.key);
  const isFew = (column) => new Set(column.values).size < Math.max(3, column.values.length);
  const numbers = config.filter((column) => column.kind === "number" && !isSeed(column));
  const names = config.filter((column) => column.kind === "category" && !isSeed(column));
  const strength = new Map(numbers.map((column) => [column, compareStrength(column)]));
  return [...numbers.sort((a, b) => strength.get(b) - strength.get(a)), ...names.filter(isFew), ...names.filter((column) => !isFew(column)), ...config.filter(isSeed)];
}

// How far the ranks of a value and of the result go together, either way; 0 where the runs are too few to tell.
function compareStrength(column) {
  const result = compareDefaultResult();
  if (!result || result.kind !== "number" || compareRuns().length < 6) return 0;
  const pairs = column.values.map((value, place) => [value, result.values[place]]).filter((pair) => pair.every((value) => typeof value === "number"));
  return Math.abs(compareRankCorrelation(pairs) || 0);
}
