// Shows the rows in sight of a table of any length, keeps place and selection, and answers clicks and keys.
const RUNS_OVERSCAN = 14;
const RUNS_CHECK_CH = 5.5;
// So few rows are never made to scroll in a low window: the page itself does.
const RUNS_FEW = 6;

function runsTable(on) {
  const heads = el("tr", {});
  const widths = el("colgroup", {});
  const body = el("tbody", {});
  const grid = el("table", { class: "runs-grid", "aria-label": "Runs" }, widths, el("thead", {}, heads), body);
  const scroller = el("div", { class: "runs-scroll", tabindex: "-1" }, grid);
  const all = el("input", { type: "checkbox", "aria-label": "Select all runs shown", onclick: () => selectAll(all.checked) });
  const above = el("tr", { class: "runs-pad", "aria-hidden": "true" }, el("td", {}));
  const below = el("tr", { class: "runs-pad", "aria-hidden": "true" }, el("td", {}));
  const selected = new Set();
  const nodes = new Map();
  let columns = [];
  let rows = [];
  let places = new Map();
  let rowHeight = 37;
  // Asked of the page, either would lay out all rows once more: so they are noted when they change.
  let seenHeight = 0;
  let isScrolled = false;
  let drawn = "";
  let here = null;
  let anchor = null;
  let whole = false;
  let headKey = "";

  function show(newColumns, newRows, sort) {
    const top = firstInSight();
    columns = newColumns;
    rows = newRows;
    places = new Map(rows.map((row, place) => [row.run_id, place]));
    drawHeads(sort);
    if (here !== null && !places.has(here)) here = null;
    grid.setAttribute("aria-rowcount", String(rows.length + 1));
    scroller.classList.toggle("few", rows.length < RUNS_FEW);
    // Where the reader has scrolled, the row at the top stays there, though newer runs come in above it.
    if (top && places.has(top.id)) scrollRowsTo(places.get(top.id) * rowHeight + top.offset);
    draw();
    on.select();
    markAll();
  }

  function scrolledTo() {
    return isScrolled ? scroller.scrollTop : 0;
  }

  function scrollRowsTo(top) {
    scroller.scrollTop = top;
    isScrolled = scroller.scrollTop > 0;
  }

  function firstInSight() {
    const top = scrolledTo();
    if (top < rowHeight || !rows.length) return null;
    const place = Math.min(rows.length - 1, Math.floor(top / rowHeight));
    return { id: rows[place].run_id, offset: top - place * rowHeight };
  }

  function drawHeads(sort) {
    const nowMs = Date.now();
    const key = JSON.stringify([columns.map((column) => [column.id, column.title]), sort]);
    const sizes = [RUNS_CHECK_CH, ...columns.map((column) => runsColumnWidth(column, rows, nowMs))];
    widths.replaceChildren(...sizes.map((ch, place) => {
      const col = el("col", {});
      // In points of the screen, since the widths in ch of cells with smaller letters would differ.
      col.style.width = place === 0 ? "var(--runs-check)" : ch + "ch";
      return col;
    }));
    grid.style.width = `max(100%, ${sizes.reduce((sum, ch) => sum + ch, 0)}ch)`;
    if (key === headKey) return;
    headKey = key;
    const focused = document.activeElement && heads.contains(document.activeElement) ? document.activeElement.dataset.column : null;
    heads.replaceChildren(el("th", { class: "runs-check", scope: "col" }, all), ...columns.map((column) => {
      const direction = sort.id === column.id ? (sort.descending ? "descending" : "ascending") : "none";
      const numeric = column.kind === "number" || column.kind === "duration";
      return el("th", { scope: "col", class: [column.id === "name" ? "runs-name" : "", numeric ? "num" : ""].join(" ").trim() || null, "aria-sort": direction },
        el("button", { type: "button", "data-column": column.id, title: column.title === column.id ? column.id : `${column.title}: ${column.id}`, onclick: () => on.sort(column) },
          el("span", { class: "label" }, column.title),
          el("span", { class: "arrow", "aria-hidden": "true" }, direction === "none" ? "" : sort.descending ? "▼" : "▲")));
    }));
    if (focused !== null) for (const button of heads.querySelectorAll("button")) if (button.dataset.column === focused) button.focus();
  }

  function inWindow() {
    if (whole) return [0, rows.length];
    const first = Math.max(0, Math.floor(scrolledTo() / rowHeight) - RUNS_OVERSCAN);
    const seen = Math.ceil((seenHeight || innerHeight) / rowHeight);
    return [first, Math.min(rows.length, first + seen + 2 * RUNS_OVERSCAN)];
  }

  function draw() {
    const [first, last] = inWindow();
    drawn = `${first} ${last}`;
    const kept = new Set();
    const wanted = [];
    for (let place = first; place < last; place += 1) {
      const row = rows[place];
      kept.add(row.run_id);
      wanted.push(nodeOf(row, place));
    }
    const focused = document.activeElement && body.contains(document.activeElement) ? document.activeElement : null;
    const focusedRow = focused ? focused.closest("tr").dataset.run : null;
    const wasLink = focused && focused.tagName === "A";
    const top = scrolledTo();
    above.firstChild.colSpan = below.firstChild.colSpan = columns.length + 1;
    above.style.height = first * rowHeight + "px";
    below.style.height = Math.max(0, rows.length - last) * rowHeight + "px";
    arrange(wanted);
    // Taking out what has focus lays the page out in between, when it may be too short for the place it is scrolled to.
    if (isScrolled && scroller.scrollTop !== top) scrollRowsTo(top);
    for (const id of [...nodes.keys()]) if (!kept.has(id)) nodes.delete(id);
    if (focusedRow && nodes.has(focusedRow) && document.activeElement !== focused) {
      nodes.get(focusedRow).node.querySelector(wasLink ? "a" : "input").focus({ preventScroll: true });
    }
  }

  // Called when everything has just been laid out.
  function resized() {
    seenHeight = scroller.clientHeight;
    isScrolled = scroller.scrollTop > 0;
    tellMore();
    const row = above.nextSibling;
    const real = row && row !== below ? row.getBoundingClientRect().height : 0;
    if (real && Math.abs(real - rowHeight) > 0.4) rowHeight = real;
    else if (inWindow().join(" ") === drawn) return;
    draw();
  }

  // On a narrow screen an edge that fades says that there is more beside it.
  function tellMore() {
    scroller.classList.toggle("more", scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft > 2);
  }

  // Rows that stay are not moved: what is taken out of the document loses focus and hover.
  function arrange(wanted) {
    if (above.parentNode !== body) body.replaceChildren(above, below);
    const stay = new Set(wanted);
    let next = above.nextSibling;
    for (const node of wanted) {
      while (next !== below && next !== node && !stay.has(next)) {
        const gone = next;
        next = next.nextSibling;
        gone.remove();
      }
      if (next === node) next = next.nextSibling;
      else body.insertBefore(node, next);
    }
    while (next !== below) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  }

  // A row is built anew only when something in it has changed, so that focus and hover stay.
  function nodeOf(row, place) {
    const nowMs = Date.now();
    const key = row.key + "\n" + headKey;
    let made = nodes.get(row.run_id);
    if (!made || made.key !== key) {
      const box = el("input", { type: "checkbox", "aria-label": "Select " + (row.name || row.run_id), onclick: (event) => toggle(row.run_id, box.checked, event.shiftKey) });
      const node = el("tr", { "data-run": row.run_id }, el("td", { class: "runs-check" }, box),
        columns.map((column) => (column.id === "name" ? runsNameCell(row) : runsCell(column, row, nowMs))));
      made = { key, node, box, row };
      nodes.set(row.run_id, made);
    }
    made.row = row;
    made.node.setAttribute("aria-rowindex", String(place + 2));
    mark(row.run_id, made);
    return made.node;
  }

  function mark(id, made) {
    const is = selected.has(id);
    made.box.checked = is;
    made.node.classList.toggle("selected", is);
    made.node.classList.toggle("here", id === here);
  }

  function markAll() {
    for (const [id, made] of nodes) mark(id, made);
    const count = rows.reduce((sum, row) => sum + (selected.has(row.run_id) ? 1 : 0), 0);
    all.checked = rows.length > 0 && count === rows.length;
    all.indeterminate = count > 0 && count < rows.length;
  }

  function toggle(id, value, range) {
    const to = places.get(id);
    const from = range && anchor !== null ? places.get(anchor) : undefined;
    if (from !== undefined) for (let place = Math.min(from, to); place <= Math.max(from, to); place += 1) set(rows[place].run_id, value);
    else set(id, value);
    anchor = id;
    markAll();
    on.select();
  }

  function set(id, value) {
    if (value) selected.add(id); else selected.delete(id);
  }

  function selectAll(value) {
    for (const row of rows) set(row.run_id, value);
    markAll();
    on.select();
  }

  function move(by) {
    if (!rows.length) return;
    const from = here === null ? (by > 0 ? -1 : rows.length) : places.get(here);
    const place = Math.max(0, Math.min(rows.length - 1, from + by));
    here = rows[place].run_id;
    const headHeight = heads.getBoundingClientRect().height;
    const top = place * rowHeight;
    if (top < scroller.scrollTop) scrollRowsTo(top);
    const bottom = top + rowHeight + headHeight - scroller.clientHeight;
    if (bottom > scroller.scrollTop) scrollRowsTo(bottom);
    draw();
    markAll();
    const made = nodes.get(here);
    if (made) made.node.querySelector("a").focus({ preventScroll: true });
  }

  // Running rows go on between two answers of the server; the others only grow older.
  function tick() {
    const nowMs = Date.now();
    for (const made of nodes.values()) {
      columns.forEach((column, place) => {
        const moves = column.kind === "time" || (column.id === "duration" && made.row.state === "running");
        if (!moves) return;
        const cell = made.node.children[place + 1];
        const text = runsText(column, made.row, nowMs);
        const target = column.kind === "time" ? cell.querySelector(".ago") : cell;
        const shown = column.kind === "time" ? text.split(" · ")[1] || "" : text;
        if (target && target.textContent !== shown) target.textContent = shown;
      });
    }
  }

  let drawing = false;
  scroller.addEventListener("scroll", () => {
    isScrolled = scroller.scrollTop > 0;
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; tellMore(); draw(); });
  }, { passive: true });
  const looker = new ResizeObserver(resized);
  looker.observe(scroller);
  looker.observe(grid);
  addEventListener("beforeprint", () => { whole = true; draw(); });
  addEventListener("afterprint", () => { whole = false; draw(); });

  return {
    node: scroller, show, tick, move, selected,
    current: () => here,
    toggleCurrent: () => { if (here !== null) toggle(here, !selected.has(here), false); },
    clear: () => { selected.clear(); anchor = null; markAll(); on.select(); },
    restore: (ids) => { ids.forEach((id) => selected.add(id)); markAll(); },
  };
}
