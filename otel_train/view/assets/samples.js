// Writes the section of checked samples: charts, then the first and the newest check of each split side by side.
function samplesSection() {
  const samples = data.samples;
  const node = section("samples", "Samples", samples.charts.length, "What run.check_samples found in batches, and some of their samples: those with faults first.");
  chartGrid(node, samples.charts, samples.splits.length ? null : samples.empty);
  if (samples.no_files) node.append(el("p", { class: "lead" }, samples.no_files));
  for (const split of samples.splits) {
    node.append(el("h3", { class: "split" }, dot(split.title in data.palette ? split.title : "value"), ` ${split.title}`,
      el("span", { class: "unit" }, ` ${number(split.kept)} ${split.kept === 1 ? "check" : "checks"} kept`)));
    node.append(el("div", { class: "two" }, split.checks.map(sampleCheck)));
  }
}

function sampleCheck(check) {
  const card = el("div", { class: "card" }, el("h3", {}, check.title));
  if (check.table) card.append(table(check.table.head, check.table.rows, { numeric: [0] }));
  if (check.samples.length) card.append(el("div", { class: "samples" }, check.samples.map(sampleFigure)));
  if (check.left_out) card.append(el("p", { class: "lead" }, `${number(check.left_out)} more are in the run's folder.`));
  card.append(el("dl", { class: "facts" }, check.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
  return card;
}

function sampleFigure(sample) {
  const figure = el("figure", { class: sample.picture ? "picture" : "words" },
    sample.picture ? el("img", { src: sample.picture, alt: `sample, ${sample.caption}`, title: sample.size, class: sample.coarse ? "coarse" : null }) : null,
    sample.text ? el("pre", {}, sample.text) : null, sample.missing ? el("p", { class: "empty" }, sample.missing) : null);
  figure.append(el("figcaption", {}, sample.caption, sample.faults.map((fault) => el("span", { class: "fault" }, fault))));
  return figure;
}
