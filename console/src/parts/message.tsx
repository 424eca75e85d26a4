// One message closely, beside the list it was found in; it has its own URL.
import { useState } from 'preact/hooks';
import { get } from '../api/client.ts';
import { http, kafka, viaKafka } from '../state/places.ts';
import { choose, to } from '../state/place.ts';
import { useLoad } from './load.ts';
import { brief, Payload, plain } from './payload.tsx';
import { Publish, type Draft } from './publish.tsx';
import { A, Age, Copy, Name, ProblemBox, Waiting, When } from './ui.tsx';
import { count, quoted, size, visible } from './words.ts';

const WORDS: Record<string, string> = { read: 'read', 'not-yet': 'not yet', ready: 'ready for a worker', locked: 'held by a worker', waiting: 'waits for its time', dying: 'on its way to the dead letters', done: 'done' };
const KINDS: Record<string, string> = { read: 'good', done: 'good', locked: 'accent', dying: 'bad' };

// What became of it: each group and queue over the topic has its own story.
function Became({ topic, partition, offset }: { topic: string; partition: string; offset: string }) {
  const { value } = useLoad(`became ${topic} ${partition} ${offset}`, (signal) => get('/topics/{topic}/records/{partition}/{offset}/readers', { topic, partition, offset }, { signal }), 3_000);
  return (
    <section>
      <h3>What became of it</h3>
      {value && value.items.length === 0 && <p class="faint">No group and no queue reads this topic.</p>}
      {value && value.items.length > 0 && (
        <table class="plain"><tbody>{value.items.map((row) => (
          <tr key={`${row.kind} ${row.name}`}>
            <td class="name"><A href={to(row.kind === 'group' ? 'groups' : 'queues', row.name)}><Name of={row.name} /></A></td>
            <td><span class={`chip ${KINDS[row.state] ?? ''}`}>{WORDS[row.state] ?? row.state}</span></td>
            <td class="soft num">
              {row.kind === 'group' && row.state === 'read' && `committed ${count((row.committed ?? 0) - Number(offset))} past it`}
              {row.kind === 'group' && row.state === 'not-yet' && `${count(row.ahead)} to go`}
              {row.kind !== 'group' && !!row.deliveries && `delivered ${count(row.deliveries)} ×`}
              {row.due_ms && <> · {row.state === 'locked' ? 'lock ends' : 'due'} <Age ms={row.due_ms} /></>}
              {row.holder && <> · <Name of={row.holder} /></>}
              {row.kind !== 'group' && row.state === 'done' && row.dead_letter && <> · if it failed: <A href={`${to('dead')}?queue=${encodeURIComponent(row.dead_letter)}`}>dead letters</A></>}
            </td>
          </tr>
        ))}</tbody></table>
      )}
    </section>
  );
}

export function MessagePanel({ topic, at }: { topic: string; at: string }) {
  const [partition = '', offset = ''] = at.split(':');
  const { value, problem } = useLoad(`one ${topic} ${at}`, (signal) => get('/topics/{topic}/records/{partition}/{offset}', { topic, partition, offset }, { signal }));
  const [draft, setDraft] = useState<{ title: string; draft: Draft } | undefined>();
  const close = (): void => choose({ at: undefined });
  const where = `partition ${partition}, offset ${count(Number(offset))}`;
  const headers = Object.entries((value?.headers ?? {}) as Record<string, unknown>);
  const asDraft = (): Draft => ({
    key: plain(value?.key) ?? '', value: plain(value?.value) ?? '', headers: headers.map(([name, text]): [string, string] => [name, plain(text) ?? '']),
  });
  const isText = value !== undefined && typeof (value.value ?? '') === 'string' && typeof (value.key ?? '') === 'string';
  return (
    <aside class="panel stack" aria-label={`Message at ${where}`} onKeyDown={(event) => { if (event.key === 'Escape') close(); }}>
      <div class="row">
        <h2 class="grow">{where}</h2>
        <button class="small" onClick={close} aria-label="Close the message">✕</button>
      </div>
      {problem && !value && <ProblemBox of={problem} />}
      {!value && !problem && <Waiting />}
      {value && (
        <>
          <div class="row">
            <button class="small" data-key="e" disabled={!isText} title={isText ? undefined : 'Bytes that are no text can be sent again with a client'} onClick={() => setDraft({ title: `Edit and send to ${topic}`, draft: asDraft() })}>Edit and send</button>
            <button class="small" disabled={!isText} onClick={() => setDraft({ title: `Send again to ${topic}`, draft: { ...asDraft(), partition: value.partition } })}>Send again</button>
            <Copy words="Copy JSON" what="the message as JSON" text={JSON.stringify(value, null, 2)} />
            <Copy words="curl" what="a curl line" text={`curl '${http()}/topics/${encodeURIComponent(topic)}/records/${partition}/${offset}'`} />
            <Copy words="kcat" what="a kcat line" text={`kcat -b ${kafka()} -t ${quoted(topic)} -p ${partition} -o ${offset} -c 1 -C`} />
            <Copy words="headrace" what="a headrace line" text={`headrace topic consume ${quoted(topic)} -p ${partition} -o ${offset} -n 1${viaKafka()}`} />
          </div>
          <section class="stack"><h3>Value</h3><Payload value={value.value} what="the value" /></section>
          <section class="stack"><h3>Key</h3><Payload value={value.key} what="the key" /></section>
          <section>
            <h3>Headers</h3>
            {headers.length === 0 ? <p class="faint">None</p> : (
              <table class="plain"><tbody>{headers.map(([name, text]) => <tr key={name}><th scope="row" class="slim"><Name of={name} /></th><td class="mono">{brief(text, 4_000)}</td></tr>)}</tbody></table>
            )}
          </section>
          <Became topic={topic} partition={partition} offset={offset} />
          <dl class="facts">
            <dt>Time</dt><dd><When ms={value.timestamp_ms} />{value.batch.log_append_time && <span class="faint"> given by the broker</span>}</dd>
            <dt>Size</dt><dd class="num">{size(value.size)}</dd>
            <dt>Batch</dt><dd class="num">{count(value.batch.records)} records from offset {count(value.batch.base_offset)}, {size(value.batch.bytes)}, {value.batch.codec === 'none' ? 'not compressed' : value.batch.codec}</dd>
            <dt>Producer</dt><dd class="num">{value.batch.producer_id === null ? 'not idempotent' : `${value.batch.producer_id}, epoch ${value.batch.producer_epoch}${value.batch.transactional ? ', in a transaction' : ''}`}</dd>
            <dt>Leader epoch</dt><dd class="num">{value.batch.leader_epoch}</dd>
          </dl>
        </>
      )}
      {draft && <Publish topic={topic} draft={draft.draft} title={visible(draft.title)} close={() => setDraft(undefined)} />}
    </aside>
  );
}
