// The cluster: who is there, how hard each works, what is not well, and what can be done about it.
import { get } from '../api/client.ts';
import type { ShownBroker, ShownCluster } from '../api/types.ts';
import { useLoad } from '../parts/load.ts';
import { Table } from '../parts/table.tsx';
import { A, Command, Head, Name, ProblemBox, Waiting } from '../parts/ui.tsx';
import { count, many, rate, size, span, took, visible } from '../parts/words.ts';
import { viaKafka } from '../state/places.ts';
import { to } from '../state/place.ts';
import { away, health, now } from '../state/session.ts';

const LATE_MS = 500; // as /readyz has it
const BUSY = 0.9;
const STATES: Record<string, [string, string]> = { 'no-leader': ['bad', 'no leader'], behind: ['warn', 'behind'], moving: ['', 'moving'] };

function Broker({ broker, of }: { broker: ShownBroker; of: ShownCluster }) {
  const here = broker.in_per_s !== null;
  const silent = broker.coordinator_silence_ms ?? 0;
  return (
    <tr>
      <td class="name">{broker.id} {broker.id === of.controller && <span class="chip accent">controller</span>} {broker.id === of.answered_by && <span class="chip">answers this page</span>} {!here && <span class="chip warn">no answer</span>}</td>
      <td class="mono">{visible(broker.kafka)}<br /><span class="faint">{visible(broker.http)}</span>{broker.rack !== null && <><br /><span class="soft">rack {visible(broker.rack)}</span></>}</td>
      <td class="n">{count(broker.partitions_led)} of {count(broker.partitions)}</td>
      <td class="n">{rate(broker.in_per_s)}</td>
      <td class="n">{size(broker.in_bytes_per_s)}/s<br />{size(broker.out_bytes_per_s)}/s</td>
      <td class={`n${(broker.cpu ?? 0) > BUSY ? ' warn-text' : ''}`}>{broker.cpu === null ? '–' : `${(broker.cpu * 100).toFixed(broker.cpu < 0.1 ? 1 : 0)} %`}</td>
      <td class="n"><span class={(broker.loop_lag_ms ?? 0) >= LATE_MS ? 'warn-text' : ''}>{took(broker.loop_lag_ms)}</span><br />{broker.sync_p99_ms === null ? '–' : `≤ ${took(broker.sync_p99_ms)}`}</td>
      <td class="n">{size(broker.free_bytes)}</td>
      <td>{broker.version === null ? '–' : visible(broker.version)}<br /><span class="faint">{broker.began_ms ? `up ${span(now.value - broker.began_ms)}` : ''}</span><br />{broker.coordinator !== null && (silent > 0 ? <span class="chip bad">{visible(broker.coordinator)} silent for {span(silent)}</span> : <span class="faint">{visible(broker.coordinator)} answers</span>)}</td>
    </tr>
  );
}

// The partitions behind the numbers, the worst first.
function Troubled() {
  const { value, problem } = useLoad('troubled', (signal) => get('/api/v1/cluster/troubled', {}, { query: { limit: 100 }, signal }), 2_000);
  if (problem && !value) return <ProblemBox of={problem} />;
  if (!value?.items.length) return null;
  return (
    <section class="stack">
      <h2>Partitions in trouble</h2>
      <Table>
        <thead><tr><th scope="col">Topic</th><th class="n" scope="col">Partition</th><th scope="col">State</th><th class="n" scope="col">Leader</th><th scope="col">Replicas</th><th scope="col">In sync</th></tr></thead>
        <tbody>{value.items.map((one) => (
          <tr key={`${one.topic} ${one.partition}`}>
            <td class="name"><A href={`${to('topics', one.topic)}?tab=partitions`}><Name of={one.topic} /></A></td><td class="n">{one.partition}</td>
            <td><span class={`chip ${STATES[one.state]![0]}`}>{STATES[one.state]![1]}</span>{one.adding.length > 0 && <span class="soft"> to {one.adding.join(', ')}</span>}{one.removing.length > 0 && <span class="soft"> from {one.removing.join(', ')}</span>}</td>
            <td class="n">{one.leader < 0 ? '–' : one.leader}</td><td class="num">{one.replicas.join(', ')}</td><td class="num">{one.in_sync.join(', ') || '–'}</td>
          </tr>
        ))}</tbody>
      </Table>
      {value.total > value.items.length && <p class="faint">The first {count(value.items.length)} of {count(value.total)}.</p>}
    </section>
  );
}

