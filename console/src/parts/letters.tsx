// Dead letters one by one: tick some, edit one, send them back.
import { useState } from 'preact/hooks';
import { get } from '../api/client.ts';
import type { ShownLetter } from '../api/types.ts';
import { to } from '../state/place.ts';
import { useRights } from '../state/rights.ts';
import { Discard, Edit, Redrive } from './letter_acts.tsx';
import { useLoad } from './load.ts';
import { brief } from './payload.tsx';
import { A, Age, Name, ProblemBox, Waiting } from './ui.tsx';
import { count, many, visible } from './words.ts';

const PAGE = 50;
const MOST = 500;
const place = (one: ShownLetter): string => `${one.partition}:${one.offset}`;

// The ticked ones as a filter of ours.
export function only(letters: ShownLetter[]): string {
  const by = new Map<number, number[]>();
  for (const one of letters) by.set(one.partition, [...(by.get(one.partition) ?? []), one.offset]);
  const parts = [...by].map(([partition, offsets]) => `partition = ${partition} and offset ${offsets.length === 1 ? `= ${offsets[0]}` : `in (${offsets.join(', ')})`}`);
  return parts.length === 1 ? parts[0]! : parts.map((part) => `(${part})`).join(' or ');
}

type Doing = { what: 'redrive' | 'discard' | 'edit'; filter: string; letter?: ShownLetter };

export function Letters({ queue, of, where, changed }: { queue: string; of: number; where: string; changed: () => void }) {
  const [limit, setLimit] = useState(PAGE);
  const [ticked, setTicked] = useState(new Set<string>());
  const [doing, setDoing] = useState<Doing | undefined>();
  const { value, problem, again } = useLoad(`letters ${queue} ${where} ${limit}`, (signal) => get('/api/v1/queues/{queue}/letters', { queue }, { query: { where, limit }, signal }), 5_000);
  const rows = value?.items ?? [];
  const chosen = rows.filter((one) => ticked.has(place(one)));
  const tick = (one: ShownLetter): void => {
    const next = new Set(ticked);
    if (!next.delete(place(one))) next.add(place(one));
    setTicked(next);
  };
  const done = (): void => { setTicked(new Set()); again(); changed(); };
  const filter = chosen.length ? only(chosen) : where;
  const may = useRights('group', queue);
  const refused = may('read') ?? may('delete');
  const words = chosen.length ? `the ${count(chosen.length)} ticked` : 'all of these';
  const file = (format: string): string => `/api/v1/queues/${encodeURIComponent(queue)}/export?format=${format}${filter ? `&where=${encodeURIComponent(filter)}` : ''}`;
  const common = { queue, of, close: () => setDoing(undefined), done };
  if (problem && !value) return <ProblemBox of={problem} again={again} />;
  if (!value) return <Waiting />;
  if (!rows.length) return <p class="faint">No letters of this kind.</p>;
  return (
    <div class="stack">
      <div class="row">
        <span class="soft grow" role="status">{words}:</span>
        <button class="small" disabled={refused !== undefined} title={refused} onClick={() => setDoing({ what: 'redrive', filter })}>Send back …</button>
        <button class="small" data-key="e" disabled={refused !== undefined} title={refused} onClick={() => setDoing({ what: 'edit', filter, ...(chosen.length === 1 ? { letter: chosen[0]! } : {}) })}>Edit …</button>
        <button class="small danger" disabled={refused !== undefined} title={refused} onClick={() => setDoing({ what: 'discard', filter })}>Discard …</button>
        <a class="button small" href={file('jsonl')} download>Export</a>
        <a class="button small" href={file('csv')} download>CSV</a>
      </div>
      <div class="scroll">
        <table>
          <thead><tr><th class="slim"><span class="hidden">Ticked</span></th><th class="slim less" scope="col">Came</th><th class="less" scope="col">From</th><th class="n slim less" scope="col">Deliveries</th><th scope="col">What went wrong</th><th scope="col">Value</th></tr></thead>
          <tbody>{rows.map((one) => (
            <tr key={place(one)} class={ticked.has(place(one)) ? 'on' : ''} tabIndex={0} data-row
              onKeyDown={(event) => {
                if (event.target !== event.currentTarget) return;
                if (event.key === 'x') tick(one);
                if (event.key === 'Enter') setDoing({ what: 'edit', filter: only([one]), letter: one });
              }}>
              <td class="slim"><input type="checkbox" aria-label={`Tick the letter at ${place(one)}`} checked={ticked.has(place(one))} onChange={() => tick(one)} /></td>
              <td class="slim less"><Age ms={one.timestamp_ms} /></td>
              <td class="less"><Name of={one.source || '–'} /></td>
              <td class="n slim less">{count(one.deliveries)}</td>
              <td class="text"><span title={visible(one.error)}>{visible(one.error || one.reason.replaceAll('_', ' '))}</span>{one.edited_by !== null && <> <span class="chip accent" title={`Edited by ${visible(one.edited_by)}`}>edited</span></>}</td>
              <td class="text mono"><A href={`${to('topics', one.topic)}?at=${place(one)}`}>{brief(one.value) || 'null'}</A></td>
            </tr>
          ))}</tbody>
        </table>
        {value.next_cursor !== null && <div class="more">{limit < MOST ? <button class="small" onClick={() => setLimit(Math.min(MOST, limit * 4))}>More</button> : <span class="faint">The first {MOST} are shown.</span>}</div>}
      </div>
      <p class="faint">{many(rows.length, 'letter')}; x ticks, Enter edits one, e edits the ticked.</p>
      {doing?.what === 'redrive' && <Redrive {...common} filter={doing.filter} />}
      {doing?.what === 'discard' && <Discard {...common} filter={doing.filter} />}
      {doing?.what === 'edit' && <Edit {...common} filter={doing.filter} letter={doing.letter} />}
    </div>
  );
}
