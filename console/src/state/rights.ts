// What one may do (W15): the server says it, the page only greys what would be refused. The API decides.
import { get } from '../api/client.ts';
import { useLoad } from '../parts/load.ts';
import { session } from './session.ts';

export type Right = 'read' | 'write' | 'create' | 'delete' | 'alter' | 'describe' | 'alter_configs';

// Whoever may make anything, or a topic of this name.
export function useCreating(name: string): string | undefined {
  const all = useRights('cluster')('create');
  const one = useRights('topic', name || '-')('create');
  return name && all && one;
}

// Why a button is grey; undefined: it is not. Unknown is not refused.
export function useRights(kind: 'topic' | 'group' | 'cluster', name = ''): (right: Right) => string | undefined {
  const asked = session.value?.mode === 'enforced';
  const { value } = useLoad(`may ${asked} ${kind} ${name}`, async (signal) => {
    if (!asked) return ['*'];
    return (await get('/api/v1/session', {}, { query: kind === 'cluster' ? {} : { [kind]: name }, signal })).may;
  });
  return (right) => (!value || value.includes('*') || value.includes(right) ? undefined : `You have no right to ${right.replace('_', ' ')} this ${kind === 'cluster' ? 'cluster' : kind}; an administrator can grant it: headrace acl add`);
}
