// Lists log records by page, filtered by level, stage, span and text, and keeps pace with those that arrive.
const LOG_PAGE = 250;
let logView = null;

class LogView {
  constructor() {
    this.state = this.asked();
    this.fresh = 0;
    this.list = el("div", { class: "logs", tabindex: "0", role: "log", "aria-label": "Log records", "aria-live": "off" });
    this.pager = el("div", { class: "pager" });
    this.filters = el("div", { class: "filters" });
    this.news = el("button", { type: "button", class: "quiet news", hidden: true, onclick: () => this.toNewest() });
    this.left = el("p", { class: "lead", hidden: true });
    this.search = el("input", { class: "search", type: "search", placeholder: "Search messages, events, attributes, tracebacks", "aria-label": "Search in log records", value: this.state.text });
    this.search.addEventListener("input", () => this.change({ text: this.search.value.toLowerCase() }));
    this.node = el("div", { class: "card" }, this.filters, this.left, this.news, this.list, this.pager);
  }

  get column() {
    if (!this.columns) this.columns = Object.fromEntries(data.logs.columns.map((name, index) => [name, index]));
    return this.columns;
  }

  // What the address asks for.
  asked() {
    const names = Object.keys(data.logs.levels);
    const levels = address.list("levels");
    return { off: new Set(address.get("levels") === null ? [] : names.filter((name) => !levels.includes(name))), text: address.get("q") || "",
      stage: address.get("stage") || "", span: address.get("in") || "", page: 0 };
  }

  restore() {
    this.state = this.asked();
    this.search.value = this.state.text;
    this.chosen = recordOf(address.get("record"), this.column);
    if (this.chosen && this.matches(this.chosen)) this.state.page = this.pageOf(this.chosen);
    this.show();
  }

  change(changes, options) {
    Object.assign(this.state, changes, { page: changes.page || 0 });
    const names = Object.keys(data.logs.levels);
    address.set({ q: this.state.text, stage: this.state.stage, in: this.state.span, record: null }, options);
    if (this.state.off.size) address.setList("levels", names.filter((name) => !this.state.off.has(name))); else address.set({ levels: null });
    if (this.state.off.size >= names.length && names.length) address.set({ levels: "none" });
    this.chosen = null;
    this.show();
  }

  matches(row) {
    const { column, state } = this;
    if (state.off.has(row[column.level])) return false;
    if (this.spans && !this.spans.has(row[column.span])) return false;
    if (state.stage && stageOf(row, column) !== state.stage) return false;
    if (!state.text) return true;
    return (row[column.body] + " " + row[column.event] + " " + row[column.stacktrace] + " " + Object.values(row[column.attributes]).join(" ")).toLowerCase().includes(state.text.toLowerCase());
  }

  // Only the records of one span and of those within it.
  only(bar) {
    this.change({ span: bar.id, text: "", stage: "" }, { push: true });
    this.search.value = "";
    goTo("logs");
  }

  // Shows the page that holds a record, and the record itself open.
  reveal(row, options) {
    if (!this.matches(row)) {
      Object.assign(this.state, { off: new Set(), text: "", stage: "", span: "" });
      this.search.value = "";
      this.change({});
    }
    this.state.page = this.pageOf(row);
    this.chosen = row;
    address.set({ record: recordKey(row, this.column) }, options);
    this.show();
    const node = this.list.querySelector(".log.chosen");
    if (node) { address.section("logs"); goToNode(node); }
  }

  pageOf(row) {
    const found = this.found();
    return Math.floor((found.length - 1 - found.indexOf(row)) / LOG_PAGE);
  }

  found() {
    const bar = barOf(this.state.span);
    this.spans = this.state.span ? (bar ? spansWithin(bar) : new Set([this.state.span])) : null;
    return data.logs.rows.filter((row) => this.matches(row));
  }

