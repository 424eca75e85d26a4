// Users of the broker: made, shut out, let in, given another password, deleted.
import { useState } from 'preact/hooks';
import { get, patch, post, put, remove } from '../api/client.ts';
import type { ShownUser } from '../api/types.ts';
import { http, viaHttp } from '../state/places.ts';
import { go, to } from '../state/place.ts';
import { Act } from './dialog.tsx';
import { useLoad } from './load.ts';
import { canSalt, madeUp, scramOf } from './scram.ts';
import { Table } from './table.tsx';
import { Age, Command, Empty, Name, ProblemBox, tell, Waiting } from './ui.tsx';
import { count, quoted, visible } from './words.ts';

const USERS = '/api/v1/security/users';
const NO_SALT = 'This page came over plain HTTP from another machine, and a browser salts no passwords there. Use TLS, or the command line.';
const path = (name: string): string => `${http()}${USERS}/${encodeURIComponent(name)}`;

function Password({ value, change, shown, made }: { value: string; change: (text: string) => void; shown: boolean; made: () => void }) {
  return (
    <div class="row">
      <label class="field grow"><span>Password{shown ? ': keep it, it is shown this once' : ''}</span>{shown ? <input class="mono" autocomplete="off" spellcheck={false} value={value} onInput={(event) => change(event.currentTarget.value)} /> : <input type="password" autocomplete="new-password" value={value} onInput={(event) => change(event.currentTarget.value)} />}</label>
      <button type="button" onClick={made}>Make one up</button>
    </div>
  );
}

// The password is salted here; neither the broker nor anybody on the way sees it.
function Given({ user, close, done }: { user?: ShownUser; close: () => void; done: () => void }) {
  const [name, setName] = useState(user?.name ?? '');
  const [password, setPassword] = useState('');
  const [shown, setShown] = useState(false);
  const [isSuper, setSuper] = useState(false);
  const cli = user ? `headrace user password ${quoted(user.name)}${viaHttp()}` : `headrace user create ${quoted(name || 'NAME')}${isSuper ? ' --super' : ''}${viaHttp()}`;
  return (
    <Act title={user ? `Another password for ${user.name}` : 'Create a user'} close={close} act={user ? 'Set the password' : name ? `Create ${name}` : 'Create the user'} ready={name !== '' && password !== ''} refused={canSalt() ? undefined : NO_SALT}
      commands={[{ words: 'The same on the command line, which asks for the password', text: cli }, { words: 'With curl: what SCRAM keeps of a password, not the password, goes into the body', text: `curl ${user ? '-X PUT ' : ''}--json @user.json ${user ? `${path(user.name)}/password` : `${http()}${USERS}`}` }]}
      run={async () => {
        const scram = await scramOf(password);
        if (user) await put('/api/v1/security/users/{user}/password', { user: user.name }, { scram });
        else await post('/api/v1/security/users', {}, { name, scram, super: isSuper });
        tell(user ? `${name} has another password` : `Created ${name}`);
        done();
      }}>
      {!user && <label class="field"><span>Name</span><input value={name} autocomplete="off" spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} /></label>}
      <Password value={password} shown={shown} change={setPassword} made={() => { setPassword(madeUp()); setShown(true); }} />
      {!user && <label class="tick"><input type="checkbox" checked={isSuper} onChange={(event) => setSuper(event.currentTarget.checked)} /> An administrator: no right binds it</label>}
      {!user && !isSuper && <p class="soft">It may nothing until it is given rights or a role.</p>}
    </Act>
  );
}

type Doing = { what: 'password' | 'turn' | 'delete'; user: ShownUser };

