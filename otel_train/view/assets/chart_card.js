// Makes the card of a chart: its title, buttons, names of lines, the plot and what is said below.
const cards = new Map();

// A chart that was fetched again keeps its card, and with it what the reader chose there.
function chartCard(chart) {
  const known = chart.key && cards.get(chart.key);
  if (known) {
    refill(known.place, chart);
    // While it is on the full screen its gap stands for it.
    return known.closest("dialog.full") && known.place.gap ? known.place.gap : known;
  }
  const place = { chart, hidden: new Set(), zoom: null, finer: null, ranks: null, unit: el("span", { class: "unit" }),
    chips: el("div", { class: "chips" }), notes: el("div", {}), plot: el("div", { class: "plot" }) };
  place.node = el("article", { class: "card chart", "data-key": chart.key || chart.title },
    el("header", {}, el("h3", {}, chart.title), place.unit, el("div", { class: "buttons" }, cardButtons(place))),
    place.chips, place.plot, place.notes);
  place.plot.setAttribute("role", "img");
  place.node.place = place;
  restoreCard(place);
  refill(place, chart);
  if (chart.key) cards.set(chart.key, place.node);
  sight.observe(place.node);
  return place.node;
}

function refill(place, chart) {
  const before = place.chart;
  if (before !== chart && before.chosenLog !== undefined) chart.chosenLog = before.chosenLog;
  place.chart = chart;
  place.finer = null;
  const names = chart.lines.map((line) => line.label).filter((label) => label !== "value");
  place.plot.setAttribute("aria-label", `Chart of ${chart.title}` + (names.length ? `, lines: ${names.slice(0, 8).join(", ")}` : ""));
  place.chips.replaceChildren(...lineChips(place));
  place.notes.replaceChildren(...chartNotes(chart));
  // Once the card is in its place again: plotly asks the page for sizes.
  queueMicrotask(() => { redraw(place); fetchFiner(place); });
}

function chartNotes(chart) {
  if (!chart.notes.length && !chart.note && !chart.band) return [];
  const sign = { best: "★ ", bad: "✕ " };
  return [el("ul", { class: "notes" }, chart.note ? el("li", {}, chart.note) : null, chart.band ? el("li", {}, dot("series-2"), ` shaded: ${chart.band.label}`) : null,
    chart.notes.map((note) => el("li", { class: note.kind }, (sign[note.kind] || "") + note.text)))];
}

function lineChips(place) {
  const { chart } = place;
  if (chart.lines.length === 1 && chart.lines[0].label === "value") return [];
  if (chart.legend === false) return [];
  if (hasManyRanks(chart)) return rankChips(place);
  return chart.lines.map((line, index) => lineChip(place, line, index));
}

function lineChip(place, line, index) {
  return el("button", { type: "button", class: "chip", "aria-pressed": String(!place.hidden.has(line.label)), title: "Show or hide this line",
    onclick: (event) => {
      const hide = !place.hidden.has(line.label);
      if (hide) place.hidden.add(line.label); else place.hidden.delete(line.label);
      event.currentTarget.setAttribute("aria-pressed", String(!hide));
      redraw(place);
    } }, dot(line.role, dashOf(line, index)), line.label);
}

function cardButtons(place) {
  const { chart } = place;
  const hasLines = chart.kind !== "map" && chart.kind !== "distribution";
  const log = button("log", "Logarithmic scale", () => setLog(place, !isLogChart(place.chart)), { "aria-pressed": String(isLogChart(chart)) });
  place.logButton = hasLines ? log : null;
  const wide = button("wide", "Wider", () => wide.setAttribute("aria-pressed", String(place.node.classList.toggle("wide"))), { "aria-pressed": "false" });
  const save = button("save", "Save as picture or table", () => saveMenu(place, save), { "aria-haspopup": "menu" });
  const full = button("full", "Full screen", () => fullScreen(place), { "aria-label": `Full screen: ${chart.title}` });
  place.fullButton = full;
  return [hasLines ? log : null, wide, save, full];
}

function setLog(place, isLog) {
  place.chart.chosenLog = isLog;
  place.logButton.setAttribute("aria-pressed", String(isLog));
  place.zoom = place.zoom && { ...place.zoom, y: null };
  rememberLogs();
  redraw(place);
}

function rememberLogs() {
  const chosen = [...cards.values()].map((node) => node.place.chart).filter((chart) => chart.chosenLog !== undefined);
  address.setList("log", chosen.map((chart) => (chart.chosenLog ? "" : "-") + chart.key));
}

function restoreCard(place) {
  const { chart } = place;
  if (!chart.key) return;
  const chosen = address.list("log");
  if (chosen.includes(chart.key)) chart.chosenLog = true;
  if (chosen.includes("-" + chart.key)) chart.chosenLog = false;
  if (place.logButton) place.logButton.setAttribute("aria-pressed", String(isLogChart(chart)));
  if (address.get("zoomed") === chart.key) place.zoom = zoomFromAddress();
  if (address.get("full") === chart.key) queueMicrotask(() => fullScreen(place));
}
