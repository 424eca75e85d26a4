// Topics: which there are, how much is in them, and what flows.
import { useState } from 'preact/hooks';
import { get, post, remove } from '../api/client.ts';
import type { ListedTopic } from '../api/types.ts';
import { Act } from '../parts/dialog.tsx';
import { List, type Column } from '../parts/list.tsx';
import { A, Age, Command, Empty, Head, Name, tell } from '../parts/ui.tsx';
import { count, many, quoted, rate, size } from '../parts/words.ts';
import { http, viaKafka } from '../state/places.ts';
import { choose, chosen, go, to } from '../state/place.ts';
import { useCreating } from '../state/rights.ts';

export const KINDS: Record<string, string> = { queue: 'queue', view: 'view', delayed: 'delayed', internal: 'internal' };

// What lies where nobody leads is not nothing.
const counted = (row: ListedTopic): string => (row.unknown_partitions && row.unknown_partitions === row.partition_count ? 'not known' : `${count(row.messages)}${row.unknown_partitions ? ' + ?' : ''}`);

const COLUMNS: Column<ListedTopic>[] = [
  { words: 'Name', sort: 'name', name: true, show: (row) => <><A href={to('topics', row.name)}><Name of={row.name} /></A> {KINDS[row.kind ?? ''] && <span class="chip">{KINDS[row.kind ?? '']}</span>} {!!row.unknown_partitions && <span class="chip bad">{row.unknown_partitions} of {row.partition_count} partitions without a leader</span>}</> },
  { words: 'Messages', sort: 'messages', number: true, show: (row) => counted(row) },
  { words: 'In/s', sort: 'in', number: true, show: (row) => rate(row.in_per_s) },
  { words: 'Out', sort: 'out', number: true, less: true, show: (row) => (row.out_bytes_per_s ? `${size(row.out_bytes_per_s)}/s` : '0') },
  { words: 'Size', sort: 'bytes', number: true, show: (row) => size(row.bytes) },
  { words: 'Partitions', sort: 'partitions', number: true, less: true, show: (row) => count(row.partition_count) },
  { words: 'Groups', number: true, less: true, show: (row) => count(row.groups) },
  { words: 'Last write', sort: 'last_write', number: true, less: true, show: (row) => (row.last_write_ms ? <Age ms={row.last_write_ms} /> : <span class="faint">–</span>) },
];

export function CreateTopic({ close, called = '' }: { close: () => void; called?: string }) {
  const [name, setName] = useState(called);
  const [partitions, setPartitions] = useState('');
  const [retention, setRetention] = useState('');
  const [compact, setCompact] = useState(false);
  const refused = useCreating(name);
  const configs: Record<string, string> = {};
  if (retention) configs['retention.ms'] = retention;
  if (compact) configs['cleanup.policy'] = 'compact';
  const body: Record<string, unknown> = { name };
  if (partitions) body['partitions'] = Number(partitions);
  if (Object.keys(configs).length) body['configs'] = configs;
  const flags = `${partitions ? ` -p ${partitions}` : ''}${Object.entries(configs).map(([key, value]) => ` -c ${key}=${value}`).join('')}`;
  return (
    <Act title="Create a topic" close={close} act={name ? `Create ${name}` : 'Create the topic'} ready={name !== ''} refused={refused}
      commands={[
        { words: 'The same on the command line', text: `headrace topic create ${quoted(name || 'NAME')}${flags}${viaKafka()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} ${http()}/api/v1/topics` },
      ]}
      run={async () => {
        await post('/api/v1/topics', {}, body);
        tell(`Created ${name}`);
        go(to('topics', name));
      }}>
      <label class="field"><span>Name</span><input value={name} spellcheck={false} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} /></label>
      <div class="fields">
        <label class="field"><span>Partitions</span><input inputMode="numeric" placeholder="as the broker is set" value={partitions} onInput={(event) => setPartitions(event.currentTarget.value.replace(/\D/g, ''))} /></label>
        <label class="field"><span>Retention</span>
          <select value={retention} onChange={(event) => setRetention(event.currentTarget.value)}>
            <option value="">as the broker is set</option><option value="3600000">1 hour</option><option value="86400000">1 day</option><option value="604800000">7 days</option><option value="2592000000">30 days</option><option value="-1">for ever</option>
          </select>
        </label>
      </div>
      <label class="tick"><input type="checkbox" checked={compact} onChange={(event) => setCompact(event.currentTarget.checked)} /> Keep the last message of each key (compaction)</label>
    </Act>
  );
}

export function DeleteTopics({ names, close, done }: { names: string[]; close: () => void; done: () => void }) {
  const one = names.length === 1;
  const typed = one ? names[0]! : `${names.length} topics`;
  return (
    <Act title={one ? `Delete ${names[0]}` : `Delete ${many(names.length, 'topic')}`} close={close} act={one ? `Delete ${names[0]}` : `Delete ${many(names.length, 'topic')}`} danger typed={typed}
      commands={[
        { words: 'The same on the command line', text: `headrace topic delete ${names.map(quoted).join(' ')}${viaKafka()} --yes` },
        { words: 'The same with curl', text: names.map((name) => `curl -X DELETE '${http()}/api/v1/topics/${encodeURIComponent(name)}'`).join('\n') },
      ]}
      run={async () => {
        for (const name of names) await remove('/api/v1/topics/{topic}', { topic: name });
        tell(one ? `Deleted ${names[0]}` : `Deleted ${many(names.length, 'topic')}`);
        done();
      }}>
      <p>Every message in {one ? 'it' : 'them'} is gone for good, with the offsets of groups that read {one ? 'it' : 'them'}.</p>
    </Act>
  );
}

export function Page(_: { name: string }) {
  const [creating, setCreating] = useState(chosen('new') !== '');
  const [deleting, setDeleting] = useState(false);
  const [picked, setPicked] = useState<Set<string>>(new Set());
  const internal = chosen('internal') === 'yes';
  return (
    <>
      <Head title="Topics" lead="Logs that any number of readers follow, each at its own pace.">
        {picked.size > 0 && <button class="danger" onClick={() => setDeleting(true)}>Delete {many(picked.size, 'topic')}</button>}
        <button class="main-act" onClick={() => setCreating(true)}>Create a topic</button>
      </Head>
      <List<ListedTopic> id={`topics ${internal}`} what="topics" columns={COLUMNS} name={(row) => row.name} href={(row) => to('topics', row.name)}
        picked={picked} pick={(name, on) => setPicked((before) => { const next = new Set(before); if (on) next.add(name); else next.delete(name); return next; })}
        ask={({ signal, ...query }) => get('/api/v1/topics', {}, { query: { ...query, with: 'rates,sizes,readers', internal }, signal })}
        bar={<label class="tick"><input type="checkbox" checked={internal} onChange={(event) => choose({ internal: event.currentTarget.checked ? 'yes' : '' })} /> The broker’s own</label>}
        empty={<Empty title="No topics yet"><p>A topic is made when somebody writes to it.</p><Command text={`headrace topic produce hello 'first message'${viaKafka()}`} /><button class="main-act" onClick={() => setCreating(true)}>Create a topic</button></Empty>} />
      {creating && <CreateTopic called={chosen('new')} close={() => { setCreating(false); choose({ new: '' }); }} />}
      {deleting && <DeleteTopics names={[...picked]} close={() => setDeleting(false)} done={() => setPicked(new Set())} />}
    </>
  );
}
