// Fetches the page of a run part by part: what is seen first comes first, and a fault is said where its part would be.
const FIRST_PARTS = ["head", "metrics"];
const LATER_PARTS = [["machine", "inside", "samples"], ["timeline", "logs"], ["config", "environment", "datasets", "checkpoints", "stages", "run_log"]];

function runUrl(path) {
  return apiUrl(`api/run/${encodeURIComponent(document.body.dataset.run)}${path}`);
}

async function fetchParts(names) {
  const { revision, live, early, ...part } = await getJson(runUrl(`?parts=${names.join(",")}`));
  return { revision, live, early, part };
}

// While a long run is still being read its description is there already.
async function fetchFirst() {
  const both = fetchParts(FIRST_PARTS);
  both.catch(() => { /* told below, or by the fault of the head */ });
  const head = await fetchParts(["head"]);
  use(head.part);
  restoreCharts();
  showParts(["head"]);
  showTitle();
  document.documentElement.dataset.ready = "yes";
  if (head.early) await showFirstChart(both);
  const first = await both;
  use(first.part);
  return { ...first, revisions: { head: first.revision, metrics: first.revision } };
}

// One chart of a long run is there before the others, unless all of them are.
async function showFirstChart(all) {
  const early = await Promise.race([fetchParts(["first"]), all.then(() => null)]).catch(() => null);
  if (!early || !early.part.charts || !early.part.charts.metrics.length) return;
  merge(early.part);
  showParts(["metrics"]);
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
  const main = document.getElementById("main");
  main.append(el("div", { class: "card hero failed", role: "alert" }, el("h1", {}, words[fault.status] || "The run cannot be shown"), el("p", { class: "reason" }, fault.message),
    el("p", { class: "reason" }, el("a", { href: apiUrl("") || "./" }, "All runs"))));
  document.title = "otel-train";
}

const LISTED_FILES = 500;

async function showFiles() {
  let files;
  try {
    files = await getJson(runUrl("/files"));
  } catch (fault) {
    empty(section("files", "Files", null), fault.message);
    return;
  }
  const node = section("files", "Files", files.length, "What lies in the run's folder.");
  if (!files.length) { empty(node, "The folder holds no files."); return; }
  node.append(el("div", { class: "card" }, searchable("Search files", (text) => {
    const found = files.filter((file) => file.path.toLowerCase().includes(text));
    return el("div", {}, table(["File", "Size", "Changed"], found.slice(0, LISTED_FILES).map((file) => [
      el("a", { class: "mono", href: runUrl("/file?" + file.query), download: file.path.split("/").pop() }, file.path), bytes(file.bytes), fileTime(file.changed)]), { numeric: [1] }),
      found.length > LISTED_FILES ? el("p", { class: "lead" }, `${number(found.length - LISTED_FILES)} more: search for their names.`) : null);
  })));
}

function fileTime(changed) {
  return changed ? String(changed).replace("T", " ").slice(0, 19) : "";
}
