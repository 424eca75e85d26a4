// Home: is it well, what flows, and what stands still. Useful without a click, a login or any data (W1).
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { get } from '../api/client.ts';
import { Spark, useHistory } from '../parts/charts.tsx';
import { Flow } from '../parts/flow.tsx';
import { Line } from '../parts/happened.tsx';
import { useLoad } from '../parts/load.ts';
import { brief } from '../parts/payload.tsx';
import { A, Age, Head, Name, Waiting } from '../parts/ui.tsx';
import { count, rate, size, span, visible } from '../parts/words.ts';
import { isStale, useLive, type HomeNow } from '../state/live.ts';
import { to } from '../state/place.ts';
import { away, cluster, health } from '../state/session.ts';
import { FirstRun } from './first_run.tsx';

const YOUNG = 12; // so many points of 15 s are a line
const SERIES = ['cluster.in', 'cluster.out', 'cluster.backlog', 'cluster.lag'];

function Tile({ name, value, unit, note, series }: { name: string; value: string; unit?: string; note?: ComponentChildren; series?: (number | null)[] | undefined }) {
  return (
    <div class="tile">
      <span class="name">{name}</span>
      <span class="value">{value} {unit && <small>{unit}</small>}</span>
      {note && <span class="note">{note}</span>}
      {series && <Spark values={series} label={name} />}
    </div>
  );
}

// Which topics there are something in, busiest first: the way to "where is my message" is one click.
function Busiest() {
  const { value } = useLoad('busiest', (signal) => get('/api/v1/topics', {}, { query: { with: 'rates,sizes', sort: '-in', limit: 8 }, signal }), 2_000);
  if (!value?.items.length) return null;
  return (
    <section class="card">
      <div class="row"><h2 class="grow">Topics</h2><A href={to('topics')}>All {count(value.total)}</A></div>
      <table class="plain moves">
        <thead><tr><th scope="col">Name</th><th class="n" scope="col">Messages</th><th class="n" scope="col">In/s</th><th class="n less" scope="col">Last write</th></tr></thead>
        <tbody>{value.items.map((row) => (
          <tr key={row.name}>
            <td class="name"><A href={to('topics', row.name)}><Name of={row.name} /></A></td><td class="n">{!row.unknown_partitions ? count(row.messages) : row.unknown_partitions === row.partition_count ? 'not known' : `${count(row.messages)} + ?`}</td><td class="n">{rate(row.in_per_s)}</td>
            <td class="n less">{row.last_write_ms ? <Age ms={row.last_write_ms} /> : <span class="faint">–</span>}</td>
          </tr>
        ))}</tbody>
      </table>
    </section>
  );
}

function Behind({ live }: { live: HomeNow }) {
  return (
    <section class="card stack">
      {live.lags.length > 0 && (
        <div>
          <h2>Behind</h2>
          <table class="plain moves"><tbody>{live.lags.map((row) => <tr key={row.group}><td class="name"><A href={to('groups', row.group)}><Name of={row.group} /></A></td><td class="n">{count(row.lag)} messages</td></tr>)}</tbody></table>
        </div>
      )}
      {live.dead.length > 0 && (
        <div>
          <h2>Dead letters</h2>
          <table class="plain moves"><tbody>{live.dead.map((row) => <tr key={row.queue}><td class="name"><A href={`${to('dead')}?queue=${encodeURIComponent(row.queue)}`}><Name of={row.queue} /></A></td><td class="n">{count(row.messages)} messages</td></tr>)}</tbody></table>
        </div>
      )}
    </section>
  );
}

// The last of what happened; the stream says when there is more.
function Happened({ number }: { number: number }) {
  const { value } = useLoad(`happened ${number}`, (signal) => get('/api/v1/happenings', {}, { query: { limit: 8 }, signal }), 10_000);
  const [kept, setKept] = useState(value);
  if (value && value !== kept) setKept(value);
  if (!kept?.items.length) return null;
  return (
    <section class="card">
      <div class="row"><h2 class="grow">What happened</h2><A href={to('happenings')}>All of it</A></div>
      <table class="plain log"><tbody>{kept.items.map((row) => <Line key={`${row.seen_by} ${row.at_ms} ${row.kind} ${row.names[0]}`} row={row} />)}</tbody></table>
    </section>
  );
}

