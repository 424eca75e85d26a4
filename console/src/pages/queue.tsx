// One queue: its messages without taking them, who holds what, and how it is set.
import { useState } from 'preact/hooks';
import { get, post, remove } from '../api/client.ts';
import type { ShownQueue } from '../api/types.ts';
import { Act, Sheet } from '../parts/dialog.tsx';
import { Findings } from '../parts/explained.tsx';
import { useLoad } from '../parts/load.ts';
import { Locks } from '../parts/locks.tsx';
import { MessagePanel } from '../parts/message.tsx';
import { brief } from '../parts/payload.tsx';
import { Table } from '../parts/table.tsx';
import { A, Age, Empty, Head, Name, ProblemBox, Tabs, tell, Waiting, When } from '../parts/ui.tsx';
import { count, many, quoted, rate, span, visible } from '../parts/words.ts';
import { isStale, useLive, type QueueNow } from '../state/live.ts';
import { http, viaHttp } from '../state/places.ts';
import { choose, chosen, go, to } from '../state/place.ts';
import { now } from '../state/session.ts';
import { useRights } from '../state/rights.ts';

function Send({ name, fifo, close, done }: { name: string; fifo: boolean; close: () => void; done: () => void }) {
  const [value, setValue] = useState('');
  const [delay, setDelay] = useState('');
  const [group, setGroup] = useState('');
  const body: Record<string, unknown> = { value };
  if (delay) body['delay'] = delay;
  if (fifo) body['group'] = group || 'default';
  return (
    <Act title={`Send to ${name}`} close={close} act="Send 1 message" ready={value !== ''}
      commands={[
        { words: 'The same on the command line', text: `headrace queue send ${quoted(name)} ${quoted(value)}${delay ? ` --delay ${delay}` : ''}${fifo ? ` --group ${quoted(group || 'default')}` : ''}${viaHttp()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} '${http()}/queues/${encodeURIComponent(name)}/messages'` },
      ]}
      run={async () => {
        const sent = await post('/queues/{queue}/messages', { queue: name }, body);
        tell(`Sent: ${sent.message_id}`);
        done();
      }}>
      <label class="field"><span>Message</span><textarea rows={5} value={value} spellcheck={false} onInput={(event) => setValue(event.currentTarget.value)} /></label>
      <div class="fields">
        <label class="field"><span>Not before</span><input placeholder="at once; 90s, 3d" value={delay} onInput={(event) => setDelay(event.currentTarget.value)} /></label>
        {fifo && <label class="field"><span>Message group</span><input placeholder="default" value={group} onInput={(event) => setGroup(event.currentTarget.value)} /></label>}
      </div>
    </Act>
  );
}

function Messages({ queue }: { queue: ShownQueue }) {
  const at = chosen('at');
  const { value, problem, again } = useLoad(`peek ${queue.name}`, (signal) => get('/queues/{queue}/messages', { queue: queue.name }, { query: { peek: true, max: 100 }, signal }), 5_000);
  if (problem && !value) return <ProblemBox of={problem} again={again} />;
  if (!value) return <Waiting />;
  if (!value.items.length && queue.unknown_partitions)
    return <div class="card"><Empty title="Nobody knows what is in it"><p>What lies in its partitions comes back with the broker that leads them.</p></Empty></div>;
  if (!value.items.length)
    return <div class="card"><Empty title={queue.in_flight || queue.delayed ? 'Nothing is ready' : 'The queue is empty'}><p>{queue.in_flight ? `${many(queue.in_flight, 'message')} in flight. ` : ''}{queue.delayed ? `${many(queue.delayed, 'message')} wait for their time.` : ''} Looking here takes nothing out.</p></Empty></div>;
  return (
    <div class={at ? 'split with' : 'split'}>
      <div>
        <p class="bar faint">The first {count(value.items.length)} of {count(queue.ready)} that a worker would get. Looking takes nothing out.</p>
        <div class="scroll">
          <table>
            <thead><tr><th class="slim" scope="col">Sent</th><th class="n slim less" scope="col">Offset</th><th scope="col">Message</th></tr></thead>
            <tbody>{value.items.map((row) => {
              const place = `${row.partition}:${row.offset}`;
              const open = (): void => choose({ at: place });
              return (
                <tr key={place} class={`open${at === place ? ' on' : ''}`} tabIndex={0} data-row data-at={place} onClick={open} onKeyDown={(event) => { if (event.key === 'Enter') open(); }}>
                  <td class="slim"><When ms={row.timestamp_ms} /></td><td class="n slim less">{count(row.offset)}</td><td class="text mono">{brief(row.value)}</td>
                </tr>
              );
            })}</tbody>
          </table>
        </div>
      </div>
      {at && <MessagePanel key={at} topic={queue.topics[0]!} at={at} />}
    </div>
  );
}

