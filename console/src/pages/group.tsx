// One group: where it stands, why it is behind (5.6), and moving it, with a way back (5.4).
import { useState } from 'preact/hooks';
import { get, post, remove } from '../api/client.ts';
import type { SeekResult, ShownGroup } from '../api/types.ts';
import { Chart, useHistory } from '../parts/charts.tsx';
import { Act, Sheet } from '../parts/dialog.tsx';
import { Findings } from '../parts/explained.tsx';
import { useLoad } from '../parts/load.ts';
import { Table } from '../parts/table.tsx';
import { A, Age, Empty, Head, Name, ProblemBox, tell, Waiting } from '../parts/ui.tsx';
import { count, many, quoted, rate, visible } from '../parts/words.ts';
import { useLive, type GroupNow } from '../state/live.ts';
import { http, viaHttp, viaKafka } from '../state/places.ts';
import { go, to } from '../state/place.ts';
import { useRights } from '../state/rights.ts';

function Explain({ name, close }: { name: string; close: () => void }) {
  const { value, problem } = useLoad(`explain ${name}`, (signal) => get('/api/v1/groups/{group}/explain', { group: name }, { signal }));
  return (
    <Sheet title={`Why ${name} is behind`} close={close} wide foot={<button onClick={close}>Close</button>}>
      {problem && <ProblemBox of={problem} />}
      {!value && !problem && <Waiting what="Looking" />}
      {value && <Findings sentence={value.sentence} findings={value.findings} command={`headrace group explain ${quoted(name)}${viaHttp()}`} />}
    </Sheet>
  );
}

