// Writes the sections that are tables and texts.
function summarySection() {
  const node = section("summary", "Summary", data.summary.length, "Extremes and mean are of the finite values; counted from the points of the run log.");
  if (!data.summary.length) { empty(node, data.reasons.metrics); return; }
  const shown = (text) => data.summary.filter((row) => (row.key + " " + row.split).toLowerCase().includes(text));
  const card = el("div", { class: "card" });
  if (data.summary.length > MANY_METRICS) card.append(...searchable("Search metrics", (text) => summaryTable(shown(text))));
  else card.append(summaryTable(data.summary));
  node.append(card);
}

const MANY_METRICS = 20;

function summaryTable(rows) {
  const at = (point) => (point ? [number(point.value), placeOf(point)] : "");
  const count = (value) => (value ? el("span", {}, number(value)) : "0");
  const made = table(["Metric", "Split", "Last", "Minimum", "Maximum", "Mean", "Best", "Points", "NaN", "+Inf", "-Inf", "First bad"],
    rows.map((row) => [row.key, row.split, el("div", {}, at(row.last)), el("div", {}, at(row.low)), el("div", {}, at(row.high)), number(row.mean),
      el("div", {}, at(row.best)), number(row.points), count(row.nan), count(row.positive_infinity), count(row.negative_infinity), row.first_bad ? placeOf({ place: row.first_bad }) : ""]),
    { numeric: [2, 3, 4, 5, 6, 7, 8, 9, 10] });
  made.querySelectorAll("tbody tr").forEach((line, index) => {
    [[8, "nan"], [9, "positive_infinity"], [10, "negative_infinity"]].forEach(([column, name]) => {
      if (rows[index][name]) line.children[column].classList.add("bad");
    });
  });
  return made;
}

// A place that is a step leads there.
function placeOf(point) {
  if (!point.place) return null;
  const step = /^step (-?\d+(?:\.\d+)?)$/.exec(point.place);
  return el("span", { class: "place" }, step ? stepButton(Number(step[1]), point.place) : point.place);
}

function shareBar(title, parts, roleOf) {
  const whole = parts.reduce((sum, part) => sum + part[1], 0);
  const percent = (seconds) => (100 * seconds / whole).toFixed(1) + " %";
  return el("div", { class: "card" }, el("h3", {}, title),
    el("div", { class: "share", role: "img", "aria-label": parts.map(([name, s]) => `${name} ${percent(s)}`).join(", ") },
      parts.map(([name, seconds]) => {
        const bar = el("span", { "data-role": roleOf(name), colour: colour(roleOf(name)), title: `${name}: ${duration(seconds)}` });
        bar.style.width = percent(seconds).replace(" ", "");
        return bar;
      })),
    el("div", { class: "legend" }, parts.map(([name, seconds]) => el("span", {}, dot(roleOf(name)), `${name} ${percent(seconds)} · ${duration(seconds)}`))));
}

function stepsSection() {
  const node = section("steps", "Step time", data.charts.steps.length, "Times are the host's: work that a device does after the call returned is not seen by them.");
  const shares = data.shares;
  if (!data.charts.steps.length) { empty(node, data.reasons.steps); return; }
  if (shares.total_s) {
    const parts = [["wait for data", shares.wait_s], ...Object.entries(shares.phases_s)];
    const known = parts.reduce((sum, part) => sum + part[1], 0);
    if (shares.total_s > known) parts.push(["other", shares.total_s - known]);
    const role = (name) => (name === "other" ? "rest" : "series-" + (parts.findIndex((part) => part[0] === name) % 8));
    const bar = shareBar("Where the steps' time went", parts, role);
    bar.append(factList([["Steps", number(shares.steps)], ["Median step", duration(shares.median_s)], ["95th percentile", duration(shares.p95_s)],
      ["99th percentile", duration(shares.p99_s)], ["Longest step", duration(shares.max_s)]]));
    node.append(bar);
  }
  chartGrid(node, data.charts.steps);
}

function configSection() {
  const node = section("configuration", "Configuration", data.config.rows.length);
  if (!data.config.rows.length) { empty(node, data.reasons.configuration); return; }
  const several = data.config.attempts.length > 1;
  const head = several ? ["key", ...data.config.attempts.map((n) => "attempt " + n)] : null;
  node.append(el("div", { class: "card" }, searchable("Search keys and values", (text) => pairs(
    data.config.rows.filter((row) => row.cells.join(" ").toLowerCase().includes(text)).map((row) => Object.assign([...row.cells], { changed: row.changed })), head))));
}

