// Chooses the columns of the runs table: facts of the run, values of metrics, keys of the configuration.
const RUNS_CHOICES_SHOWN = 150;
const RUNS_GROUPS = [["run", "Run"], ["metric", "Metrics"], ["config", "Configuration"]];

function runsColumnsDialog(on) {
  const input = el("input", { type: "search", class: "search", placeholder: "Search columns", "aria-label": "Search columns" });
  const lists = el("div", { class: "runs-choices" });
  const shown = el("ol", { class: "runs-order", "aria-label": "Columns shown" });
  const dialog = el("dialog", { class: "runs-columns", "aria-label": "Columns" },
    el("header", {}, el("h2", {}, "Columns"), el("button", { type: "button", class: "quiet", onclick: () => on.change(null) }, "Back to the usual"),
      el("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Close")),
    el("div", { class: "runs-columns-body" }, el("div", {}, input, lists), el("div", {}, el("h3", {}, "Shown, in this order"), shown)));
  let available = [];
  let chosen = [];
  let named = [];
  input.addEventListener("input", draw);
  // A click beside the dialog closes it.
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  function set(ids, focus) {
    on.change(ids);
    if (focus) { const again = dialog.querySelector(focus); if (again) again.focus(); }
  }

  function toggle(id, value) {
    set(value ? [...chosen, id] : chosen.filter((other) => other !== id));
  }

  function move(id, by) {
    const place = chosen.indexOf(id);
    const ids = chosen.filter((other) => other !== id);
    ids.splice(Math.max(0, Math.min(ids.length, place + by)), 0, id);
    set(ids, `[data-move="${CSS.escape((by < 0 ? "-" : "+") + id)}"]`);
  }

  function choice(id, label, name) {
    return el("label", {}, el("input", { type: "checkbox", "data-choice": id, "aria-label": name, checked: chosen.includes(id), onclick: (event) => toggle(id, event.target.checked) }), label);
  }

  function metricRows(columns) {
    const byKey = new Map();
    for (const column of columns) byKey.set(column.key, [...(byKey.get(column.key) || []), column]);
    return [...byKey].map(([key, parts]) => el("div", { class: "runs-metric" }, el("span", { class: "key", title: key }, key),
      parts.map((column) => choice(column.id, column.part || "value", column.title))));
  }

  function draw() {
    const text = input.value.trim().toLowerCase();
    const focused = document.activeElement && lists.contains(document.activeElement) ? document.activeElement.dataset.choice : null;
    lists.replaceChildren(...RUNS_GROUPS.flatMap(([group, title]) => {
      const found = available.filter((column) => column.group === group && column.id !== "name" && (!text || column.title.toLowerCase().includes(text) || column.id.toLowerCase().includes(text)));
      if (!found.length) return [];
      const some = found.slice(0, RUNS_CHOICES_SHOWN);
      return [el("fieldset", {}, el("legend", {}, `${title} (${number(found.length)})`),
        group === "metric" ? metricRows(some) : some.map((column) => choice(column.id, column.title, column.title)),
        found.length > some.length ? el("p", { class: "lead" }, `and ${number(found.length - some.length)} more: search for them`) : null)];
    }));
    if (!lists.childElementCount) empty(lists, available.length ? "No column is named like that." : "There are no runs yet.");
    if (focused) for (const box of lists.querySelectorAll("input")) if (box.dataset.choice === focused) box.focus();
    const titles = new Map([...named, ...available].map((column) => [column.id, column.title]));
    shown.replaceChildren(...chosen.map((id) => el("li", {}, el("span", { class: "key", title: id }, titles.get(id) || id),
      id === "name" ? null : [
        el("button", { type: "button", class: "quiet", "data-move": "-" + id, "aria-label": `Move ${titles.get(id) || id} to the left`, onclick: () => move(id, -1) }, "↑"),
        el("button", { type: "button", class: "quiet", "data-move": "+" + id, "aria-label": `Move ${titles.get(id) || id} to the right`, onclick: () => move(id, 1) }, "↓"),
        el("button", { type: "button", class: "quiet", "aria-label": `Take ${titles.get(id) || id} out`, onclick: () => toggle(id, false) }, "×")])));
  }

  return {
    node: dialog,
    open: () => { input.value = ""; draw(); dialog.showModal(); input.focus(); },
    // Columns of an address need not be among those that there are to choose.
    show: (columns, shownNow) => { available = columns; chosen = shownNow.map((column) => column.id); named = shownNow; if (dialog.open) draw(); },
  };
}

// The reader's columns of each project, on this machine.
const runsMemory = {
  key: (project) => "otel-train.runs.columns." + project,
  get: (project) => {
    try {
      const ids = JSON.parse(localStorage.getItem(runsMemory.key(project)) || "null");
      return Array.isArray(ids) && ids.every((id) => typeof id === "string") ? ids : null;
    } catch (fault) { return null; }
  },
  set: (project, ids) => {
    try {
      if (ids === null) localStorage.removeItem(runsMemory.key(project));
      else localStorage.setItem(runsMemory.key(project), JSON.stringify(ids));
    } catch (fault) { /* A page in private mode remembers nothing. */ }
  },
  selection: () => {
    try {
      const ids = JSON.parse(sessionStorage.getItem("otel-train.runs.selected") || "[]");
      return Array.isArray(ids) ? ids.filter((id) => typeof id === "string") : [];
    } catch (fault) { return []; }
  },
  select: (ids) => {
    try { sessionStorage.setItem("otel-train.runs.selected", JSON.stringify(ids)); } catch (fault) { /* as above */ }
  },
};