// Kafka writes an address as Java does, with a slash before it.
const plainHost = (host: string): string => host.replace(/^\//, '');

type To = 'start' | 'end' | 'offset' | 'back' | 'on' | 'time';

function Seek({ group, close, done }: { group: ShownGroup; close: () => void; done: (result: SeekResult) => void }) {
  const topics = [...new Set(group.partitions.map((one) => one.topic))];
  const [topic, setTopic] = useState(topics.length === 1 ? topics[0]! : '');
  const [partition, setPartition] = useState('');
  const [kind, setKind] = useState<To | ''>('');
  const [value, setValue] = useState('');
  const words: Record<To, string> = {
    start: 'start', end: 'end', offset: value, back: `-${value}`, on: `+${value}`, time: value ? `@${new Date(value).toISOString().replace('.000Z', 'Z')}` : '',
  };
  const ready = kind !== '' && topic !== '' && (kind === 'start' || kind === 'end' || value !== '');
  const where = kind === '' ? '' : words[kind];
  const body: Record<string, unknown> = { topic, to: where };
  if (partition !== '') body['partition'] = Number(partition);
  const plan = useLoad(`seek ${group.name} ${ready ? JSON.stringify(body) : ''}`, async (signal) => (ready ? post('/api/v1/groups/{group}/seek', { group: group.name }, { ...body, dry_run: true }, { signal }) : undefined));
  const rows = plan.value?.partitions ?? [];
  const moved = rows.filter((row) => row.from_offset !== row.to_offset);
  const again = moved.reduce((sum, row) => sum + Math.max(0, (row.from_offset ?? row.to_offset) - row.to_offset), 0);
  const skipped = moved.reduce((sum, row) => sum + Math.max(0, row.to_offset - (row.from_offset ?? row.to_offset)), 0);
  const members = group.members.length;
  return (
    <Act title={`Move ${group.name}`} close={close} wide act={moved.length ? `Move ${many(moved.length, 'partition')}` : 'Nothing to move'} ready={ready && moved.length > 0 && members === 0}
      commands={ready ? [
        { words: 'The same on the command line', text: `headrace group seek ${quoted(group.name)} --to ${quoted(where)} --topic ${quoted(partition === '' ? topic : `${topic}:${partition}`)}${viaKafka()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} '${http()}/api/v1/groups/${encodeURIComponent(group.name)}/seek'` },
      ] : []}
      run={async () => done(await post('/api/v1/groups/{group}/seek', { group: group.name }, body))}>
      {members > 0 && <p class="problem">Stop its {many(members, 'member')} first: {group.members.slice(0, 5).map((member) => visible(`${member.client_id || member.member_id} on ${plainHost(member.host)}`)).join(', ')}. A group can be moved while it has no members.</p>}
      <div class="fields">
        <label class="field"><span>Topic</span><select value={topic} onChange={(event) => setTopic(event.currentTarget.value)}><option value="">choose one</option>{topics.map((one) => <option key={one} value={one}>{one}</option>)}</select></label>
        <label class="field"><span>Partition</span><input inputMode="numeric" placeholder="all of them" value={partition} onInput={(event) => setPartition(event.currentTarget.value.replace(/\D/g, ''))} /></label>
        <label class="field"><span>To</span>
          <select value={kind} onChange={(event) => { setKind(event.currentTarget.value as To | ''); setValue(''); }}>
            <option value="">choose</option><option value="start">the start</option><option value="end">the end</option><option value="time">a time</option><option value="offset">an offset</option><option value="back">so many before the end</option><option value="on">so many on from where it is</option>
          </select>
        </label>
        {kind === 'time' && <label class="field"><span>Time (local)</span><input type="datetime-local" step={1} value={value} onInput={(event) => setValue(event.currentTarget.value)} /></label>}
        {(kind === 'offset' || kind === 'back' || kind === 'on') && <label class="field"><span>{kind === 'offset' ? 'Offset' : 'Messages'}</span><input inputMode="numeric" value={value} onInput={(event) => setValue(event.currentTarget.value.replace(/\D/g, ''))} /></label>}
      </div>
      {plan.problem && <ProblemBox of={plan.problem} />}
      {ready && plan.value && (
        <>
          <p role="status">{moved.length === 0 ? 'It stands there already.' : <>{again > 0 && <><strong>{many(again, 'message')}</strong> would be read again. </>}{skipped > 0 && <><strong>{many(skipped, 'message')}</strong> would be skipped.</>}</>}</p>
          <Table class="">
            <thead><tr><th scope="col">Partition</th><th class="n" scope="col">Now</th><th class="n" scope="col">After</th><th class="n" scope="col">Difference</th></tr></thead>
            <tbody>{rows.slice(0, 100).map((row) => (
              <tr key={`${row.topic} ${row.partition}`}><td>{visible(row.topic)}-{row.partition}</td><td class="n">{count(row.from_offset)}</td><td class="n">{count(row.to_offset)}</td><td class="n">{row.from_offset === null ? '–' : `${row.to_offset >= row.from_offset ? '+' : '−'}${count(Math.abs(row.to_offset - row.from_offset))}`}</td></tr>
            ))}</tbody>
          </Table>
        </>
      )}
    </Act>
  );
}

export function Page({ name }: { name: string }) {
  const { value, problem, again } = useLoad(`group ${name}`, (signal) => get('/api/v1/groups/{group}', { group: name }, { signal }), 2_000);
  const live = useLive<GroupNow>(`group:${name}`);
  const history = useHistory([`group:${name}.lag`, `group:${name}.out`], '15s');
  const [act, setAct] = useState<'seek' | 'explain' | 'delete' | undefined>();
  const close = (): void => setAct(undefined);
  const may = useRights('group', name);
  if (problem && !value) return <div class="stack"><Head crumb={<A href={to('groups')}>Groups</A>} title={<Name of={name} />} /><ProblemBox of={problem} again={again} /></div>;
  if (!value) return <Waiting />;
  const owner = new Map(value.members.flatMap((member) => member.assignment.flatMap((owned) => owned.partitions.map((number): [string, string] => [`${owned.topic} ${number}`, member.client_id || member.member_id]))));
  const undo = async (result: SeekResult): Promise<void> => {
    const offsets = result.partitions.filter((row) => row.from_offset !== null).map((row) => ({ topic: row.topic, partition: row.partition, offset: row.from_offset }));
    await post('/api/v1/groups/{group}/seek', { group: name }, { offsets });
    tell(`${name} is back where it was`);
    again();
  };
  const lags = history.value?.series[`group:${name}.lag`] ?? [];
  return (
    <div class="stack">
      <Head crumb={<A href={to('groups')}>Groups</A>} title={<><Name of={name} /> <span class="chip">{visible(value.state)}</span></>} lead={
        <>{value.lag === 0 ? 'Not behind' : <>{many(value.lag, 'message')} behind{value.oldest_unread_ms !== null && <>, the oldest from <Age ms={value.oldest_unread_ms} /></>}</>} · {many(value.members.length, 'member')}{live && ` · ${rate(live.out_per_s)} read/s`}</>
      }>
        <button class="main-act" onClick={() => setAct('explain')}>Explain</button>
        <button onClick={() => setAct('seek')} disabled={value.partitions.length === 0 || may('read') !== undefined} title={may('read')}>Move …</button>
        <button class="danger" disabled={may('delete') !== undefined} title={may('delete')} onClick={() => setAct('delete')}>Delete</button>
      </Head>
      {lags.some((one) => one !== null) && <section class="card"><h2>Messages behind, the last quarter of an hour</h2><Chart fromMs={history.value!.from_ms} stepMs={history.value!.step_ms} format={count} lines={[{ name: 'behind', values: lags }]} /></section>}
      <section class="stack">
        <h2>Partitions</h2>
        {value.partitions.length === 0 ? <div class="card"><Empty title="It has not committed anything yet"><p>Where it stands is known after its first commit.</p></Empty></div> : (
          <Table>
            <thead><tr><th scope="col">Topic</th><th class="n" scope="col">Partition</th><th class="n" scope="col">Committed</th><th class="n" scope="col">End</th><th class="n" scope="col">Behind</th><th scope="col">Read by</th></tr></thead>
            <tbody>{value.partitions.map((row) => (
              <tr key={`${row.topic} ${row.partition}`}><td class="name"><A href={to('topics', row.topic)}><Name of={row.topic} /></A></td><td class="n">{row.partition}</td><td class="n">{count(row.committed_offset)}</td><td class="n">{count(row.end_offset)}</td><td class="n">{count(row.lag)}</td><td>{owner.has(`${row.topic} ${row.partition}`) ? <Name of={owner.get(`${row.topic} ${row.partition}`)!} /> : <span class="faint">nobody</span>}</td></tr>
            ))}</tbody>
          </Table>
        )}
      </section>
      {value.members.length > 0 && (
        <section class="stack">
          <h2>Members</h2>
          <Table class="">
            <thead><tr><th scope="col">Client</th><th scope="col">Host</th><th scope="col">Partitions</th><th class="less" scope="col">Member</th></tr></thead>
            <tbody>{value.members.map((member) => (
              <tr key={member.member_id}><td class="name"><Name of={member.client_id} /></td><td><Name of={plainHost(member.host)} /></td><td>{member.assignment.map((owned) => visible(`${owned.topic}: ${owned.partitions.join(', ')}`)).join(' · ') || <span class="faint">none</span>}</td><td class="less mono faint"><Name of={member.member_id} /></td></tr>
            ))}</tbody>
          </Table>
        </section>
      )}
      {act === 'explain' && <Explain name={name} close={close} />}
      {act === 'seek' && <Seek group={value} close={close} done={(result) => { again(); tell(`Moved ${many(result.partitions.length, 'partition')} of ${name}`, { act: { words: 'Back to where it was', run: () => void undo(result) } }); }} />}
      {act === 'delete' && (
        <Act title={`Delete ${name}`} close={close} act={`Delete ${name}`} danger typed={name} commands={[{ words: 'The same on the command line', text: `headrace group delete ${quoted(name)} --yes${viaKafka()}` }, { words: 'The same with curl', text: `curl -X DELETE '${http()}/api/v1/groups/${encodeURIComponent(name)}'` }]}
          run={async () => { await remove('/api/v1/groups/{group}', { group: name }); tell(`Deleted ${name}`); go(to('groups')); }}>
          <p>Its committed offsets are gone for good: whoever joins it again begins where its reset policy says.</p>
        </Act>
      )}
    </div>
  );
}
