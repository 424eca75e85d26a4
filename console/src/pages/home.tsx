// Home: is it well, and what is there. Useful without a click, a login or any data (W1).
import { FirstRun } from './first_run.tsx';
import { Head, Waiting } from '../parts/ui.tsx';
import { count, visible } from '../parts/words.ts';
import { cluster, health } from '../state/session.ts';

export function Home() {
  const known = cluster.value;
  const how = health.value;
  if (!known || !how) return <Waiting what="Asking the broker" />;
  return (
    <div class="stack">
      <Head title={visible(how.sentence)} lead={known.topics === 0 ? 'Nothing is here yet. Each of these commands works as it stands.' : undefined} />
      <div class="tiles moves">
        <div class="tile"><span class="name">Brokers</span><span class="value">{count(known.brokers.length)}</span></div>
        <div class="tile"><span class="name">Topics</span><span class="value">{count(known.topics)}</span></div>
        <div class="tile"><span class="name">Partitions without a leader</span><span class="value">{count(known.offline_partitions)}</span></div>
        <div class="tile"><span class="name">Partitions not in sync</span><span class="value">{count(known.under_replicated_partitions)}</span></div>
      </div>
      {known.topics === 0 && <FirstRun />}
    </div>
  );
}
