// Pipelines: Spark jobs that the cluster knows of. The broker starts none of them; it shows what they and their supervisors tell.
import { get } from '../api/client.ts';
import type { ShownPipeline } from '../api/types.ts';
import { List, type Column } from '../parts/list.tsx';
import { A, Age, Command, Empty, Head, Name } from '../parts/ui.tsx';
import { count, rate, took, visible } from '../parts/words.ts';
import { viaKafka } from '../state/places.ts';
import { to } from '../state/place.ts';

const KINDS: Record<string, string> = { running: 'good', finished: 'good', failed: 'bad', failing: 'bad', lost: 'bad', 'backing-off': 'warn', stopping: 'warn' };

export function State({ of }: { of: string }) {
  return <span class={`chip ${KINDS[of] ?? ''}`}>{visible(of || 'unknown').replace('-', ' ')}</span>;
}

const COLUMNS: Column<ShownPipeline>[] = [
  { words: 'Name', sort: 'name', name: true, show: (row) => <><A href={to('pipelines', row.name)}><Name of={row.name} /></A> <span class="faint">{visible(row.kind)}</span></> },
  { words: 'State', show: (row) => <State of={row.state} /> },
  { words: 'From → to', less: true, show: (row) => <span class="soft"><Name of={row.topics.join(', ') || '–'} /> → <Name of={row.target || '–'} /></span> },
  { words: 'Records/s', number: true, show: (row) => rate(row.rate) },
  { words: 'Behind', number: true, show: (row) => count(row.lag) },
  { words: 'Last batch', number: true, less: true, show: (row) => (row.batches.length ? took(row.batches.at(-1)!.total_ms) : '–') },
  { words: 'Heard', number: true, less: true, show: (row) => (row.updated_ms ? <Age ms={row.updated_ms} /> : <span class="faint">never</span>) },
  { words: 'Last error', less: true, show: (row) => (row.error ? <span class="bad-text">{visible(row.error.split('\n')[0]!).slice(0, 80)}</span> : <span class="faint">–</span>) },
];

export function Page(_: { name: string }) {
  return (
    <>
      <Head title="Pipelines" lead="Spark jobs that carry topics into tables, files and other topics, each on one host at a time. The broker runs no Spark: it shows what they tell." />
      <List<ShownPipeline> id="pipelines" what="pipelines" columns={COLUMNS} name={(row) => row.name} href={(row) => to('pipelines', row.name)}
        ask={({ signal, q, limit }) => get('/api/v1/pipelines', {}, { query: { q, limit }, signal })}
        empty={<Empty title="No pipelines yet"><p>A pipeline is a file with a few lines that says what goes where. Write one, run it by hand, or submit it to the supervisors.</p><Command text={`headrace pipeline init table orders-table\nheadrace pipeline submit orders-table.toml${viaKafka()}\nheadrace pipeline supervise${viaKafka()}`} /></Empty>} />
    </>
  );
}
