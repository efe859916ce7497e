// Does by keyboard what dragging does to parallel coordinates: order, scale and brush of each axis, and the values as a table.
function compareChosen(within, brushes) {
  const runs = compareRuns();
  const shown = runs.filter((run) => !compare.hidden.has(run.id)).length;
  if (!brushes.size) return el("p", { class: "compare-words", role: "status" }, `${plural(shown, "run")} drawn; no axis is brushed.`);
  const ids = within.map((place) => runs[place].id);
  return el("div", { class: "compare-chosen" }, el("p", { class: "compare-words", role: "status" }, `${number(within.length)} of ${plural(shown, "run")} within the brushes: `, within.slice(0, 12).map((place) => compareName(runs[place], { link: true })), within.length > 12 ? " …" : null),
    el("div", { class: "buttons" },
      button("draw only these", "Hide the other runs in all plots", () => compareHide(runs.filter((run) => !ids.includes(run.id)).map((run) => run.id)), { disabled: !ids.length }),
      button("compare only these", "Take the other runs out of the comparison", () => { compareClearBrushes(); compareChoose(ids); }, { disabled: !ids.length })));
}

function compareAxisList(axes, brushes) {
  const isOpen = compareOpen.has("axes");
  const node = el("details", { class: "compare-axes", open: isOpen, ontoggle: (event) => compareRemember("axes", event.target.open) }, el("summary", {}, "Axes and brushes"),
    el("ol", {}, axes.map((column, index) => compareAxisRow(axes, column, index, brushes.get(column.key)))));
  return node;
}

// What was open stays open when the plot is drawn again.
const compareOpen = new Set();

function compareRemember(name, isOpen) {
  if (isOpen) compareOpen.add(name); else compareOpen.delete(name);
}

function compareAxisRow(axes, column, index, brush) {
  const words = compareColumnWords(column);
  const moved = (by) => { const order = axes.filter((other) => other !== column); order.splice(index + by, 0, column); compareSetAxes(order); };
  const isLog = compareIsLog(column, compareFlag("log." + column.key));
  const buttons = [button("◀", `Move ${words} to the left`, () => moved(-1), { disabled: index === 0, "aria-label": `Move ${words} to the left` }),
    button("▶", `Move ${words} to the right`, () => moved(1), { disabled: index === axes.length - 1, "aria-label": `Move ${words} to the right` }),
    button("log", `Logarithmic axis of ${words}`, () => { address.set({ ["log." + column.key]: isLog ? "0" : "1" }); compareParallel(); }, { "aria-pressed": String(isLog), disabled: !compareCanLog(column) }),
    button("×", `Take away the axis ${words}`, () => { address.set({ ["in." + column.key]: null }); compareSetAxes(axes.filter((other) => other !== column)); }, { "aria-label": `Take away the axis ${words}`, disabled: axes.length < 2 })];
  return el("li", { "data-axis": column.key }, el("span", { class: "label", title: words }, words), el("span", { class: "buttons" }, buttons), column.kind === "number" ? compareRangeInputs(column, brush) : compareNameInputs(column, brush));
}

function compareRangeInputs(column, brush) {
  const read = (node) => (node.value.trim() === "" || !Number.isFinite(Number(node.value)) ? null : Number(node.value));
  const input = (words, value) => el("input", { class: "search compare-end", type: "text", inputmode: "decimal", value: value === undefined || !Number.isFinite(value) ? "" : String(value), placeholder: words, "aria-label": `${compareColumnWords(column)} ${words}` });
  const [low, high] = [input("from", brush && brush.low), input("to", brush && brush.high)];
  const changed = () => {
    const [from, to] = [read(low), read(high)];
    compareSetBrush(column.key, from === null && to === null ? null : { low: from === null ? -Infinity : from, high: to === null ? Infinity : to });
  };
  low.addEventListener("change", changed);
  high.addEventListener("change", changed);
  return el("span", { class: "compare-range" }, low, high);
}

function compareNameInputs(column, brush) {
  const names = compareScale(column, false).names;
  return el("span", { class: "compare-range" }, names.slice(0, 24).map((name) => {
    const box = el("input", { type: "checkbox" });
    box.checked = !brush || brush.names.has(name);
    box.addEventListener("change", () => {
      const chosen = new Set(brush ? brush.names : names);
      if (box.checked) chosen.add(name); else chosen.delete(name);
      compareSetBrush(column.key, chosen.size === names.length || !chosen.size ? null : { names: chosen });
    });
    box.setAttribute("aria-label", `${compareColumnWords(column)}: ${name === null ? "not set" : name}`);
    return el("label", {}, box, name === null ? "not set" : name);
  }));
}

function compareParallelTable(axes, within) {
  const runs = compareRuns();
  const rows = within.slice(0, COMPARE_MOST_ROWS).map((place) => [compareName(runs[place], { link: true }), ...axes.map((column) => compareValueText(column, column.values[place]))]);
  return el("details", { open: compareOpen.has("table"), ontoggle: (event) => compareRemember("table", event.target.open) }, el("summary", {}, "The same as a table"),
    table(["Run", ...axes.map(compareColumnWords)], rows, { numeric: axes.map((column, place) => (column.kind === "number" ? place + 1 : -1)) }),
    within.length > rows.length ? el("p", { class: "lead" }, `${plural(within.length - rows.length, "more run")} not shown here.`) : null);
}
