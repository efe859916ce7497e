// Draws the curves of all runs together, by step, by time since each run's start, by the clock or by epoch.
function compareCurves() {
  const payload = compare.payload;
  const node = section("compare-curves", "Curves", payload.charts.metrics.length,
    "A colour and a number for each run, a dash for each split. Relative time counts from each run's start; wall time is the clock (UTC).");
  if (payload.charts.metrics.length) node.append(chartToolbar());
  chartGrid(node, payload.charts.metrics, payload.runs.length > COMPARE_MOST_COLUMNS ? `Curves are drawn of up to ${COMPARE_MOST_COLUMNS} runs.` : "No metric was logged by these runs.");
  if (payload.charts.pace.length) chartGrid(section("compare-pace", "Pace and machine", payload.charts.pace.length), payload.charts.pace);
  else compareForget("compare-pace");
  compareHideLines();
  if (node.dataset.watched) return;
  node.dataset.watched = "yes";
  // Charts of a group that was closed, or that a filter finds, are made later.
  for (const event of ["toggle", "input"]) node.addEventListener(event, () => setTimeout(compareHideLines, 150), true);
}

function compareHideLines() {
  document.querySelectorAll("#compare-curves .chart, #compare-pace .chart").forEach((card) => {
    const labels = card.place ? compareHiddenLabels(card.place.chart) : new Set();
    if (!card.place || (labels.size === card.place.hidden.size && [...labels].every((label) => card.place.hidden.has(label)))) return;
    card.place.hidden = labels;
    redraw(card.place);
  });
}

// Every point of a range that is zoomed to, from the run's own page; a line is known there by the first part of its id.
function compareFiner(id, axis, from, to) {
  const line = compare.payload.charts.metrics.flatMap((chart) => chart.lines).find((one) => one.id === id);
  const run = compareRun(line.run);
  const seconds = (ms) => ms / 1000 - run.started_s;
  const [asked, low, high] = axis === "clock" ? ["time", seconds(from), seconds(to)] : [axis, from, to];
  const query = new URLSearchParams({ axis: asked, from: low, to: high });
  return getJson(apiUrl(`api/run/${encoded(run.id)}/line/${encodeURIComponent(line.series)}?${query}`)).then(({ x, y, low: lows, high: highs, points, marks }) => {
    if (x.time && run.started_s !== null) x.clock = x.time.map((second) => (second === null ? null : Math.round((run.started_s + second) * 1000)));
    return { x, y, low: lows, high: highs, points, marks };
  });
}

// A run's own colour, as kept by this page, and its place on the clock, which follows from its start.
function compareClock(payload) {
  const runs = new Map(payload.runs.map((run) => [run.id, run]));
  for (const chart of Object.values(payload.charts).flat()) {
    for (const line of chart.lines) {
      const run = runs.get(line.run);
      line.role = run.role;
      line.end = String(run.number);
      if (run.started_s === null || !line.x.time) continue;
      line.x.clock = line.x.time.map((seconds) => (seconds === null ? null : Math.round((run.started_s + seconds) * 1000)));
      if (line.best && line.best.x.time !== undefined) line.best.x.clock = Math.round((run.started_s + line.best.x.time) * 1000);
    }
  }
}

function compareForget(id) {
  compareDrawn.delete(id);
  const node = document.getElementById(id);
  if (node) node.remove();
  document.querySelectorAll(`#nav a[href="#${id}"]`).forEach((link) => link.remove());
}