export function Page(_: { name: string }) {
  const { value, problem, again } = useLoad('cluster', (signal) => get('/api/v1/cluster', {}, { signal }), 2_000);
  if (problem && !value) return <ProblemBox of={problem} again={again} />;
  if (!value) return <Waiting />;
  const gone = value.away[0]?.id;
  return (
    <div class="stack">
      <Head title="Cluster" lead={<>{many(value.brokers.length, 'broker')}{value.away.length > 0 && `, ${value.away.length} away`}, {many(value.topics, 'topic')} · <span class="mono">{visible(value.cluster_id)}</span></>} />
      <div class="tiles moves">
        <div class="tile"><span class="name">Controller</span><span class="value">{value.controller === null ? 'none' : `broker ${value.controller}`}</span></div>
        <div class="tile"><span class="name">Partitions without a leader</span><span class={`value${value.offline_partitions ? ' bad-text' : ''}`}>{count(value.offline_partitions)}</span></div>
        <div class="tile"><span class="name">Partitions not in sync</span><span class={`value${value.under_replicated_partitions ? ' warn-text' : ''}`}>{count(value.under_replicated_partitions)}</span></div>
      </div>
      <section class="stack">
        <h2>Brokers</h2>
        <p class="soft">Leads: partitions that it leads, of those it holds. Late: the longest that its loop was in ten seconds. Sync: 99 of 100 syncs of the last minute took at most so long.</p>
        <Table class="moves dense">
          <thead><tr><th scope="col">Broker</th><th scope="col">Kafka, HTTP</th><th class="n" scope="col">Leads</th><th class="n" scope="col">In/s</th><th class="n" scope="col">Written, read</th><th class="n" scope="col">CPU</th><th class="n" scope="col">Late, sync</th><th class="n" scope="col">Disk left</th><th scope="col">Version, coordinator</th></tr></thead>
          <tbody>{value.brokers.map((broker) => <Broker key={broker.id} broker={broker} of={value} />)}{value.away.map((broker) => (
            <tr key={broker.id}>
              <td class="name">{broker.id} <span class="chip bad">away</span></td><td colSpan={8} class="wraps">{broker.partitions ? <>{many(broker.partitions, 'partition')} {broker.partitions === 1 ? 'has' : 'have'} a replica there{broker.only_there > 0 && <>; <strong>{count(broker.only_there)} of them can’t be read or written until it is back</strong></>}. Start it again.</> : 'Nothing lies there.'}</td>
            </tr>
          ))}</tbody>
        </Table>
      </section>
      <section class="stack">
        <h2>What is not well</h2>
        {health.value?.findings.length ? health.value.findings.map((finding) => (
          <div key={finding.check} class="card">
            <h3>{visible(finding.check)}: {visible(finding.detail)}</h3>
            <p class="soft">For {span(now.value - finding.since_ms)}. {visible(finding.hint)}</p>
          </div>
        )) : <p class="soft">{away.value ? 'The broker does not answer.' : `Nothing: ${visible(health.value?.sentence ?? '')}`}</p>}
      </section>
      <Troubled />
      <section class="stack">
        <h2>What can be done</h2>
        <p class="soft">These move data between brokers, so they are commands: each says what it will do first.</p>
        <Command text={`headrace cluster status${viaKafka()}`} />
        <Command text={`headrace cluster drain ${value.brokers.at(-1)?.id ?? 1} --dry-run${viaKafka()}`} />
        <Command text={`headrace cluster rebalance --dry-run${viaKafka()}`} />
        <Command text={`headrace cluster elect${viaKafka()}`} />
        {gone !== undefined && <Command text={`headrace cluster unregister ${gone}${viaKafka()}`} />}
      </section>
    </div>
  );
}
