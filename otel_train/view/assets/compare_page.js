// Puts the page of a comparison together, and asks again when a run that goes on has changed.
function comparePage() {
  Object.assign(AXIS_NAMES, { time: "Relative time", clock: "Wall time" });
  document.getElementById("main").append(el("div", { id: "compare-legend", class: "compare-legend", hidden: true }));
  compare.hidden = new Set(address.list("hidden"));
  use(compareNothing());
  view.finer = compareFiner;
  onTheme(() => { if (compare.payload) { compareScatter(); compareParallel(); } });
  address.onChange((isTyped) => {
    compare.hidden = new Set(address.list("hidden"));
    compareDrawn.clear();
    compareFetch();
    if (isTyped) scrollToAddress();
  });
  compareFetch();
  compareWatch();
  compareFollowWidth();
}

function compareShow(payload) {
  const isFirst = !compare.payload;
  compareKeepRoles(payload.runs);
  compare.payload = payload;
  compareClock(payload);
  use(payload);
  restoreCharts();
  compareTitle();
  compareLegend();
  const who = [payload.runs.map((run) => [run.id, run.label]), payload.base];
  compareIfChanged("compare-runs", [who, payload.facts, payload.notices, payload.missing], compareFacts);
  if (payload.runs.length) compareSections(payload, who); else COMPARE_SECTIONS.forEach(compareForget);
  showAxes(payload.runs.length ? payload.axes : []);
  if (isFirst) scrollToAddress();
  document.documentElement.dataset.ready = "yes";
}

const COMPARE_SECTIONS = ["curves", "pace", "results", "configuration", "scatter", "parallel", "code", "data", "environment", "command", "packages"].map((name) => `compare-${name}`);

function compareSections(payload, who) {
  compareKeepingFocus("compare-curves", compareCurves);
  compareIfChanged("compare-results", [who, payload.results], compareResults);
  const rows = (id, title, part, why) => compareIfChanged(id, [who, part], () => compareRows(id, title, part, why));
  rows("compare-configuration", "Configuration", payload.configuration, "No configuration was given to init(config=...) of these runs.");
  compareIfChanged("compare-scatter", [who, payload.columns], compareScatterSection);
  compareIfChanged("compare-parallel", [who, payload.columns], compareParallelSection);
  const reason = payload.runs.length > COMPARE_MOST_COLUMNS ? `This is compared of up to ${COMPARE_MOST_COLUMNS} runs.` : "Nothing of it was recorded by these runs.";
  compareIfChanged("compare-code", [who, payload.code, payload.patches], () => compareCode(reason));
  rows("compare-data", "Data sets", payload.datasets, reason);
  rows("compare-environment", "Environment", payload.environment, reason);
  rows("compare-command", "Command line", payload.command, reason);
  rows("compare-packages", "Packages", payload.packages, reason);
}

function compareFollowWidth() {
  let before = compareWidth(0);
  let waiting = null;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (!compare.payload || compareWidth(0) === before) return;
      before = compareWidth(0);
      compareScatter();
      compareParallel();
    }, 150);
  });
}

function compareTitle() {
  const { runs, live, missing } = compare.payload;
  const words = runs.length ? `Compare ${plural(runs.length, "run")}` : "Compare runs";
  document.title = `${words} · otel-train`;
  document.getElementById("run-name").textContent = words;
  document.getElementById("run-id").textContent = [...new Set(runs.map((run) => run.project).filter(Boolean))].slice(0, 4).join(", ");
  const pill = document.getElementById("pill");
  pill.className = "pill" + (live ? " running" : missing.length ? " failed" : "");
  pill.textContent = live ? "live" : missing.length ? `${number(missing.length)} missing` : "";
}

function compareFailed(message) {
  const old = document.getElementById("compare-fault");
  const words = el("p", { id: "compare-fault", class: "notice bad", role: "alert" }, el("b", {}, "Look here"), message, " ", button("try again", "Ask the server again", () => compareFetch()));
  if (old) old.replaceWith(words); else document.getElementById("compare-legend").before(words);
  document.documentElement.dataset.ready = "yes";
}

// Commit and files, then for each run what its uncommitted changes have that the base's have not.
function compareCode(reason) {
  const { code, patches, runs } = compare.payload;
  const node = compareRows("compare-code", "Code", code, reason);
  const base = runs[compareBase()];
  const kind = (line) => (line.startsWith("@@") ? "hunk" : line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : null);
  const many = el("details", {}, el("summary", {}, `${plural(patches.length, "run")} with other uncommitted changes than ${base ? base.label : ""}`));
  if (patches.length > 3) node.append(el("div", { class: "card" }, many));
  for (const one of patches) {
    const run = runs[one.run];
    const words = { added: `only ${run.label} changed it`, removed: `only ${base.label} changed it`, changed: "both changed it, in different ways" };
    const card = el("div", { class: "card" }, el("h3", {}, "Not committed: ", compareName(run), " beside ", compareName(base)));
    if (one.commits.length) card.append(el("p", { class: "lead" }, "The commits differ too; what lies between them: ", el("code", {}, `git diff ${one.commits[0].slice(0, 12)} ${one.commits[1].slice(0, 12)}`)));
    if (one.cut) card.append(el("p", { class: "lead" }, "A patch was cut when it was recorded, so differences beyond the cut are not seen."));
    for (const file of one.files) {
      card.append(el("details", {}, el("summary", {}, el("code", {}, file.path), ` · ${words[file.change]}`),
        el("pre", {}, file.lines.split("\n").map((line) => el("span", { class: kind(line) }, line + "\n")))));
    }
    if (!one.files.length) card.append(el("p", { class: "lead" }, "The changes differ, but not in what was kept of them."));
    (patches.length > 3 ? many : node).append(card);
  }
}

// One stream for all runs, since a browser has few connections; a hidden page gives its own up when asked to.
function compareWatch() {
  let source = null;
  let last = 0;
  let pause = 2000;
  let isStale = false;
  let waiting = null;
  // Long runs take longer to compare: the page looks as often as leaves most of the time to others.
  const look = async () => {
    if (compare.pending) { waiting = setTimeout(look, 500); return; }
    const began = performance.now();
    waiting = null;
    await compareFetch({ refresh: true });
    last = Date.now();
    pause = Math.max(2000, 12 * (performance.now() - began));
  };
  const ask = () => {
    if (waiting || document.hidden) { isStale = document.hidden; return; }
    waiting = setTimeout(look, Math.max(0, pause - (Date.now() - last)));
  };
  const open = () => {
    if (source) return;
    source = new EventSource(apiUrl("api/runs/events"));
    source.addEventListener("changed", () => { if (compareIds().length) ask(); });
    source.addEventListener("rest", () => { if (document.hidden && source) { source.close(); source = null; } });
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    open();
    if (isStale) { isStale = false; ask(); }
  });
  setInterval(() => { if (compare.payload && compare.payload.live && !document.hidden) ask(); }, 10_000);
  open();
}
