// Dead letters of all queues (5.3): what went wrong, how often, and sending them back: first shown, then done, then watched.
import { useEffect, useState } from 'preact/hooks';
import { get, post, remove } from '../api/client.ts';
import type { LetterKind, LetterQueue, ShownMove } from '../api/types.ts';
import { Act } from '../parts/dialog.tsx';
import { useLoad } from '../parts/load.ts';
import { A, Age, Empty, Head, Name, ProblemBox, tell, Waiting } from '../parts/ui.tsx';
import { count, many, quoted, visible } from '../parts/words.ts';
import { http, viaHttp } from '../state/places.ts';
import { chosen, to } from '../state/place.ts';

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

function Redrive({ queue, kind, close, done }: { queue: LetterQueue; kind: LetterKind | undefined; close: () => void; done: () => void }) {
  const [filter, setFilter] = useState(kind ? filterOf(kind) : '');
  const [target, setTarget] = useState('');
  const [speed, setSpeed] = useState('');
  const [most, setMost] = useState('');
  const body = { to: target, filter, rate: Number(speed) || 0, max: Number(most) || 0 };
  const plan = useLoad(`plan ${queue.queue} ${JSON.stringify(body)}`, (signal) => post('/api/v1/queues/{queue}/moves', { queue: queue.queue }, { ...body, dry_run: true }, { signal }));
  const number = plan.value?.to_move ?? 0;
  const flags = `${target ? ` --to ${quoted(target)}` : ''}${filter ? ` --filter ${quoted(filter)}` : ''}${speed ? ` --rate ${speed}/s` : ''}${most ? ` --max ${most}` : ''}`;
  return (
    <Act title={`Send dead letters of ${queue.queue} back`} close={close} wide act={plan.value ? `Move ${many(number, 'message')}` : 'Counting …'} ready={number > 0}
      commands={[
        { words: 'The same on the command line', text: `headrace dlq redrive ${quoted(queue.queue)}${flags}${viaHttp()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} '${http()}/api/v1/queues/${encodeURIComponent(queue.queue)}/moves'` },
      ]}
      run={async () => {
        const task = await post('/api/v1/queues/{queue}/moves', { queue: queue.queue }, body);
        tell(`Moving ${many(task.to_move, 'message')}; it goes on when this page is closed`);
        done();
      }}>
      <p role="status">
        {plan.value ? <><strong>{many(number, 'message')}</strong> of {count(queue.messages)} would go {target ? <>to <Name of={target} /></> : 'back to where each came from'}{plan.value.failure ? ` (${plan.value.failure})` : ''}.</> : plan.problem ? '' : 'Counting what matches …'}
      </p>
      {plan.problem && <ProblemBox of={plan.problem} />}
      <label class="field"><span>Only those that match this filter (empty: all)</span><textarea rows={3} value={filter} spellcheck={false} onInput={(event) => setFilter(event.currentTarget.value)} /></label>
      <div class="fields">
        <label class="field"><span>To</span><input placeholder="where each came from" value={target} spellcheck={false} onInput={(event) => setTarget(event.currentTarget.value)} /></label>
        <label class="field"><span>At most a second</span><input inputMode="numeric" placeholder="as fast as it goes" value={speed} onInput={(event) => setSpeed(event.currentTarget.value.replace(/\D/g, ''))} /></label>
        <label class="field"><span>At most in all</span><input inputMode="numeric" placeholder="all of them" value={most} onInput={(event) => setMost(event.currentTarget.value.replace(/\D/g, ''))} /></label>
      </div>
    </Act>
  );
}

// The broker's task: the page only watches (W4).
function Moves({ queue, changed }: { queue: string; changed: () => void }) {
  const { value, again } = useLoad(`moves ${queue}`, (signal) => get('/api/v1/queues/{queue}/moves', { queue }, { signal }), 1_000);
  const latest: ShownMove | undefined = value?.items[0];
  const running = latest?.status === 'running' || latest?.status === 'cancelling';
  useEffect(() => { if (latest && !running) changed(); }, [running]);
  if (!latest || (!running && Date.now() - latest.started_ms > 600_000)) return null;
  const part = latest.to_move ? Math.min(100, (latest.moved / latest.to_move) * 100) : 100;
  return (
    <div class="row" role="status">
      <span class="chip">{latest.status}</span>
      <div class="meter grow"><i style={{ width: `${part}%` }} /></div>
      <span class="num">{count(latest.moved)} of {count(latest.to_move)} moved{latest.failure ? `: ${visible(latest.failure)}` : ''}</span>
      {running && <button class="small" onClick={async () => { await remove('/api/v1/moves/{task}', { task: latest.id }); again(); }}>Stop</button>}
    </div>
  );
}

function Queue({ queue, again }: { queue: LetterQueue; again: () => void }) {
  const [redriving, setRedriving] = useState<{ kind: LetterKind | undefined } | undefined>();
  const most = Math.max(1, ...queue.kinds.map((kind) => kind.count));
  return (
    <section class="card stack">
      <div class="row">
        <h2 class="grow"><A href={to('queues', queue.queue)}><Name of={queue.queue} /></A> <span class="soft">{many(queue.messages, 'letter')} of {queue.of.map(visible).join(', ')}</span></h2>
        {queue.messages > 0 && <button onClick={() => setRedriving({ kind: undefined })}>Send back …</button>}
      </div>
      <Moves queue={queue.queue} changed={again} />
      {queue.messages === 0 ? <p class="faint">No dead letters.</p> : (
        <div class="scroll">
          <table>
            <thead><tr><th class="n slim" scope="col">Letters</th><th class="slim less" scope="col"><span class="hidden">Share</span></th><th scope="col">What went wrong</th><th scope="col">Came from</th><th class="less" scope="col">First</th><th class="less" scope="col">Last</th><th class="slim" scope="col"><span class="hidden">Acts</span></th></tr></thead>
            <tbody>{queue.kinds.map((kind) => (
              <tr key={`${kind.reason} ${kind.source} ${kind.error}`}>
                <td class="n"><strong>{count(kind.count)}</strong></td>
                <td class="slim less"><div class="meter bad"><i style={{ width: `${(kind.count / most) * 100}%` }} /></div></td>
                <td>{kind.error ? <span class="mono">{visible(kind.error)}</span> : <span class="soft">{visible(kind.reason.replaceAll('_', ' '))}</span>} {kind.error && <span class="chip">{visible(kind.reason.replaceAll('_', ' '))}</span>}</td>
                <td><Name of={kind.source || '–'} /></td>
                <td class="less"><Age ms={kind.first_ms} /></td><td class="less"><Age ms={kind.last_ms} /></td>
                <td class="slim"><div class="row tight"><A class="button small" href={`${to('topics', kind.example.topic)}?at=${kind.example.partition}:${kind.example.offset}`}>Example</A><button class="small" onClick={() => setRedriving({ kind })}>Send back …</button></div></td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
      {queue.looked_at < queue.messages && <p class="faint">Counted in the first {count(queue.looked_at)} of {count(queue.messages)}.</p>}
      {redriving && <Redrive queue={queue} kind={redriving.kind} close={() => setRedriving(undefined)} done={again} />}
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
        <div class="card"><Empty title="No queue has dead letters"><p>A queue with a dead-letter queue gives up after some deliveries instead of trying for ever.</p><pre class="mono">headrace queue create jobs-dead; headrace queue create jobs --dlq jobs-dead --max-receives 5</pre></Empty></div>
      )}
      {value?.items.map((queue) => <Queue key={queue.queue} queue={queue} again={again} />)}
    </div>
  );
}
