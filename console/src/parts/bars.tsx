// How long each batch took, cut into its parts. One column a batch; a table says the same (W11).
import type { ShownBatchOfRows } from '../api/types.ts';
import { utc } from '../state/session.ts';
import { count, time, took, visible } from './words.ts';

const SHADES = ['part-1', 'part-2', 'part-3', 'part-4', 'part-5'];
const WORDS: Record<string, string> = {
  addBatch: 'work', queryPlanning: 'planning', walCommit: 'log of intents', latestOffset: 'looking for news', getBatch: 'reading offsets', commitOffsets: 'commit', commitBatch: 'commit',
};

export function BarStack({ batches }: { batches: ShownBatchOfRows[] }) {
  const top = Math.max(1, ...batches.map((one) => one.total_ms));
  const totals = new Map<string, number>();
  for (const one of batches) for (const [part, ms] of Object.entries(one.parts_ms)) totals.set(part, (totals.get(part) ?? 0) + ms);
  const parts = [...totals.entries()].sort((a, b) => b[1] - a[1]).slice(0, 4).map(([part]) => part);
  const pieces = (one: ShownBatchOfRows): [string, number][] => {
    const known = parts.map((part): [string, number] => [part, one.parts_ms[part] ?? 0]);
    const rest = Math.max(0, one.total_ms - known.reduce((sum, [, ms]) => sum + ms, 0));
    return parts.length ? [...known, ['the rest', rest]] : [['all of it', one.total_ms]];
  };
  const shade = (part: string): string => SHADES[parts.length ? (parts.includes(part) ? parts.indexOf(part) : 4) : 0]!;
  const shown = parts.length ? [...parts, 'the rest'] : [];
  return (
    <figure>
      <div class="bars" aria-hidden="true">
        <span class="peak num">{took(top)}</span>
        {batches.map((one) => (
          <div key={`${one.id} ${one.at_ms}`} class="bar-of" title={`batch ${one.id}${one.at_ms ? ` at ${time(one.at_ms, utc.value)}` : ''}: ${took(one.total_ms)}, ${count(one.rows)} rows`}>
            {pieces(one).reverse().map(([part, ms]) => <i key={part} class={shade(part)} style={{ height: `${(ms / top) * 100}%` }} />)}
          </div>
        ))}
      </div>
      <figcaption class="legend">{shown.map((part) => <span key={part}><b class={shade(part)} />{visible(WORDS[part] ?? part)}</span>)}</figcaption>
      <div class="hidden"><table>
        <caption>Batches</caption>
        <thead><tr><th scope="col">Batch</th><th scope="col">Rows</th><th scope="col">Took</th></tr></thead>
        <tbody>{batches.map((one) => <tr key={`${one.id} ${one.at_ms}`}><td>{one.id}</td><td>{count(one.rows)}</td><td>{took(one.total_ms)}</td></tr>)}</tbody>
      </table></div>
    </figure>
  );
}
