// Dead letters of all queues (5.3): what went wrong, how often; looked at, edited, sent back: first shown, then done, then watched.
import { useEffect, useState } from 'preact/hooks';
import { get, remove } from '../api/client.ts';
import type { LetterKind, LetterQueue, ShownMove } from '../api/types.ts';
import { Redrive } from '../parts/letter_acts.tsx';
import { Letters } from '../parts/letters.tsx';
import { useLoad } from '../parts/load.ts';
import { A, Age, Command, Empty, Head, Name, ProblemBox, Waiting } from '../parts/ui.tsx';
import { count, many, span, visible } from '../parts/words.ts';
import { viaHttp } from '../state/places.ts';
import { choose, chosen, to } from '../state/place.ts';
import { useRights } from '../state/rights.ts';
import { now } from '../state/session.ts';

const text = (value: string): string => `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;

// The letters of one row as a filter of ours: the server evaluates it, in the dry run as in the redrive.
export function filterOf(kind: LetterKind): string {
  const parts = [];
  if (kind.reason !== 'sent here') parts.push(`headers["headrace-dead-reason"] = ${text(kind.reason)}`);
  if (kind.source) parts.push(`headers["headrace-dead-source"] = ${text(kind.source)}`);
  if (kind.error) {
    const longest = kind.error.split('#').map((part) => part.trim()).reduce((best, part) => (part.length > best.length ? part : best), '');
    if (longest) parts.push(`contains(headers["headrace-dead-detail"], ${text(longest)})`);
  }
  return parts.join(' and ');
}

const DONE: Record<string, string> = { redrive: 'moved', edit: 'edited', discard: 'discarded' };

// The broker's task: the page only watches (W4).
function Moves({ queue, changed }: { queue: string; changed: () => void }) {
  const { value, again } = useLoad(`moves ${queue}`, (signal) => get('/api/v1/queues/{queue}/moves', { queue }, { signal }), 1_000);
  const latest: ShownMove | undefined = value?.items[0];
  const running = latest?.status === 'running' || latest?.status === 'cancelling';
  useEffect(() => { if (latest && !running) changed(); }, [running]);
  if (!latest || (!running && Date.now() - latest.started_ms > 600_000)) return null;
  const part = !running ? 100 : latest.to_move ? Math.min(100, (latest.moved / latest.to_move) * 100) : 100;
  // At the rate so far (W4); what has not moved yet has no rate.
  const leftMs = running && latest.moved > 0 && latest.to_move > latest.moved ? ((now.value - latest.started_ms) / latest.moved) * (latest.to_move - latest.moved) : 0;
  return (
    <div class="row" role="status">
      <span class="chip">{latest.status}</span>
      <div class="meter grow"><i style={{ width: `${part}%` }} /></div>
      <span class="num">{count(latest.moved)}{running ? ` of ${count(latest.to_move)}` : ''} {DONE[latest.act] ?? 'moved'}{latest.skipped ? `, ${count(latest.skipped)} left as they were` : ''}{latest.failure ? `: ${visible(latest.failure)}` : ''}{leftMs > 0 ? `, about ${span(leftMs)} left` : ''}</span>
      {running && <button class="small" onClick={async () => { await remove('/api/v1/moves/{task}', { task: latest.id }); again(); }}>Stop</button>}
    </div>
  );
}

function Queue({ queue, again }: { queue: LetterQueue; again: () => void }) {
  const [redriving, setRedriving] = useState<{ filter: string } | undefined>();
  const may = useRights('group', queue.queue);
  const refused = may('read') ?? may('delete');
  const most = Math.max(1, ...queue.kinds.map((kind) => kind.count));
  const where = chosen('queue') === queue.queue ? chosen('where') : '';
  const opened = chosen('queue') === queue.queue;
  return (
    <section class="card stack">
      <div class="row">
        <h2 class="grow"><A href={to('queues', queue.queue)}><Name of={queue.queue} /></A> <span class="soft">{many(queue.messages, 'letter')} of {queue.of.map(visible).join(', ')}</span></h2>
        {queue.messages > 0 && !opened && <button onClick={() => choose({ queue: queue.queue, where: '' })}>Look at all</button>}
        {queue.messages > 0 && <button disabled={refused !== undefined} title={refused} onClick={() => setRedriving({ filter: '' })}>Send back …</button>}
      </div>
      <Moves queue={queue.queue} changed={again} />
      {queue.messages === 0 ? <p class="faint">No dead letters.</p> : (
        <div class="scroll fold">
          <table>
            <thead><tr><th class="n slim" scope="col">Letters</th><th class="slim less" scope="col"><span class="hidden">Share</span></th><th scope="col">What went wrong</th><th scope="col">Came from</th><th class="less" scope="col">First</th><th class="less" scope="col">Last</th><th class="slim" scope="col"><span class="hidden">Acts</span></th></tr></thead>
            <tbody>{queue.kinds.map((kind) => {
              const filter = filterOf(kind);
              return (
                <tr key={`${kind.reason} ${kind.source} ${kind.error}`} class={where && where === filter ? 'on' : ''} tabIndex={0} data-row
                  onKeyDown={(event) => { if (event.target === event.currentTarget && event.key === 'Enter') choose({ queue: queue.queue, where: filter }); }}>
                  <td class="n"><strong>{count(kind.count)}</strong></td>
                  <td class="slim less"><div class="meter bad"><i style={{ width: `${(kind.count / most) * 100}%` }} /></div></td>
                  <td class="wraps">{kind.error ? <span class="mono">{visible(kind.error)}</span> : <span class="soft">{visible(kind.reason.replaceAll('_', ' '))}</span>} {kind.error && <span class="chip">{visible(kind.reason.replaceAll('_', ' '))}</span>}</td>
                  <td class="wraps"><Name of={kind.source || '–'} /></td>
                  <td class="less nowrap"><Age ms={kind.first_ms} /></td><td class="less nowrap"><Age ms={kind.last_ms} /></td>
                  <td class="slim acts"><div class="row tight"><button class="small" onClick={() => choose({ queue: queue.queue, where: filter })}>Look</button><button class="small" disabled={refused !== undefined} title={refused} onClick={() => setRedriving({ filter })}>Send back …</button></div></td>
                </tr>
              );
            })}</tbody>
          </table>
        </div>
      )}
      {queue.looked_at < queue.messages && <p class="faint">Counted in the first {count(queue.looked_at)} of {count(queue.messages)}.</p>}
      {opened && queue.messages > 0 && (
        <section class="stack">
          <div class="row"><h3 class="grow">{where ? 'Letters of this kind' : 'All letters'}</h3>{where && <button class="small" onClick={() => choose({ where: '' })}>All kinds</button>}</div>
          <Letters key={where} queue={queue.queue} of={queue.messages} where={where} changed={again} />
        </section>
      )}
      {redriving && <Redrive queue={queue.queue} of={queue.messages} filter={redriving.filter} close={() => setRedriving(undefined)} done={again} />}
    </section>
  );
}

export function Page(_: { name: string }) {
  const only = chosen('queue');
  const { value, problem, again } = useLoad(`dead ${only}`, (signal) => get('/api/v1/dead-letters', {}, { query: { queue: only }, signal }), 5_000);
  return (
    <div class="stack">
      <Head title="Dead letters" lead="Messages that failed too often, or that a worker gave up: what went wrong, and the way back. Numbers and ids in errors are #.">
        {only && <A class="button" href={to('dead')}>All queues</A>}
      </Head>
      {problem && !value && <ProblemBox of={problem} again={again} />}
      {!value && !problem && <Waiting />}
      {value && value.items.length === 0 && (
        <div class="card"><Empty title="No queue has dead letters"><p>A queue with a dead-letter queue gives up after some deliveries instead of trying for ever.</p><Command text={`headrace queue create jobs-dead${viaHttp()}\nheadrace queue create jobs --dlq jobs-dead --max-receives 5${viaHttp()}`} /></Empty></div>
      )}
      {value?.items.map((queue) => <Queue key={queue.queue} queue={queue} again={again} />)}
    </div>
  );
}
