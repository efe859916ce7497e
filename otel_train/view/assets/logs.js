// Lists log records by page, filtered by level and text.
function logSection() {
  const logs = data.logs;
  const node = section("logs", "Logs", logs.seen);
  if (!logs.seen) { empty(node, data.reasons.logs); return; }
  const PAGE = 250;
  const names = Object.keys(logs.levels);
  const state = { levels: new Set(names), text: "", page: 0 };
  const list = el("div", { class: "logs" });
  const pager = el("div", { class: "pager" });
  const column = Object.fromEntries(logs.columns.map((name, index) => [name, index]));

  function matches(row) {
    if (!state.levels.has(row[column.level])) return false;
    if (!state.text) return true;
    return (row[column.body] + " " + row[column.event] + " " + row[column.stacktrace] + " " + Object.values(row[column.attributes]).join(" ")).toLowerCase().includes(state.text);
  }

  function record(row) {
    const step = row[column.step] !== null ? "step " + row[column.step] : row[column.epoch] !== null ? "epoch " + row[column.epoch] : "";
    const event = row[column.event];
    const extra = Object.entries(row[column.attributes]);
    if (row[column.rank]) extra.push(["rank", row[column.rank]]);
    if (data.attempts.length > 1) extra.push(["attempt", row[column.attempt]]);
    const cells = [el("span", { class: "t", title: row[column.elapsed_s] + " s after start" }, duration(row[column.elapsed_s])),
      el("span", { class: "l " + row[column.level] }, row[column.level]), el("span", { class: "s" }, step),
      el("span", { class: "m" }, event ? el("span", { class: "event" }, event) : null, row[column.body])];
    if (!extra.length && !row[column.stacktrace]) return el("div", { class: "log flat" }, cells);
    const details = el("details", { class: "log" }, el("summary", {}, cells));
    details.addEventListener("toggle", () => {
      if (details.childElementCount > 1) return;
      details.append(el("div", { class: "more" }, row[column.stacktrace] ? el("pre", {}, row[column.stacktrace]) : null, extra.length ? pairs(extra) : null));
    });
    return details;
  }

  function show() {
    const found = logs.rows.filter(matches);
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    // Newest first: what killed the run is at its end.
    const from = state.page * PAGE;
    const newest = found.slice(Math.max(0, found.length - from - PAGE), found.length - from).reverse();
    list.replaceChildren(...(newest.length ? newest.map(record) : [el("p", { class: "lead" }, "No record matches.")]));
    const turn = (by, text) => el("button", { type: "button", class: "quiet", disabled: state.page + by < 0 || state.page + by >= pages,
      onclick: () => { state.page += by; show(); } }, text);
    pager.replaceChildren(turn(-1, "Newer"), turn(1, "Older"),
      el("span", {}, found.length ? `${number(from + 1)} to ${number(Math.min(found.length, from + PAGE))} of ${number(found.length)}, newest first` : ""));
  }

  const search = el("input", { class: "search", type: "search", placeholder: "Search in messages and tracebacks", "aria-label": "Search in log records" });
  search.addEventListener("input", () => { state.text = search.value.toLowerCase(); state.page = 0; show(); });
  const levels = names.map((name) => el("button", { type: "button", class: "level", "aria-pressed": "true", onclick: (event) => {
    const on = !state.levels.has(name);
    if (on) state.levels.add(name); else state.levels.delete(name);
    event.currentTarget.setAttribute("aria-pressed", String(on));
    state.page = 0;
    show();
  } }, `${name} ${number(logs.levels[name])}`));
  const left = logs.left_out ? el("p", { class: "lead" }, `${number(logs.left_out)} of ${number(logs.seen)} records are left out here: the oldest below WARN first. `
    + "All of them: otel-train logs " + data.run_id) : null;
  node.append(el("div", { class: "card" }, el("div", { class: "filters" }, search, levels), left, list, pager));
  show();
}
