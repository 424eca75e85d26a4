// Queues and subscriptions: what waits, what is locked, and where the dead go.
import { useState } from 'preact/hooks';
import { get, post } from '../api/client.ts';
import type { ListedQueue } from '../api/types.ts';
import { Act } from '../parts/dialog.tsx';
import { List, type Column } from '../parts/list.tsx';
import { A, Command, Empty, Head, Name, tell } from '../parts/ui.tsx';
import { count, quoted, rate, span } from '../parts/words.ts';
import { http, viaHttp } from '../state/places.ts';
import { choose, chosen, go, to } from '../state/place.ts';
import { useCreating } from '../state/rights.ts';

// What nobody answers for is not nothing.
const known = (row: ListedQueue, value: number): string => (row.unknown_partitions === row.partitions ? 'not known' : count(value));

const COLUMNS: Column<ListedQueue>[] = [
  { words: 'Name', sort: 'name', name: true, show: (row) => <><A href={to('queues', row.name)}><Name of={row.name} /></A> {row.fifo && <span class="chip">fifo</span>} {row.kind === 'subscription' && <span class="chip">subscription</span>} {row.paused && <span class="chip warn">paused</span>} {row.unknown_partitions > 0 && <span class="chip bad">{row.unknown_partitions === row.partitions ? 'nobody answers' : `${row.unknown_partitions} of ${row.partitions} partitions do not answer`}</span>} {row.dead_letter_of.length > 0 && <span class="chip">dead letters</span>}</> },
  { words: 'Ready', sort: 'ready', number: true, show: (row) => known(row, row.ready) },
  { words: 'In flight', sort: 'in_flight', number: true, show: (row) => known(row, row.in_flight) },
  { words: 'Waiting', sort: 'delayed', number: true, less: true, show: (row) => known(row, row.delayed) },
  { words: 'In/s', number: true, less: true, show: (row) => rate(row.in_per_s) },
  { words: 'Done/s', sort: 'done', number: true, show: (row) => rate(row.done_per_s) },
  { words: 'Oldest', sort: 'age', number: true, show: (row) => (row.ready + row.in_flight ? span(row.oldest_age_ms) : <span class="faint">–</span>) },
  { words: 'Dead letters to', less: true, show: (row) => (row.dead_letter ? <A href={to('queues', row.dead_letter)}>→ <Name of={row.dead_letter} /></A> : <span class="faint">–</span>) },
];

function CreateQueue({ close, called = '' }: { close: () => void; called?: string }) {
  const [name, setName] = useState(called);
  const [fifo, setFifo] = useState(called.endsWith('.fifo'));
  const [dead, setDead] = useState('');
  const [most, setMost] = useState('5');
  const [seconds, setSeconds] = useState('30');
  const refused = useCreating(name);
  const body: Record<string, unknown> = { name, fifo, visibility_ms: (Number(seconds) || 30) * 1000 };
  if (dead) Object.assign(body, { dead_letter: dead, max_deliveries: Number(most) || 5 });
  return (
    <Act title="Create a queue" close={close} act={name ? `Create ${name}` : 'Create the queue'} ready={name !== ''} refused={refused}
      commands={[
        { words: 'The same on the command line', text: `headrace queue create ${quoted(name || 'NAME')}${fifo ? ' --fifo' : ''}${dead ? ` --dlq ${quoted(dead)} --max-receives ${most || 5}` : ''} --visibility ${seconds || 30}s${viaHttp()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} ${http()}/api/v1/queues` },
      ]}
      run={async () => {
        await post('/api/v1/queues', {}, body);
        tell(`Created ${name}`);
        go(to('queues', name));
      }}>
      <label class="field"><span>Name</span><input value={name} spellcheck={false} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} /></label>
      <div class="fields">
        <label class="field"><span>Seconds a receiver has</span><input inputMode="numeric" value={seconds} onInput={(event) => setSeconds(event.currentTarget.value.replace(/\D/g, ''))} /></label>
        <label class="field"><span>Dead letters go to</span><input placeholder="no other queue" value={dead} spellcheck={false} onInput={(event) => setDead(event.currentTarget.value)} /></label>
        {dead && <label class="field"><span>after so many deliveries</span><input inputMode="numeric" value={most} onInput={(event) => setMost(event.currentTarget.value.replace(/\D/g, ''))} /></label>}
      </div>
      <label class="tick"><input type="checkbox" checked={fifo} onChange={(event) => setFifo(event.currentTarget.checked)} /> Keep the order within each message group (FIFO)</label>
    </Act>
  );
}

export function Page(_: { name: string }) {
  const [creating, setCreating] = useState(chosen('new') !== '');
  return (
    <>
      <Head title="Queues" lead="Each message goes to one worker, again when it fails, and to the dead letters when it fails too often.">
        <button class="main-act" onClick={() => setCreating(true)}>Create a queue</button>
      </Head>
      <List<ListedQueue> id="queues" what="queues" columns={COLUMNS} name={(row) => row.name} href={(row) => to('queues', row.name)}
        ask={({ signal, ...query }) => get('/api/v1/queues', {}, { query: { ...query, with: 'rates' }, signal })}
        empty={<Empty title="No queues yet"><p>A queue is made when somebody sends to it.</p><Command text={`curl ${http()}/queues/jobs/messages -d 'resize photo 7'`} /><button class="main-act" onClick={() => setCreating(true)}>Create a queue</button></Empty>} />
      {creating && <CreateQueue called={chosen('new')} close={() => { setCreating(false); choose({ new: '' }); }} />}
    </>
  );
}
