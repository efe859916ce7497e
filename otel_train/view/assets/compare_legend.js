// Shows the runs once, on top: which are drawn, what they are, the base; adds runs and takes them away.
function compareLegend() {
  const strip = document.getElementById("compare-legend");
  const runs = compareRuns();
  const chips = runs.map((run) => {
    const box = el("input", { type: "checkbox", "aria-label": `Draw ${run.label}`, onchange: () => compareToggle(run.id) });
    box.checked = !compare.hidden.has(run.id);
    const chip = el("label", { class: "compare-chip" + (run.state === "running" ? " live" : ""), "data-run": run.id, title: `${run.label}: ${run.state}` }, box, compareName(run));
    chip.addEventListener("pointerenter", () => compareHighlight(run.id));
    chip.addEventListener("pointerleave", () => compareHighlight(null));
    chip.addEventListener("focusin", () => compareHighlight(run.id));
    chip.addEventListener("focusout", () => compareHighlight(null));
    return chip;
  });
  const all = button("all", "Draw all runs", () => compareHide([]));
  const none = button("none", "Draw no run", () => compareHide(runs.map((run) => run.id)));
  strip.replaceChildren(el("div", { class: "compare-chips", role: "group", "aria-label": "Runs that are drawn" }, chips), runs.length > 2 ? el("div", { class: "buttons" }, all, none) : "",
    compareDashes());
  strip.hidden = !runs.length;
}

