// Schedules: what the calendar sends, and when next.
import { useState } from 'preact/hooks';
import { get, post, remove } from '../api/client.ts';
import { Act } from '../parts/dialog.tsx';
import { useLoad } from '../parts/load.ts';
import { Table } from '../parts/table.tsx';
import { A, Age, Command, Empty, Head, Name, ProblemBox, tell, Waiting, When } from '../parts/ui.tsx';
import { quoted, visible } from '../parts/words.ts';
import { http, viaHttp } from '../state/places.ts';
import { useRights } from '../state/rights.ts';
import { to } from '../state/place.ts';
import { utc } from '../state/session.ts';
import { Week } from '../parts/week.tsx';

function Add({ close, done }: { close: () => void; done: () => void }) {
  const [name, setName] = useState('');
  const [cron, setCron] = useState('0 6 * * *');
  const [topic, setTopic] = useState('');
  const [value, setValue] = useState('');
  const may = useRights('topic', topic || '-');
  const body = { name, cron, topic, value };
  return (
    <Act title="Send by the calendar" close={close} act={name ? `Add ${name}` : 'Add the schedule'} ready={name !== '' && topic !== '' && cron !== ''} refused={topic ? may('write') : undefined}
      commands={[
        { words: 'The same on the command line', text: `headrace schedule add ${quoted(name || 'NAME')} ${quoted(cron)} ${quoted(topic || 'TOPIC')} ${quoted(value)}${viaHttp()}` },
        { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} ${http()}/api/v1/schedules` },
      ]}
      run={async () => { await post('/api/v1/schedules', {}, body); tell(`Added ${name}`); done(); }}>
      <div class="fields">
        <label class="field"><span>Name</span><input value={name} spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} /></label>
        <label class="field"><span>When (cron, UTC)</span><input class="mono" value={cron} spellcheck={false} onInput={(event) => setCron(event.currentTarget.value)} /></label>
        <label class="field"><span>Topic or queue</span><input value={topic} spellcheck={false} onInput={(event) => setTopic(event.currentTarget.value)} /></label>
      </div>
      <label class="field"><span>Message</span><textarea rows={4} value={value} spellcheck={false} onInput={(event) => setValue(event.currentTarget.value)} /></label>
    </Act>
  );
}

type Verb = 'run' | 'pause' | 'resume';
const WORDS: Record<Verb, { title: string; act: string; says: string }> = {
  run: { title: 'Run', act: 'Send 1 message now', says: 'One message is sent now, paused or not. The calendar goes on as it is.' },
  pause: { title: 'Pause', act: 'Pause the schedule', says: 'Its times pass and nothing is sent, until it is resumed. What was missed is not made up for.' },
  resume: { title: 'Resume', act: 'Resume the schedule', says: 'It goes on with its next time.' },
};

function Change({ name, verb, close, done }: { name: string; verb: Verb; close: () => void; done: () => void }) {
  return (
    <Act title={`${WORDS[verb].title} ${name}`} close={close} act={WORDS[verb].act}
      commands={[
        { words: 'The same on the command line', text: `headrace schedule ${verb} ${quoted(name)}${viaHttp()}` },
        { words: 'The same with curl', text: `curl -X POST '${http()}/api/v1/schedules/${encodeURIComponent(name)}/${verb}'` },
      ]}
      run={async () => {
        if (verb === 'run') await post('/api/v1/schedules/{name}/run', { name }, undefined);
        if (verb === 'pause') await post('/api/v1/schedules/{name}/pause', { name }, undefined);
        if (verb === 'resume') await post('/api/v1/schedules/{name}/resume', { name }, undefined);
        tell(verb === 'run' ? `${name} sends now` : verb === 'pause' ? `${name} is paused` : `${name} goes on`);
        done();
      }}>
      <p>{WORDS[verb].says}</p>
    </Act>
  );
}

export function Page(_: { name: string }) {
  const { value, problem, again } = useLoad('schedules', (signal) => get('/api/v1/schedules', {}, { signal }), 5_000);
  const [adding, setAdding] = useState(false);
  const [ending, setEnding] = useState<string | undefined>();
  const [changing, setChanging] = useState<{ name: string; verb: Verb } | undefined>();
  return (
    <div class="stack">
      <Head title="Schedules" lead="Messages that the calendar sends. Those that wait in a queue for their time are on the queue’s own page.">
        <button class="main-act" onClick={() => setAdding(true)}>Add a schedule</button>
      </Head>
      {problem && !value && <ProblemBox of={problem} again={again} />}
      {!value && !problem && <Waiting />}
      {value && value.items.length === 0 && <div class="card"><Empty title="No schedules yet"><p>A schedule sends one message to a topic or queue whenever its cron expression says so.</p><Command text={`headrace schedule add nightly '0 2 * * *' jobs 'clean up'${viaHttp()}`} /><button class="main-act" onClick={() => setAdding(true)}>Add a schedule</button></Empty></div>}
      {value && value.items.length > 0 && <section class="card"><h2>The next times</h2><p class="soft">Up to ten of each, {utc.value ? 'in UTC' : 'in your own time'}.</p><Week schedules={value.items.filter((row) => !row.paused)} /></section>}
      {value && value.items.length > 0 && (
        <Table>
          <thead><tr><th scope="col">Name</th><th scope="col">When</th><th scope="col">To</th><th scope="col">Next</th><th scope="col" class="less">Last sent</th><th scope="col" class="less">Message</th><th class="slim" scope="col"><span class="hidden">Acts</span></th></tr></thead>
          <tbody>{value.items.map((row) => (
            <tr key={row.name}>
              <td class="name"><Name of={row.name} /> {row.paused && <span class="chip warn">paused</span>}</td><td class="mono nowrap">{visible(row.cron)}</td><td><A href={to('topics', row.topic)}><Name of={row.topic} /></A></td>
              <td class="nowrap">{row.paused ? <span class="faint">when it is resumed</span> : <><When ms={row.next_ms} /> <span class="faint"><Age ms={row.next_ms} /></span></>}</td><td class="less nowrap">{row.sent_ms ? <Age ms={row.sent_ms} /> : <span class="faint">never</span>}</td>
              <td class="text mono less">{visible(row.value ?? '')}</td><td class="slim wide"><div class="row tight"><button class="small" onClick={() => setChanging({ name: row.name, verb: 'run' })}>Run now</button><button class="small" onClick={() => setChanging({ name: row.name, verb: row.paused ? 'resume' : 'pause' })}>{row.paused ? 'Resume' : 'Pause'}</button><button class="small danger" onClick={() => setEnding(row.name)}>End</button></div></td>
            </tr>
          ))}</tbody>
        </Table>
      )}
      {changing && <Change {...changing} close={() => setChanging(undefined)} done={again} />}
      {adding && <Add close={() => setAdding(false)} done={again} />}
      {ending !== undefined && (
        <Act title={`End ${ending}`} close={() => setEnding(undefined)} act={`End ${ending}`} danger typed={ending}
          commands={[{ words: 'The same on the command line', text: `headrace schedule cancel ${quoted(ending)}${viaHttp()}` }, { words: 'The same with curl', text: `curl -X DELETE '${http()}/api/v1/schedules/${encodeURIComponent(ending)}'` }]}
          run={async () => { await remove('/api/v1/schedules/{name}', { name: ending }); tell(`${ending} is ended`); again(); }}>
          <p>Nothing more is sent by it. What it has sent stays.</p>
        </Act>
      )}
    </div>
  );
}
