// Writes numbers, durations and sizes for people, as view/text.py does on the terminal: a test compares them.

// Plotly reads a few tags in its texts; a name of the user is no markup.
function literal(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// Where the pointer rests plotly also fills in its own placeholders, and has little room.
function hovered(text) {
  return literal(Array.from(String(text)).slice(0, 60).join("")).replace(/%\{/g, "%&#123;");
}

function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return grouped(value);
  const rounded = Number(value.toPrecision(6));
  if (Math.abs(rounded) >= 1e-4 && Math.abs(rounded) < 1e6) return String(rounded);
  return value.toExponential(5).replace(/\.?0+e/, "e").replace(/e([+-])(\d)$/, "e$10$2");
}

// As toLocaleString("en-US") has it, whose first call costs as much as the drawing of a chart.
function grouped(whole) {
  return (Object.is(whole, -0) ? "-0" : String(whole)).replace(/\B(?=(\d{3})+$)/g, ",");
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0) return "-" + duration(-seconds);
  if (seconds === 0) return "0 ms";
  if (seconds < 0.9995e-6) return Number((seconds * 1e9).toPrecision(3)) + " ns";
  if (seconds < 0.9995e-3) return Number((seconds * 1e6).toPrecision(3)) + " µs";
  if (seconds < 0.9995) return Number((seconds * 1000).toPrecision(3)) + " ms";
  if (seconds < 59.95) return seconds.toFixed(1) + " s";
  const whole = Math.round(seconds);
  const two = (n) => String(n).padStart(2, "0");
  if (whole < 3600) return Math.floor(whole / 60) + " min " + two(whole % 60) + " s";
  if (whole < 172800) return Math.floor(whole / 3600) + " h " + two(Math.floor((whole % 3600) / 60)) + " min";
  return Math.floor(whole / 86400) + " d " + Math.floor((whole % 86400) / 3600) + " h";
}

function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1023.95 && unit < 4) { count /= 1024; unit += 1; }
  return (unit === 0 ? count : count.toFixed(1)) + " " + units[unit];
}

function plural(count, one, many) {
  return `${number(count)} ${count === 1 ? one : many || one + "s"}`;
}