// Which split has which dash.
function compareDashes() {
  const found = new Map();
  for (const chart of compare.payload.charts.metrics) for (const line of chart.lines) { const split = line.split.split(" · ")[0]; if (split && !found.has(split)) found.set(split, line.dash); }
  if (found.size < 2) return "";
  const patterns = { solid: "", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4", longdashdot: "11 3 2 3" };
  return el("div", { class: "compare-dashes", "aria-label": "Dashes of the splits" }, [...found].map(([split, dash]) => el("span", {},
    compareSvg("svg", { width: 30, height: 8, "aria-hidden": "true" }, compareSvg("line", { x1: 0, x2: 30, y1: 4, y2: 4, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": patterns[dash] || null })), split)));
}

function compareShowHidden() {
  document.querySelectorAll("#compare-legend .compare-chip").forEach((chip) => { chip.querySelector("input").checked = !compare.hidden.has(chip.dataset.run); });
  document.querySelectorAll("#compare-curves .chart, #compare-pace .chart, dialog.full .chart").forEach((node) => {
    if (!node.place) return;
    node.place.hidden = compareHiddenLabels(node.place.chart);
    redraw(node.place);
  });
  compareScatter();
  compareParallel();
}

function compareHiddenLabels(chart) {
  return new Set(chart.lines.filter((line) => compare.hidden.has(line.run)).map((line) => line.label));
}

// The run under the pointer stands out in all charts, tables and plots; the others fade.
let compareHighlighted = null;
let compareHighlightFrame = 0;

function compareHighlight(id) {
  cancelAnimationFrame(compareHighlightFrame);
  compareHighlightFrame = requestAnimationFrame(() => {
    if (compareHighlighted === id) return;
    compareHighlighted = id;
    document.getElementById("main").classList.toggle("compare-has-highlight", id !== null);
    document.querySelectorAll("#main [data-run]").forEach((node) => node.classList.toggle("compare-highlighted", node.dataset.run === id));
    for (const place of view.drawn.values()) if (place.inSight && place.plot.data && place.chart.lines) compareFade(place, id);
  });
}

function compareFade(place, id) {
  const lines = place.chart.lines;
  const opacity = place.plot.data.map((trace) => {
    if (trace.compareOpacity === undefined) trace.compareOpacity = trace.opacity === undefined ? 1 : trace.opacity;
    const line = lines[Number(trace.legendgroup)];
    return id === null || !line || line.run === id ? trace.compareOpacity : 0.08;
  });
  if (opacity.length) Plotly.restyle(place.plot, { opacity });
}

function compareFacts() {
  const payload = compare.payload;
  const node = section("compare-runs", "Runs", payload.runs.length || null);
  for (const one of payload.missing) node.append(el("p", { class: "notice bad", role: "note" }, el("b", {}, "Not compared"), el("code", {}, one.id), " ", one.message, " ",
    button("leave it out", `Leave ${one.id} out`, () => compareChoose(compareIds().filter((id) => id !== one.id)))));
  const words = { bad: "Look here", warn: "Note", info: "Note" };
  for (const notice of payload.notices) node.append(el("p", { class: "notice " + notice.kind, role: "note" }, el("b", {}, words[notice.kind]), notice.text));
  if (payload.runs.length === 0 && !payload.missing.length) empty(node, "No run is chosen. Search for runs below and add two or more.");
  if (payload.runs.length === 1) node.append(el("p", { class: "notice info", role: "note" }, el("b", {}, "Note"), "This is one run; add another to compare it with."));
  if (payload.runs.length) {
    const isMany = payload.runs.length > COMPARE_MOST_COLUMNS;
    const isSeen = (row) => row.differs || compare.allFacts || ["State", "Duration"].includes(row.key) || payload.runs.length < 2;
    const rows = payload.facts.rows.filter(isSeen).map((row) => ({ ...row, texts: row.cells.map((cell) => compareFactCell(row, cell)) }));
    const left = payload.facts.rows.length - rows.length;
    const more = left || compare.allFacts ? button(compare.allFacts ? "only differences" : `${number(left)} more, the same in all`, "Facts that are the same in all runs", () => { compare.allFacts = !compare.allFacts; compareKeepingFocus("compare-runs", compareFacts); }, { "aria-expanded": String(Boolean(compare.allFacts)) }) : null;
    node.append(el("div", { class: "card" }, compareTable(rows, { heads: true, caption: "Facts of the runs", isMany }), more));
  }
  node.append(compareAdd());
}

function compareFactCell(row, cell) {
  if (!cell) return "";
  return row.key === "State" ? el("span", { class: "pill " + cell.text }, cell.text) : cell.text;
}

// Finds runs to add, by the words of the runs' table. What is typed there stays when the page is drawn again.
let compareAddBox = null;

function compareAdd() {
  if (!compareAddBox) compareAddBox = compareMakeAdd();
  return compareAddBox;
}

function compareMakeAdd() {
  const input = el("input", { class: "search", type: "search", placeholder: "Add a run: name, id, project, lr=0.1 …", "aria-label": "Search for a run to add" });
  const found = el("ul", { class: "compare-found", "aria-live": "polite" });
  let waiting = null;
  let control = null;
  const search = async () => {
    if (control) control.abort();
    control = new AbortController();
    try {
      const answer = await getJson(apiUrl("api/runs?" + new URLSearchParams({ search: input.value.trim(), limit: "12" })), { signal: control.signal });
      const chosen = new Set(compareIds());
      const rows = answer.rows.filter((row) => !chosen.has(row.run_id)).slice(0, 8);
      found.replaceChildren(...rows.map((row) => el("li", {}, button("add", `Add ${row.name || row.run_id}`, () => { compareChoose([...compareIds(), row.run_id]); search(); }, { "aria-label": `Add ${row.name || ""} ${row.run_id}` }),
        el("span", { class: "label" }, row.name || row.run_id), el("code", {}, row.run_id), el("span", { class: "pill " + row.state }, row.state))));
      if (!rows.length) found.replaceChildren(el("li", {}, answer.error ? answer.error.message : "No other run has these words."));
    } catch (fault) {
      if (fault.name !== "AbortError") found.replaceChildren(el("li", {}, fault.message));
    }
  };
  if (!compareRuns().length) search();
  input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 150); });
  input.addEventListener("focus", () => { if (!found.childElementCount) search(); });
  return el("div", { class: "compare-add" }, input, found);
}
