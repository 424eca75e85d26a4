// Webhooks: what is pushed where, how the endpoints answer, and what is tried again.
import { useState } from 'preact/hooks';
import { get, post, remove } from '../api/client.ts';
import type { ShownWebhook } from '../api/types.ts';
import { Act, Sheet } from '../parts/dialog.tsx';
import { useLoad } from '../parts/load.ts';
import { Table } from '../parts/table.tsx';
import { A, Age, Command, Copy, Empty, Head, Name, ProblemBox, tell, Waiting, When } from '../parts/ui.tsx';
import { count, quoted, span, took, visible } from '../parts/words.ts';
import { http, viaHttp } from '../state/places.ts';
import { choose, chosen, to } from '../state/place.ts';
import { useRights } from '../state/rights.ts';

interface Attempt { at_ms: number; outcome: string; status: number; duration_ms: number; detail: string } // rows of an open shape in the document
type Verb = 'pause' | 'resume' | 'test' | 'remove';
const WORDS: Record<Verb, { title: string; act: string; says: string }> = {
  pause: { title: 'Pause', act: 'Pause deliveries', says: 'Messages wait in the queue until it is resumed.' },
  resume: { title: 'Resume', act: 'Resume deliveries', says: 'What waits in the queue is sent from now on.' },
  test: { title: 'Test', act: 'Send one test', says: 'One signed message that is marked as a test goes to the endpoint; one that has not confirmed yet is asked to. Nothing is taken from the queue.' },
  remove: { title: 'Remove', act: 'Remove the webhook', says: 'Nothing more is sent to the endpoint, and its secret is gone. A queue that was there before stays, with everything in it.' },
};

function Row({ hook, act }: { hook: ShownWebhook; act: (verb: Verb) => void }) {
  const good = hook.state === 'active' && hook.circuit === 'closed';
  const may = useRights('group', hook.queue);
  const refused = may('alter_configs');
  return (
    <tr>
      <td class="name"><Name of={hook.name} /> <span class={`chip ${good ? 'good' : 'warn'}`}>{visible(hook.state)}</span><p class="mono soft why">{visible(hook.url)}</p>{hook.reason && <p class="bad-text why">{visible(hook.reason)}</p>}{hook.state === 'pending' && <p class="soft why">It has not confirmed yet that it wants this: mend the endpoint, then Test asks it again.</p>}</td>
      <td><A href={to('queues', hook.queue)}><Name of={hook.queue} /></A></td>
      <td class="n">{count(hook.delivered)}</td><td class="n">{count(hook.failed)}</td>
      <td class="less">{hook.state !== 'active' ? <span class="faint">–</span> : hook.circuit === 'closed' ? <span class="soft">answers; {count(hook.concurrency)} at a time</span> : <span class="chip bad">given a rest ({visible(hook.circuit)})</span>}</td>
      <td class="less">{hook.last_ms ? <><Age ms={hook.last_ms} /> <span class={hook.last_status >= 200 && hook.last_status < 300 ? 'good-text' : 'bad-text'}>{hook.last_status || visible(hook.last_detail)}</span></> : <span class="faint">never</span>}</td>
      <td class="slim wide acts"><div class="row">
        <button class="small" onClick={() => choose({ at: hook.name })}>Attempts</button>
        <button class="small" disabled={refused !== undefined} title={refused} onClick={() => act('test')}>Test</button>
        <button class="small" disabled={refused !== undefined} title={refused} onClick={() => act(hook.state === 'active' ? 'pause' : 'resume')}>{hook.state === 'active' ? 'Pause' : 'Resume'}</button>
        <button class="small danger" disabled={refused !== undefined} title={refused} onClick={() => act('remove')}>Remove</button>
      </div></td>
    </tr>
  );
}

// The last answers of one endpoint.
function Attempts({ name, close }: { name: string; close: () => void }) {
  const { value, problem } = useLoad(`attempts ${name}`, (signal) => get('/api/v1/webhooks/{webhook}/deliveries', { webhook: name }, { signal }), 2_000);
  return (
    <Sheet title={`Attempts of ${name}`} close={close} wide foot={<button onClick={close}>Close</button>}>
      {problem && !value && <ProblemBox of={problem} />}
      {!value && !problem && <Waiting />}
      {value && value.items.length === 0 && <p class="soft">None since the broker that works on it began.</p>}
      {value && value.items.length > 0 && (
        <Table>
          <thead><tr><th class="slim" scope="col">When</th><th scope="col">Outcome</th><th class="n" scope="col">Status</th><th class="n" scope="col">Took</th><th scope="col">Answer</th></tr></thead>
          <tbody>{(value.items as unknown as Attempt[]).map((one, place) => (
            <tr key={place}><td class="slim when"><When ms={one.at_ms} /></td><td>{visible(one.outcome)}</td><td class="n">{one.status || '–'}</td><td class="n">{took(one.duration_ms)}</td><td class="wraps wide soft">{visible(one.detail)}</td></tr>
          ))}</tbody>
        </Table>
      )}
      <Command text={`headrace webhook deliveries ${quoted(name)}${viaHttp()}`} />
    </Sheet>
  );
}

