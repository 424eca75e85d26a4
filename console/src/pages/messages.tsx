// Where is my message (5.2): over time, newest first, by a word or a filter, or as they come.
import { useEffect, useRef, useState } from 'preact/hooks';
import { asProblem, get } from '../api/client.ts';
import type { FoundRecord, Problem } from '../api/types.ts';
import { TimeStrip } from '../parts/charts.tsx';
import { useLoad } from '../parts/load.ts';
import { MessagePanel } from '../parts/message.tsx';
import { brief } from '../parts/payload.tsx';
import { Command, Empty, ProblemBox, Search, Waiting, When } from '../parts/ui.tsx';
import { count, many, quoted, size, time } from '../parts/words.ts';
import { viaKafka } from '../state/places.ts';
import { endsWithPage } from '../state/live.ts';
import { choose, chosen } from '../state/place.ts';
import { utc } from '../state/session.ts';

const PAGE = 50;
const MOST = 2_000;
const FILTER = /(==|!=|<=|>=|<|>|=)|\b(exists|startswith|endswith|contains)\s*\(|\bis\s+(not\s+)?null\b|\bin\s*\(/i;
const ROOT = /\b(tag|key|value|headers?|attributes?|timestamp|offset|partition|size)\b/;

const isFilter = (text: string): boolean => FILTER.test(text) && ROOT.test(text);

interface Found { rows: FoundRecord[]; cursor: string | null; lookedAt: number; left: number; busy: boolean; problem: Problem | undefined }
const NOTHING: Found = { rows: [], cursor: null, lookedAt: 0, left: 0, busy: true, problem: undefined };

// Steps of a search, one after the other, until a page is full, everything was looked at, or somebody has seen enough.
function useSearch(topic: string, query: Record<string, string | undefined>) {
  const key = `${topic} ${JSON.stringify(query)}`;
  const [found, setFound] = useState<Found>(NOTHING);
  const [turn, setTurn] = useState(0);
  const control = useRef<AbortController | undefined>(undefined);
  const run = async (from: Found, want: number): Promise<void> => {
    control.current?.abort();
    const own = new AbortController();
    control.current = own;
    let state = { ...from, busy: true, problem: undefined };
    setFound(state);
    try {
      do {
        const step = await get('/topics/{topic}/search', { topic }, { query: { ...query, limit: Math.min(PAGE, want - state.rows.length), cursor: state.cursor ?? undefined }, signal: own.signal });
        state = { ...state, rows: [...state.rows, ...step.items], cursor: step.next_cursor, lookedAt: state.lookedAt + step.looked_at, left: step.left };
        if (own.signal.aborted) return;
        setFound(state);
      } while (state.cursor !== null && state.rows.length < want);
    } catch (error) {
      if (own.signal.aborted) return;
      state = { ...state, problem: asProblem(error) } as Found as typeof state;
      if ((state as Found).problem?.status === 0) setTimeout(() => { if (!own.signal.aborted) setTurn((one) => one + 1); }, 2_000);
    }
    setFound({ ...state, busy: false });
  };
  useEffect(() => {
    void run(NOTHING, PAGE);
    return () => control.current?.abort();
  }, [key, turn]);
  return {
    found,
    more: () => void run(found, Math.min(MOST, found.rows.length + PAGE)),
    stop: () => { control.current?.abort(); setFound({ ...found, busy: false }); },
    again: () => setTurn((one) => one + 1),
  };
}

interface Tail { rows: FoundRecord[]; skipped: number; seen: number }

function useTail(topic: string, query: string, on: boolean): [Tail, () => void] {
  const [tail, setTail] = useState<Tail>({ rows: [], skipped: 0, seen: 0 });
  useEffect(() => {
    if (!on) return;
    const stream = new EventSource(`/topics/${encodeURIComponent(topic)}/tail?${query}`);
    stream.addEventListener('records', (event) => {
      const news = JSON.parse((event as MessageEvent<string>).data) as { items: FoundRecord[]; skipped: number };
      setTail((before) => ({
        rows: [...news.items.reverse(), ...before.rows].slice(0, MOST), skipped: before.skipped + news.skipped, seen: before.seen + news.items.length,
      }));
    });
    const forget = endsWithPage(() => stream.close());
    return () => {
      forget();
      stream.close();
    };
  }, [topic, query, on]);
  return [tail, () => setTail({ rows: [], skipped: 0, seen: 0 })];
}

function Rows({ topic, rows, several }: { topic: string; rows: FoundRecord[]; several: boolean }) {
  const at = chosen('at');
  return (
    <div class="scroll">
      <table>
        <thead><tr><th class="slim" scope="col">Time</th>{several && <th class="n slim less" scope="col">Partition</th>}<th class="n slim" scope="col">Offset</th><th class="slim less" scope="col">Key</th><th scope="col">Value</th><th class="n slim less" scope="col">Size</th></tr></thead>
        <tbody>
          {rows.map((row) => {
            const place = `${row.partition}:${row.offset}`;
            const open = (): void => choose({ at: place });
            return (
              <tr key={place} class={`open${at === place ? ' on' : ''}`} tabIndex={0} data-row data-at={place} onClick={open} onKeyDown={(event) => { if (event.key === 'Enter') open(); }}>
                <td class="slim"><When ms={row.timestamp_ms} /></td>
                {several && <td class="n slim less">{row.partition}</td>}
                <td class="n slim">{count(row.offset)}</td>
                <td class="slim less mono">{brief(row.key, 24) || <span class="faint">–</span>}</td>
                <td class="text mono">{row.value === null ? <span class="faint">null (a tombstone)</span> : brief(row.value)}</td>
                <td class="n slim less faint">{size(row.size)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <span class="hidden">{topic}</span>
    </div>
  );
}

export function Messages({ topic, partitions, publish }: { topic: string; partitions: number; publish: () => void }) {
  const text = chosen('q');
  const from = chosen('from');
  const until = chosen('until');
  const partition = chosen('partition');
  const order = chosen('order') || 'newest';
  const at = chosen('at');
  const [live, setLive] = useState(false);
  const filter = isFilter(text);
  const query = { order, from, until, partition, contains: filter ? '' : text, where: filter ? text : '' };
  const { found, more, stop, again } = useSearch(topic, query);
  const words = new URLSearchParams(Object.entries({ partition, contains: query.contains, where: query.where }).filter(([, value]) => value)).toString();
  const [tail, clear] = useTail(topic, words, live);
  const strip = useLoad(`strip ${topic} ${from} ${until} ${partition}`, (signal) => get('/topics/{topic}/histogram', { topic }, { query: { from, until, partition, buckets: 150 }, signal }), live ? 5_000 : 0);
  const rows = live ? tail.rows : found.rows;
  const everything = found.lookedAt + found.left;
  const nothingAtAll = !live && !found.busy && !text && !from && !until && !partition && rows.length === 0 && !found.problem;
  if (nothingAtAll)
    return (
      <div class="card">
        <Empty title="No messages yet">
          <p>Whatever is published to this topic is listed here, newest first.</p>
          <Command text={`headrace topic produce ${quoted(topic)} 'first message'${viaKafka()}`} />
          <button class="main-act" onClick={publish}>Publish a message</button> <button onClick={again}>Look again</button>
        </Empty>
      </div>
    );
  return (
    <>
      {!strip.value && !strip.problem && <div class="strip waits" aria-hidden="true" />}
      {strip.value && strip.value.total > 0 && (
        <TimeStrip fromMs={strip.value.from_ms} stepMs={strip.value.step_ms} counts={strip.value.counts} pick={(a, b) => choose({ from: a, until: b, at: undefined })} />
      )}
      <div class="bar">
        <Search label="Search messages" placeholder='Words, or a filter: value.amount > 100 and tag = "eu"' />
        {text && <span class="chip accent">{filter ? 'filter' : 'contains'}</span>}
        <select aria-label="Order" value={order} onChange={(event) => choose({ order: event.currentTarget.value === 'newest' ? '' : event.currentTarget.value })}>
          <option value="newest">Newest first</option><option value="oldest">Oldest first</option>
        </select>
        {partitions > 1 && (
          <select aria-label="Partition" value={partition} onChange={(event) => choose({ partition: event.currentTarget.value })}>
            <option value="">All partitions</option>
            {Array.from({ length: Math.min(partitions, 500) }, (_, place) => <option key={place} value={place}>Partition {place}</option>)}
          </select>
        )}
        {(from || until) && (
          <button class="small" onClick={() => choose({ from: '', until: '' })}>
            {from ? time(Number(from), utc.value) : 'start'} – {until ? time(Number(until), utc.value) : 'now'} ✕
          </button>
        )}
        <button data-key="space" aria-pressed={live} onClick={() => { clear(); setLive(!live); if (live) again(); }}>{live ? 'Pause' : 'Follow'}</button>
        <span class="right num" role="status">
          {live
            ? <><span class="pulse" aria-hidden="true" /> {count(tail.seen)} shown{tail.skipped > 0 && `, ${count(tail.skipped)} left out`}</>
            : found.busy
              ? <>{everything > 0 && `looked at ${count(found.lookedAt)} of ${count(everything)}, ${count(rows.length)} found `}<button class="small" onClick={stop}>Stop</button></>
              : `${text ? `${count(rows.length)} found in ${count(found.lookedAt)}` : many(rows.length, 'message')}${found.cursor === null ? '' : ' so far'}`}
        </span>
      </div>
      {found.problem && !live && <ProblemBox of={found.problem} again={again} />}
      <div class={at ? 'split with' : 'split'}>
        <div class="stack">
          {rows.length > 0 && <Rows topic={topic} rows={rows} several={partitions > 1} />}
          {rows.length === 0 && live && <div class="card empty"><h2>Nothing new</h2><p>What is published from now on appears here.</p></div>}
          {rows.length === 0 && !live && found.busy && <Waiting what="Looking" />}
          {rows.length === 0 && !live && !found.busy && !found.problem && <div class="card empty"><h2>No such message</h2><p>{many(found.lookedAt, 'message')} looked at{found.cursor ? `, ${count(found.left)} left` : ''}.</p></div>}
          {!live && !found.busy && (found.cursor !== null && rows.length < MOST
            ? <div class="more"><button onClick={more}>{text ? 'Go on' : 'More'}</button> <span class="faint num">{count(found.left)} left</span></div>
            : rows.length > 0 && <p class="more faint">{order === 'newest' ? 'That was the oldest.' : 'That was the newest.'}</p>)}
        </div>
        {at && <MessagePanel key={at} topic={topic} at={at} />}
      </div>
    </>
  );
}