function Explain({ name, close }: { name: string; close: () => void }) {
  const { value, problem } = useLoad(`explain queue ${name}`, (signal) => get('/api/v1/queues/{queue}/explain', { queue: name }, { signal }));
  return (
    <Sheet title={`How it stands with ${name}, and why`} close={close} wide foot={<button onClick={close}>Close</button>}>
      {problem && <ProblemBox of={problem} />}
      {!value && !problem && <Waiting what="Looking" />}
      {value && <Findings sentence={value.sentence} findings={value.findings} command={`headrace queue explain ${quoted(name)}${viaHttp()}`} />}
    </Sheet>
  );
}

function Settings({ queue }: { queue: ShownQueue }) {
  const rows: [string, string][] = [
    ['Kind', queue.fifo ? `${queue.kind}, first in first out within a group` : queue.kind],
    ['Topics', queue.topics.join(', ')],
    ['Lock of a receiver', span(queue.visibility_ms)],
    ['Deliveries before it is dead', queue.max_deliveries ? String(queue.max_deliveries) : 'any number'],
    ['Dead letters go to', queue.dead_letter || 'nowhere: they are tried for ever'],
    ['Dead letters of', queue.dead_letter_of.join(', ') || '–'],
    ['Every message rests first', queue.default_delay_ms ? span(queue.default_delay_ms) : 'not at all'],
    ['Filter', queue.filter || 'everything'],
  ];
  return (
    <div class="card">
      <dl class="facts">{rows.map(([name, value]) => <><dt key={name}>{name}</dt><dd>{visible(value)}</dd></>)}</dl>
    </div>
  );
}

// Of a FIFO queue: which group is held up, by which message, until when.
function Groups({ name }: { name: string }) {
  const { value, problem, again } = useLoad(`groups of ${name}`, (signal) => get('/api/v1/queues/{queue}/groups', { queue: name }, { signal }), 2_000);
  if (problem && !value) return <ProblemBox of={problem} again={again} />;
  if (!value) return <Waiting />;
  if (!value.items.length) return <div class="card"><Empty title="No message group holds anything"><p>Messages of one group are handed out one after the other; each waits until the one before it is done.</p></Empty></div>;
  return (
    <Table>
      <thead><tr><th scope="col">Group</th><th class="n" scope="col">Waiting</th><th scope="col">Held up by</th><th class="n less" scope="col">Deliveries</th><th scope="col">Until</th><th class="less" scope="col">Held by</th></tr></thead>
      <tbody>{value.items.map((row) => (
        <tr key={`${row.partition} ${row.group}`}>
          <td class="name"><Name of={row.group || '(none)'} /></td><td class="n">{count(row.waiting)}</td>
          <td>{row.by_offset === null ? <span class="faint">nothing</span> : <A href={`${to('topics', row.topic)}?at=${row.partition}:${row.by_offset}`}>{row.in_flight ? 'a message in flight' : 'a message that rests'} ({row.partition}:{row.by_offset})</A>}</td>
          <td class="n less">{row.by_offset === null ? '–' : count(row.deliveries)}</td><td>{row.due_ms ? <Age ms={row.due_ms} /> : <span class="faint">–</span>}</td><td class="less">{row.holder ? <Name of={row.holder} /> : <span class="faint">–</span>}</td>
        </tr>
      ))}</tbody>
    </Table>
  );
}

