// Webhooks: what is pushed where, how the endpoints answer, and what is tried again.
import { useState } from 'preact/hooks';
import { get, post } from '../api/client.ts';
import type { ShownWebhook } from '../api/types.ts';
import { Act } from '../parts/dialog.tsx';
import { useLoad } from '../parts/load.ts';
import { A, Age, Command, Empty, Head, Name, ProblemBox, tell, Waiting } from '../parts/ui.tsx';
import { count, quoted, visible } from '../parts/words.ts';
import { http, viaHttp } from '../state/places.ts';
import { to } from '../state/place.ts';

function Row({ hook, act }: { hook: ShownWebhook; act: () => void }) {
  const good = hook.state === 'active' && hook.circuit === 'closed';
  return (
    <tr>
      <td class="name"><Name of={hook.name} /> <span class={`chip ${good ? 'good' : 'warn'}`}>{visible(hook.state)}</span>{hook.reason && <p class="soft why">{visible(hook.reason)}</p>}</td>
      <td><A href={to('queues', hook.queue)}><Name of={hook.queue} /></A></td>
      <td class="mono less"><Name of={hook.url} /></td>
      <td class="n">{count(hook.delivered)}</td><td class="n">{count(hook.failed)}</td>
      <td class="less">{hook.state !== 'active' ? <span class="faint">–</span> : hook.circuit === 'closed' ? <span class="soft">answers; {count(hook.concurrency)} at a time</span> : <span class="chip bad">given a rest ({visible(hook.circuit)})</span>}</td>
      <td class="less">{hook.last_ms ? <><Age ms={hook.last_ms} /> <span class={hook.last_status >= 200 && hook.last_status < 300 ? 'good-text' : 'bad-text'}>{hook.last_status || visible(hook.last_detail)}</span></> : <span class="faint">never</span>}</td>
      <td class="slim"><button class="small" onClick={act}>{hook.state === 'active' ? 'Pause' : 'Resume'}</button></td>
    </tr>
  );
}

export function Page(_: { name: string }) {
  const { value, problem, again } = useLoad('webhooks', (signal) => get('/api/v1/webhooks', {}, { signal }), 2_000);
  const [changing, setChanging] = useState<ShownWebhook | undefined>();
  const verb = changing?.state === 'active' ? 'pause' : 'resume';
  return (
    <div class="stack">
      <Head title="Webhooks" lead="Queues that are pushed to an address, signed, with retries, a rest for endpoints that fail, and dead letters." />
      {problem && !value && <ProblemBox of={problem} again={again} />}
      {!value && !problem && <Waiting />}
      {value && value.items.length === 0 && <div class="card"><Empty title="No webhooks yet"><p>A webhook is an ordinary worker of a queue that posts each message to your service.</p><Command text={`headrace webhook add jobs https://shop.example/hooks${viaHttp()}`} /></Empty></div>}
      {value && value.items.length > 0 && (
        <div class="scroll moves"><table>
          <thead><tr><th scope="col">Name</th><th scope="col">Queue</th><th class="less" scope="col">To</th><th class="n" scope="col">Delivered</th><th class="n" scope="col">Failed</th><th class="less" scope="col">Endpoint</th><th class="less" scope="col">Last answer</th><th class="slim" scope="col"><span class="hidden">Acts</span></th></tr></thead>
          <tbody>{value.items.map((hook) => <Row key={hook.name} hook={hook} act={() => setChanging(hook)} />)}</tbody>
        </table></div>
      )}
      {changing && (
        <Act title={`${verb === 'pause' ? 'Pause' : 'Resume'} ${changing.name}`} close={() => setChanging(undefined)} act={verb === 'pause' ? 'Pause deliveries' : 'Resume deliveries'}
          commands={[{ words: 'The same on the command line', text: `headrace webhook ${verb} ${quoted(changing.name)}${viaHttp()}` }, { words: 'The same with curl', text: `curl -X POST '${http()}/api/v1/webhooks/${encodeURIComponent(changing.name)}/${verb}'` }]}
          run={async () => {
            if (verb === 'pause') await post('/api/v1/webhooks/{webhook}/pause', { webhook: changing.name }, undefined);
            else await post('/api/v1/webhooks/{webhook}/resume', { webhook: changing.name }, undefined);
            tell(verb === 'pause' ? `${changing.name} is paused` : `${changing.name} delivers again`);
            again();
          }}>
          <p>{verb === 'pause' ? 'Messages wait in the queue until it is resumed.' : 'What waits in the queue is sent from now on.'}</p>
        </Act>
      )}
    </div>
  );
}
