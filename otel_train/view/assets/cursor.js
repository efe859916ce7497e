// Shows the place under the pointer in all charts of the same axis: a line, and the values nearest to it.
let cursorFrame = 0;

function moveCursor(place, event) {
  // The place of the point, not of the pointer: plotly tells nothing of a pointer that moves on beside the same point.
  let x = event.points && event.points.length ? event.points[0].x : event.xvals && event.xvals[0];
  if (typeof x === "string") x = Date.parse(x.replace(" ", "T") + "Z");
  const axis = axisOf(place.chart);
  if (typeof x !== "number") return;
  cancelAnimationFrame(cursorFrame);
  cursorFrame = requestAnimationFrame(() => {
    for (const other of view.drawn.values()) {
      if (other === place || !other.inSight || other.chart.kind === "timeline" || axisOf(other.chart) !== axis) continue;
      showCursor(other, axis, x);
    }
  });
}

function clearCursor() {
  cancelAnimationFrame(cursorFrame);
  for (const place of view.drawn.values()) hideCursor(place);
}

function hideCursor(place) {
  if (place.cursor) place.cursor.hidden = true;
}

function showCursor(place, axis, x) {
  const full = place.plot._fullLayout;
  if (!full || !full.xaxis) return;
  const { xaxis, yaxis } = full;
  const at = xaxis.type === "date" ? xaxis.d2p(x) : xaxis.l2p(x);
  if (at < 0 || at > xaxis._length) { hideCursor(place); return; }
  if (!place.cursor) {
    place.cursor = el("div", { class: "cursor", "aria-hidden": "true" }, el("div", { class: "values" }));
    place.plot.append(place.cursor);
  }
  if (!place.cursor.isConnected) place.plot.append(place.cursor);
  place.cursor.hidden = false;
  place.cursor.style.left = xaxis._offset + at + "px";
  place.cursor.style.top = yaxis._offset + "px";
  place.cursor.style.height = yaxis._length + "px";
  place.cursor.classList.toggle("left", at > xaxis._length / 2);
  place.cursor.firstChild.replaceChildren(...valuesAt(place, axis, x));
}

const MOST_CURSOR_VALUES = 8;

// What is drawn, at the place of each line that is nearest to the pointer.
function valuesAt(place, axis, x) {
  const rows = [];
  for (const trace of place.plot.data) {
    if (trace.meta !== "line" && trace.meta !== "smoothed") continue;
    if (trace.visible === false) continue;
    const index = nearest(trace.x, x);
    if (index < 0) continue;
    const value = trace.y[index];
    rows.push(el("div", {}, el("span", { class: "dot", colour: trace.line.color }), value === null || value === undefined ? "—" : Number(value.toPrecision(5)).toString()));
    if (rows.length === MOST_CURSOR_VALUES) break;
  }
  return rows;
}
