// Follows a run by the server's events: lines, records and state grow in place, other parts are fetched again.
const SECTIONS_OF_PART = { metrics: ["curves", "summary"], machine: ["steps", "system", "gpu", "other"], inside: ["model", "data-path", "speed", "ranks", "memory"], samples: ["samples"],
  timeline: ["timeline"], config: ["configuration"], environment: ["environment"], datasets: ["data"], checkpoints: ["checkpoints"], stages: ["stages"], run_log: ["run-log"], logs: ["logs"] };
const TICK_MS = 1_000;
const REFETCH_MS = 10_000;
const LINE_REFETCH_MS = 30_000;
const UNSEEN_REFETCH_MS = 60_000;
// A browser has six connections for all tabs of one server; a tab that nobody sees gives its own back.
const HIDDEN_MS = 30_000;
const LONGEST_WAIT_S = 5;

class Live {
  // Each part has the revision at which it was made: what an event tells of an older one is in it already.
  constructor(revisions, isRunning) {
    Object.assign(this, { revisions, isRunning, revision: Math.min(...Object.values(revisions)), source: null, tries: 0, stale: new Set(), came: new Set(), fetched: new Map(), changed: new Set(), rows: new Map(), busy: false });
    this.words = el("p", { id: "connection", role: "status", hidden: true });
    document.body.append(this.words);
  }

  get loaded() {
    return new Set(Object.keys(this.revisions));
  }

  // A part that was made before an event that has come meanwhile lacks what that event told.
  took(names, revision) {
    for (const name of names) {
      this.revisions[name] = revision;
      if (revision < this.revision) this.stale.add(name); else this.stale.delete(name);
    }
  }

  isNew(part, revision) {
    return this.revisions[part] !== undefined && revision > this.revisions[part];
  }

  start() {
    this.open();
    this.ticking = setInterval(() => this.tick(), TICK_MS);
    document.addEventListener("visibilitychange", () => this.seen());
  }

  open() {
    if (this.source || this.isGone) return;
    const source = new EventSource(runUrl(`/events?revision=${this.revision}`));
    this.source = source;
    source.addEventListener("open", () => { this.tries = 0; this.say(""); });
    source.addEventListener("append", (event) => this.append(JSON.parse(event.data)));
    source.addEventListener("reload", (event) => this.reload(JSON.parse(event.data)));
    source.addEventListener("gone", () => this.gone());
    source.addEventListener("rest", () => { if (document.hidden) this.close(); });
    source.addEventListener("error", () => { if (this.source === source) this.lost(); });
  }

  close() {
    if (this.source) this.source.close();
    this.source = null;
  }

