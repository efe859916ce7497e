// Smooths a line by an exponential moving average that starts without bias, each stretch between gaps by itself.

// With weight w: s_n = w s_(n-1) + (1 - w) y_n, s_0 = 0, shown is s_n / (1 - w^n), so that the first values are not
// drawn to zero: the correction of Adam (Kingma and Ba 2015, section 3) and that of TensorBoard's slider. After a gap
// or a value that is not finite, n begins anew, so no value tells of what lies beyond the gap.
function smoothed(values, weight) {
  if (!(weight > 0)) return values;
  let average = 0;
  let remaining = 1;
  return values.map((value) => {
    if (value === null || value === undefined || !Number.isFinite(value)) {
      average = 0;
      remaining = 1;
      return null;
    }
    average = weight * average + (1 - weight) * value;
    remaining *= weight;
    return average / (1 - remaining);
  });
}
