// Draws the spans of the run as bars in lanes, and finds the bar of a span.
function barTrace(lane, base, bars, texts, look) {
  const { ink, truncated, shortest_s, broad_s } = look;
  // A line around a narrow bar, or a text in it, would hide it.
  const broad = bars.map((bar) => bar.seconds > broad_s && lane.lane !== "step" && lane.lane !== "phase");
  const scale = timeUnit().scale;
  const words = bars.map((bar, index) => (broad[index] ? barLabel(lane, bar, look.width_px * bar.seconds / look.seen_s) : ""));
  return {
    type: "bar", orientation: "h", name: lane.title, showlegend: false, base: bars.map((bar) => bar.start / scale), customdata: bars.map((bar) => bar.id || null),
    x: bars.map((bar) => Math.max(bar.seconds, shortest_s) / scale), y: bars.map((bar) => -(base + bar.row)), width: 0.78,
    hovertext: texts, hoverinfo: "text", text: words.map(literal), textposition: "inside",
    insidetextanchor: "start", textangle: 0, constraintext: "none", cliponaxis: true, insidetextfont: { size: 11, color: paper() },
    marker: { color: ink, line: { width: broad.map((is) => (is ? 1 : 0)), color: paper() },
      pattern: truncated ? { shape: "/", fillmode: "overlay", fgcolor: paper(), size: 7, solidity: 0.3 } : {} },
  };
}

// Many epochs have little room each, and what tells them apart is the number: cut, it would be another one.
function barLabel(lane, bar, width_px) {
  if (lane.lane !== "epoch") return bar.name;
  const label = width_px > 7 * bar.name.length + 6 ? bar.name : bar.name.replace(/^epoch (?=\d+$)/, "");
  return /^\d+$/.test(label) && width_px < 7 * label.length + 6 ? "" : label;
}

function barWords(bar) {
  return [
    literal(bar.name), `${duration(bar.start)} after start, ${bar.truncated ? "at least " : ""}${duration(bar.seconds)}`,
    bar.truncated ? "truncated: its end was never recorded" : "", bar.error ? "error: " + literal(bar.error) : "",
    bar.attempt ? "attempt " + bar.attempt : "", bar.rank ? "rank " + bar.rank : "",
    ...Object.entries(bar.attributes).slice(0, 8).map(([key, value]) => literal(`${key} = ${value}`)),
  ].filter(Boolean).join("<br>");
}

function timelineFigure(chart, place) {
  const traces = [];
  const ticks = { at: [], text: [] };
  const zoom = place.zoom ? place.zoom.x : null;
  const seen_s = zoom ? (zoom[1] - zoom[0]) * timeUnit().scale : data.elapsed_s;
  const layout = layoutOf("time", chart, false);
  // What the names of the lanes leave of the card.
  const width_px = Math.max(100, (place.plot.clientWidth || 1000) - 130);
  let base = 0;
  for (const lane of chart.lanes) {
    const bars = lane.bars;
    const ink = colour("lane-" + lane.lane);
    // One trace for each look: plotly takes one colour and one pattern a trace without complaint.
    for (const [error, truncated] of [[false, false], [false, true], [true, false], [true, true]]) {
      const mine = bars.filter((bar) => Boolean(bar.error) === error && Boolean(bar.truncated) === truncated);
      const look = { ink: error ? colour("error") : ink, truncated, shortest_s: seen_s / 700, broad_s: seen_s / 60, seen_s, width_px };
      if (mine.length) traces.push(barTrace(lane, base, mine, mine.map(barWords), look));
    }
    const chosen = spanView && bars.find((bar) => bar.id && bar.id === spanView.chosen);
    if (chosen) layout.shapes.push(outline(chosen, base, seen_s / 700));
    ticks.at.push(-(base + (lane.rows - 1) / 2));
    ticks.text.push(lane.title);
    base += lane.rows + 0.45;
  }
  layout.hovermode = "closest";
  layout.bargap = 0;
  layout.barmode = "overlay";
  layout.uniformtext = { minsize: 9, mode: "hide" };
  layout.yaxis = { ...layout.yaxis, tickmode: "array", tickvals: ticks.at, ticktext: ticks.text, showgrid: false, fixedrange: true,
    range: [-(base - 0.2), 0.75] };
  layout.xaxis.showgrid = true;
  layout.xaxis.range = zoom ? [...zoom] : [0, Math.max(data.elapsed_s, 1e-3) * 1.01 / timeUnit().scale];
  addMark(layout, "time");
  return { data: traces, layout };
}