export function Page({ name }: { name: string }) {
  const tab = chosen('tab') || 'messages';
  const { value, problem, again } = useLoad(`queue ${name}`, (signal) => get('/api/v1/queues/{queue}', { queue: name }, { signal }), 2_000);
  const live = useLive<QueueNow>(`queue:${name}`);
  const [act, setAct] = useState<'send' | 'purge' | 'delete' | 'pause' | 'explain' | undefined>();
  const close = (): void => setAct(undefined);
  const may = useRights('group', name);
  if (problem && !value) return <div class="stack"><Head crumb={<A href={to('queues')}>Queues</A>} title={<Name of={name} />} /><ProblemBox of={problem} again={again} remedy={<A class="button small" href={`${to('queues')}?new=${encodeURIComponent(name)}`}>Create it</A>} /></div>;
  if (!value) return <Waiting />;
  const all = value.ready + value.in_flight + value.delayed;
  const path = `${http()}/api/v1/queues/${encodeURIComponent(name)}`;
  return (
    <>
      <Head crumb={<A href={to('queues')}>Queues</A>} title={<><Name of={name} /> {value.paused && <span class="chip warn">paused</span>}</>} lead={
        <span class={isStale() ? 'faint' : ''}>
          {value.unknown_partitions === value.partitions ? 'Not known how many are in it' : <>{count(value.ready)} ready · {count(value.in_flight)} in flight · {count(value.delayed)} waiting</>}
          {live && <> · {rate(live.done_per_s)} done/s{live.oldest_ms ? ` · the oldest for ${span(now.value - live.oldest_ms)}` : ''}</>}
          {value.dead_letter && <> · dead letters go to <A href={to('queues', value.dead_letter)}><Name of={value.dead_letter} /></A></>}
        </span>
      }>
        <button class="main-act" onClick={() => setAct('send')}>Send</button>
        <button onClick={() => setAct('explain')}>Explain</button>
        <button disabled={may('alter_configs') !== undefined} title={may('alter_configs')} onClick={() => setAct('pause')}>{value.paused ? 'Resume' : 'Pause'}</button>
        <button class="danger" disabled={may('delete') !== undefined} title={may('delete')} onClick={() => setAct('purge')}>Purge</button>
        <button class="danger" disabled={may('delete') !== undefined} title={may('delete')} onClick={() => setAct('delete')}>Delete</button>
      </Head>
      {value.unknown_partitions > 0 && (
        <p class="problem bar" role="alert">
          <span><strong>{value.unknown_partitions === value.partitions ? (value.partitions === 1 ? 'Its partition does' : `None of its ${value.partitions} partitions does`) : `${many(value.unknown_partitions, 'partition')} of ${value.partitions} ${value.unknown_partitions === 1 ? 'does' : 'do'}`} not answer.</strong> What lies there is not counted here, and nobody receives it until the broker that leads it is back. <A href={to('cluster')}>Which broker</A></span>
        </p>
      )}
      {value.dead_letter_of.length > 0 && value.ready > 0 && <p class="bar"><A href={`${to('dead')}?queue=${encodeURIComponent(name)}`}>Why {many(value.ready, 'message')} are here, and sending them back</A></p>}
      <Tabs all={[['messages', 'Messages'], ['locks', 'Locks'], ...(value.fifo ? [['groups', 'Groups'] as [string, string]] : []), ['settings', 'Settings']]} />
      {tab === 'messages' && <Messages queue={value} />}
      {tab === 'locks' && <Locks name={name} />}
      {tab === 'groups' && <Groups name={name} />}
      {tab === 'settings' && <Settings queue={value} />}
      {act === 'explain' && <Explain name={name} close={close} />}
      {act === 'send' && <Send name={name} fifo={value.fifo} close={close} done={again} />}
      {act === 'pause' && (
        <Act title={value.paused ? `Resume ${name}` : `Pause ${name}`} close={close} act={value.paused ? 'Resume deliveries' : 'Pause deliveries'}
          commands={[{ words: 'The same on the command line', text: `headrace queue set ${quoted(name)} ${value.paused ? `--resume` : `--pause`}${viaHttp()}` }, { words: 'The same with curl', text: `curl -X POST ${path}/${value.paused ? 'resume' : 'pause'}` }]}
          run={async () => {
            if (value.paused) await post('/api/v1/queues/{queue}/resume', { queue: name }, undefined);
            else await post('/api/v1/queues/{queue}/pause', { queue: name }, undefined);
            tell(value.paused ? `${name} delivers again` : `${name} is paused`);
            again();
          }}>
          <p>{value.paused ? `${many(value.ready, 'message')} can be received again.` : 'Messages are still taken in, and nobody receives any until it is resumed. What is in flight can be settled.'}</p>
        </Act>
      )}
      {act === 'purge' && (
        <Act title={`Purge ${name}`} close={close} act={`Throw away ${many(all, 'message')}`} danger typed={name}
          commands={[{ words: 'The same on the command line', text: `headrace queue purge ${quoted(name)} --yes${viaHttp()}` }, { words: 'The same with curl', text: `curl -X POST ${path}/purge` }]}
          run={async () => { const done = await post('/api/v1/queues/{queue}/purge', { queue: name }, undefined); tell(`Threw away ${many(done.purged, 'message')}`); again(); }}>
          <p>{many(value.ready, 'message')} ready, {count(value.in_flight)} in flight and {count(value.delayed)} waiting are gone for good.</p>
        </Act>
      )}
      {act === 'delete' && (
        <Act title={`Delete ${name}`} close={close} act={`Delete ${name}`} danger typed={name}
          commands={[{ words: 'The same on the command line', text: `headrace queue delete ${quoted(name)} --yes${viaHttp()}` }, { words: 'The same with curl', text: `curl -X DELETE ${path}` }]}
          run={async () => { await remove('/api/v1/queues/{queue}', { queue: name }); tell(`Deleted ${name}`); go(to('queues')); }}>
          <p>The queue and {many(all, 'message')} in it are gone for good{value.kind === 'subscription' ? '; its topics stay' : ', with its topic'}.</p>
        </Act>
      )}
    </>
  );
}
