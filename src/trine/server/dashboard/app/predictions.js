// When jobs are expected to start and end, where the daemon predicts it: median and 80 % interval.

import { moment, short } from "./format.js";
import { getJson } from "./session.js";

let known = { at_ms: -Infinity, value: null };

/** The predictions of all jobs; null where the daemon makes none. Asked for at most every few seconds. */
export async function predictions() {
  if (performance.now() - known.at_ms < 5000) return known.value;
  known.at_ms = performance.now();
  try {
    known.value = await getJson("/v1/predictions");
  } catch (error) {
    if (error.status === 404) known = { at_ms: performance.now() + 300000, value: null }; // this daemon never will
  }
  return known.value;
}

/** What was predicted of a job, as far as it can still be true: what was asked for is some seconds old. */
export function predictedOf(found, job) {
  const predicted = found?.jobs?.[job.id];
  if (!predicted || ["held", "set aside"].includes(job.state)) return null;
  return job.run_from_s === null ? predicted : { ...predicted, start_s: null };
}

/** "14:05 −7m +1h15m": the interval reaches from 13:58 to 15:20. Both sides, since it is seldom as long on one as on the other. */
export function interval(found, board) {
  if (!found) return "";
  const { low, median, high } = found;
  if (high - low < 1) return moment(median, board);
  return `${moment(median, board, high - low >= 120)} −${short(median - low)} +${short(high - median)}`;
}

/** The same in a sentence. */
export const intervalSentence = (found, board) => found.high - found.low < 1 ? moment(found.median, board)
  : `${moment(found.median, board)}; with 80 % probability between ${moment(found.low, board)} and ${moment(found.high, board)}`;
