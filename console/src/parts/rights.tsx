// Who may what: rights one by one, given and taken, alone or as a role. Counted by the broker first, then done.
import { useState } from 'preact/hooks';
import { get, post } from '../api/client.ts';
import type { ShownAcl } from '../api/types.ts';
import { http, viaKafka } from '../state/places.ts';
import { choose, chosen } from '../state/place.ts';
import { Act } from './dialog.tsx';
import { useLoad } from './load.ts';
import { Table } from './table.tsx';
import { Command, Empty, Name, ProblemBox, Search, tell, Waiting } from './ui.tsx';
import { count, many, quoted, visible } from './words.ts';

const OPERATIONS: Record<string, string[]> = {
  topic: ['read', 'write', 'create', 'delete', 'alter', 'describe', 'describe-configs', 'alter-configs', 'all'],
  group: ['read', 'delete', 'describe', 'describe-configs', 'alter-configs', 'all'],
  cluster: ['create', 'alter', 'describe', 'idempotent-write', 'describe-configs', 'alter-configs', 'all'],
  'transactional-id': ['write', 'describe', 'all'],
};
const ROLES: Record<string, string> = {
  viewer: 'lists and numbers', reader: 'messages too', operator: 'moves groups, sends dead letters back, pauses, lets go of locks, webhooks', admin: 'everything',
};
const dashed = (words: string): string => words.replace(/(?<=[a-z])(?=[A-Z])/g, '-').toLowerCase();
const person = (principal: string): string => (principal && !principal.includes(':') ? `User:${principal}` : principal);

interface Change { items?: Partial<ShownAcl>[]; roles?: { principal: string; role: string; prefix?: string }[] }

function usePlan(verb: 'give' | 'take', body: Change, ready: boolean) {
  return useLoad(`rights ${verb} ${ready} ${JSON.stringify(body)}`, async (signal) => {
    if (!ready) return undefined;
    const asked = { ...body, dry_run: true };
    return verb === 'give' ? post('/api/v1/security/acls', {}, asked, { signal }) : post('/api/v1/security/acls/remove', {}, asked, { signal });
  });
}

const path = (verb: 'give' | 'take'): string => `${http()}/api/v1/security/acls${verb === 'give' ? '' : '/remove'}`;

function Lines({ of }: { of: ShownAcl[] }) {
  return <ul class="mono">{of.slice(0, 30).map((acl) => <li key={JSON.stringify(acl)}>{acl.permission === 'deny' ? 'must not ' : ''}{dashed(acl.operation)} {dashed(acl.resource)} {visible(acl.name)}{acl.pattern === 'prefixed' ? '*' : ''}{acl.host === '*' ? '' : ` from ${visible(acl.host)}`}</li>)}{of.length > 30 && <li>and {count(of.length - 30)} more</li>}</ul>;
}

