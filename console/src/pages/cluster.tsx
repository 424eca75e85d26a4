// The cluster: who is there, and what is not well.
import { get } from '../api/client.ts';
import { useLoad } from '../parts/load.ts';
import { Table } from '../parts/table.tsx';
import { Command, Head, ProblemBox, Waiting } from '../parts/ui.tsx';
import { count, many, rate, size, span, visible } from '../parts/words.ts';
import { viaKafka } from '../state/places.ts';
import { away, health, now } from '../state/session.ts';

export function Page(_: { name: string }) {
  const { value, problem, again } = useLoad('cluster', (signal) => get('/api/v1/cluster', {}, { signal }), 2_000);
  if (problem && !value) return <ProblemBox of={problem} again={again} />;
  if (!value) return <Waiting />;
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
        <Table>
          <thead><tr><th class="n slim" scope="col">Broker</th><th scope="col">Kafka</th><th scope="col">HTTP</th><th class="n" scope="col">Leads</th><th class="n" scope="col">In/s</th><th class="n less" scope="col">Written</th><th class="n less" scope="col">Read</th><th class="n" scope="col">Disk left</th><th scope="col">Rack</th><th scope="col">Role</th></tr></thead>
          <tbody>{value.brokers.map((broker) => (
            <tr key={broker.id}>
              <td class="n">{broker.id}</td><td class="mono">{visible(broker.kafka)}</td><td class="mono">{visible(broker.http)}</td><td class="n">{count(broker.partitions_led)}</td><td class="n">{broker.in_per_s === null ? <span class="chip warn">no answer</span> : rate(broker.in_per_s)}</td><td class="n less">{size(broker.in_bytes_per_s)}/s</td><td class="n less">{size(broker.out_bytes_per_s)}/s</td><td class="n">{size(broker.free_bytes)}</td><td>{broker.rack === null ? <span class="faint">–</span> : visible(broker.rack)}</td>
              <td>{broker.id === value.controller && <span class="chip accent">controller</span>} {broker.id === value.answered_by && <span class="chip">answers this page</span>}</td>
            </tr>
          ))}{value.away.map((broker) => (
            <tr key={broker.id}>
              <td class="n">{broker.id}</td><td colSpan={8}><span class="chip bad">away</span> {broker.partitions ? <>{many(broker.partitions, 'partition')} {broker.partitions === 1 ? 'has' : 'have'} a replica there{broker.only_there > 0 && <>; <strong>{count(broker.only_there)} of them can’t be read or written until it is back</strong></>}. Start it again.</> : 'Nothing lies there.'}</td><td />
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
      <Command text={`headrace cluster status${viaKafka()}`} />
    </div>
  );
}
