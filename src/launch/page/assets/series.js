/* series.js - numbers over steps, in bounded memory: when there are too many buckets, each takes twice
 * as many steps. All series that have the same width have the same buckets, so workers can be compared. */

const BUCKETS_MAX = 1500;

class Series {
  constructor() { this.width = 1; this.keys = []; this.sums = []; this.counts = []; this.times = []; }

  add(step, time, value) {
    if (!isNumber(step)) return;
    if (!isNumber(value)) { /* the feed says null where a worker reported NaN or infinity */
      if (this.brokenSince === undefined) this.brokenSince = step;
      this.last = NaN; this.lastStep = step;
      return;
    }
    const key = Math.floor(step / this.width);
    let at = this.keys.length - 1;
    while (at >= 0 && this.keys[at] > key) at--; /* mostly the last one */
    if (at >= 0 && this.keys[at] === key) {
      this.sums[at] += value; this.counts[at]++; this.times[at] = time;
    } else {
      this.keys.splice(at + 1, 0, key); this.sums.splice(at + 1, 0, value);
      this.counts.splice(at + 1, 0, 1); this.times.splice(at + 1, 0, time);
    }
    this.last = value; this.lastStep = step; this.brokenSince = undefined;
    while (this.keys.length > BUCKETS_MAX) this.widen();
  }

  widen() {
    const { keys, sums, counts, times } = this;
    let used = 0;
    this.width *= 2;
    for (let i = 0; i < keys.length; i++) {
      const key = Math.floor(keys[i] / 2);
      if (used > 0 && keys[used - 1] === key) {
        sums[used - 1] += sums[i]; counts[used - 1] += counts[i]; times[used - 1] = times[i];
      } else {
        keys[used] = key; sums[used] = sums[i]; counts[used] = counts[i]; times[used] = times[i]; used++;
      }
    }
    keys.length = sums.length = counts.length = times.length = used;
  }
}

/* All workers of one scalar, brought to the same buckets: {x, times, rows}, a row for each worker with
 * null where it said nothing. */
function align(workers) {
  const width = Math.max(...workers.map((series) => series.width));
  const places = new Map();
  for (const series of workers) {
    for (let i = 0; i < series.keys.length; i++) {
      const key = Math.floor((series.keys[i] * series.width) / width);
      if (!places.has(key)) places.set(key, series.times[i]);
    }
  }
  const keys = Float64Array.from(places.keys()).sort();
  const index = new Map();
  keys.forEach((key, i) => index.set(key, i));
  const rows = workers.map((series) => {
    const sums = new Array(keys.length).fill(null);
    const counts = new Uint32Array(keys.length);
    for (let i = 0; i < series.keys.length; i++) {
      const at = index.get(Math.floor((series.keys[i] * series.width) / width));
      sums[at] += series.sums[i]; counts[at] += series.counts[i];
    }
    return sums.map((sum, i) => (sum === null ? null : sum / counts[i]));
  });
  return { x: Array.from(keys, (key) => key * width), times: Array.from(keys, (key) => places.get(key) / 1000), rows };
}

/* The newest number of a scalar, over its workers: {text, more, broken}. One worker without a number is enough to say so. */
function newest(byWorker) {
  const broken = [...byWorker].filter(([, series]) => series.brokenSince !== undefined).sort((a, b) => a[1].brokenSince - b[1].brokenSince);
  if (broken.length > 0) {
    const who = broken.length > 1 ? `${broken.length} workers, first worker ${broken[0][0]}` : `worker ${broken[0][0]}`;
    return { text: NO_NUMBER, more: `since step ${formatNumber(broken[0][1].brokenSince)} (${who})`, broken: true };
  }
  const last = [...byWorker.values()].map((series) => series.last).filter(isNumber);
  return { text: formatNumber(last.reduce((sum, value) => sum + value, 0) / last.length), more: "", broken: false };
}

/* Mean, lowest and highest of all rows. */
function spread(rows, count) {
  const mean = new Array(count).fill(null), low = new Array(count).fill(null), high = new Array(count).fill(null);
  for (let i = 0; i < count; i++) {
    let sum = 0, known = 0;
    for (const row of rows) {
      const value = row[i];
      if (value === null) continue;
      sum += value; known++;
      if (low[i] === null || value < low[i]) low[i] = value;
      if (high[i] === null || value > high[i]) high[i] = value;
    }
    if (known > 0) mean[i] = sum / known;
  }
  return { mean, low, high };
}

/* An exponential average, free of the pull towards its first value. */
function smooth(row, weight) {
  if (!(weight > 0)) return row;
  let sum = 0, norm = 0;
  return row.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}