// The first message, as soon as it is there: what a newcomer waits for.
function FirstMessage() {
  const { value } = useLoad('first message', async (signal) => {
    const topics = await get('/api/v1/topics', {}, { query: { with: 'sizes', sort: '-messages', limit: 1 }, signal });
    const topic = topics.items[0];
    if (topics.total > 3 || !topic?.messages || topic.messages > 20) return undefined;
    const found = await get('/topics/{topic}/search', { topic: topic.name }, { query: { limit: 1, order: 'oldest' }, signal });
    return found.items[0];
  }, 2_000);
  if (!value) return null;
  return (
    <section class="card row" role="status">
      <span class="chip good">Your first message</span>
      <span class="mono grow">{brief(value.value, 200)}</span>
      <A href={`${to('topics', value.topic)}?at=${value.partition}:${value.offset}`}>in <Name of={value.topic} /></A>
    </section>
  );
}

export function Home() {
  const known = cluster.value;
  const how = health.value;
  const live = useLive<HomeNow>('home');
  const slow = useHistory(SERIES);
  const young = slow.value !== undefined && (slow.value.series['cluster.in'] ?? []).filter((one) => one !== null).length < YOUNG;
  const quick = useHistory(young ? SERIES : [], '1s', 2_000);
  const history = young ? quick : slow;
  const low = how?.findings.find((one) => one.check === 'disk');
  if (!known || !how) return <Waiting what="Asking the broker" />;
  const topics = live?.topics ?? known.topics;
  const line = (name: string): (number | null)[] | undefined => history.value?.series[name];
  return (
    <div class="stack">
      <Head title={away.value ? 'Nobody knows how it is: the broker does not answer' : visible(how.sentence)} lead={topics === 0 ? 'Nothing is here yet. Each of these commands works as it stands.' : undefined} />
      {topics === 0 && <FirstRun />}
      {topics > 0 && <FirstMessage />}
      {live && topics > 0 && (
        <div class={isStale() ? 'tiles moves faint' : 'tiles moves'}>
          <Tile name="Messages in" value={rate(live.in_per_s)} unit="/s" note={`${size(live.in_bytes_per_s)}/s`} series={line('cluster.in')} />
          <Tile name="Messages done" value={rate(live.out_per_s)} unit="/s" note={`${size(live.out_bytes_per_s)}/s read`} series={line('cluster.out')} />
          <Tile name="Not read yet" value={count(live.lag)} note={live.lags.length ? `most: ${visible(live.lags[0]!.group)}` : 'nobody is behind'} series={line('cluster.lag')} />
          <Tile name="Waiting in queues" value={count(live.backlog)} note={live.backlog ? `the oldest for ${span(live.oldest_age_ms)}` : 'nothing waits'} series={line('cluster.backlog')} />
          <Tile name="Room on the disk" value={size(live.free_bytes)} note={low ? <span class="bad-text">too little: writes are refused</span> : live.full_in_ms === null ? 'not filling up' : <span class="warn-text">full in {span(live.full_in_ms)} at this rate</span>} />
        </div>
      )}
      {live && live.missing.length > 0 && <p class="warn-text">Without the numbers of {live.missing.length === 1 ? `broker ${live.missing[0]}, which does` : `brokers ${live.missing.join(', ')}, which do`} not answer.</p>}
      {topics > 0 && <Flow />}
      {topics > 0 && (
        <div class="halves">
          <Busiest />
          {live && (live.lags.length > 0 || live.dead.length > 0) && <Behind live={live} />}
          {live && <Happened number={live.happened} />}
        </div>
      )}
    </div>
  );
}
