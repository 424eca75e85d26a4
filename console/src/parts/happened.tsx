// Lines about what happened to the cluster: Home shows the last of them, a page all.
import type { ShownHappening } from '../api/types.ts';
import { to } from '../state/place.ts';
import { A, Age } from './ui.tsx';
import { visible } from './words.ts';

export const SEVERITY: Record<string, string> = { error: 'bad', warning: 'warn', good: 'good', info: '' };

// Where a line leads: to the thing itself, when it has a page.
export function placeOf(row: ShownHappening): string | undefined {
  const name = row.names[0] ?? '';
  switch (row.thing) {
    case 'topic': return row.kind === 'topic-deleted' ? undefined : to('topics', name);
    case 'partition': return `${to('topics', name.replace(/-\d+$/, ''))}?tab=partitions`;
    case 'queue': return row.kind.startsWith('dead-letters') || row.kind.startsWith('move') ? `${to('dead')}?queue=${encodeURIComponent(name)}` : to('queues', name);
    case 'webhook': return to('webhooks');
    default: return to('cluster');
  }
}

export function Line({ row }: { row: ShownHappening }) {
  const href = placeOf(row);
  return (
    <tr>
      <td class="slim when"><Age ms={row.at_ms} /></td>
      <td class="slim"><span class={`chip ${SEVERITY[row.severity] ?? ''}`}>{row.severity}</span></td>
      <td class="wraps wide">{href ? <A href={href}><bdi>{visible(row.text)}</bdi></A> : <bdi>{visible(row.text)}</bdi>}</td>
    </tr>
  );
}