function environmentSection() {
  const node = section("environment", "Environment");
  const environment = data.environment;
  if (!environment.groups.length && !environment.packages.length) { empty(node, data.reasons.environment); return; }
  node.append(el("div", { class: "packed" }, environment.groups.map((group) => el("div", { class: "card" }, el("h3", {}, group.title), pairs(group.rows)))));
  if (environment.patch) {
    const kind = (line) => (line.startsWith("@@") ? "hunk" : line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : null);
    node.append(el("div", { class: "card" }, el("details", {}, el("summary", {}, "Patch of what differs from the commit" + (environment.patch_note ? ` (${environment.patch_note})` : "")),
      el("pre", {}, environment.patch.split("\n").map((line) => el("span", { class: kind(line) }, line + "\n"))))));
  }
  if (environment.packages.length) {
    node.append(el("div", { class: "card" }, el("details", {}, el("summary", {}, `${number(environment.packages.length)} installed packages`),
      searchable("Search packages", (text) => pairs(environment.packages.filter((row) => row[0].toLowerCase().includes(text)))))));
  }
}

function datasetSection() {
  const node = section("data", "Data sets", data.datasets.length);
  if (!data.datasets.length) { empty(node, data.reasons.datasets); return; }
  node.append(el("div", { class: "two" }, data.datasets.map((set) => {
    const card = el("div", { class: "card" }, el("h3", {}, set.name), pairs(set.rows));
    if (set.classes.length) {
      const most = Math.max(...set.classes.map((row) => row[1]));
      const all = set.classes.reduce((sum, row) => sum + row[1], 0);
      card.append(el("div", { class: "classes" }, set.classes.flatMap(([name, count]) => {
        const fill = el("span", { class: "fill" });
        fill.style.width = (most ? 100 * count / most : 0) + "%";
        return [el("span", {}, name), el("span", { class: "track" }, fill), el("span", { class: "n" }, `${number(count)} · ${(100 * count / (all || 1)).toFixed(1)} %`)];
      })));
    }
    for (const problem of set.problems) card.append(el("p", { class: "notice warn" }, problem));
    return card;
  })));
}

function rowsSection(id, title, content, heads, numeric, reason) {
  const node = section(id, title, content.length);
  if (!content.length) { if (reason) empty(node, reason); return; }
  node.append(el("div", { class: "card" }, table(heads, content.map((row) => row.map((cell) => (cell && cell.mono ? monoCell(cell) : cell && cell.pill ? el("span", { class: "pill " + cell.pill }, cell.pill) : cell))), { numeric })));
}

// A path or checksum, or several, each on a line of its own.
function monoCell(cell) {
  return el("div", { class: "mono", title: cell.title }, cell.mono.split("\n").map((line) => el("div", {}, line)));
}

// From the model that the run started from back to the first that is known.
function originCard() {
  const made = (origin) => {
    if (!origin.run) return origin.base_model ? `base model ${origin.base_model}` : "";
    const name = `${origin.run_name || origin.run}` + (origin.step ? `, step ${origin.step}` : origin.epoch ? `, epoch ${origin.epoch}` : "");
    return origin.here && document.body.dataset.base !== undefined ? el("a", { href: apiUrl("run/" + encoded(origin.run)), title: origin.run }, name) : el("span", { title: origin.run }, name);
  };
  return el("div", { class: "card" }, el("h3", {}, "The chain behind them"), table(["", "Starts from", "SHA-256", "Made by run", "What is doubtful"], data.origins.map((origin) => [
    "← ".repeat(origin.generation).trim(), el("span", { class: "mono", title: origin.path }, origin.name), el("span", { class: "mono", title: origin.sha256 }, origin.sha256.slice(0, 12)), made(origin), origin.problems.join("; ")])));
}

function damageSection() {
  const node = section("run-log", "Run log", null);
  node.append(el("div", { class: "card" }, factList(data.run_log.facts)));
  if (!data.run_log.damage.length) { node.append(el("p", { class: "lead" }, data.reasons.damage)); return; }
  node.append(el("div", { class: "card" }, el("h3", {}, "Damaged lines, skipped"), table(["File", "Line", "Byte", "Reason"], data.run_log.damage, { numeric: [1, 2] })));
  if (data.run_log.damage_left_out) node.append(el("p", { class: "lead" }, `${number(data.run_log.damage_left_out)} more damaged lines are not listed.`));
}