export function Users({ refused }: { refused: string | undefined }) {
  const { value, problem, again } = useLoad('users', (signal) => get('/api/v1/security/users', {}, { signal }), 5_000);
  const [adding, setAdding] = useState(false);
  const [doing, setDoing] = useState<Doing | undefined>();
  if (problem && !value) return <ProblemBox of={problem} again={again} />;
  if (!value) return <Waiting />;
  const close = (): void => setDoing(undefined);
  const user = doing?.user;
  return (
    <>
      <div class="bar"><button class="main-act" disabled={refused !== undefined} title={refused} onClick={() => setAdding(true)}>Create a user</button><span class="right num">{count(value.items.length)} users</span></div>
      {value.items.length === 0 && <div class="card"><Empty title="There are no users yet"><p>Until there are, and until rights are enforced, this broker asks nobody who they are. The first one should be an administrator.</p><Command text={`headrace security init${viaHttp()}`} /></Empty></div>}
      {value.items.length > 0 && (
        <Table>
          <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col" class="less">Proves it with</th><th scope="col" class="less">Created</th><th class="slim" scope="col"><span class="hidden">Acts</span></th></tr></thead>
          <tbody>{value.items.map((row) => (
            <tr key={row.name} tabIndex={0} data-row>
              <td class="name"><Name of={row.name} /> {row.super && <span class="chip accent">administrator</span>}</td>
              <td>{row.enabled ? <span class="chip good">may log in</span> : <span class="chip warn">shut out</span>}</td>
              <td class="less">{row.mechanisms.map(visible).join(', ') || <span class="faint">no password</span>}</td><td class="less">{row.created_ms ? <Age ms={row.created_ms} /> : '–'}</td>
              <td class="slim wide"><div class="row tight">
                <button class="small" onClick={() => go(`${to('security')}?tab=rights&principal=${encodeURIComponent(`User:${row.name}`)}`)}>Rights</button>
                <button class="small" disabled={refused !== undefined} title={refused} onClick={() => setDoing({ what: 'password', user: row })}>Password</button>
                <button class="small" disabled={refused !== undefined} title={refused} onClick={() => setDoing({ what: 'turn', user: row })}>{row.enabled ? 'Shut out' : 'Let in'}</button>
                <button class="small danger" disabled={refused !== undefined} title={refused} onClick={() => setDoing({ what: 'delete', user: row })}>Delete</button>
              </div></td>
            </tr>
          ))}</tbody>
        </Table>
      )}
      {adding && <Given close={() => setAdding(false)} done={again} />}
      {user && doing.what === 'password' && <Given user={user} close={close} done={again} />}
      {user && doing.what === 'turn' && (
        <Act title={user.enabled ? `Shut ${user.name} out` : `Let ${user.name} in again`} close={close} act={user.enabled ? `Shut ${user.name} out` : `Let ${user.name} in`} danger={user.enabled}
          commands={[{ words: 'The same on the command line', text: user.enabled ? `headrace user disable ${quoted(user.name)}${viaHttp()}` : `headrace user enable ${quoted(user.name)}${viaHttp()}` }, { words: 'The same with curl', text: `curl -X PATCH --json '{"enabled":${String(!user.enabled)}}' ${path(user.name)}` }]}
          run={async () => { await patch('/api/v1/security/users/{user}', { user: user.name }, { enabled: !user.enabled }); tell(user.enabled ? `${user.name} is shut out` : `${user.name} may log in`); again(); }}>
          <p>{user.enabled ? 'Its connections, sessions, tokens and keys are good for nothing from now on; its rights stay for when it is let in again.' : 'Its password, tokens and keys are good again, with the rights it has.'}</p>
        </Act>
      )}
      {user && doing.what === 'delete' && (
        <Act title={`Delete ${user.name}`} close={close} act={`Delete ${user.name}`} danger typed={user.name}
          commands={[{ words: 'The same on the command line', text: `headrace user delete ${quoted(user.name)} --yes${viaHttp()}` }, { words: 'The same with curl', text: `curl -X DELETE ${path(user.name)}` }]}
          run={async () => { await remove('/api/v1/security/users/{user}', { user: user.name }); tell(`Deleted ${user.name}`); again(); }}>
          <p>Its password, tokens and keys are gone, and whoever is logged in with them is out. Its rights stay until they are taken: they would be those of the next user of this name.</p>
        </Act>
      )}
    </>
  );
}
