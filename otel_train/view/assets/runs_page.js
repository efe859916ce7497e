// The page of all runs: asks the server for what the address says, follows what changes, and leads to one run or several.
const RUNS_LIVE_EVERY_MS = 1000;
const RUNS_TICK_MS = 1000;
// An address has its limits.
const RUNS_MOST_COMPARED = 1000;

function runsPage() {
  const base = document.body.dataset.base || "";
  const main = document.getElementById("main");
  const known = { columns: [], rows: [], total: 0, revision: "" };
  const asked = { number: 0, busy: false, timer: 0, endedMs: 0, restMs: RUNS_LIVE_EVERY_MS };

  const names = runsNames(known);
  const line = runsFilterLine(names, (text) => choose({ where: text }));
  const search = el("input", { type: "search", class: "search runs-search", placeholder: "Search names, tags, configuration", "aria-label": "Search" });
  const project = el("select", { class: "search runs-project", "aria-label": "Project", onchange: () => chooseProject(project.value) });
  const dialog = runsColumnsDialog({ change: chooseColumns });
  const columnsButton = el("button", { type: "button", class: "quiet", onclick: dialog.open }, "Columns");
  const chips = el("div", { class: "runs-states", role: "group", "aria-label": "States" });
  const count = el("span", { class: "runs-count", role: "status" });
  const clear = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => table.clear() }, "Clear selection");
  const compare = el("a", { class: "runs-compare", role: "link", "aria-disabled": "true" }, "Compare");
  const notice = el("p", { class: "notice warn", role: "status", hidden: true });
  const nothing = el("div", { class: "empty runs-nothing", hidden: true });
  const examples = el("div", {});
  const table = runsTable({ sort: sortBy, select: showSelection });
  const tools = el("div", { class: "runs-tools" },
    el("div", { class: "filters" }, line.node, search, project, columnsButton), line.fault, examples,
    el("div", { class: "filters" }, chips, count, clear, compare));
  main.append(el("h1", { class: "runs-title" }, "Runs"), notice, tools, nothing, table.node, dialog.node);

  let searchTimer = 0;
  search.addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => choose({ search: search.value.trim() }), 200);
  });

  // What is chosen ------------------------------------------------------------------------------------------------------

  function choose(changes) {
    known.remark = "";
    address.set(changes);
    load();
  }

  function chooseProject(name) {
    const columns = runsMemory.get(name);
    choose({ project: name, columns: columns ? runsIdList(columns) : null });
  }

  function chooseColumns(ids) {
    runsMemory.set(address.get("project") || "", ids);
    if (ids !== null) {
      // Shown at once; the values of a new column come with the answer.
      known.shown = ids;
      show();
    }
    choose({ columns: ids === null ? null : runsIdList(ids) || "name" });
  }

  // The first click brings what one looks for in such a column to the top, the second turns it round, the third ends it.
  function sortBy(column) {
    const upward = !["number", "time", "duration"].includes(column.kind) || column.goal === "min";
    const order = upward ? [false, true] : [true, false];
    const now = known.sort;
    const explicit = address.get("sort") !== null;
    let next = { id: column.id, descending: order[0] };
    if (now.id === column.id && explicit) next = now.descending === order[0] ? { id: column.id, descending: order[1] } : null;
    else if (now.id === column.id) next = { id: column.id, descending: !now.descending };
    choose({ sort: next ? (next.descending ? "-" : "") + runsIdList([next.id]) : null });
  }

  function chooseState(state) {
    const states = new Set(address.list("state"));
    if (states.has(state)) states.delete(state); else states.add(state);
    address.setList("state", RUNS_STATES.filter((name) => states.has(name)));
    show();
  }

  // What the server says ------------------------------------------------------------------------------------------------

  async function load() {
    clearTimeout(asked.timer);
    asked.timer = 0;
    asked.number += 1;
    const mine = asked.number;
    const query = new URLSearchParams();
    for (const key of ["where", "search", "sort", "columns"]) if (address.get(key)) query.set(key, address.get(key));
    asked.busy = true;
    const begunMs = Date.now();
    let answer = null;
    try {
      answer = await getJson(base + "api/runs?" + query);
      if (answer.error && answer.error.field === "where" && (!known.shown || known.isUnread)) {
        // No filter was understood yet: projects and states are counted as if there were none.
        query.delete("where");
        const whole = await getJson(base + "api/runs?" + query);
        if (!whole.error) answer.unfiltered = whole.rows;
      }
    } catch (fault) {
      if (mine === asked.number) tellTrouble(fault);
    }
    if (mine !== asked.number) return;
    asked.busy = false;
    if (answer) take(answer);
    asked.endedMs = Date.now();
    // However many runs there are, most of the time is left to the reader.
    asked.restMs = Math.max(RUNS_LIVE_EVERY_MS, 5 * (asked.endedMs - begunMs));
  }

  // While runs train the table changes every second; one answer is under way at a time.
  function loadSoon() {
    if (asked.timer) return;
    asked.timer = setTimeout(() => {
      asked.timer = 0;
      if (asked.busy) loadSoon(); else load();
    }, Math.max(0, asked.endedMs + asked.restMs - Date.now()));
  }

  function take(answer) {
    const error = answer.error;
    if (error && error.field === "sort") {
      // A column that is no more, in an address from somebody else.
      choose({ sort: null });
      known.remark = `Not sorted as the address says: ${error.message}`;
      return;
    }
    tell(known.remark || answer.notice || "");
    line.tell(error && error.field === "where" ? { ...error, still: known.shown && !known.isUnread ? known.where || "every run" : "" } : null);
    if (error && error.field !== "where") tell(error.message);
    // A name with a backquote in it cannot be asked for.
    known.columns = answer.columns.filter((column) => !column.id.includes("`")).map(runsColumn);
    known.asked = (answer.asked || []).map(runsColumn);
    known.total = answer.total;
    known.pending = answer.pending || 0;
    known.revision = answer.revision;
    known.isUnread = Boolean(error) && (!known.shown || Boolean(known.isUnread));
    if (known.isUnread) {
      Object.assign(known, { shown: answer.shown, sort: { id: "started", descending: true } });
      if (answer.unfiltered) known.rows = answer.unfiltered.map((row) => runsRow(row, Date.now()));
    }
    if (!error) {
      const nowMs = Date.now();
      known.where = address.get("where") || "";
      known.shown = answer.shown;
      known.sort = { id: answer.sort[0][0], descending: answer.sort[0][1] === "descending" };
      known.rows = answer.rows.map((row) => runsRow(row, nowMs));
      if (!address.get("where") && !address.get("search")) {
        const there = new Set(known.rows.map((row) => row.run_id));
        for (const id of table.selected) if (!there.has(id)) table.selected.delete(id);
      }
    }
    show();
    document.documentElement.dataset.ready = "yes";
  }

  function tellTrouble(fault) {
    const error = fault.body && fault.body.error;
    if (error && error.position !== undefined) line.tell(error);
    else tell(fault.status ? fault.message : "The server does not answer. It may have been ended; what is shown is the last that it said.");
    document.documentElement.dataset.ready = "yes";
  }

  function tell(text) {
    notice.textContent = text;
    notice.hidden = !text;
  }

  // What is shown -------------------------------------------------------------------------------------------------------

  function show() {
    if (!known.shown) return;
    const here = address.get("project") || "";
    const ofProject = here ? known.rows.filter((row) => row.project === here) : known.rows;
    const states = address.list("state");
    const rows = known.isUnread ? [] : states.length ? ofProject.filter((row) => states.includes(row.state)) : ofProject;
    const byId = new Map([...(known.asked || []), ...known.columns].map((column) => [column.id, column]));
    const ids = known.shown.includes("name") ? known.shown : ["name", ...known.shown];
    const columns = ids.map((id) => runsKind(byId.get(id) || runsColumn({ id, title: id, group: "run", kind: "text" }), known.rows));
    // The name stays in sight while the others move by, so it is the first.
    columns.sort((one, other) => (other.id === "name") - (one.id === "name"));
    known.visible = rows;
    showProjects(here);
    showStates(ofProject, states);
    dialog.show(known.columns, columns);
    if (!examples.childElementCount && known.total) examples.replaceChildren(runsExamples(names, line.use));
    showNothing(rows);
    table.show(columns, rows, known.sort);
    const waiting = known.pending ? ` · reading values of ${number(known.pending)}` : "";
    count.textContent = (rows.length === known.total ? `${number(known.total)} ${known.total === 1 ? "run" : "runs"}` : `${number(rows.length)} of ${number(known.total)} runs`) + waiting;
  }

  function showProjects(here) {
    const counts = new Map();
    for (const row of known.rows) counts.set(row.project, (counts.get(row.project) || 0) + 1);
    if (here && !counts.has(here)) counts.set(here, 0);
    // A filter that leaves one project does not take the choice away.
    if (!address.get("where") && !address.get("search") || known.isUnread) known.projects = [...counts.keys()];
    for (const name of known.projects || []) if (!counts.has(name)) counts.set(name, 0);
    const names = [...counts.keys()].filter(Boolean).sort();
    project.hidden = names.length < 2 && !here;
    const key = JSON.stringify([names.map((name) => [name, counts.get(name)]), here]);
    if (project.dataset.key === key) return;
    project.dataset.key = key;
    project.replaceChildren(el("option", { value: "" }, "All projects"), ...names.map((name) => el("option", { value: name }, `${name} (${number(counts.get(name))})`)));
    project.value = here;
  }

  function showStates(rows, chosen) {
    const counts = new Map(RUNS_STATES.map((state) => [state, 0]));
    for (const row of rows) counts.set(row.state, (counts.get(row.state) || 0) + 1);
    const focused = chips.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    chips.replaceChildren(...[...counts].map(([state, n]) => el("button", { type: "button", class: "level runs-chip" + (n ? "" : " none"), "data-state": state,
      "aria-pressed": String(chosen.includes(state)), onclick: () => chooseState(state) }, el("span", { class: "pill " + state }, state), el("span", { class: "count" }, number(n)))));
    if (focused) chips.querySelector(`[data-state="${focused}"]`).focus();
  }

  function showNothing(rows) {
    table.node.hidden = rows.length === 0;
    tools.hidden = known.total === 0;
    nothing.hidden = rows.length > 0;
    if (rows.length) return;
    if (known.total) {
      nothing.replaceChildren(el("p", {}, known.isUnread ? "The filter cannot be read; what is wrong with it is marked above. " : "No run is like that. "), el("button", { type: "button", class: "quiet", onclick: forget }, "Show all runs"));
      return;
    }
    nothing.replaceChildren(...runsFirst(document.body.dataset.root || "./runs"));
  }

  function forget() {
    line.set("");
    search.value = "";
    choose({ where: null, search: null, state: null, project: null });
  }

  function showSelection() {
    const ids = inOrder();
    runsMemory.select(ids);
    const visible = new Set((known.visible || []).map((row) => row.run_id));
    const hidden = ids.filter((id) => !visible.has(id)).length;
    clear.hidden = ids.length === 0;
    compare.textContent = ids.length ? `Compare ${number(ids.length)}` + (hidden ? ` (${number(hidden)} not shown)` : "") : "Compare";
    const isFit = ids.length >= 2 && ids.length <= RUNS_MOST_COMPARED;
    compare.title = ids.length < 2 ? "Select two runs or more, by their boxes or by x" : isFit ? "" : `At most ${number(RUNS_MOST_COMPARED)} runs can be compared`;
    compare.setAttribute("aria-disabled", String(!isFit));
    if (!isFit) compare.removeAttribute("href");
    else compare.setAttribute("href", base + "compare?runs=" + ids.map(encoded).join(","));
  }

  // The order of the table, so that the comparison reads the same.
  function inOrder() {
    const shown = (known.visible || []).filter((row) => table.selected.has(row.run_id)).map((row) => row.run_id);
    const there = new Set(shown);
    return [...shown, ...[...table.selected].filter((id) => !there.has(id))];
  }

  // Keys, and what comes by itself --------------------------------------------------------------------------------------

  shortcut("/", "filter", () => { line.input.focus(); line.input.select(); });
  shortcut("j", "next run", () => table.move(1));
  shortcut("k", "run before", () => table.move(-1));
  shortcut("x", "select or leave out the run", () => table.toggleCurrent());
  shortcut("c", "compare what is selected", () => { if (compare.hasAttribute("href")) compare.click(); });
  shortcut("Enter", "open the run", () => {
    const node = document.activeElement;
    if (node && node.matches("a, button, summary, input")) node.click();
    else if (table.current() !== null) location.assign(base + "run/" + encoded(table.current()));
  });

  function readAddress() {
    line.set(address.get("where") || "");
    search.value = address.get("search") || "";
  }

  const live = runsLive(base, known, {
    changed: loadSoon,
    lost: () => tell("The server does not answer at the moment; what is shown is the last that it said."),
    found: () => { if (!notice.hidden && known.shown) loadSoon(); },
  });
  setInterval(() => { if (!document.hidden) table.tick(); }, RUNS_TICK_MS);
  address.onChange(() => { readAddress(); load(); });

  if (!address.get("columns")) {
    const columns = runsMemory.get(address.get("project") || "");
    if (columns) address.set({ columns: runsIdList(columns) });
  }
  table.restore(runsMemory.selection());
  readAddress();
  load().then(live.listen);
}
