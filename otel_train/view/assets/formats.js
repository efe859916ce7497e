// Writes numbers, durations and sizes for people.

// Plotly reads a few tags in its texts; a name of the user is no markup.
function literal(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(4).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(6)));
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0) return "-" + duration(-seconds);
  if (seconds < 1e-3) return number(seconds * 1e6) + " µs";
  if (seconds < 1) return Number((seconds * 1000).toPrecision(3)) + " ms";
  if (seconds < 60) return Number(seconds.toPrecision(3)) + " s";
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