  // The browser would try again with the revision of the first time.
  lost() {
    this.close();
    if (this.isGone || document.hidden) return;
    this.tries += 1;
    const wait_s = Math.min(LONGEST_WAIT_S, 2 ** (this.tries - 1));
    if (this.tries > 1) this.say(`The server does not answer; what is shown may be old. Trying again ${wait_s === 1 ? "in a second" : `in ${wait_s} s`}.`);
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.open(), wait_s * 1000);
  }

  seen() {
    clearTimeout(this.hiding);
    if (document.hidden) { this.hiding = setTimeout(() => { clearTimeout(this.retry); this.close(); }, HIDDEN_MS); return; }
    this.open();
    this.tick();
  }

  say(text) {
    this.words.textContent = text;
    this.words.hidden = !text;
  }

  append(change) {
    this.revision = change.revision;
    const { lines, logs, summary, stale, logs_seen, logs_levels, revision, live, counts, came, time_by_state, time_not_counted, ...rest } = change;
    this.isRunning = live === undefined ? this.isRunning : live;
    if (this.isNew("head", revision)) this.head = { ...this.head, ...rest };
    if (this.isNew("metrics", revision)) {
      for (const [id, grown] of Object.entries(lines || {})) this.grow(id, grown);
      if (summary && Object.keys(summary).length) {
        data.summary = data.summary.map((row) => summary[row.id] || row);
        this.summaryChanged = true;
      }
    }
    if (logs && logs.length && this.isNew("logs", revision)) this.addRecords(logs, logs_seen, logs_levels);
    for (const part of stale || []) this.stale.add(part);
    for (const part of came || []) this.came.add(part);
    for (const [part, count] of Object.entries(counts || {})) if (this.isNew(part, revision)) sectionCount(SECTIONS_OF_PART[part][0], count);
    if (time_by_state && this.isNew("inside", revision)) this.head = { ...this.head, time_by_state, time_not_counted: time_not_counted || null };
    else if (time_not_counted !== undefined && this.isNew("inside", revision)) this.head = { ...this.head, time_not_counted };
    // Every look reads points and makes files larger.
    this.stale.add("run_log");
    this.filesAreOld = true;
    if (!document.hidden && !this.flushing) this.flushing = setTimeout(() => this.flush(), Math.max(0, TICK_MS - (Date.now() - (this.flushed || 0))));
  }

  addRecords(rows, seen, levels) {
    if (logView) { logView.append(rows, seen, levels); return; }
    data.logs.rows.push(...rows);
    Object.assign(data.logs, { seen: seen || data.logs.rows.length, levels: levels || {} });
    logSection();
  }

  grow(id, grown) {
    const found = this.lineOf(id);
    if (!found) { this.stale.add("metrics"); return; }
    const { line, chart } = found;
    const before = line.y.length;
    const count = grown.y.length;
    if (!this.rows.has(line)) this.rows.set(line, before);
    for (const axis of new Set([...Object.keys(line.x), ...Object.keys(grown.x || {})])) {
      if (!line.x[axis]) line.x[axis] = new Array(before).fill(null);
      line.x[axis].push(...((grown.x && grown.x[axis]) || new Array(count).fill(null)));
    }
    line.y.push(...grown.y);
    if (line.low) { line.low.push(...grown.y); line.high.push(...grown.y); }
    if (line.points) line.points += count;
    if (grown.marks) line.marks = [...(line.marks || []), ...grown.marks.map(([row, ...counts]) => [before + row, ...counts])];
    if (grown.best) line.best = grown.best;
    if (grown.notes) chart.notes = [...chart.notes.filter((note) => note.line !== id), ...grown.notes];
    if (line.y.length > Math.max(4_000, 3 * this.rows.get(line))) this.stale.add("metrics");
    this.changed.add(chart.key);
  }

  lineOf(id) {
    if (this.indexed !== data.charts.metrics) {
      this.indexed = data.charts.metrics;
      this.lines = new Map(data.charts.metrics.flatMap((chart) => chart.lines.map((line) => [line.id, { line, chart }])));
      this.rows.clear();
    }
    return this.lines.get(id);
  }

  // What has come since the last time is drawn at most once a second, and only what is in sight.
  flush() {
    this.flushing = null;
    this.flushed = Date.now();
    if (document.hidden) return;
    if (this.head) this.showTop();
    if (this.changed.size) {
      ranges.clear();
      for (const place of view.drawn.values()) {
        const isChanged = this.changed.has(place.chart.key);
        if (isChanged) place.notes.replaceChildren(...chartNotes(place.chart));
        if (isChanged || hasOtherRange(place)) redraw(place);
      }
      this.changed.clear();
    }
    if (this.summaryChanged && isInSight("summary")) { this.summaryChanged = false; summarySection(); }
  }

  showTop() {
    const shown = () => [JSON.stringify([data.status, data.facts, data.tiles, data.notices]), JSON.stringify([data.lineage, data.time_by_state, data.time_not_counted])];
    const before = shown();
    const state = data.status.state;
    merge(this.head);
    this.head = null;
    const [top, more] = shown();
    if (more !== before[1] || state !== data.status.state) keepingFocus(showMore);
    if (top === before[0]) return;
    keepingFocus(() => { showHero(); showNotices(); showTiles(); });
    if (state === data.status.state) return;
    showPill(data.status.state);
    showTitle();
    // How it ended is told in every part.
    for (const part of this.loaded) this.stale.add(part);
    this.fetched.clear();
  }

  tick() {
    if (document.hidden) return;
    if ((this.changed.size || this.head || (this.summaryChanged && isInSight("summary"))) && !this.flushing) this.flush();
    this.refetch();
    this.refetchFiles();
  }

  async refetch() {
    if (this.busy || this.isGone) return;
    const now = Date.now();
    if (this.stale.delete("epoch") && view.axis === "epoch") this.stale.add("metrics");
    const due = [...this.stale].filter((part) => this.loaded.has(part) && now - (this.fetched.get(part) || 0) >= (part === "metrics" ? LINE_REFETCH_MS : REFETCH_MS)
      && (part === "head" || this.came.has(part) || (SECTIONS_OF_PART[part] || []).some(isInSight) || !(SECTIONS_OF_PART[part] || []).some((id) => document.getElementById(id))));
    if (!due.length) return;
    await this.fetch(due);
  }

  async fetch(names) {
    if (!names.length) return;
    this.busy = true;
    for (const name of names) this.came.delete(name);
    try {
      const { part, live, revision } = await fetchParts(names);
      for (const name of names) this.fetched.set(name, Date.now());
      this.took(names, revision);
      this.isRunning = live;
      merge(part);
      showParts(names);
      if (names.includes("head")) showTitle();
    } catch (fault) {
      for (const name of names) this.fetched.set(name, Date.now());
      if (fault.status === 410 || fault.status === 404) this.gone();
    } finally {
      this.busy = false;
    }
  }

  // The list is short, but the folder is gone through for it.
  async refetchFiles() {
    const wait_ms = isInSight("files") ? REFETCH_MS : UNSEEN_REFETCH_MS;
    if (!this.filesAreOld || this.isGone || !document.getElementById("files") || Date.now() - (this.fetched.get("files") || 0) < wait_ms) return;
    this.filesAreOld = false;
    this.fetched.set("files", Date.now());
    await showFiles();
  }

  async reload({ revision }) {
    if (revision !== undefined) this.revision = revision;
    for (const part of this.loaded) this.stale.add(part);
    this.fetched.clear();
    await this.fetch(FIRST_PARTS);
    await this.fetch([...this.stale].filter((part) => this.loaded.has(part)));
  }

  gone() {
    this.isGone = true;
    this.close();
    clearInterval(this.ticking);
    this.say("");
    showPill("gone");
    const main = document.getElementById("main");
    main.prepend(el("p", { class: "notice bad gone", role: "alert" }, el("b", {}, "Gone"), "The folder of this run was deleted. What is shown here was read before; it is lost when this page is closed."));
  }
}

// Draws something in the overview anew; whoever was at a button there still is.
function keepingFocus(show) {
  const controls = () => [...document.querySelectorAll("#overview :is(a, button, summary)")];
  const focused = document.activeElement;
  const place = controls().indexOf(focused);
  show();
  if (place < 0 || focused.isConnected) return;
  const same = controls().filter((node) => node.textContent === focused.textContent);
  const again = same.includes(controls()[place]) ? controls()[place] : same[0];
  if (again) again.focus({ preventScroll: true });
}

function isInSight(id) {
  const node = document.getElementById(id);
  if (!node) return false;
  const box = node.getBoundingClientRect();
  return box.bottom > -200 && box.top < innerHeight + 200;
}

// A range that has grown by a hundredth is worth a new drawing of a chart that itself has not changed.
function hasOtherRange(place) {
  if (!place.inSight || place.chart.kind === "timeline" || !place.plot.layout) return false;
  const axis = axisOf(place.chart);
  const drawn = place.plot.layout.xaxis.range;
  const now = rangeOf(axis);
  return !zoomRange(place, axis) && now && drawn && Math.abs(now[1] - drawn[1]) > 0.01 * (drawn[1] - drawn[0]);
}