function Give({ verb, of, close, done }: { verb: 'give' | 'take'; of: string; close: () => void; done: () => void }) {
  const [who, setWho] = useState(of);
  const [kind, setKind] = useState<'role' | 'right'>('role');
  const [role, setRole] = useState('viewer');
  const [prefix, setPrefix] = useState('');
  const [resource, setResource] = useState('topic');
  const [operation, setOperation] = useState('read');
  const [name, setName] = useState('');
  const [deny, setDeny] = useState(false);
  const principal = person(who);
  const starred = name.length > 1 && name.endsWith('*');
  const right = { principal, operation: operation.replaceAll('-', '_'), resource: resource.replaceAll('-', '_'), name: resource === 'cluster' ? '' : starred ? name.slice(0, -1) : name, pattern: starred ? 'prefixed' as const : 'literal' as const, permission: deny ? 'deny' as const : 'allow' as const };
  const body: Change = kind === 'role' ? { roles: [{ principal, role, ...(prefix ? { prefix } : {}) }] } : { items: [right] };
  const ready = principal !== '' && (kind === 'role' || resource === 'cluster' || name !== '');
  const plan = usePlan(verb, body, ready);
  const number = plan.value?.items.length ?? 0;
  const user = quoted(principal.replace(/^User:/, '') || 'USER');
  const line = verb === 'give'
    ? kind === 'role' ? `headrace acl grant ${user} ${role}${prefix ? ` --prefix ${quoted(prefix)}` : ''}${viaKafka()}` : `headrace acl add ${user} ${operation} ${resource}${resource === 'cluster' ? '' : ` ${quoted(name || 'NAME')}`}${deny ? ' --deny' : ''}${viaKafka()}`
    : kind === 'role' ? `headrace acl revoke ${user} ${role}${prefix ? ` --prefix ${quoted(prefix)}` : ''}${viaKafka()}` : `headrace acl remove ${user} ${operation} ${resource}${resource === 'cluster' ? '' : ` ${quoted(name || 'NAME')}`}${deny ? ' --deny' : ''}${viaKafka()}`;
  return (
    <Act title={verb === 'give' ? 'Give rights' : 'Take rights away'} close={close} wide danger={verb === 'take'} ready={number > 0} act={!ready ? 'Whom, and what?' : plan.value ? `${verb === 'give' ? 'Give' : 'Take'} ${many(number, 'right')}` : 'Counting …'}
      commands={[{ words: 'The same on the command line', text: line }, { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} ${path(verb)}` }]}
      run={async () => {
        const found = verb === 'give' ? await post('/api/v1/security/acls', {}, body) : await post('/api/v1/security/acls/remove', {}, body);
        tell(`${verb === 'give' ? 'Gave' : 'Took'} ${many(found.items.length, 'right')}`);
        done();
      }}>
      <div class="fields">
        <label class="field"><span>User</span><input value={who} autocomplete="off" spellcheck={false} onInput={(event) => setWho(event.currentTarget.value)} /></label>
        <label class="field"><span>What</span><select value={kind} onChange={(event) => setKind(event.currentTarget.value as 'role' | 'right')}><option value="role">All rights of a role</option><option value="right">One right</option></select></label>
      </div>
      {kind === 'role' && (
        <div class="fields">
          <label class="field"><span>Role</span><select value={role} onChange={(event) => setRole(event.currentTarget.value)}>{Object.entries(ROLES).map(([one, means]) => <option key={one} value={one}>{one}: {means}</option>)}</select></label>
          <label class="field"><span>Only names that begin with</span><input value={prefix} placeholder="all names" spellcheck={false} onInput={(event) => setPrefix(event.currentTarget.value)} /></label>
        </div>
      )}
      {kind === 'right' && (
        <>
          <div class="fields">
            <label class="field"><span>Of a</span><select value={resource} onChange={(event) => { setResource(event.currentTarget.value); setOperation(OPERATIONS[event.currentTarget.value]![0]!); }}>{Object.keys(OPERATIONS).map((one) => <option key={one}>{one}</option>)}</select></label>
            <label class="field"><span>Operation</span><select value={operation} onChange={(event) => setOperation(event.currentTarget.value)}>{OPERATIONS[resource]!.map((one) => <option key={one}>{one}</option>)}</select></label>
            {resource !== 'cluster' && <label class="field"><span>Name (orders*: what begins so)</span><input value={name} spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} /></label>}
          </div>
          <label class="tick"><input type="checkbox" checked={deny} onChange={(event) => setDeny(event.currentTarget.checked)} /> A denial, which wins over every right</label>
        </>
      )}
      {plan.problem && <ProblemBox of={plan.problem} />}
      {plan.value && <p role="status">{number === 0 ? (verb === 'give' ? 'It has all of these already.' : 'It has none of these.') : <><strong>{many(number, 'right')}</strong> would be {verb === 'give' ? 'given' : 'taken'}:</>}</p>}
      {plan.value && <Lines of={plan.value.items} />}
    </Act>
  );
}

function Take({ acl, close, done }: { acl: ShownAcl; close: () => void; done: () => void }) {
  const { policy: _, ...exact } = acl;
  const body = { items: [exact] };
  const name = `${acl.name}${acl.pattern === 'prefixed' ? '*' : ''}`;
  return (
    <Act title={`Take a right from ${acl.principal}`} close={close} act="Take 1 right" danger
      commands={[
        { words: 'The same on the command line', text: `headrace acl remove ${quoted(acl.principal.replace(/^User:/, ''))} ${dashed(acl.operation)} ${dashed(acl.resource)}${acl.name ? ` ${quoted(name)}` : ''}${acl.permission === 'deny' ? ' --deny' : ''}${acl.host === '*' ? '' : ` --host ${quoted(acl.host)}`}${viaKafka()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} ${path('take')}` },
      ]}
      run={async () => { await post('/api/v1/security/acls/remove', {}, body); tell('Took 1 right'); done(); }}>
      <Lines of={[acl]} />
      <p>In effect at once, at every door, also for who is logged in.</p>
    </Act>
  );
}

export function Rights({ refused }: { refused: string | undefined }) {
  const q = chosen('q');
  const principal = chosen('principal');
  const [limit, setLimit] = useState(100);
  const { value, problem, again } = useLoad(`rights ${q} ${principal} ${limit}`, (signal) => get('/api/v1/security/acls', {}, { query: { q, principal, limit }, signal }), 5_000);
  const [doing, setDoing] = useState<'give' | 'take' | ShownAcl | undefined>();
  const close = (): void => setDoing(undefined);
  return (
    <>
      <div class="bar">
        <Search label="Search rights" placeholder="A user, a topic, an operation   ( / )" />
        {principal && <button class="small" onClick={() => choose({ principal: '' })}><Name of={principal} /> ✕</button>}
        <button class="main-act" disabled={refused !== undefined} title={refused} onClick={() => setDoing('give')}>Give …</button>
        <button class="danger" disabled={refused !== undefined} title={refused} onClick={() => setDoing('take')}>Take …</button>
        <span class="right num">{value && many(value.total, 'right')}</span>
      </div>
      {problem && !value && <ProblemBox of={problem} again={again} />}
      {!value && !problem && <Waiting />}
      {value && value.items.length === 0 && <div class="card"><Empty title={q || principal ? 'No right says that' : 'Nobody has been given a right'}><p>Administrators need none; everybody else may what they are given, once rights are enforced. A role is a word for several of them.</p><Command text={`headrace acl grant alice viewer${viaKafka()}`} /></Empty></div>}
      {value && value.items.length > 0 && (
        <Table after={value.next_cursor !== null && limit < 500 && <div class="more"><button class="small" onClick={() => setLimit(500)}>More</button></div>}>
          <thead><tr><th scope="col">Who</th><th scope="col">May</th><th scope="col">Of a</th><th scope="col">Name</th><th class="less" scope="col">From</th><th class="slim" scope="col"><span class="hidden">Act</span></th></tr></thead>
          <tbody>{value.items.map((acl) => (
            <tr key={JSON.stringify(acl)} tabIndex={0} data-row>
              <td class="wraps"><Name of={acl.principal} /></td><td>{acl.permission === 'deny' && <span class="chip bad">must not</span>} {dashed(acl.operation)}</td><td>{dashed(acl.resource)}</td>
              <td class="mono wraps"><Name of={acl.name || '–'} />{acl.pattern === 'prefixed' ? '*' : ''}{acl.policy !== null && <span class="chip">policy of {visible(acl.policy)}</span>}</td><td class="less">{acl.host === '*' ? <span class="faint">anywhere</span> : <Name of={acl.host} />}</td>
              <td class="slim"><button class="small danger" disabled={refused !== undefined || acl.policy !== null} title={refused ?? (acl.policy !== null ? 'It goes with the policy of its queue' : undefined)} onClick={() => setDoing(acl)}>Take</button></td>
            </tr>
          ))}</tbody>
        </Table>
      )}
      {(doing === 'give' || doing === 'take') && <Give verb={doing} of={principal} close={close} done={again} />}
      {typeof doing === 'object' && <Take acl={doing} close={close} done={again} />}
    </>
  );
}
