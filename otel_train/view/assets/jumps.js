// Leads from a record or a bar to its step in the charts, and from there to the records around it.
function restoreMark() {
  const [axis, text] = (address.get("mark") || "").split("~");
  const value = Number(text);
  view.mark = ["step", "epoch", "time"].includes(axis) && text !== "" && Number.isFinite(value) ? { axis, value } : null;
}

function setMark(axis, value, options) {
  view.mark = axis === null ? null : { axis, value };
  address.set({ mark: view.mark ? `${axis}~${value}` : null }, options);
  showMarkWords();
  redrawAll();
}

function showMarkWords() {
  document.querySelectorAll(".toolbar .marked").forEach((node) => node.replaceChildren(...markWords()));
}

function markText(mark) {
  return mark.axis === "time" ? `${duration(mark.value)} after start` : `${mark.axis} ${number(mark.value)}`;
}

function markWords() {
  if (!view.mark) return [];
  const time = converted(view.mark.value, view.mark.axis, "time");
  return [el("span", {}, "marked: " + markText(view.mark)),
    time === null ? null : button("records around", "Show the log records of that moment", () => showRecordsAround(time)),
    button("✕", "Remove the mark", () => setMark(null), { "aria-label": "Remove the mark" })].filter(Boolean);
}

function markStep(step) {
  showMark("step", step);
}

// The curves by that axis, with a line at the place.
function showMark(axis, value) {
  if (axis !== "time" && data.axes.includes(axis) && view.axis !== axis && view.axis !== "time") chooseAxis(axis);
  setMark(axis, value, { push: true });
  const curves = document.getElementById("curves");
  if (curves) goTo("curves");
}

// A button that leads to a step; without a step nothing.
function stepButton(step, text) {
  if (step === null || step === undefined) return null;
  return el("button", { type: "button", class: "jump", title: `Show step ${number(step)} in the curves`, onclick: (event) => { event.preventDefault(); event.stopPropagation(); markStep(step); } }, text || `step ${number(step)}`);
}

function showRecordsAround(elapsed_s) {
  if (!logView || !data.logs || !data.logs.rows.length) return;
  const column = data.logs.columns.indexOf("elapsed_s");
  const index = nearest(data.logs.rows.map((row) => row[column]), elapsed_s);
  if (index >= 0) logView.reveal(data.logs.rows[index], { push: true });
}
