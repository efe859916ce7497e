// Fetches the page of a run part by part: what is seen first comes first, and a fault is said where its part would be.
const FIRST_PARTS = ["head", "metrics"];
const FIRST_DRAWN_MS = 1_000;
const LONGEST_MS = 10_000;
const LATER_PARTS = [["machine", "inside", "samples"], ["timeline", "logs"], ["config", "environment", "datasets", "checkpoints", "stages", "run_log"]];

function runUrl(path) {
  // As it stands in the address of this page: the id may be no UTF-8.
  return apiUrl(`api/run/${location.pathname.split("/").pop()}${path}`);
}

async function fetchParts(names) {
  const { revision, live, early, ...part } = await getJson(runUrl(`?parts=${names.join(",")}`));
  return { revision, live, early, part };
}

// While a long run is still being read its description is there already.
async function fetchFirst() {
  const head = await fetchParts(["head"]);
  use(head.part);
  restoreCharts();
  showParts(["head"]);
  showTitle();
  document.documentElement.dataset.ready = "yes";
  if (head.early) await showFirstChart();
  const first = await fetchParts(FIRST_PARTS);
  use(first.part);
  return { ...first, revisions: { head: first.revision, metrics: first.revision } };
}

// One chart of a long run is there before the others. Once it is drawn the rest is asked for, whose reading takes a core.
async function showFirstChart() {
  const early = await fetchParts(["first"]).catch(() => null);
  if (!early || !early.part.charts || !early.part.charts.metrics.length) return;
  merge(early.part);
  showParts(["metrics"]);
  // A chart out of sight is not drawn.
  await Promise.race([firstDrawing, new Promise((done) => {
    whenPlotly(() => setTimeout(done, FIRST_DRAWN_MS));
    setTimeout(done, LONGEST_MS);
  })]);
}

async function runPage() {
  const waiting = el("p", { class: "loading", role: "status" }, "Reading the run …");
  document.getElementById("main").append(waiting);
  document.getElementById("run-id").textContent = document.body.dataset.run;
  let first;
  try {
    first = await fetchFirst();
  } catch (fault) {
    waiting.remove();
    showNoRun(fault);
    document.documentElement.dataset.ready = "yes";
    return;
  }
  view.finer = (id, axis, from, to) => getJson(runUrl(`/line/${encodeURIComponent(id)}?axis=${axis}&from=${from}&to=${to}`));
  view.csv = (ids) => runUrl(`/points.csv?lines=${ids.map(encodeURIComponent).join(",")}`);
  restoreCharts();
  address.onChange(followAddress);
  restoreCharts();
  showParts(FIRST_PARTS);
  showTitle();
  scrollToAddress();
  const live = new Live(first.revisions, first.live);
  live.start();
  waiting.textContent = "Reading the rest …";
  document.getElementById("main").append(waiting);
  const isWhereItBegan = watchScrolling();
  for (const names of LATER_PARTS) {
    await showLater(names, live);
    if (isWhereItBegan()) scrollToAddress();
  }
  await showFiles();
  waiting.remove();
  if (view.filter) refilter();
  if (isWhereItBegan()) scrollToAddress();
  document.documentElement.dataset.whole = "yes";
}

async function showLater(names, live) {
  try {
    const { part, revision } = await fetchParts(names);
    merge(part);
    live.took(names, revision);
  } catch (fault) {
    const node = section(names[0] === "machine" ? "system" : names[0] === "config" ? "configuration" : names[0], names.join(", "), null);
    node.append(el("p", { class: "notice bad", role: "alert" }, fault.message, " ",
      button("Try again", "Fetch this part again", () => { node.remove(); showLater(names, live); })));
    return;
  }
  showParts(names);
}

// Tells whether the reader has not moved since: the place that the address names is then kept in sight.
function watchScrolling() {
  let moved = false;
  const note = () => { moved = true; };
  for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(kind, note, { once: true, passive: true });
  return () => !moved;
}

function showTitle() {
  document.title = `${data.name} · ${data.status.state} · otel-train`;
}

function showNoRun(fault) {
  const words = { 404: "There is no such run", 410: "This run is gone" };
  // Its description may have been drawn before its points could not be read.
  document.getElementById("nav").replaceChildren();
  document.getElementById("main").replaceChildren(el("div", { class: "card hero failed", role: "alert" }, el("h1", {}, fault.isUnreadable ? "This run cannot be read" : words[fault.status] || "The run cannot be shown"), el("p", { class: "reason" }, fault.message),
    el("p", { class: "reason" }, el("a", { href: apiUrl("") || "./" }, "All runs"))));
  document.title = "otel-train";
}

const LISTED_FILES = 500;

async function showFiles() {
  let files;
  try {
    files = await getJson(runUrl("/files"));
  } catch (fault) {
    // Of a run that is followed the list before is better than none.
    if (!document.querySelector("#files table")) empty(section("files", "Files", null), fault.message);
    return;
  }
  const before = document.querySelector("#files input");
  const [sought, isTyping] = before ? [before.value, before === document.activeElement] : ["", false];
  const node = section("files", "Files", files.length, "What lies in the run's folder.");
  if (!files.length) { empty(node, "The folder holds no files."); return; }
  node.append(el("div", { class: "card" }, searchable("Search files", (text) => {
    const found = files.filter((file) => file.path.toLowerCase().includes(text));
    return el("div", {}, table(["File", "Size", "Changed (UTC)"], found.slice(0, LISTED_FILES).map((file) => [
      el("a", { class: "mono", href: runUrl("/file?" + file.query), download: file.path.split("/").pop() }, file.path), bytes(file.bytes), fileTime(file.changed)]), { numeric: [1] }),
      found.length > LISTED_FILES ? el("p", { class: "lead" }, `${number(found.length - LISTED_FILES)} more: search for their names.`) : null);
  })));
  const input = node.querySelector("input");
  if (sought) { input.value = sought; input.dispatchEvent(new Event("input")); }
  if (isTyping) input.focus({ preventScroll: true });
}

function fileTime(changed) {
  return changed ? String(changed).replace("T", " ").slice(0, 19) : "";
}