  // Newest first: what killed the run is at its end.
  show() {
    const found = this.found();
    const pages = Math.max(1, Math.ceil(found.length / LOG_PAGE));
    this.state.page = Math.min(this.state.page, pages - 1);
    const from = this.state.page * LOG_PAGE;
    const newest = found.slice(Math.max(0, found.length - from - LOG_PAGE), found.length - from).reverse();
    this.list.replaceChildren(...(newest.length ? newest.map((row) => this.record(row)) : [el("p", { class: "lead" }, "No record matches.")]));
    const turn = (by, text) => el("button", { type: "button", class: "quiet", disabled: this.state.page + by < 0 || this.state.page + by >= pages,
      onclick: () => { this.state.page += by; this.show(); this.list.scrollTop = 0; } }, text);
    this.pager.replaceChildren(turn(-1, "Newer"), turn(1, "Older"),
      el("span", {}, found.length ? `${number(from + 1)} to ${number(Math.min(found.length, from + LOG_PAGE))} of ${number(found.length)}, newest first` : ""));
    this.fresh = this.state.page ? this.fresh : 0;
    this.news.hidden = !this.fresh;
    this.showFilters();
  }

  showFilters() {
    const { logs } = data;
    const focused = document.activeElement && this.filters.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    const levels = Object.keys(logs.levels).map((name) => el("button", { type: "button", class: "level", "data-name": name, "aria-pressed": String(!this.state.off.has(name)), onclick: () => {
      const off = new Set(this.state.off);
      if (!off.delete(name)) off.add(name);
      this.change({ off });
    } }, `${name} ${number(logs.levels[name])}`));
    const stages = stageBars().map((bar) => bar.name).filter((name, index, all) => all.indexOf(name) === index);
    const stage = stages.length ? el("select", { class: "search", "data-name": "stage", "aria-label": "Stage", onchange: (event) => this.change({ stage: event.target.value }) },
      el("option", { value: "" }, "all stages"), stages.map((name) => el("option", { value: name, selected: name === this.state.stage }, name))) : null;
    const bar = this.state.span ? barOf(this.state.span) : null;
    const within = this.state.span ? el("span", { class: "tag" }, `only span ${bar ? bar.name : this.state.span} `, button("✕", "All spans", () => this.change({ span: "" }), { "aria-label": "Records of all spans" })) : null;
    const isTyping = document.activeElement === this.search;
    if (this.search.parentNode !== this.filters) this.filters.replaceChildren(this.search);
    while (this.filters.lastChild !== this.search) this.filters.lastChild.remove();
    this.filters.append(...[levels, stage, within].flat().filter(Boolean));
    if (isTyping) this.search.focus(); else if (focused) { const again = [...this.filters.children].find((node) => node.dataset.name === focused); if (again) again.focus(); }
    this.left.hidden = !logs.left_out;
    this.left.textContent = logs.left_out ? `${number(logs.left_out)} of ${number(logs.seen)} records are left out here: the oldest below WARN first. All of them: otel-train logs ${data.run_id}` : "";
  }

  record(row) {
    const { column } = this;
    const step = row[column.step] !== null ? stepButton(row[column.step]) : row[column.epoch] !== null ? "epoch " + row[column.epoch] : "";
    const event = row[column.event];
    const extra = Object.entries(row[column.attributes]);
    if (row[column.rank]) extra.push(["rank", row[column.rank]]);
    if (data.attempts.length > 1) extra.push(["attempt", row[column.attempt]]);
    const cells = [el("span", { class: "t", title: row[column.elapsed_s] + " s after start" }, duration(row[column.elapsed_s])),
      el("span", { class: "l " + row[column.level] }, row[column.level]), el("span", { class: "s" }, step),
      el("span", { class: "m" }, event ? el("span", { class: "event" }, event) : null, row[column.body])];
    const chosen = row === this.chosen ? " chosen" : "";
    const bar = barOf(row[column.span]);
    if (!extra.length && !row[column.stacktrace] && !bar) return el("div", { class: "log flat" + chosen }, cells);
    const details = el("details", { class: "log" + chosen }, el("summary", {}, cells));
    const fill = () => {
      if (details.childElementCount > 1) return;
      details.append(el("div", { class: "more" }, this.links(row, bar), row[column.stacktrace] ? el("pre", {}, row[column.stacktrace]) : null, extra.length ? pairs(extra) : null));
    };
    details.addEventListener("toggle", fill);
    if (chosen) { details.open = true; fill(); }
    return details;
  }

