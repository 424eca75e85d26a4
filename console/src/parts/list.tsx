// A list that the server searches, sorts and pages (W9); the page holds at most 500 rows of it.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { Problem } from '../api/types.ts';
import { choose, chosen, go } from '../state/place.ts';
import { useLoad } from './load.ts';
import { Table } from './table.tsx';
import { ProblemBox, Search, Waiting } from './ui.tsx';
import { count } from './words.ts';

const STEP = 50;
const MOST = 500;

export interface Column<T> {
  words: string;
  show: (row: T) => ComponentChildren;
  sort?: string; // what the server calls it
  number?: boolean;
  less?: boolean; // left out where there is little room
  name?: boolean;
}

export interface Asked { q: string; sort: string; limit: number; signal: AbortSignal }

export function List<T>({ id, what, columns, ask, name, href, sort = 'name', empty, bar, everyMs = 2_000, picked, pick }: {
  id: string;
  what: string;
  columns: Column<T>[];
  ask: (asked: Asked) => Promise<{ items: T[]; next_cursor: string | null; total?: number | undefined }>;
  name: (row: T) => string;
  href: (row: T) => string;
  sort?: string;
  empty: ComponentChildren;
  bar?: ComponentChildren;
  everyMs?: number;
  picked?: Set<string>;
  pick?: (name: string, on: boolean) => void;
}) {
  const [limit, setLimit] = useState(STEP);
  const q = chosen('q');
  const order = chosen('sort') || sort;
  const { value, problem, again } = useLoad(`${id} ${q} ${order} ${limit}`, (signal) => ask({ q, sort: order, limit, signal }), everyMs);
  const [kept, setKept] = useState<typeof value>(undefined);
  if (value && value !== kept) setKept(value);
  const shown = value ?? kept;
  return (
    <>
      <div class="bar">
        <Search label={`Search ${what}`} placeholder={`Search ${what}   ( / )`} />
        {bar}
        <span class="right num">{shown?.total !== undefined && `${count(shown.total)} ${what}`}</span>
      </div>
      {problem && <Failed problem={problem} again={again} />}
      {!shown && !problem && <Waiting />}
      {shown && shown.items.length === 0 && (q ? <div class="card empty"><h2>Nothing is called that</h2><p>No {what} with “{q}” in their name.</p></div> : <div class="card">{empty}</div>)}
      {shown && shown.items.length > 0 && (
        <Table after={shown.next_cursor !== null && (
          <div class="more">
            {limit < MOST
              ? <button class="small" onClick={() => setLimit(limit + STEP * (limit > STEP ? 4 : 1) > MOST ? MOST : limit + STEP * (limit > STEP ? 4 : 1))}>More</button>
              : <span class="faint">The first {MOST} are shown. Search to see others.</span>}
          </div>
        )}>
            <thead>
              <tr>
                {pick && <th class="slim"><span class="hidden">Selected</span></th>}
                {columns.map((column) => <Heading key={column.words} column={column} order={order} />)}
              </tr>
            </thead>
            <tbody>
              {shown.items.map((row) => (
                <tr key={name(row)} class={`open${picked?.has(name(row)) ? ' on' : ''}`} tabIndex={0} data-row
                  onClick={(event) => { if (!(event.target as Element).closest('a, button, input, label')) go(href(row)); }}
                  onKeyDown={(event) => {
                    if (event.target !== event.currentTarget) return;
                    if (event.key === 'Enter') go(href(row));
                    if (event.key === 'x' && pick) pick(name(row), !picked?.has(name(row)));
                  }}>
                  {pick && <td class="slim"><input type="checkbox" aria-label={`Select ${name(row)}`} checked={picked?.has(name(row)) ?? false} onChange={(event) => pick(name(row), event.currentTarget.checked)} /></td>}
                  {columns.map((column) => (
                    <td key={column.words} class={`${column.number ? 'n ' : ''}${column.less ? 'less ' : ''}${column.name ? 'name' : ''}`}>{column.show(row)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
        </Table>
      )}
    </>
  );
}

function Failed({ problem, again }: { problem: Problem; again: () => void }) {
  return problem.status === 0 ? null : <ProblemBox of={problem} again={again} />;
}

function Heading<T>({ column, order }: { column: Column<T>; order: string }) {
  const field = order.replace(/^-/, '');
  const down = order.startsWith('-');
  const here = column.sort !== undefined && field === column.sort;
  const kind = `${column.number ? 'n ' : ''}${column.less ? 'less' : ''}`;
  if (column.sort === undefined) return <th class={kind} scope="col">{column.words}</th>;
  const next = here ? (down ? column.sort : `-${column.sort}`) : column.number ? `-${column.sort}` : column.sort;
  return (
    <th class={kind} scope="col" aria-sort={here ? (down ? 'descending' : 'ascending') : undefined}>
      <button onClick={() => choose({ sort: next })}>{column.words}{here ? (down ? ' ↓' : ' ↑') : ''}</button>
    </th>
  );
}
