// Draws the spans of the run as bars in lanes.
function barTrace(chart, lane, base, bars, texts, ink, truncated) {
  // A line around a narrow bar, or a text in it, would hide it.
  const broad = bars.map((bar) => bar.seconds > data.elapsed_s / 60 && lane.lane !== "step" && lane.lane !== "phase");
  const paper = isDark() ? "#151b23" : "#ffffff";
  return {
    type: "bar", orientation: "h", name: lane.title, showlegend: false, base: bars.map((bar) => bar.start / time.scale),
    x: bars.map((bar) => Math.max(bar.seconds, chart.shortest_s) / time.scale), y: bars.map((bar) => -(base + bar.row)), width: 0.78,
    hovertext: texts, hoverinfo: "text", text: bars.map((bar, index) => (broad[index] ? literal(bar.name) : "")), textposition: "inside",
    insidetextanchor: "start", textangle: 0, constraintext: "none", cliponaxis: true, insidetextfont: { size: 11, color: paper },
    marker: { color: ink, line: { width: broad.map((is) => (is ? 1 : 0)), color: paper },
      pattern: truncated ? { shape: "/", fillmode: "overlay", fgcolor: paper, size: 7, solidity: 0.3 } : {} },
  };
}

function timelineFigure(chart) {
  const traces = [];
  const ticks = { at: [], text: [] };
  let base = 0;
  for (const lane of chart.lanes) {
    const bars = lane.bars;
    const ink = colour("lane-" + lane.lane);
    const texts = bars.map((bar) => [
      literal(bar.name), `${duration(bar.start)} after start, ${bar.truncated ? "at least " : ""}${duration(bar.seconds)}`,
      bar.truncated ? "truncated: its end was never recorded" : "", bar.error ? "error: " + literal(bar.error) : "",
      bar.attempt ? "attempt " + bar.attempt : "", bar.rank ? "rank " + bar.rank : "",
      ...Object.entries(bar.attributes).slice(0, 8).map(([key, value]) => literal(`${key} = ${value}`)),
    ].filter(Boolean).join("<br>"));
    // One trace for each look: plotly takes one colour and one pattern a trace without complaint.
    for (const [error, truncated] of [[false, false], [false, true], [true, false], [true, true]]) {
      const mine = bars.map((bar, index) => index).filter((index) => Boolean(bars[index].error) === error && Boolean(bars[index].truncated) === truncated);
      if (mine.length) traces.push(barTrace(chart, lane, base, mine.map((index) => bars[index]), mine.map((index) => texts[index]), error ? colour("error") : ink, truncated));
    }
    ticks.at.push(-(base + (lane.rows - 1) / 2));
    ticks.text.push(lane.title);
    base += lane.rows + 0.45;
  }
  const layout = layoutOf("time", chart);
  layout.hovermode = "closest";
  layout.bargap = 0;
  layout.barmode = "overlay";
  layout.uniformtext = { minsize: 9, mode: "hide" };
  layout.yaxis = { ...layout.yaxis, tickmode: "array", tickvals: ticks.at, ticktext: ticks.text, showgrid: false, fixedrange: true,
    range: [-(base - 0.2), 0.75] };
  layout.xaxis.showgrid = true;
  layout.xaxis.range = [0, Math.max(data.elapsed_s, 1e-3) * 1.01 / time.scale];
  return { data: traces, layout };
}

function timelineSection() {
  const chart = data.timeline;
  const node = section("timeline", "Timeline", chart.seen, "Stages, epochs, evaluations, checkpoints and sampled steps by the host's clock. Drag to zoom, double-click to return.");
  if (!chart.lanes.length) { empty(node, data.reasons.timeline); return; }
  chart.kind = "timeline";
  chart.shortest_s = data.elapsed_s / 700;
  const rows = chart.lanes.reduce((sum, lane) => sum + lane.rows + 0.45, 0);
  const place = { chart, hidden: new Set(), plot: el("div", { class: "plot", role: "img", "aria-label": "Timeline of the run" }) };
  place.plot.style.height = Math.round(60 + rows * 26) + "px";
  place.node = el("div", { class: "card" }, place.plot);
  place.node.place = place;
  const left = chart.lanes.filter((lane) => lane.left_out).map((lane) => `${number(lane.left_out)} of ${lane.title.toLowerCase()}`);
  if (chart.truncated) place.node.append(el("p", { class: "lead" }, `Hatched: ${number(chart.truncated)} truncated; the end was never recorded.`));
  if (left.length) place.node.append(el("p", { class: "lead" }, `Not drawn: ${left.join(", ")} (the shortest).`));
  node.append(place.node);
  sight.observe(place.node);
}
