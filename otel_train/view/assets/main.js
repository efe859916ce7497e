// Puts the page together and answers the reader's choice of axis and theme.
document.getElementById("run-name").textContent = data.name;
document.getElementById("run-id").textContent = data.project + " · " + data.run_id;
const pill = document.getElementById("pill");
pill.textContent = data.status.state;
pill.classList.add(data.status.state);
document.getElementById("footer").textContent = data.footer;

overview();
const curves = section("curves", "Curves", data.charts.metrics.length, "Lines break where a value is not finite (✕ NaN, ▲ +Inf, ▼ −Inf). ★ is the best value by the metric's direction. Drag to zoom, double-click to return.");
chartGrid(curves, data.charts.metrics, data.reasons.metrics);
summarySection();
stepsSection();
insideSections();
samplesSection();
chartGrid(section("system", "System", data.charts.system.length), data.charts.system, data.reasons.system);
chartGrid(section("gpu", "GPU", data.charts.gpu.length), data.charts.gpu, data.reasons.gpu);
if (data.charts.other.length) chartGrid(section("other", "Other metrics", data.charts.other.length), data.charts.other);
timelineSection();
logSection();
configSection();
environmentSection();
datasetSection();
rowsSection("checkpoints", "Checkpoints", data.checkpoints, ["Checkpoint", "Role", "Step", "Epoch", "Size", "SHA-256", "Metrics", "Written in"], [2, 3, 4], data.reasons.checkpoints);
rowsSection("stages", "Stages", data.stages, ["Stage", "Status", "Duration", "Inputs", "Outputs", "Code"], [2], data.reasons.stages);
if (data.attempts.length > 1) rowsSection("attempts", "Attempts", data.attempts, ["Attempt", "Status", "Started", "Duration", "Host", "Exit code", "Reason", "Changed since the one before"], [0]);
damageSection();

const axisBox = document.getElementById("axis");
if (data.axes.length > 1 && data.charts.metrics.length) {
  data.axes.forEach((axis) => axisBox.append(el("button", { type: "button", "aria-pressed": String(axis === view.axis), onclick: () => {
    view.axis = axis;
    for (const button of axisBox.children) button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
    redrawAll();
  }, "data-axis": axis }, AXIS_NAMES[axis])));
}
document.getElementById("theme").addEventListener("click", () => {
  document.documentElement.style.colorScheme = isDark() ? "light" : "dark";
  redrawAll();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
addEventListener("beforeprint", () => document.querySelectorAll(".chart, #timeline .card").forEach((node) => { if (node.place && !view.drawn.has(node)) { view.drawn.set(node, node.place); draw(node.place); } }));

const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.getAttribute("href").slice(1), link]));
const spy = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) for (const [id, link] of links) link.classList.toggle("here", id === entry.target.id);
}, { rootMargin: "-15% 0px -75% 0px" });
document.querySelectorAll("main > section").forEach((node) => spy.observe(node));
document.documentElement.dataset.ready = "yes";
