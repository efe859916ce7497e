// Writes the sections of what was seen inside training, and draws layers as maps and distributions over time.
const MAP_COLOURS = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const colourScale = MAP_COLOURS.map((ink, index) => [index / (MAP_COLOURS.length - 1), ink]);

function insideSections() {
  for (const { id, title, lead } of data.inside) {
    const charts = data.charts[id] || [];
    const node = section(id, title, charts.length || null, lead);
    if (id === "speed" && Object.keys(data.time_by_state).length) node.append(timeByState());
    if (id === "ranks" && data.ranks.length) node.append(el("div", { class: "card ranks-table" }, rankTable()));
    for (const event of data.happenings[id] || []) node.append(happening(event));
    if (id === "memory" && data.memory_facts.length) node.append(el("div", { class: "card" }, factList(data.memory_facts)));
    chartGrid(node, charts);
    if (id === "model") node.append(...data.distributions.map(distributionCard));
  }
}

function timeByState() {
  const roles = { productive: "series-2", data: "series-1", evaluation: "series-0", checkpoint: "series-5", "start-up": "series-4", idle: "rest", lost: "error" };
  const parts = Object.entries(data.time_by_state);
  const lacking = data.time_not_counted;
  if (!lacking) return shareBar("Where the time went", parts, (name) => roles[name] || "series-3");
  const goesOn = data.status.state === "running";
  const missing = goesOn ? "not counted yet" : "not counted";
  const bar = shareBar("Where the time went", [...parts, [missing, lacking.seconds]], (name) => (name === missing ? "uncounted" : roles[name] || "series-3"));
  bar.append(el("p", { class: "lead" }, `As of ${duration(lacking.whole_s - lacking.seconds)} of ${duration(lacking.whole_s)}: the count is written with the heartbeat${goesOn ? "" : ", and the end wrote none"}.`));
  return bar;
}

function rankTable() {
  const cells = data.ranks.map((row) => row.map((cell) => (cell && cell.pill ? el("span", { class: "pill " + cell.pill }, cell.pill) : cell === null ? "" : cell)));
  return table(["Rank", "Host", "State", "Step", "Last sign of life (UTC)", "Step time", "Own work", "Score", "What happened"], cells, { numeric: [0, 3, 5, 6, 7] });
}

function happening(event) {
  return el("div", { class: "card happening " + event.severity },
    el("p", {}, el("b", {}, event.text)), el("p", { class: "lead" }, event.event + " · " + event.place, stepLink(event.place)),
    event.folded.map(([title, content]) => el("details", {}, el("summary", {}, title), el("pre", {}, content))),
    event.pairs.length ? el("details", {}, el("summary", {}, "Details"), pairs(event.pairs)) : null);
}

function stepLink(place) {
  const step = /(?:^| )step (\d+)/.exec(place);
  return step ? [" · ", stepButton(Number(step[1]), "show it in the curves")] : null;
}

// A row for each layer, a column for each sampling.
function mapFigure(chart, axis) {
  const x = placesOf(chart, axis);
  const cells = chart.log ? chart.cells.map((row) => row.map((v) => (v === null || v <= 0 ? null : Math.log10(v)))) : chart.cells;
  const names = chart.layers.map((name) => literal(name));
  const text = chart.log ? "%{customdata:.3~g}" : "%{z:.3~g}";
  return { data: [{ type: "heatmap", x, y: names, z: cells, customdata: chart.cells, colorscale: colourScale, hoverongaps: false,
    zmin: chart.low, zmax: chart.high,
    colorbar: { thickness: 9, outlinewidth: 0, tickfont: { size: 10 }, ...(chart.log ? { tickprefix: "10<sup>", ticksuffix: "</sup>", tickformat: "d", dtick: 1 } : {}) },
    hovertemplate: "%{y}<br>" + axis + " %{x}<br>" + text + "<extra></extra>" }] };
}

function decoded(layer) {
  const bytes = Uint8Array.from(atob(layer.cells), (c) => c.charCodeAt(0));
  const columns = bytes.length / layer.rows;
  const z = [];
  for (let row = 0; row < layer.rows; row += 1) {
    const line = [];
    for (let column = 0; column < columns; column += 1) {
      const value = bytes[column * layer.rows + row] / 255;
      line.push(value ? value : null);
    }
    z.push(line);
  }
  return z;
}

function distributionFigure(chart, axis) {
  const layer = chart.layers[chart.chosen];
  const step = (layer.high - layer.low) / layer.rows;
  const y = Array.from({ length: layer.rows }, (_, row) => layer.low + (row + 0.5) * step);
  const z = decoded(layer);
  const shares = z.map((row) => row.map((value) => (value === null ? 0 : 100 * value * value * layer.greatest)));
  const value = chart.log ? "10<sup>%{y:.2f}</sup>" : "%{y:.3~g}";
  const figure = { data: [{ type: "heatmap", x: placesOf(layer, axis), y, z, customdata: shares, colorscale: colourScale, zmin: 0, zmax: 1, showscale: false, hoverongaps: false,
    hovertemplate: axis + " %{x}<br>about " + value + ": %{customdata:.2~f} %<extra></extra>" }], layout: layoutOf(axis, chart, false), words: chart.unit };
  figure.layout.yaxis.showgrid = false;
  figure.layout.yaxis.type = "linear";
  if (chart.log) Object.assign(figure.layout.yaxis, { tickprefix: "10<sup>", ticksuffix: "</sup>" });
  return figure;
}

function distributionCard(group) {
  const chart = { key: "distributions/" + group.title, title: group.title + " over time", unit: group.log ? "absolute value; exact zeros are left out" : "value", kind: "distribution", log: group.log,
    layers: group.layers, chosen: 0, lines: [], notes: [], note: "brighter: more of the values; a column is one sampling, of many several" };
  const before = cards.get(chart.key);
  if (before) chart.chosen = Math.min(before.place.chart.chosen, group.layers.length - 1);
  const node = chartCard(chart);
  if (group.layers.length > 1) {
    const choice = el("select", { class: "search", "aria-label": "Layer", onchange: (event) => { chart.chosen = Number(event.target.value); redraw(node.place); } },
      group.layers.map((layer, index) => el("option", { value: index, selected: index === chart.chosen }, layer.name)));
    node.place.chips.append(choice);
  }
  node.classList.add("distribution");
  return node;
}
