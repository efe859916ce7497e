// Puts the sections of a run together, in a report all at once, on the local page as their parts come.
const PARTS_OF_SECTIONS = [
  [["head"], overviewPart], [["metrics"], metricParts], [["machine"], machineParts], [["inside"], insideParts], [["samples"], samplesSection],
  [["timeline"], timelinePart], [["logs"], logSection], [["config"], configSection], [["environment"], environmentSection], [["datasets"], datasetSection],
  [["checkpoints"], checkpointSection], [["stages"], stageSection], [["run_log"], damageSection],
];

function overviewPart() {
  showHead();
  overview();
  if (data.attempts.length > 1) rowsSection("attempts", "Attempts", data.attempts, ["Attempt", "Status", "Started (UTC)", "Duration", "Host", "Exit code", "Reason", "Changed since the one before"], [0]);
}

let curvesToolbar = null;

function metricParts() {
  const curves = section("curves", "Curves", data.charts.metrics.length, "Lines break where a value is not finite (✕ NaN, ▲ +Inf, ▼ −Inf). ★ is the best value by the metric's direction. Drag to zoom, double-click to return.");
  // It steers the charts of all sections, so it is there also where no metric was logged.
  if (!curvesToolbar) curvesToolbar = chartToolbar();
  curves.append(curvesToolbar);
  const isOther = settleAxis();
  chartGrid(curves, data.charts.metrics, data.reasons.metrics);
  if (isOther) redrawAll();
  summarySection();
  showAxes(data.charts.metrics.length ? data.axes : []);
}

function machineParts() {
  stepsSection();
  chartGrid(section("system", "System", data.charts.system.length), data.charts.system, data.reasons.system);
  chartGrid(section("gpu", "GPU", data.charts.gpu.length), data.charts.gpu, data.reasons.gpu);
  if (data.charts.other.length) chartGrid(section("other", "Other metrics", data.charts.other.length), data.charts.other);
}

function insideParts() {
  insideSections();
  showMore();
}

function timelinePart() {
  timelineSection();
  // Records know their span and stage only now.
  if (logView && data.logs) logView.show();
}

function checkpointSection() {
  const placed = data.checkpoints.map((row) => row.map((cell, column) => (column === 2 && /^\d+$/.test(cell) ? stepButton(Number(cell), cell) : cell)));
  rowsSection("checkpoints", "Checkpoints", placed, ["Checkpoint", "Role", "Step", "Epoch", "Size", "SHA-256", "Metrics", "Written in"], [2, 3, 4], data.reasons.checkpoints);
  if (data.origins && data.origins.length) document.getElementById("checkpoints").append(originCard());
}

function stageSection() {
  rowsSection("stages", "Stages", data.stages, ["Stage", "Status", "Duration", "Inputs", "Outputs", "Code"], [2], data.reasons.stages);
}

// The sections of these parts, whose data the page has. Where the reader was, the focus stays.
function showParts(names) {
  const focused = document.activeElement;
  for (const [[part], show] of PARTS_OF_SECTIONS) if (names.includes(part)) show();
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

function startPage() {
  startKeyboard();
  startTheme();
  startSections();
  if (document.body.dataset.page !== "runs") startChartKeys();
  addEventListener("beforeprint", drawForPrint);
}

function showRun() {
  restoreCharts();
  address.onChange(followAddress);
  showParts(PARTS_OF_SECTIONS.map(([[part]]) => part));
  if (view.filter) refilter();
  scrollToAddress();
  document.documentElement.dataset.ready = "yes";
}

function scrollToAddress() {
  const id = address.section();
  // The sections of a comparison may be named without the word before them.
  const node = id && (document.getElementById(id) || document.getElementById(`compare-${id}`));
  if (node && !address.get("record")) node.scrollIntoView({ block: "start", behavior: "instant" });
}

// Back and forward, or an address typed over that of the page.
function followAddress(isTyped) {
  restoreCharts();
  showAxes(data.charts.metrics && data.charts.metrics.length ? data.axes : []);
  refilter();
  setSmoothing(view.smoothing);
  showMarkWords();
  if (spanView) spanView.choose(address.get("span"));
  if (logView) logView.restore();
  if (isTyped) scrollToAddress();
}
