// Says how the facts and values of a run are shown, and how wide, in the table of runs.
const RUNS_STATES = ["running", "finished", "failed", "interrupted", "killed", "lost"];
const RUNS_WIDEST_CH = 34;
const RUNS_MEASURED = 200;

function runsAgo(seconds) {
  if (seconds < 0) return "in the future";
  if (seconds < 60) return "just now";
  for (const [size, unit] of [[31557600, "year"], [2629800, "month"], [86400, "day"], [3600, "hour"], [60, "minute"]]) {
    const count = Math.floor(seconds / size);
    if (count >= 1) return `${count} ${unit}${count === 1 ? "" : "s"} ago`;
  }
  return "";
}

// UTC as on every other page, and as the filter reads times; the reader's own time is under the pointer.
function runsUtc(ms) {
  return Number.isFinite(ms) ? new Date(ms).toISOString().replace("T", " ").slice(0, 16) : "";
}

function runsBothTimes(ms) {
  if (!Number.isFinite(ms)) return "";
  const two = (n) => String(n).padStart(2, "0");
  const own = new Date(ms);
  const local = `${own.getFullYear()}-${two(own.getMonth() + 1)}-${two(own.getDate())} ${two(own.getHours())}:${two(own.getMinutes())}:${two(own.getSeconds())}`;
  return `${own.toISOString().replace("T", " ").slice(0, 19)} UTC\n${local} here`;
}

// What a running run took has grown since the server said it.
function runsDuration(row, nowMs) {
  if (row.duration_s === null || row.duration_s === undefined) return null;
  return row.state === "running" ? row.duration_s + Math.max(0, nowMs - row.receivedMs) / 1000 : row.duration_s;
}

function runsValueText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return number(value);
  if (typeof value === "boolean") return value ? "true" : "false";
  if (Array.isArray(value)) return value.map(runsValueText).join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

// One line of text: it also says how wide the column is.
function runsText(column, row, nowMs) {
  if (column.id === "name") return row.name || row.run_id;
  if (column.kind === "time") return row.createdMs ? `${runsUtc(row.createdMs)} · ${runsAgo((nowMs - row.createdMs) / 1000)}` : "";
  if (column.id === "duration") return duration(runsDuration(row, nowMs));
  if (column.kind === "duration") return duration(row.values[column.id]);
  return runsValueText(row.values[column.id]);
}

function runsCell(column, row, nowMs) {
  const text = runsText(column, row, nowMs);
  if (column.id === "state") {
    return el("td", { class: "runs-state" }, el("span", { class: "pill " + row.state, title: row.reason || null }, row.state));
  }
  if (column.kind === "time") {
    const [moment, ago] = text.split(" · ");
    return el("td", { title: runsBothTimes(row.createdMs), class: "runs-time" }, moment, ago ? el("span", { class: "ago" }, ago) : null);
  }
  if (column.kind === "tags") {
    const tags = row.values[column.id] || [];
    return el("td", { title: text }, tags.map((tag) => el("span", { class: "tag" }, tag)));
  }
  if (column.kind === "number" || column.kind === "duration") {
    const value = row.values[column.id];
    const odd = typeof value === "string" && ["NaN", "+Inf", "-Inf"].includes(value);
    return el("td", { class: odd ? "num bad" : "num", title: typeof value === "number" ? String(value) : null }, text);
  }
  return el("td", { title: text.length > 12 ? text : null }, text);
}

function runsNameCell(row) {
  const name = row.name || row.run_id;
  // Before the name: a run that cannot be read has none but its id, which is as long as the column.
  return el("th", { scope: "row", class: "runs-name" },
    row.problem ? el("span", { class: "runs-problem", title: row.problem }, "damaged") : null,
    el("a", { href: "run/" + encoded(row.run_id), title: row.name && row.name !== row.run_id ? `${row.name}\n${row.run_id}` : row.run_id }, name));
}

function runsColumnWidth(column, rows, nowMs) {
  if (column.id === "state") return 15;
  if (column.kind === "time") return 17;
  if (column.id === "duration") return 12;
  let longest = 0;
  // A few hundred say it well enough; what is longer than its column is cut, and whole in its title.
  const stride = Math.max(1, Math.floor(rows.length / RUNS_MEASURED));
  for (let place = 0; place < rows.length; place += stride) {
    const length = runsText(column, rows[place], nowMs).length;
    if (length > longest) longest = length;
  }
  const room = column.kind === "tags" ? 6 : 3;
  // The letters of a head are smaller.
  return Math.max(Math.min(0.9 * column.title.length + 3.5, 28), Math.min(longest + room, RUNS_WIDEST_CH), 7);
}

// What an empty folder shows: lines that record a first run into it.
function runsFirst(root) {
  return [el("h2", {}, "There are no runs here yet"),
    el("p", {}, "This page looks into ", el("code", {}, root), ". A run shows up here as soon as a script records one into that folder:"),
    el("pre", {}, `import otel_train\n\nrun = otel_train.init(project="digits", config={"lr": 1e-3}, dir=${JSON.stringify(root)})\nfor step in run.steps(range(100)):\n    run.log({"loss": 1 / (step + 1)})\nrun.finish()`),
    el("p", {}, "Without ", el("code", {}, "dir"), " runs go where the variable ", el("code", {}, "OTEL_TRAIN_DIR"), " says, else into ", el("code", {}, "./runs"), " of the folder in which the script is started. This page need not be loaded again.")];
}
