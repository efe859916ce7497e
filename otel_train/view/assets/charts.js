// Draws charts with plotly when they are in sight, and again when something of them has changed.
const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const place = entry.target.place;
    place.inSight = entry.isIntersecting;
    if (!entry.isIntersecting) continue;
    if (!view.drawn.has(entry.target)) {
      view.drawn.set(entry.target, place);
      waiting.push(place);
      if (waiting.length === 1) setTimeout(drawNext, 0);
    } else if (place.isStale) {
      draw(place);
    }
    if (place.wantsFiner) fetchFiner(place);
  }
  forgetFar();
}, { rootMargin: "700px 0px" });

// One after the other, so that the first is seen before the last is drawn.
const waiting = [];

function drawNext() {
  const place = waiting.shift();
  // Before the drawing: a chart that cannot be drawn does not keep the others from it.
  if (waiting.length) setTimeout(drawNext, 0);
  if (!place || !view.drawn.has(place.node)) return;
  widths.observe(place.plot);
  if (place.inSight) draw(place); else place.isStale = true;
}

const widths = new ResizeObserver((entries) => {
  for (const entry of entries) if (entry.target.data && entry.contentRect.width) Plotly.Plots.resize(entry.target);
});

// A page of five hundred charts would hold all that were ever in sight.
const MOST_DRAWN = 90;

function forgetFar() {
  if (view.drawn.size <= MOST_DRAWN) return;
  for (const [node, place] of view.drawn) {
    if (view.drawn.size <= MOST_DRAWN) return;
    if (place.inSight) continue;
    widths.unobserve(place.plot);
    Plotly.purge(place.plot);
    place.listens = false;
    view.drawn.delete(node);
  }
}

// Plotly's script is large: on a server's page it comes while the first data are on their way.
function whenPlotly(action) {
  if (typeof Plotly !== "undefined") action();
  else document.getElementById("plotly").addEventListener("load", action, { once: true });
}

function draw(place) {
  if (typeof Plotly === "undefined") {
    if (!place.waits) whenPlotly(() => draw(place));
    place.waits = true;
    return;
  }
  place.isStale = false;
  const figure = figureOf(place);
  if (place.unit) place.unit.textContent = figure.words || "";
  Plotly.react(place.plot, figure.data, figure.layout, { displayModeBar: false, responsive: false, doubleClick: false });
  if (!place.listens) {
    place.listens = true;
    listen(place);
  }
  hideCursor(place);
  place.node.dataset.drawn = "yes";
  tellDrawn();
}

let tellDrawn = null;
const firstDrawing = new Promise((done) => { tellDrawn = done; });

function listen(place) {
  place.plot.on("plotly_relayout", (change) => zoomed(place, change));
  place.plot.on("plotly_doubleclick", () => {
    if (place.chart.kind === "timeline") clickedTwice(place);
    unzoom(place);
  });
  if (place.chart.kind === "timeline") place.plot.on("plotly_click", (event) => barClicked(place, event));
  else {
    place.plot.on("plotly_hover", (event) => moveCursor(place, event));
    place.plot.on("plotly_unhover", clearCursor);
  }
}

function redraw(place) {
  if (!view.drawn.has(place.node)) return;
  if (place.inSight) draw(place); else place.isStale = true;
}

// Those out of sight are drawn when they come into it.
function redrawAll() {
  for (const place of view.drawn.values()) redraw(place);
}

function drawForPrint() {
  document.querySelectorAll(".chart, #timeline .card").forEach((node) => {
    if (!node.place) return;
    if (!view.drawn.has(node)) view.drawn.set(node, node.place);
    draw(node.place);
  });
}
