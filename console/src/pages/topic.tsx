// One topic: its messages, its partitions, who reads it, and how it is set.
import { useState } from 'preact/hooks';
import { get, patch } from '../api/client.ts';
import type { ShownTopic } from '../api/types.ts';
import { Chart, useHistory } from '../parts/charts.tsx';
import { Act } from '../parts/dialog.tsx';
import { useLoad } from '../parts/load.ts';
import { Publish } from '../parts/publish.tsx';
import { Table } from '../parts/table.tsx';
import { A, Age, Empty, Head, Name, ProblemBox, Tabs, tell, Waiting } from '../parts/ui.tsx';
import { count, many, quoted, rate, size, visible } from '../parts/words.ts';
import { isStale, useLive, type TopicNow } from '../state/live.ts';
import { http, viaKafka } from '../state/places.ts';
import { chosen, go, to } from '../state/place.ts';
import { useRights } from '../state/rights.ts';
import { Messages } from './messages.tsx';
import { DeleteTopics } from './topics.tsx';

function Partitions({ topic }: { topic: ShownTopic }) {
  const most = Math.max(1, ...topic.partitions.map((one) => (one.end_offset ?? 0) - (one.start_offset ?? 0)));
  const history = useHistory([`topic:${topic.name}.in`], '15s');
  return (
    <div class="stack">
      {history.value && <section class="card"><h2>Messages in a second, the last quarter of an hour</h2><Chart fromMs={history.value.from_ms} stepMs={history.value.step_ms} lines={[{ name: 'in/s', values: history.value.series[`topic:${topic.name}.in`] ?? [] }]} /></section>}
      <Table class="">
          <thead><tr><th class="n slim" scope="col">Partition</th><th class="n" scope="col">Leader</th><th scope="col">Replicas</th><th scope="col">In sync</th><th class="n" scope="col">Start</th><th class="n" scope="col">End</th><th class="n" scope="col">Messages</th><th scope="col">Share</th></tr></thead>
          <tbody>
            {topic.partitions.map((one) => {
              const held = (one.end_offset ?? 0) - (one.start_offset ?? 0);
              return (
                <tr key={one.partition}>
                  <td class="n">{one.partition}</td>
                  <td class="n">{one.leader < 0 ? <span class="chip bad">none</span> : one.leader}</td>
                  <td class="num">{one.replicas.join(', ')}</td>
                  <td class="num">{one.isr.join(', ')} {one.isr.length < one.replicas.length && <span class="chip warn">{one.replicas.length - one.isr.length} {one.leader < 0 ? 'away' : 'behind'}</span>}</td>
                  <td class="n">{count(one.start_offset)}</td><td class="n">{count(one.end_offset)}</td><td class="n">{one.end_offset === null ? '–' : count(held)}</td>
                  <td><div class="meter"><i style={{ width: `${(held / most) * 100}%` }} /></div></td>
                </tr>
              );
            })}
          </tbody>
        </Table>
    </div>
  );
}

function Readers({ name }: { name: string }) {
  const { value, problem } = useLoad(`readers ${name}`, (signal) => get('/api/v1/topics/{topic}/readers', { topic: name }, { signal }), 2_000);
  if (problem && !value) return <ProblemBox of={problem} />;
  if (!value) return <Waiting />;
  if (!value.items.length) return <div class="card"><Empty title="Nobody reads this topic"><p>Groups that have committed an offset, queues, subscriptions and views of it are listed here.</p></Empty></div>;
  return (
    <Table>
        <thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th class="n" scope="col">Members</th><th class="n" scope="col">Not read yet</th><th class="n" scope="col">Reads/s</th></tr></thead>
        <tbody>{value.items.map((row) => (
          <tr key={`${row.kind} ${row.name}`}>
            <td class="name"><A href={to(row.kind === 'view' ? 'topics' : row.kind === 'group' ? 'groups' : 'queues', row.name)}><Name of={row.name} /></A></td>
            <td>{row.kind}</td><td class="n">{row.members === null ? '–' : count(row.members)}</td><td class="n">{row.lag === null ? '–' : count(row.lag)}</td><td class="n">{row.out_per_s === null ? '–' : rate(row.out_per_s)}</td>
          </tr>
        ))}</tbody>
      </Table>
  );
}

function Writers({ name }: { name: string }) {
  const { value, problem } = useLoad(`writers ${name}`, (signal) => get('/api/v1/topics/{topic}/writers', { topic: name }, { signal }), 2_000);
  if (problem && !value) return <ProblemBox of={problem} />;
  if (!value) return <Waiting />;
  if (!value.items.length) return <div class="card"><Empty title="Nobody has written here for five minutes"><p>Client ids of producers, and what writes over REST and SQS, are listed while they are at it.</p></Empty></div>;
  return (
    <Table>
        <thead><tr><th scope="col">Client</th><th scope="col">By</th><th class="n" scope="col">In/s</th><th class="n" scope="col">Last</th></tr></thead>
        <tbody>{value.items.map((row) => (
          <tr key={`${row.door} ${row.client}`}><td class="name"><Name of={row.client || 'unnamed'} /></td><td>{row.door === 'kafka' ? 'Kafka' : row.door}</td><td class="n">{rate(row.per_s)}</td><td class="n"><Age ms={row.last_ms} /></td></tr>
        ))}</tbody>
      </Table>
  );
}