  links(row, bar) {
    const { column } = this;
    return el("div", { class: "filters" },
      row[column.step] !== null ? stepButton(row[column.step], `Show step ${number(row[column.step])} in the curves`) : button("Show this moment in the curves", "Mark this moment in the curves", () => showMark("time", row[column.elapsed_s])),
      bar ? button(`Its span: ${bar.name}`, "Show the span in the timeline", () => { address.set({ record: recordKey(row, column) }); spanView.choose(bar.id, { scroll: true }); }, { class: "quiet to-span" }) : null);
  }

  // Records that arrive leave alone what the reader looks at.
  append(rows, seen, levels) {
    const { logs } = data;
    logs.rows.push(...rows);
    if (logs.rows.length > MOST_RECORDS) logs.rows.splice(0, logs.rows.length - MOST_RECORDS);
    logs.seen = seen === undefined ? logs.seen + rows.length : seen;
    if (levels) logs.levels = levels; else for (const row of rows) logs.levels[row[this.column.level]] = (logs.levels[row[this.column.level]] || 0) + 1;
    logs.left_out = Math.max(0, logs.seen - logs.rows.length);
    sectionLink("logs", "Logs", logs.seen);
    if (this.state.page === 0 && this.list.scrollTop < 8 && !this.list.querySelector("details[open]")) { this.show(); return; }
    this.fresh += rows.filter((row) => this.matches(row)).length;
    this.news.hidden = !this.fresh;
    this.news.textContent = `${plural(this.fresh, "new record")} ↑`;
    this.showFilters();
  }

  toNewest() {
    this.state.page = 0;
    this.fresh = 0;
    this.chosen = null;
    this.show();
    this.list.scrollTop = 0;
    this.list.focus({ preventScroll: true });
  }
}

const MOST_RECORDS = 20_000;

function stageBars() {
  const lane = data.timeline && data.timeline.lanes.find((one) => one.lane === "stage");
  return lane ? lane.bars : [];
}

// The stage that had begun last among those open when the record was written.
function stageOf(row, column) {
  let found = null;
  for (const bar of stageBars()) {
    const isOpen = bar.start <= row[column.elapsed_s] && row[column.elapsed_s] <= bar.start + bar.seconds + 1e-3;
    if (isOpen && (bar.attempt || 1) === row[column.attempt] && (!found || bar.start > found.start)) found = bar;
  }
  return found ? found.name : "";
}

// A record has no name of its own: its moment, rank and attempt, and which of those of the same moment it is.
function recordKey(row, column) {
  const same = data.logs.rows.filter((other) => other[column.elapsed_s] === row[column.elapsed_s] && other[column.rank] === row[column.rank] && other[column.attempt] === row[column.attempt]);
  return [row[column.elapsed_s], row[column.rank], row[column.attempt], same.indexOf(row)].join("~");
}

function recordOf(key, column) {
  const moment = key && Number(key.split("~")[0]);
  return (key && data.logs.rows.find((row) => row[column.elapsed_s] === moment && recordKey(row, column) === key)) || null;
}

function logSection() {
  const { logs } = data;
  const node = section("logs", "Logs", logs.seen);
  if (!logs.rows.length && !logs.seen) { empty(node, data.reasons.logs); return; }
  const isNew = !logView;
  if (isNew) logView = new LogView();
  node.append(logView.node);
  logView.show();
  const row = isNew ? recordOf(address.get("record"), logView.column) : null;
  if (row) logView.reveal(row);
}
