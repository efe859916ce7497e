// Tells all of a chosen span, and leads to its step, its log records and the spans around it.
let spanView = null;
const LISTED_SPANS = 200;

class SpanView {
  constructor() {
    this.chosen = address.get("span");
    this.node = el("div", { id: "span", class: "card span", role: "region", "aria-label": "Chosen span", hidden: true });
  }

  choose(id, options) {
    this.chosen = id;
    address.set({ span: id }, { push: Boolean(options && options.scroll) });
    this.show();
    if (timelinePlace) {
      const bar = barOf(id);
      if (bar && timelinePlace.zoom) showInZoom(bar);
      redraw(timelinePlace);
      if (options && options.scroll) goToNode(timelinePlace.node, { block: "nearest" });
    }
  }

  show() {
    const bar = barOf(this.chosen);
    this.node.hidden = !bar;
    if (bar) this.node.replaceChildren(...this.contents(bar)); else this.node.replaceChildren();
  }

  contents(bar) {
    const all = allBars();
    const parent = bar.parent ? all.find((other) => other.id === bar.parent) : null;
    const inner = bar.id ? all.filter((other) => other.parent === bar.id) : [];
    const records = recordsOf(bar);
    const link = (other) => button(`${other.name} · ${duration(other.seconds)}`, "Show this span", () => this.choose(other.id));
    return [
      el("header", {}, el("h3", {}, dot("lane-" + bar.lane), " " + bar.name), button("✕", "Close", () => this.choose(null), { "aria-label": "Close the span" })),
      factList([["Starts", `${duration(bar.start)} after start`], ["Lasts", (bar.truncated ? "at least " : "") + duration(bar.seconds)],
        ["Attempt", bar.attempt || 1], ["Rank", bar.rank || 0], ["Within", parent ? link(parent) : null], ["Span id", bar.id ? el("span", { class: "mono" }, bar.id) : null],
        ["Trace id", bar.trace !== undefined ? el("span", { class: "mono" }, data.timeline.traces[bar.trace]) : null]].filter((row) => row[1] !== null)),
      bar.error ? el("p", { class: "notice bad" }, bar.error) : null,
      bar.truncated ? el("p", { class: "notice warn" }, "Its end was never recorded.") : null,
      el("div", { class: "filters" },
        stepButton(bar.step, bar.step !== undefined ? `Show step ${number(bar.step)} in the curves` : ""),
        bar.step === undefined ? button("Show its start in the curves", "Mark this moment in the curves", () => showMark("time", bar.start)) : null,
        records.length ? button(`Its ${plural(records.length, "log record")}`, "Show only the log records of this span", () => logView.only(bar)) : null,
        data.logs && data.logs.rows.length ? button("Log records around its start", "Show the log records of that moment", () => showRecordsAround(bar.start)) : null),
      Object.keys(bar.attributes).length ? pairs(Object.entries(bar.attributes)) : null,
      inner.length ? el("p", { class: "lead" }, `Within it: ${plural(inner.length, "span")}`) : null,
      inner.length ? el("div", { class: "filters" }, inner.slice(0, 12).map(link)) : null,
    ].filter(Boolean);
  }
}

function showInZoom(bar) {
  const scale = timeUnit().scale;
  const [from, to] = timelinePlace.zoom.x;
  if (bar.start / scale < from || (bar.start + bar.seconds) / scale > to) { timelinePlace.zoom = null; rememberZoom(timelinePlace); }
}

// The records written within a span: those that carry its id, or that of a span within it.
function recordsOf(bar) {
  if (!data.logs || !bar.id) return [];
  const ids = spansWithin(bar);
  const column = data.logs.columns.indexOf("span");
  return column < 0 ? [] : data.logs.rows.filter((row) => ids.has(row[column]));
}

function spansWithin(bar) {
  const children = new Map();
  for (const other of allBars()) {
    if (!children.has(other.parent)) children.set(other.parent, []);
    children.get(other.parent).push(other.id);
  }
  const ids = new Set();
  const waiting = [bar.id];
  while (waiting.length) {
    const id = waiting.pop();
    if (!id || ids.has(id)) continue;
    ids.add(id);
    waiting.push(...(children.get(id) || []));
  }
  return ids;
}

// The same for those who do not see or cannot click the bars.
function spanList() {
  const details = el("details", {}, el("summary", {}, "Spans as a list"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    details.append(...searchable("Search spans", (text) => {
      const found = allBars().filter((bar) => (bar.name + " " + Object.values(bar.attributes).join(" ")).toLowerCase().includes(text));
      const rows = found.slice(0, LISTED_SPANS).map((bar) => [bar.id ? button(bar.name, "Show this span", () => spanView.choose(bar.id, { scroll: true })) : bar.name,
        bar.lane, duration(bar.start), duration(bar.seconds), bar.error || (bar.truncated ? "truncated" : "")]);
      return el("div", {}, table(["Span", "Lane", "Start", "Duration", "State"], rows, { numeric: [2, 3] }),
        found.length > LISTED_SPANS ? el("p", { class: "lead" }, `${number(found.length - LISTED_SPANS)} more: search for their names.`) : null);
    }));
  });
  return el("div", { class: "card" }, details);
}
