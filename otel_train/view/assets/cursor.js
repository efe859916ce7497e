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
  place.cursor.firstChild.replaceChildren(...valuesAt(place, axis, x));
  settleValues(place, at);
}

const MOST_CURSOR_VALUES = 8;

function cursorTraces(place) {
  return place.plot.data.filter((trace) => (trace.meta === "line" || trace.meta === "smoothed") && trace.visible !== false);
}

// What is drawn, at the place of each line that is nearest to the pointer; where that is another place, it is named.
function valuesAt(place, axis, x) {
  const rows = [];
  const traces = cursorTraces(place);
  const { xaxis } = place.plot._fullLayout;
  for (const trace of traces) {
    const index = nearest(trace.x, x);
    if (index < 0) continue;
    const value = trace.y[index];
    const line = place.chart.lines[Number(trace.legendgroup)];
    const name = traces.length > 1 && line ? line.label.slice(0, 24) + " " : "";
    const own = isSamePlace(trace.x[index], x, axis, xaxis) ? "" : ` (${cursorPlace(trace.x[index], axis, place.chart)})`;
    rows.push(el("div", {}, el("span", { class: "dot", colour: trace.line.color }), name + (value === null || value === undefined ? "—" : Number(value.toPrecision(5)).toString()) + own));
    if (rows.length === MOST_CURSOR_VALUES) break;
  }
  return rows;
}

// Steps and epochs are the same or not; of two times those that the eye cannot tell apart are.
function isSamePlace(own, x, axis, xaxis) {
  if (own === x) return true;
  return (isTimeAxis(axis) || axis === "clock") && Math.abs(xaxis.d2p(own) - xaxis.d2p(x)) <= 3;
}

function cursorPlace(x, axis, chart) {
  if (axis === "clock") return new Date(x).toISOString().slice(11, 19) + " UTC";
  return isTimeAxis(axis) ? duration(x * axisScale(axis)) : `${axis === "step" ? chart.axis || "step" : axis} ${number(x)}`;
}

// The values stand in that corner beside the line where they cover the least of the curves.
function settleValues(place, at) {
  const { xaxis, yaxis } = place.plot._fullLayout;
  const box = place.cursor.firstChild;
  const [width, height] = [box.offsetWidth + 6, box.offsetHeight];
  const corners = [];
  for (const isLow of [false, true]) {
    for (const isLeft of at > xaxis._length / 2 ? [true, false] : [false, true]) {
      const from = isLeft ? at - width : at;
      if (from < 0 || from + width > xaxis._length) continue;
      const top = isLow ? yaxis._length - height : 0;
      corners.push({ isLow, isLeft, covered: coveredPoints(place, from, from + width, top, top + height) });
    }
  }
  const best = corners.reduce((least, corner) => (least && least.covered <= corner.covered ? least : corner), null) || { isLow: false, isLeft: at > xaxis._length / 2 };
  place.cursor.classList.toggle("left", best.isLeft);
  place.cursor.classList.toggle("low", best.isLow);
}

const CURSOR_SAMPLES = 12;

// How many of some places across a box have a line in it; between two points a line is straight.
function coveredPoints(place, from, until, top, bottom) {
  const { xaxis } = place.plot._fullLayout;
  let covered = 0;
  for (const trace of cursorTraces(place)) {
    for (let sample = 0; sample <= CURSOR_SAMPLES; sample += 1) {
      const height = heightAt(place, trace, xaxis.p2l(from + ((until - from) * sample) / CURSOR_SAMPLES));
      if (height >= top && height <= bottom) covered += 1;
    }
  }
  return covered;
}

// Where a line is drawn at a place, in points of the screen from the top of the plot; NaN where it is not.
function heightAt(place, trace, x) {
  const { yaxis } = place.plot._fullLayout;
  let [low, high] = [0, trace.x.length - 1];
  if (high < 0 || x < trace.x[low] || x > trace.x[high]) return NaN;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (trace.x[middle] <= x) low = middle; else high = middle;
  }
  const [before, after] = [yaxis.d2p(trace.y[low]), yaxis.d2p(trace.y[high])];
  const width = trace.x[high] - trace.x[low];
  return width > 0 ? before + ((after - before) * (x - trace.x[low])) / width : before;
}
