// Shows a chart on the full screen, and saves it as a picture or as a table.
function fullScreen(place) {
  const open = place.node.closest("dialog.full");
  if (open) { open.close(); return; }
  if (!place.node.isConnected || document.querySelector("dialog[open]")) return;
  const gap = el("div", { class: "card chart gap" });
  gap.style.height = place.node.offsetHeight + "px";
  place.gap = gap;
  place.node.replaceWith(gap);
  const dialog = el("dialog", { class: "full", "aria-label": place.chart.title, "data-keys": "fl[]t" }, place.node);
  dialog.addEventListener("close", () => {
    if (gap.isConnected) gap.replaceWith(place.node);
    place.gap = null;
    redraw(place);
    address.set({ full: null });
    place.fullButton.focus({ preventScroll: true });
  });
  showDialog(dialog);
  place.fullButton.focus({ preventScroll: true });
  redraw(place);
  address.set({ full: place.chart.key || place.chart.title });
}

// The chart that the reader is at: in a dialog, with the focus or under the pointer.
function chartAtHand() {
  const node = document.querySelector("dialog.full .chart") || (document.activeElement && document.activeElement.closest(".chart")) || document.querySelector(".chart:hover");
  return node && node.place ? node.place : null;
}

function firstChartInSight() {
  const node = [...document.querySelectorAll(".chart")].find((candidate) => candidate.place && candidate.getBoundingClientRect().top >= 0 && candidate.getBoundingClientRect().top < innerHeight);
  return node ? node.place : null;
}

function saveMenu(place, opener) {
  const old = place.node.querySelector(".menu");
  if (old) { old.remove(); opener.focus(); return; }
  const item = (text, action) => el("button", { type: "button", role: "menuitem", onclick: () => { close(); action(); } }, text);
  const hasTable = place.chart.kind !== "map" && place.chart.kind !== "distribution";
  const menu = el("div", { class: "menu", role: "menu" }, item("Picture (PNG)", () => savePicture(place)), hasTable ? item(tableWords(place.chart), () => saveTable(place)) : null);
  const close = () => { menu.remove(); document.removeEventListener("pointerdown", away, true); opener.focus({ preventScroll: true }); };
  const away = (event) => { if (!menu.contains(event.target) && event.target !== opener) close(); };
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); close(); }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); (document.activeElement === menu.firstChild ? menu.lastChild : menu.firstChild).focus(); }
  });
  document.addEventListener("pointerdown", away, true);
  place.node.querySelector("header").append(menu);
  menu.firstChild.focus({ preventScroll: true });
}

function tableWords(chart) {
  if (view.csv) return "Table of every point (CSV)";
  return isReduced(chart) ? "Table of the drawn means (CSV)" : "Table (CSV)";
}

function fileName(chart, ending) {
  const name = `${(data && data.run_id) || "compare"}-${chart.title}`.replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 120);
  return name + ending;
}

function download(name, href) {
  const link = el("a", { href, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

async function savePicture(place) {
  const { plot, chart } = place;
  const names = new Set();
  const traces = plot.data.map((trace) => {
    const isNamed = trace.visible !== false && (trace.meta === "line" || trace.meta === "smoothed") && !names.has(trace.name);
    if (isNamed) names.add(trace.name);
    return { ...trace, showlegend: isNamed };
  });
  const layout = { ...plot.layout, paper_bgcolor: paper(), plot_bgcolor: paper(), showlegend: names.size > 1, legend: { orientation: "h", y: -0.2 },
    title: { text: literal(chart.title) + (place.unit && place.unit.textContent ? ` (${literal(place.unit.textContent)})` : ""), font: { size: 15 } }, margin: { ...plot.layout.margin, t: 44 } };
  const width = Math.max(640, plot.clientWidth);
  const picture = await Plotly.toImage({ data: traces, layout }, { format: "png", width, height: Math.max(400, plot.clientHeight + 70), scale: 2 });
  download(fileName(chart, ".png"), picture);
}

function isReduced(chart) {
  return chart.lines.some((line) => line.points);
}

function saveTable(place) {
  const { chart } = place;
  const ids = chart.lines.map((line) => line.id).filter(Boolean);
  if (view.csv && ids.length) { download(fileName(chart, ".csv"), view.csv(ids)); return; }
  const url = URL.createObjectURL(new Blob([csvOf(chart)], { type: "text/csv;charset=utf-8" }));
  download(fileName(chart, isReduced(chart) ? "-reduced.csv" : ".csv"), url);
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

// As the server's tables: a name that a spreadsheet would take for a formula gets an apostrophe in front.
function csvText(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const NON_FINITE = ["NaN", "Infinity", "-Infinity"];

// Every row that the page holds. Where many points are drawn as one, the heads say so: mean, low, high and counts.
function csvOf(chart) {
  const reduced = isReduced(chart);
  const rows = [["series", "step", "epoch", "elapsed_s", ...(reduced ? ["mean", "low", "high", "nan", "positive_infinity", "negative_infinity"] : ["value"])]];
  for (const line of chart.lines) {
    const name = csvText(line.label === "value" ? chart.title : `${chart.title} · ${line.label}`);
    const marks = new Map((line.marks || []).map(([row, ...counts]) => [row, counts]));
    line.y.forEach((value, row) => {
      const counts = marks.get(row) || [0, 0, 0];
      const isBad = counts.some(Boolean);
      if (value === null && !isBad) return;
      const at = (axis) => (line.x[axis] ? line.x[axis][row] : null);
      const place = [name, at("step"), at("epoch"), at("time")];
      if (reduced) rows.push([...place, value, line.low ? line.low[row] : value, line.high ? line.high[row] : value, ...counts]);
      else rows.push([...place, isBad ? NON_FINITE[counts.findIndex(Boolean)] : value]);
    });
  }
  return rows.map((row) => row.map((cell) => (cell === null || cell === undefined ? "" : cell)).join(",")).join("\r\n") + "\r\n";
}
