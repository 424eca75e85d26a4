// Tokens and access keys: one's own, and for who administers everybody's. A secret is shown once, when it is made.
import { useState } from 'preact/hooks';
import { get, post, remove } from '../api/client.ts';
import type { ShownKey, ShownToken } from '../api/types.ts';
import { http, viaHttp } from '../state/places.ts';
import { Act, Sheet } from './dialog.tsx';
import { useLoad } from './load.ts';
import { Table } from './table.tsx';
import { Age, Command, Empty, Name, ProblemBox, tell, Waiting } from './ui.tsx';
import { many, quoted, visible } from './words.ts';

type Kind = 'token' | 'key';
type One = ShownKey & Partial<Pick<ShownToken, 'expires_ms' | 'rights'>>;
const NAMES: Record<Kind, string> = { token: 'token', key: 'access key' };
const path = (kind: Kind): string => `${http()}/api/v1/security/${kind}s`;

function Make({ kind, close, made }: { kind: Kind; close: () => void; made: (secret: string) => void }) {
  const [name, setName] = useState('');
  const [owner, setOwner] = useState('');
  const [days, setDays] = useState('90');
  const body = { name, owner, ...(kind === 'token' ? { days: Number(days) || 90 } : {}) };
  return (
    <Act title={`Make ${kind === 'token' ? 'a' : 'an'} ${NAMES[kind]}`} close={close} act={`Make 1 ${NAMES[kind]}`}
      commands={[
        { words: 'The same on the command line', text: kind === 'token' ? `headrace token create${name ? ` --label ${quoted(name)}` : ''}${owner ? ` --user ${quoted(owner)}` : ''} --days ${days || 90}${viaHttp()}` : `headrace key create${name ? ` --label ${quoted(name)}` : ''}${owner ? ` --user ${quoted(owner)}` : ''}${viaHttp()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} ${path(kind)}` },
      ]}
      run={async () => {
        if (kind === 'token') made((await post('/api/v1/security/tokens', {}, body)).token);
        else {
          const key = await post('/api/v1/security/keys', {}, body);
          made(`aws_access_key_id = ${key.id}\naws_secret_access_key = ${key.secret}`);
        }
      }}>
      <p class="soft">{kind === 'token' ? 'For HTTP and the Kafka port' : 'For SQS'}: whoever has it may what its user may. It is shown once.</p>
      <div class="fields">
        <label class="field"><span>What it is for</span><input value={name} maxLength={100} onInput={(event) => setName(event.currentTarget.value)} /></label>
        <label class="field"><span>User</span><input value={owner} placeholder="yourself" autocomplete="off" spellcheck={false} onInput={(event) => setOwner(event.currentTarget.value)} /></label>
        {kind === 'token' && <label class="field"><span>Days that it is good</span><input inputMode="numeric" value={days} onInput={(event) => setDays(event.currentTarget.value.replace(/\D/g, ''))} /></label>}
      </div>
    </Act>
  );
}

export function Credentials({ kind }: { kind: Kind }) {
  const { value, problem, again } = useLoad(`${kind}s`, async (signal): Promise<One[]> => (kind === 'token' ? (await get('/api/v1/security/tokens', {}, { signal })).items : (await get('/api/v1/security/keys', {}, { signal })).items), 5_000);
  const [making, setMaking] = useState(false);
  const [secret, setSecret] = useState('');
  const [doomed, setDoomed] = useState<One | undefined>();
  if (problem && !value) return <ProblemBox of={problem} again={again} />;
  if (!value) return <Waiting />;
  return (
    <>
      <div class="bar"><button class="main-act" onClick={() => setMaking(true)}>Make {kind === 'token' ? 'a' : 'an'} {NAMES[kind]}</button><span class="right num">{many(value.length, NAMES[kind])}</span></div>
      {value.length === 0 && <div class="card"><Empty title={`No ${NAMES[kind]}s`}><p>{kind === 'token' ? 'A token stands for a user where a password would have to be kept: in programs, in scripts.' : 'An access key signs the requests of SQS clients for a user.'}</p><Command text={kind === 'token' ? `headrace token create${viaHttp()}` : `headrace key create${viaHttp()}`} /></Empty></div>}
      {value.length > 0 && (
        <Table>
          <thead><tr><th scope="col">{kind === 'token' ? 'Token' : 'Key'}</th><th scope="col">User</th><th scope="col">For</th><th class="less" scope="col">May</th><th class="less" scope="col">Made</th>{kind === 'token' && <th scope="col">Ends</th>}<th class="slim" scope="col"><span class="hidden">Act</span></th></tr></thead>
          <tbody>{value.map((one) => (
            <tr key={one.id} tabIndex={0} data-row>
              <td class="mono">{visible(one.id)}</td><td class="wraps"><Name of={one.owner} /></td><td class="wraps"><Name of={one.name || '–'} /></td>
              <td class="less wraps">{one.rights ? one.rights.map((right) => `${right.operation} ${right.resource} ${visible(right.name ?? '')}`).join(', ') : <span class="faint">what its user may</span>}</td>
              <td class="less"><Age ms={one.created_ms} /></td>{kind === 'token' && <td><Age ms={one.expires_ms!} /></td>}
              <td class="slim"><button class="small danger" onClick={() => setDoomed(one)}>Delete</button></td>
            </tr>
          ))}</tbody>
        </Table>
      )}
      {making && <Make kind={kind} close={() => setMaking(false)} made={(found) => { setSecret(found); again(); }} />}
      {secret && <Sheet title={`The ${NAMES[kind]}, this once`} close={() => setSecret('')} foot={<button class="main-act" onClick={() => setSecret('')}>I have kept it</button>}><Command text={secret} what={NAMES[kind]} /></Sheet>}
      {doomed && (
        <Act title={`Delete ${NAMES[kind]} ${doomed.id} of ${doomed.owner}`} close={() => setDoomed(undefined)} act={`Delete 1 ${NAMES[kind]}`} danger
          commands={[
            { words: 'The same on the command line', text: kind === 'token' ? `headrace token delete ${doomed.id}${viaHttp()}` : `headrace key delete ${doomed.id}${viaHttp()}` },
            { words: 'The same with curl', text: `curl -X DELETE ${path(kind)}/${encodeURIComponent(doomed.id)}` },
          ]}
          run={async () => {
            if (kind === 'token') await remove('/api/v1/security/tokens/{token}', { token: doomed.id });
            else await remove('/api/v1/security/keys/{key}', { key: doomed.id });
            tell(`Deleted ${doomed.id}`);
            again();
          }}>
          <p>Whoever uses it is refused from now on, and connections that were made with it end.{kind === 'token' && doomed.name === 'console' ? ' It is a login of this console.' : ''}</p>
        </Act>
      )}
    </>
  );
}