function outline(bar, base, shortest_s) {
  const scale = timeUnit().scale;
  const ink = isDark() ? "#e8edf3" : "#131a24";
  return { type: "rect", name: "chosen", xref: "x", yref: "y", x0: bar.start / scale, x1: (bar.start + Math.max(bar.seconds, shortest_s)) / scale,
    y0: -(base + bar.row) - 0.46, y1: -(base + bar.row) + 0.46, line: { width: 2.4, color: ink }, fillcolor: "rgba(0,0,0,0)" };
}

// Made anew when the timeline was fetched again.
const barIndex = { timeline: null, bars: [], byId: new Map() };

function knownBars() {
  if (data.timeline && barIndex.timeline !== data.timeline) {
    barIndex.timeline = data.timeline;
    barIndex.bars = data.timeline.lanes.flatMap((lane) => lane.bars.map((bar) => Object.assign(bar, { lane: lane.lane })));
    barIndex.byId = new Map(barIndex.bars.map((bar) => [bar.id, bar]));
  }
  return barIndex;
}

function allBars() {
  return knownBars().bars;
}

function barOf(id) {
  return (id && knownBars().byId.get(id)) || null;
}

let timelinePlace = null;
let listedSpans = null;

function timelineSection() {
  const chart = data.timeline;
  const node = section("timeline", "Timeline", chart.seen, "Stages, epochs, evaluations, checkpoints and sampled steps by the host's clock. Drag to zoom, double-click to return; click a bar for what it tells.");
  if (!chart.lanes.length) { empty(node, data.reasons.timeline); return; }
  chart.kind = "timeline";
  const rows = chart.lanes.reduce((sum, lane) => sum + lane.rows + 0.45, 0);
  if (!timelinePlace) {
    const plot = el("div", { class: "plot", role: "img", "aria-label": "Timeline of the run; its spans are listed below" });
    timelinePlace = { chart, hidden: new Set(), zoom: zoomFromAddress("span_zoom"), plot, said: el("div", {}) };
    timelinePlace.node = el("div", { class: "card" }, plot, timelinePlace.said);
    timelinePlace.node.place = timelinePlace;
    sight.observe(timelinePlace.node);
  }
  timelinePlace.chart = chart;
  timelinePlace.plot.style.height = Math.round(60 + rows * 26) + "px";
  timelinePlace.said.replaceChildren(...timelineWords(chart));
  node.append(timelinePlace.node);
  if (!spanView) spanView = new SpanView();
  // A list that the reader has opened stays as it is.
  if (!listedSpans || !listedSpans.querySelector("details").open) listedSpans = spanList();
  node.append(spanView.node, listedSpans);
  spanView.show();
  redraw(timelinePlace);
}

function timelineWords(chart) {
  const left = chart.lanes.filter((lane) => lane.left_out).map((lane) => `${number(lane.left_out)} of ${lane.title.toLowerCase()}`);
  return [chart.truncated ? el("p", { class: "lead" }, `Hatched: ${number(chart.truncated)} truncated; the end was never recorded.`) : null,
    left.length ? el("p", { class: "lead" }, `Not drawn: ${left.join(", ")} (the shortest).`) : null, ...(chart.notes || []).map((note) => el("p", { class: "lead" }, note))].filter(Boolean);
}

const CLICKED_TWICE_MS = 1_000;

function barClicked(place, event) {
  const id = event.points && event.points[0] && event.points[0].customdata;
  if (!id) return;
  // Where drawing took long plotly takes the two of a double click for single ones; the browser does not.
  if (event.event && event.event.detail > 1) {
    if (place.clicked) { clickedTwice(place, true); unzoom(place); }
    return;
  }
  place.clicked = { now: Date.now(), before: spanView.chosen };
  spanView.choose(id);
}

// A double click shows the whole timeline; that its first click fell on a bar was not meant.
function clickedTwice(place, isSure) {
  const first = place.clicked;
  place.clicked = null;
  if (first && (isSure || Date.now() - first.now < CLICKED_TWICE_MS)) spanView.choose(first.before);
}