function Alter({ topic, name, etag, close, done }: { topic: ShownTopic; name: string; etag: string; close: () => void; done: () => void }) {
  const before = topic.configs[name]!;
  const [value, setValue] = useState(before.value ?? '');
  const [reset, setReset] = useState(false);
  const body = { configs: { [name]: reset ? null : value } };
  const path = `${http()}/api/v1/topics/${encodeURIComponent(topic.name)}`;
  return (
    <Act title={`${name} of ${topic.name}`} close={close} act={reset ? `Set ${name} back to its default` : `Set ${name}`} ready={reset || value !== before.value}
      commands={[
        { words: 'The same on the command line', text: `headrace topic alter ${quoted(topic.name)} ${reset ? `--unset ${name}` : `-c ${quoted(`${name}=${value}`)}`}${viaKafka()}` },
        { words: 'The same with curl', text: `curl -X PATCH --json ${quoted(JSON.stringify(body))} ${path}` },
      ]}
      run={async () => {
        await patch('/api/v1/topics/{topic}', { topic: topic.name }, body, { headers: etag ? { 'if-match': etag } : {} });
        tell(`${name} is changed`);
        done();
      }}>
      <p class="soft">It is <span class="mono">{visible(before.value ?? 'not set')}</span> now, from {before.source.replaceAll('_', ' ')}.</p>
      <label class="field"><span>New value</span><input value={value} disabled={reset} spellcheck={false} onInput={(event) => setValue(event.currentTarget.value)} /></label>
      <label class="tick"><input type="checkbox" checked={reset} onChange={(event) => setReset(event.currentTarget.checked)} /> Back to the default</label>
    </Act>
  );
}

function Config({ topic, again }: { topic: ShownTopic; again: () => void }) {
  const [changing, setChanging] = useState<string | undefined>();
  const own = (source: string): boolean => source.includes('topic');
  const rows = Object.entries(topic.configs).sort(([a, one], [b, other]) => Number(own(other.source)) - Number(own(one.source)) || a.localeCompare(b));
  return (
    <>
      <Table class="">
        <thead><tr><th scope="col">Config</th><th scope="col">Value</th><th scope="col">From</th><th class="slim" scope="col"><span class="hidden">Act</span></th></tr></thead>
        <tbody>{rows.map(([name, config]) => (
          <tr key={name}>
            <td class="name mono">{name}</td><td class="mono">{visible(config.value ?? '–')}</td>
            <td>{own(config.source) ? <span class="chip accent">this topic</span> : <span class="faint">{config.source.replaceAll('_', ' ')}</span>}</td>
            <td class="slim">{!config.read_only && !topic.internal && <button class="small" onClick={() => setChanging(name)}>Change</button>}</td>
          </tr>
        ))}</tbody>
      </Table>
      {changing && <Alter topic={topic} name={changing} etag="" close={() => setChanging(undefined)} done={again} />}
    </>
  );
}

export function Page({ name }: { name: string }) {
  const tab = chosen('tab') || 'messages';
  const { value, problem, again } = useLoad(`topic ${name}`, (signal) => get('/api/v1/topics/{topic}', { topic: name }, { signal }), tab === 'partitions' ? 2_000 : 10_000);
  const live = useLive<TopicNow>(`topic:${name}`);
  const [publishing, setPublishing] = useState(false);
  const may = useRights('topic', name);
  const [deleting, setDeleting] = useState(false);
  if (problem && !value) return <div class="stack"><Head crumb={<A href={to('topics')}>Topics</A>} title={<Name of={name} />} /><ProblemBox of={problem} again={again} remedy={<A class="button small" href={`${to('topics')}?new=${encodeURIComponent(name)}`}>Create it</A>} /></div>;
  if (!value) return <Waiting />;
  const without = value.partitions.filter((one) => one.leader < 0);
  const leaderless = without.length;
  const lost = [...new Set(without.flatMap((one) => one.replicas))].sort((a, b) => a - b);
  return (
    <>
      <Head crumb={<A href={to('topics')}>Topics</A>} title={<Name of={name} />} lead={
        <span class={isStale() ? 'faint' : ''}>
          {live ? <>{count(live.messages)} messages, {size(live.bytes)} · {rate(live.in_per_s)} in/s · {live.last_write_ms ? <>written <Age ms={live.last_write_ms} /></> : 'no writes lately'}</> : ' '}
          {' · '}{count(value.partition_count)} partition{value.partition_count === 1 ? '' : 's'}{value.replication_factor > 1 ? ` × ${value.replication_factor} replicas` : ''}
        </span>
      }>
        {!value.internal && <button class="main-act" disabled={may('write') !== undefined} title={may('write')} onClick={() => setPublishing(true)}>Publish</button>}
        {!value.internal && <button class="danger" disabled={may('delete') !== undefined} title={may('delete')} onClick={() => setDeleting(true)}>Delete</button>}
      </Head>
      {leaderless > 0 && <p class="problem bar" role="alert"><span><strong>{many(leaderless, 'partition')} of {value.partition_count} {leaderless === 1 ? 'has' : 'have'} no leader.</strong> What lies there is not counted here, and is neither read nor written until broker {lost.join(' or ')} is back. <A href={to('cluster')}>The cluster</A></span></p>}
      <Tabs all={[['messages', 'Messages'], ['partitions', 'Partitions'], ['readers', 'Readers'], ['writers', 'Writers'], ['config', 'Config']]} />
      {tab === 'messages' && <Messages topic={name} partitions={value.partition_count} publish={() => setPublishing(true)} />}
      {tab === 'partitions' && <Partitions topic={value} />}
      {tab === 'readers' && <Readers name={name} />}
      {tab === 'writers' && <Writers name={name} />}
      {tab === 'config' && <Config topic={value} again={again} />}
      {publishing && <Publish topic={name} close={() => setPublishing(false)} />}
      {deleting && <DeleteTopics names={[name]} close={() => setDeleting(false)} done={() => go(to('topics'))} />}
    </>
  );
}
