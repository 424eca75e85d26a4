// Publish a message, or send one again as it was or changed (5.3).
import { useState } from 'preact/hooks';
import { post } from '../api/client.ts';
import { http, viaKafka } from '../state/places.ts';
import { Act } from './dialog.tsx';
import { tree } from './json.ts';
import { tell } from './ui.tsx';
import { count, quoted } from './words.ts';

export interface Draft { key: string; value: string; headers: [string, string][]; partition?: number | undefined }

export function Publish({ topic, draft, title = `Publish to ${topic}`, close, done }: { topic: string; draft?: Draft; title?: string; close: () => void; done?: () => void }) {
  const [key, setKey] = useState(draft?.key ?? '');
  const [value, setValue] = useState(draft?.value ?? '');
  const [headers, setHeaders] = useState(draft?.headers.map(([name, text]) => `${name}: ${text}`).join('\n') ?? '');
  const [partition, setPartition] = useState(draft?.partition === undefined ? '' : String(draft.partition));
  const [times, setTimes] = useState('1');
  const [delay, setDelay] = useState('');
  const pairs = headers.split('\n').filter((row) => row.trim()).map((row): [string, string] => {
    const at = row.indexOf(':');
    return at < 0 ? [row.trim(), ''] : [row.slice(0, at).trim(), row.slice(at + 1).trim()];
  });
  const many = Math.min(1000, Math.max(1, Number(times) || 1));
  const looksLike = /^\s*[[{]/.test(value);
  const isJson = looksLike && tree(value) !== undefined;
  const record: Record<string, unknown> = { value };
  if (key) record['key'] = key;
  if (pairs.length) record['headers'] = Object.fromEntries(pairs);
  if (delay) record['delay'] = delay;
  const chosen = partition === '' ? '' : `?partition=${partition}`;
  const words = many === 1 ? 'Publish 1 message' : `Publish ${count(many)} messages`;
  const flags = `${key ? ` -k ${quoted(key)}` : ''}${pairs.map(([name, text]) => ` -H ${quoted(`${name}:${text}`)}`).join('')}${partition === '' ? '' : ` -p ${partition}`}`;
  return (
    <Act title={title} close={close} act={words} wide
      commands={[
        ...(delay || many > 1 ? [] : [{ words: 'The same on the command line', text: `headrace topic produce ${quoted(topic)} ${quoted(value)}${flags}${viaKafka()}` }]),
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(many === 1 ? record : { records: Array.from({ length: Math.min(many, 2) }, () => record) }))} '${http()}/topics/${encodeURIComponent(topic)}/records${chosen}'${many > 2 ? `   # … ${many} records` : ''}` },
      ]}
      run={async () => {
        const body = { records: Array.from({ length: many }, () => record) };
        const sent = await post('/topics/{topic}/records', { topic }, body, { query: { partition: partition === '' ? undefined : partition } });
        const first = sent.records[0]!;
        tell(many === 1 ? `Published to partition ${first.partition} at offset ${first.offset}` : `Published ${count(sent.records.length)} messages`);
        done?.();
      }}>
      <label class="field">
        <span>Value {looksLike && (isJson ? <span class="chip good">JSON</span> : <span class="chip warn">not valid JSON</span>)}</span>
        <textarea rows={7} value={value} spellcheck={false} onInput={(event) => setValue(event.currentTarget.value)} />
      </label>
      <div class="fields">
        <label class="field"><span>Key</span><input value={key} spellcheck={false} onInput={(event) => setKey(event.currentTarget.value)} /></label>
        <label class="field"><span>Partition</span><input inputMode="numeric" placeholder="by key, or any" value={partition} onInput={(event) => setPartition(event.currentTarget.value.replace(/\D/g, ''))} /></label>
        <label class="field"><span>How many times</span><input inputMode="numeric" value={times} onInput={(event) => setTimes(event.currentTarget.value.replace(/\D/g, ''))} /></label>
        <label class="field"><span>Not before (queues)</span><input placeholder="90s, 3d" value={delay} onInput={(event) => setDelay(event.currentTarget.value)} /></label>
      </div>
      <label class="field">
        <span>Headers, one a line as in “tag: eu”</span>
        <textarea rows={2} value={headers} spellcheck={false} onInput={(event) => setHeaders(event.currentTarget.value)} />
      </label>
    </Act>
  );
}
