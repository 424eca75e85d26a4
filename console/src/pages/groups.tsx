// Consumer groups: who is behind, and whether they catch up.
import { get } from '../api/client.ts';
import type { ListedGroup } from '../api/types.ts';
import { List, type Column } from '../parts/list.tsx';
import { A, Age, Command, Empty, Head, Name } from '../parts/ui.tsx';
import { count, rate, visible } from '../parts/words.ts';
import { viaKafka } from '../state/places.ts';
import { to } from '../state/place.ts';

const COLUMNS: Column<ListedGroup>[] = [
  { words: 'Name', sort: 'name', name: true, show: (row) => <A href={to('groups', row.name)}><Name of={row.name} /></A> },
  { words: 'State', show: (row) => <span class={`chip${/stable/i.test(row.state) ? ' good' : /empty|dead/i.test(row.state) ? '' : ' warn'}`}>{visible(row.state)}</span> },
  { words: 'Type', less: true, show: (row) => row.type },
  { words: 'Members', sort: 'members', number: true, show: (row) => count(row.members) },
  { words: 'Behind', sort: 'lag', number: true, show: (row) => count(row.lag) },
  { words: 'Reads/s', sort: 'out', number: true, show: (row) => rate(row.out_per_s) },
  { words: 'Topics', less: true, show: (row) => <span class="soft">{(row.topics ?? []).slice(0, 3).map(visible).join(', ')}{(row.topics ?? []).length > 3 ? ' …' : ''}</span> },
  { words: 'Last progress', number: true, less: true, show: (row) => (row.last_commit_ms ? <Age ms={row.last_commit_ms} /> : <span class="faint">–</span>) },
];

export function Page(_: { name: string }) {
  return (
    <>
      <Head title="Groups" lead="Consumers that share the reading of topics, and where each group stands." />
      <List<ListedGroup> id="groups" what="groups" columns={COLUMNS} sort="-lag" name={(row) => row.name} href={(row) => to('groups', row.name)}
        ask={({ signal, ...query }) => get('/api/v1/groups', {}, { query: { ...query, with: 'lag' }, signal })}
        empty={<Empty title="No groups yet"><p>A group is made when a consumer joins it, or when its offsets are set.</p><Command text={`headrace topic consume hello -g billing${viaKafka()}`} /></Empty>} />
    </>
  );
}
