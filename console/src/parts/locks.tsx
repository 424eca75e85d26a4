// Who has what of a queue (5.5), and an operator who lets go of it for them. What is named is one delivery: a later one is left alone.
import { useState } from 'preact/hooks';
import { get, post } from '../api/client.ts';
import type { ShownLock } from '../api/types.ts';
import { http, viaHttp } from '../state/places.ts';
import { to } from '../state/place.ts';
import { useRights } from '../state/rights.ts';
import { Act } from './dialog.tsx';
import { useLoad } from './load.ts';
import { Table } from './table.tsx';
import { A, Empty, Name, ProblemBox, tell, Waiting, When } from './ui.tsx';
import { count, many, quoted, span, visible } from './words.ts';

type Verb = 'release' | 'extend' | 'ack' | 'reject';
const VERBS: [Verb, string, string, string][] = [
  ['release', 'Release', 'Let go of', 'It is handed out again at once, and its worker can settle it no more.'],
  ['extend', 'Extend', 'Extend', 'Its worker has so much longer from now on.'],
  ['reject', 'To dead letters', 'Send to the dead letters', 'Whatever its count of deliveries; without a dead-letter queue it is dropped.'],
  ['ack', 'Acknowledge', 'Acknowledge', 'It counts as done and is gone for good, whether or not its worker did it.'],
];

const place = (lock: ShownLock): string => `${lock.partition}:${lock.offset}`;

function Settle({ name, verb, locks, close, done }: { name: string; verb: Verb; locks: ShownLock[]; close: () => void; done: () => void }) {
  const [visibility, setVisibility] = useState('5m');
  const [detail, setDetail] = useState('');
  const [, , words, says] = VERBS.find(([one]) => one === verb)!;
  const body = { act: verb, locks: locks.map((lock) => lock.lock), ...(verb === 'extend' ? { visibility } : {}), ...(verb === 'reject' && detail ? { detail } : {}) };
  const places = locks.map(place).join(' ');
  return (
    <Act title={`${words} what others hold of ${name}`} close={close} act={`${words} ${many(locks.length, 'message')}`} danger={verb === 'ack' || verb === 'reject'} ready={locks.length > 0 && (verb !== 'extend' || visibility !== '')}
      commands={[
        { words: 'The same on the command line', text: verb === 'extend' ? `headrace queue settle ${quoted(name)} ${places} --extend ${visibility}${viaHttp()}` : `headrace queue settle ${quoted(name)} ${places} --${verb}${detail && verb === 'reject' ? ` --detail ${quoted(detail)}` : ''}${viaHttp()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} ${http()}/api/v1/queues/${encodeURIComponent(name)}/locks/settle` },
      ]}
      run={async () => {
        const found = await post('/api/v1/queues/{queue}/locks/settle', { queue: name }, body);
        tell(`${words}: ${many(found.settled, 'message')}${found.refused.length ? `; ${count(found.refused.length)} refused: ${found.refused[0]!.detail}` : ''}`, { bad: found.refused.length > 0 });
        done();
      }}>
      <p>{says}</p>
      <ul>{locks.slice(0, 5).map((lock) => <li key={lock.lock}>offset {count(lock.offset)}{lock.partition ? ` of partition ${lock.partition}` : ''}, delivered {lock.deliveries} ×{lock.holder ? `, held by ${visible(lock.holder)}` : ''}, for {span(lock.ends_in_ms)} more</li>)}{locks.length > 5 && <li>and {count(locks.length - 5)} more</li>}</ul>
      {verb === 'extend' && <label class="field"><span>For how long from now on</span><input value={visibility} placeholder="5m" onInput={(event) => setVisibility(event.currentTarget.value)} /></label>}
      {verb === 'reject' && <label class="field"><span>Why (it stands in the dead letter)</span><input value={detail} onInput={(event) => setDetail(event.currentTarget.value)} /></label>}
    </Act>
  );
}

export function Locks({ name }: { name: string }) {
  const { value, problem, again } = useLoad(`locks ${name}`, (signal) => get('/api/v1/queues/{queue}/locks', { queue: name }, { signal }), 1_000);
  const [picked, setPicked] = useState(new Set<string>());
  const [acting, setActing] = useState<{ verb: Verb; locks: ShownLock[] } | undefined>();
  const may = useRights('group', name);
  const refused = may('alter_configs') ?? may('read');
  if (problem && !value) return <ProblemBox of={problem} />;
  if (!value) return <Waiting />;
  // The dialog stays while what it is about ends: it was decided on what was shown then, and the broker refuses what is no more.
  const dialog = acting && <Settle name={name} {...acting} close={() => setActing(undefined)} done={() => { setPicked(new Set()); again(); }} />;
  if (!value.items.length) return <div class="card">{dialog}<Empty title="Nobody holds a message"><p>A message that was received and not settled yet is listed here, with the time its lock ends.</p></Empty></div>;
  const chosen = value.items.filter((lock) => picked.has(lock.lock));
  const turn = (lock: string, on: boolean): void => {
    const next = new Set(picked);
    if (on) next.add(lock);
    else next.delete(lock);
    setPicked(next);
  };
  return (
    <>
      <div class="bar">
        <label class="tick"><input type="checkbox" checked={chosen.length === value.items.length} onChange={(event) => setPicked(new Set(event.currentTarget.checked ? value.items.map((lock) => lock.lock) : []))} /> All</label>
        {VERBS.map(([verb, words]) => <button key={verb} class={verb === 'ack' || verb === 'reject' ? 'small danger' : 'small'} disabled={chosen.length === 0 || refused !== undefined} title={refused} onClick={() => setActing({ verb, locks: chosen })}>{words} …</button>)}
        <span class="right num">{count(chosen.length)} of {many(value.items.length, 'message')} chosen</span>
      </div>
      <Table>
        <thead><tr><th class="slim"><span class="hidden">Selected</span></th><th scope="col">Message</th><th scope="col">Holder</th><th class="n" scope="col">Deliveries</th><th scope="col">Received</th><th scope="col">Lock ends in</th></tr></thead>
        <tbody>{value.items.map((lock) => (
          <tr key={lock.lock} class={picked.has(lock.lock) ? 'on' : ''} tabIndex={0} data-row onKeyDown={(event) => { if (event.key === 'x' && event.target === event.currentTarget) turn(lock.lock, !picked.has(lock.lock)); }}>
            <td class="slim"><input type="checkbox" aria-label={`Select offset ${lock.offset}`} checked={picked.has(lock.lock)} onChange={(event) => turn(lock.lock, event.currentTarget.checked)} /></td>
            <td><A href={`${to('topics', lock.topic)}?at=${place(lock)}`}>offset {count(lock.offset)}{lock.partition ? ` of partition ${lock.partition}` : ''}</A></td>
            <td>{lock.holder === null ? <span class="faint">SQS and REST do not say</span> : <Name of={lock.holder} />}</td>
            <td class="n">{lock.deliveries}</td><td><When ms={lock.received_ms} /></td>
            <td><div class="row"><div class="meter grow"><i style={{ width: `${Math.min(100, (lock.ends_in_ms / Math.max(1, lock.visibility_ms)) * 100)}%` }} /></div><span class="num">{span(lock.ends_in_ms)}</span></div></td>
          </tr>
        ))}</tbody>
      </Table>
      {dialog}
    </>
  );
}
