// Holds what is compared: the payload, and the reader's choices of runs, base and lines, kept in the address.
const compare = { payload: null, hidden: new Set(), pending: null };

function compareRuns() {
  return compare.payload ? compare.payload.runs : [];
}

function compareRun(id) {
  return compareRuns().find((run) => run.id === id) || null;
}

function compareBase() {
  const runs = compareRuns();
  const place = runs.findIndex((run) => run.id === compare.payload.base);
  return place < 0 ? 0 : place;
}

function compareIds() {
  return [...new Set(address.list("runs"))];
}

// Another choice of runs can be gone back from; another base cannot: it is the same page.
function compareChoose(ids) {
  const changes = { runs: address.joined(ids) };
  if (!ids.includes(address.get("base"))) changes.base = null;
  address.set(changes, { push: true });
  compareFetch();
}

function compareSetBase(id) {
  address.set({ base: id === compareIds()[0] ? null : id });
  if (compare.payload && compareRun(id)) compare.payload.base = id;
  compareKeepingFocus("compare-results", compareResults);
  compareKeepingFocus("compare-runs", compareFacts);
  compareFetch();
}

function compareHide(ids) {
  compare.hidden = new Set(ids);
  address.setList("hidden", ids);
  compareShowHidden();
}

function compareToggle(id) {
  const hidden = new Set(compare.hidden);
  if (hidden.has(id)) hidden.delete(id); else hidden.add(id);
  compareHide([...hidden]);
}

function compareUrl(ids, revision) {
  const query = new URLSearchParams({ runs: ids.join(",") });
  if (address.get("base")) query.set("base", address.get("base"));
  if (revision) query.set("revision", revision);
  return apiUrl("api/compare?" + query);
}

// Only the newest question counts; one that is asked again while nothing has changed is answered in a word.
async function compareFetch(options) {
  const ids = compareIds();
  if (!ids.length) { compareShow(compareNothing()); return; }
  const isRefresh = Boolean(options && options.refresh);
  if (isRefresh && compare.pending) return;
  if (compare.pending) compare.pending.abort();
  const control = new AbortController();
  compare.pending = control;
  document.getElementById("main").setAttribute("aria-busy", "true");
  try {
    const found = await getJson(compareUrl(ids, isRefresh && compare.payload ? compare.payload.revision : ""), { signal: control.signal });
    const fault = document.getElementById("compare-fault");
    if (fault) fault.remove();
    if (!found.unchanged) compareShow(found);
  } catch (fault) {
    if (fault.name !== "AbortError") compareFailed(fault.message);
  } finally {
    if (compare.pending === control) {
      compare.pending = null;
      document.getElementById("main").removeAttribute("aria-busy");
    }
  }
}

// What the page shows before any run is chosen.
function compareNothing() {
  const none = { rows: [], differing: 0, total: 0 };
  return { runs: [], base: "", missing: [], notices: [], axes: ["time"], elapsed_s: 0, palette: {}, live: false, revision: "", charts: { metrics: [], pace: [] },
    facts: none, configuration: none, environment: none, command: none, packages: none, datasets: none, code: none, patches: [], results: { rows: [] }, columns: [] };
}

// A run keeps its colour for as long as the page is open, also when runs are added or taken away.
const compareRoles = new Map();

function compareKeepRoles(runs) {
  const taken = new Set(runs.filter((run) => compareRoles.has(run.id)).map((run) => compareRoles.get(run.id)));
  for (const run of runs) {
    if (!compareRoles.has(run.id)) {
      const free = compareFreeRole(run.role, taken);
      compareRoles.set(run.id, free);
      taken.add(free);
    }
    run.role = compareRoles.get(run.id);
  }
}

function compareFreeRole(wanted, taken) {
  const first = Number(wanted.split("-")[1]);
  for (let step = 0; step < 8; step += 1) {
    const role = `series-${(first + step) % 8}`;
    if (!taken.has(role)) return role;
  }
  return wanted;
}

// A section that is drawn again has focus where it was: at the control of the same name.
function compareKeepingFocus(id, draw) {
  const nameOf = (node) => node.dataset.does || node.getAttribute("aria-label") || node.title || "";
  const before = document.activeElement;
  const section = before && before.closest(`#${id}`);
  const name = section ? nameOf(before) : "";
  const ends = section && before.matches("input[type=search]") ? [before.selectionStart, before.selectionEnd] : null;
  draw();
  if (!name || document.activeElement !== document.body) return;
  const after = [...document.querySelectorAll(`#${id} :is(a, button, input, select, summary, [tabindex])`)].find((node) => nameOf(node) === name);
  if (!after || after.disabled) return;
  after.focus({ preventScroll: true });
  if (ends) after.setSelectionRange(...ends);
}

// What has not changed since it was drawn stays as the reader left it.
const compareDrawn = new Map();

function compareIfChanged(id, parts, draw) {
  const text = JSON.stringify(parts);
  if (compareDrawn.get(id) === text && document.getElementById(id)) return;
  compareDrawn.set(id, text);
  compareKeepingFocus(id, draw);
}

function compareSvg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return node;
}

function compareRunUrl(run) {
  return apiUrl("run/" + encoded(run.id));
}

// As wide as the page gives room: a drawing that is stretched has letters too large.
function compareWidth(least) {
  return Math.max(least, document.getElementById("main").clientWidth - 90);
}

// A run's number, colour and name, the same wherever it is named.
function compareName(run, options) {
  return el("span", { class: "compare-name", "data-run": run.id, title: run.label },
    el("span", { class: "compare-number", "data-role": run.role, colour: colour(run.role) }, run.number),
    options && options.link ? el("a", { href: compareRunUrl(run) }, run.label) : el("span", { class: "label" }, run.label));
}