function Add({ close, done }: { close: () => void; done: () => void }) {
  const [queue, setQueue] = useState('');
  const [url, setUrl] = useState('');
  const [secret, setSecret] = useState<{ name: string; secret: string } | undefined>();
  const may = useRights('group', queue || '-');
  const body = { queue, url };
  if (secret)
    return (
      <Sheet title={`${secret.name} is added`} close={close} foot={<button class="main-act" onClick={close}>Done</button>}>
        <p>Its endpoint checks signatures with this secret. It is shown once, and never again.</p>
        <div class="command"><pre>{secret.secret}</pre><Copy text={secret.secret} what="the secret" /></div>
        <p class="soft">It delivers as soon as the endpoint has confirmed: it is sent a token, and says it back.</p>
      </Sheet>
    );
  return (
    <Act title="Push a queue to an address" close={close} act={queue ? `Push ${queue}` : 'Add the webhook'} ready={queue !== '' && url !== ''} refused={queue ? may('alter_configs') : undefined} stays
      commands={[
        { words: 'The same on the command line', text: `headrace webhook add ${quoted(queue || 'QUEUE')} ${quoted(url || 'URL')}${viaHttp()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} ${http()}/api/v1/webhooks` },
      ]}
      run={async () => {
        const made = await post('/api/v1/webhooks', {}, body);
        setSecret({ name: made.name, secret: made.secret });
        done();
      }}>
      <label class="field"><span>Queue</span><input value={queue} spellcheck={false} onInput={(event) => setQueue(event.currentTarget.value)} /></label>
      <label class="field"><span>Address</span><input type="url" placeholder="https://shop.example/hooks" value={url} spellcheck={false} onInput={(event) => setUrl(event.currentTarget.value)} /></label>
    </Act>
  );
}

function Change({ hook, verb, close, done }: { hook: ShownWebhook; verb: Verb; close: () => void; done: () => void }) {
  const names = { webhook: hook.name };
  const path = `${http()}/api/v1/webhooks/${encodeURIComponent(hook.name)}`;
  return (
    <Act title={`${WORDS[verb].title} ${hook.name}`} close={close} act={WORDS[verb].act} danger={verb === 'remove'} {...(verb === 'remove' ? { typed: hook.name } : {})}
      commands={[
        { words: 'The same on the command line', text: verb === 'remove' ? `headrace webhook remove ${quoted(hook.name)} --yes${viaHttp()}` : `headrace webhook ${verb} ${quoted(hook.name)}${viaHttp()}` },
        { words: 'The same with curl', text: verb === 'remove' ? `curl -X DELETE '${path}'` : `curl -X POST '${path}/${verb}'` },
      ]}
      run={async () => {
        if (verb === 'pause') await post('/api/v1/webhooks/{webhook}/pause', names, undefined);
        if (verb === 'resume') await post('/api/v1/webhooks/{webhook}/resume', names, undefined);
        if (verb === 'remove') await remove('/api/v1/webhooks/{webhook}', names);
        if (verb === 'test') {
          const got = await post('/api/v1/webhooks/{webhook}/test', names, undefined);
          tell(got.ok ? `The endpoint answered ${got.status} in ${span(got.duration_ms)}` : `The endpoint did not take it: ${got.status || got.detail}`, { bad: !got.ok });
        } else tell(verb === 'pause' ? `${hook.name} is paused` : verb === 'resume' ? `${hook.name} delivers again` : `${hook.name} is removed`);
        done();
      }}>
      <p>{WORDS[verb].says}</p>
    </Act>
  );
}

export function Page(_: { name: string }) {
  const { value, problem, again } = useLoad('webhooks', (signal) => get('/api/v1/webhooks', {}, { signal }), 2_000);
  const [changing, setChanging] = useState<{ hook: ShownWebhook; verb: Verb } | undefined>();
  const [adding, setAdding] = useState(false);
  const at = chosen('at');
  return (
    <div class="stack">
      <Head title="Webhooks" lead="Queues that are pushed to an address, signed, with retries, a rest for endpoints that fail, and dead letters.">
        <button class="main-act" onClick={() => setAdding(true)}>Add a webhook</button>
      </Head>
      {problem && !value && <ProblemBox of={problem} again={again} />}
      {!value && !problem && <Waiting />}
      {value && value.items.length === 0 && <div class="card"><Empty title="No webhooks yet"><p>A webhook is an ordinary worker of a queue that posts each message to your service.</p><Command text={`headrace webhook add jobs https://shop.example/hooks${viaHttp()}`} /><button class="main-act" onClick={() => setAdding(true)}>Add a webhook</button></Empty></div>}
      {value && value.items.length > 0 && (
        <Table>
          <thead><tr><th scope="col">Name</th><th scope="col">Queue</th><th class="n" scope="col">Delivered</th><th class="n" scope="col">Failed</th><th class="less" scope="col">Endpoint</th><th class="less" scope="col">Last answer</th><th class="slim" scope="col"><span class="hidden">Acts</span></th></tr></thead>
          <tbody>{value.items.map((hook) => <Row key={hook.name} hook={hook} act={(verb) => setChanging({ hook, verb })} />)}</tbody>
        </Table>
      )}
      {at && <Attempts name={at} close={() => choose({ at: '' })} />}
      {adding && <Add close={() => setAdding(false)} done={again} />}
      {changing && <Change {...changing} close={() => setChanging(undefined)} done={again} />}
    </div>
  );
}
