// Zooms charts: one alone or all of an axis together; of a reduced line every point of the range is fetched.
// Of an axis of dates plotly tells places as texts, in UTC.
function momentOf(place) {
  return typeof place === "string" && Number.isNaN(Number(place)) ? Date.parse(place.trim().replace(" ", "T").replace(/(\.\d{3})\d+$/, "$1") + (place.includes(":") ? "Z" : "")) : Number(place);
}

function zoomed(place, change) {
  const from = change["xaxis.range[0]"];
  const y = change["yaxis.range[0]"] === undefined ? null : [change["yaxis.range[0]"], change["yaxis.range[1]"]];
  if (from === undefined && !y) return;
  const before = place.zoom;
  const x = from === undefined ? (before ? before.x : place.plot.layout.xaxis.range.map(momentOf)) : [momentOf(from), momentOf(change["xaxis.range[1]"])];
  const axis = axisOf(place.chart);
  if (view.linked && place.chart.kind !== "timeline") {
    view.range = { axis, x };
    place.zoom = y ? { axis, x, y } : null;
    for (const other of view.drawn.values()) if (other !== place && axisOf(other.chart) === axis && other.chart.kind !== "timeline") { other.zoom = null; rangeChanged(other); }
  } else {
    place.zoom = { axis, x, y };
  }
  rememberZoom(place);
  rangeChanged(place);
}

function unzoom(place) {
  const axis = axisOf(place.chart);
  place.zoom = null;
  if (view.linked && place.chart.kind !== "timeline") {
    view.range = null;
    for (const other of view.drawn.values()) if (axisOf(other.chart) === axis) { other.zoom = null; rangeChanged(other); }
  }
  rememberZoom(place);
  rangeChanged(place);
}

function rangeChanged(place) {
  if (!zoomRange(place, axisOf(place.chart))) place.finer = null;
  redraw(place);
  fetchFiner(place);
}

// The range of x that a chart is zoomed to, in the units of its axis; null where it is whole.
function zoomRange(place, axis) {
  if (place.zoom && place.zoom.axis === axis) return place.zoom.x;
  if (view.linked && view.range && view.range.axis === axis && place.chart.kind !== "timeline") return view.range.x;
  return null;
}

function applyZoom(place, figure, axis) {
  const range = zoomRange(place, axis);
  if (range) figure.layout.xaxis.range = [...range];
  if (place.zoom && place.zoom.axis === axis && place.zoom.y) Object.assign(figure.layout.yaxis, { range: [...place.zoom.y], autorange: false });
  return figure;
}

function setLinked(isLinked) {
  view.linked = isLinked;
  view.range = null;
  if (isLinked) {
    const first = [...view.drawn.values()].find((place) => place.zoom && place.chart.kind !== "timeline");
    if (first) view.range = { axis: first.zoom.axis, x: first.zoom.x };
  }
  for (const place of view.drawn.values()) { if (place.chart.kind !== "timeline") { place.zoom = null; rangeChanged(place); } }
  address.set({ linked: isLinked ? "1" : null, zoomed: null, zoom: view.range ? zoomText(view.range) : null });
}

function zoomText(zoom) {
  return [zoom.axis, ...zoom.x.map((value) => Number(Number(value).toPrecision(10)))].join("~");
}

function rememberZoom(place) {
  if (place.chart.kind === "timeline") { address.set({ span_zoom: place.zoom ? zoomText(place.zoom) : null }); return; }
  if (view.linked) address.set({ zoom: view.range ? zoomText(view.range) : null, zoomed: null });
  else address.set({ zoom: place.zoom ? zoomText(place.zoom) : null, zoomed: place.zoom ? place.chart.key : null });
}

function zoomFromAddress(key) {
  const [axis, from, to] = (address.get(key || "zoom") || "").split("~");
  const x = [Number(from), Number(to)];
  return axis && to !== undefined && x.every(Number.isFinite) ? { axis, x, y: null } : null;
}

// Only the page of a server can ask for more than the page holds: view.finer is its way to ask.
function fetchFiner(place) {
  clearTimeout(place.finerTimer);
  const axis = axisOf(place.chart);
  const range = zoomRange(place, axis);
  if (!range || !view.finer || place.chart.kind === "timeline") return;
  place.wantsFiner = !place.inSight;
  if (place.wantsFiner) return;
  const lines = chosenLines(place, axis).map(({ line }) => line).filter((line) => line.id && line.points && line.x[axis] && !place.hidden.has(line.label));
  if (!lines.length) return;
  const scale = axisScale(axis);
  place.finerTimer = setTimeout(async () => {
    const found = await Promise.allSettled(lines.map((line) => view.finer(line.id, axis, range[0] * scale, range[1] * scale)));
    if (zoomRange(place, axisOf(place.chart)) !== range) return;
    const made = new Map();
    found.forEach((one, index) => {
      // What the whole line had and a part may not have is said by absence.
      if (one.status === "fulfilled") made.set(lines[index].id, { low: undefined, high: undefined, points: undefined, marks: undefined, ...one.value });
    });
    if (!made.size) return;
    place.finer = { axis, lines: made };
    redraw(place);
  }, 150);
}
