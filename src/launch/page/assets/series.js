/* series.js - numbers over steps, in bounded memory: when there are too many buckets, each takes twice
 * as many steps. A bucket knows the mean of its steps: programs count them by tens, or as they like. */

const BUCKETS_MAX = 1500;
const STRIDES_LOOKED_AT = 32;
const STRIDES_ENOUGH = 4;

class Series {
  constructor() { this.width = 1; this.keys = []; this.steps = []; this.sums = []; this.counts = []; this.times = []; }

  stepAt(i) { return this.steps[i] / this.counts[i]; }

  /* How far its buckets are from each other: the median of some of them, for a job that began again jumps. A few tell nothing. */
  stride() {
    const last = this.keys.length - 1, apart = Math.max(1, Math.floor(last / STRIDES_LOOKED_AT)), found = [];
    if (last < STRIDES_ENOUGH) return 0;
    for (let i = last; i > 0; i -= apart) found.push(this.stepAt(i) - this.stepAt(i - 1));
    return found.sort((a, b) => a - b)[found.length - 1 >> 1];
  }

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
      this.steps[at] += step; this.sums[at] += value; this.counts[at]++; this.times[at] = time;
    } else {
      this.keys.splice(at + 1, 0, key); this.steps.splice(at + 1, 0, step); this.sums.splice(at + 1, 0, value);
      this.counts.splice(at + 1, 0, 1); this.times.splice(at + 1, 0, time);
    }
    this.last = value; this.lastStep = step; this.brokenSince = undefined;
    while (this.keys.length > BUCKETS_MAX) this.widen();
  }

  widen() {
    const { keys, steps, sums, counts, times } = this;
    let used = 0;
    this.width *= 2;
    for (let i = 0; i < keys.length; i++) {
      const key = Math.floor(keys[i] / 2);
      if (used > 0 && keys[used - 1] === key) {
        steps[used - 1] += steps[i]; sums[used - 1] += sums[i]; counts[used - 1] += counts[i]; times[used - 1] = times[i];
      } else {
        keys[used] = key; steps[used] = steps[i]; sums[used] = sums[i]; counts[used] = counts[i]; times[used] = times[i]; used++;
      }
    }
    keys.length = steps.length = sums.length = counts.length = times.length = used;
  }
}

/* All workers of one scalar, brought to the same buckets: {x, times, rows}, a row for each worker with
 * null where it said nothing. Buckets to compare workers by are as wide as the steps are apart at which the
 * one that says least often does: else each would have buckets of its own where they do not say it at the
 * same steps. */
function align(workers, compare) {
  const width = Math.max(...workers.map((series) => Math.max(series.width, compare ? series.stride() : 0)));
  const places = new Map(); /* key -> [sum of steps, count, time] */
  const keyOf = (series, i) => Math.floor(series.stepAt(i) / width);
  for (const series of workers) {
    for (let i = 0; i < series.keys.length; i++) {
      const key = keyOf(series, i), place = places.get(key);
      if (place) { place[0] += series.steps[i]; place[1] += series.counts[i]; } else places.set(key, [series.steps[i], series.counts[i], series.times[i]]);
    }
  }
  const keys = Float64Array.from(places.keys()).sort();
  const index = new Map();
  keys.forEach((key, i) => index.set(key, i));
  const rows = workers.map((series) => {
    const sums = new Array(keys.length).fill(null);
    const counts = new Uint32Array(keys.length);
    for (let i = 0; i < series.keys.length; i++) {
      const at = index.get(keyOf(series, i));
      sums[at] += series.sums[i]; counts[at] += series.counts[i];
    }
    return sums.map((sum, i) => (sum === null ? null : sum / counts[i]));
  });
  const at = Array.from(keys, (key) => places.get(key));
  return { x: at.map((place) => place[0] / place[1]), times: at.map((place) => place[2] / 1000), rows };
}

/* The newest number of a scalar, over its workers: {text, more, broken}. One worker without a number is enough to say so. */
function newest(byWorker) {
  const broken = [...byWorker].filter(([, series]) => series.brokenSince !== undefined).sort((a, b) => a[1].brokenSince - b[1].brokenSince);
  if (broken.length > 0) {
    const who = broken.length > 1 ? `${broken.length} workers, first worker ${broken[0][0]}` : `worker ${broken[0][0]}`;
    return { text: NO_NUMBER, more: `since step ${formatStep(broken[0][1].brokenSince)} (${who})`, broken: true };
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
