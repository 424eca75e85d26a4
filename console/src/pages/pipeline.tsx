// One pipeline: how it is, where its time goes as Spark reports it, its runs and why they ended.
import { useState } from 'preact/hooks';
import { get, post } from '../api/client.ts';
import type { OnePipeline, ShownRun } from '../api/types.ts';
import { BarStack } from '../parts/bars.tsx';
import { Act } from '../parts/dialog.tsx';
import { useLoad } from '../parts/load.ts';
import { Table } from '../parts/table.tsx';
import { A, Age, Command, Empty, Head, Name, ProblemBox, Tabs, tell, Waiting, When } from '../parts/ui.tsx';
import { count, quoted, rate, size, span, took, visible } from '../parts/words.ts';
import { http, viaKafka } from '../state/places.ts';
import { chosen, to } from '../state/place.ts';
import { useRights } from '../state/rights.ts';
import { State } from './pipelines.tsx';

const ENDED = ['stopped', 'finished', 'failed'];

// Only a page of Spark's own becomes a link; what a client wrote into the topic is text otherwise (W8).
function Ui({ of }: { of: string }) {
  if (!of) return <span class="faint">none while it does not run</span>;
  return /^https?:\/\/[\w.-]+(:\d{1,5})?\/?$/.test(of) ? <a href={of} target="_blank" rel="noreferrer noopener">{of}</a> : <Name of={of} />;
}

function Tiles({ one }: { one: OnePipeline }) {
  return (
    <div class="tiles moves">
      <div class="tile"><span class="name">Records a second</span><span class="value">{rate(one.rate)}</span><span class="note">{count(one.records)} in this run, {size(one.bytes)}</span></div>
      <div class="tile"><span class="name">Behind</span><span class={`value${one.lag ? ' warn-text' : ''}`}>{count(one.lag)}</span><span class="note">records wait to be read</span></div>
      <div class="tile"><span class="name">Last batch</span><span class="value">{one.batches.length ? took(one.batches.at(-1)!.total_ms) : '–'}</span><span class="note">{one.batches.length ? <>{count(one.batches.at(-1)!.rows)} rows</> : 'none yet'}</span></div>
      <div class="tile"><span class="name">Failures in a row</span><span class={`value${one.attempts ? ' bad-text' : ''}`}>{count(one.attempts)}</span><span class="note">{one.next_ms ? <>next try <Age ms={one.next_ms} /></> : `${count(one.restarts)} of this version`}</span></div>
    </div>
  );
}

function Facts({ one }: { one: OnePipeline }) {
  return (
    <dl class="facts">
      <dt>From</dt><dd>{one.topics.length ? one.topics.map((topic, place) => <>{place > 0 && ', '}<A key={topic} href={one.kind === 'redrive' ? to('queues', topic) : to('topics', topic)}><Name of={topic} /></A></>) : '–'}</dd>
      <dt>To</dt><dd><Name of={one.target || '–'} /></dd>
      <dt>Runs on</dt><dd>{one.host ? <><Name of={one.host} />{one.master && <span class="soft"> · <span class="mono">{visible(one.master)}</span></span>}</> : 'no host has it'}</dd>
      <dt>Spark’s pages</dt><dd><Ui of={one.ui} /></dd>
      {one.cron && <><dt>Calendar</dt><dd class="mono">{visible(one.cron)}</dd></>}
      {one.state_rows !== null && <><dt>Rows of state</dt><dd class="num">{count(one.state_rows)}</dd></>}
      {one.watermark && <><dt>Watermark</dt><dd><Name of={one.watermark} /></dd></>}
      {one.newest_ms && <><dt>Newest record</dt><dd><When ms={one.newest_ms} /> <span class="soft">(<Age ms={one.newest_ms} />)</span></dd></>}
      {!!one.skipped && <><dt>Gone unread</dt><dd class="warn-text">{count(one.skipped)} records were deleted before they were read</dd></>}
      {!!one.dead_rows && <><dt>Bad rows</dt><dd class="warn-text">{count(one.dead_rows)} rows were not what the schema says</dd></>}
      <dt>Log</dt><dd>{one.log ? <span class="mono">{visible(one.log)}</span> : '–'}</dd>
      <dt>Heard of</dt><dd>{one.updated_ms ? <Age ms={one.updated_ms} /> : 'never'}</dd>
    </dl>
  );
}

function Run({ run }: { run: ShownRun }) {
  const [open, setOpen] = useState(false);
  const bad = run.outcome === 'failed' || run.outcome === 'lost';
  const first = (run.error || run.reason).trim().split('\n')[0] ?? '';
  return (
    <>
      <tr>
        <td class="n">{count(run.number)}</td>
        <td><span class={`chip ${bad ? 'bad' : run.outcome === 'finished' || run.outcome === 'running' ? 'good' : ''}`}>{visible(run.outcome)}</span></td>
        <td>{run.started_ms ? <When ms={run.started_ms} /> : '–'}</td>
        <td class="n less">{run.ended_ms && run.started_ms ? span(run.ended_ms - run.started_ms) : '–'}</td>
        <td class="n">{count(run.records)}</td>
        <td class="n less">{count(run.version)}</td>
        <td class="less"><Name of={run.host} /></td>
        <td class="wraps">{first ? <span class={bad ? 'bad-text' : 'soft'}>{visible(first).slice(0, 160)}</span> : <span class="faint">–</span>} {run.error.trim().includes('\n') && <button class="small" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? 'Less' : 'All of it'}</button>}</td>
      </tr>
      {open && <tr><td colSpan={8}><pre class="payload mono">{visible(run.error)}</pre></td></tr>}
    </>
  );
}

function Runs({ name }: { name: string }) {
  const { value, problem, again } = useLoad(`runs ${name}`, (signal) => get('/api/v1/pipelines/{pipeline}/runs', { pipeline: name }, { query: { limit: 50 }, signal }), 5_000);
  if (problem && !value) return <ProblemBox of={problem} again={again} />;
  if (!value) return <Waiting />;
  if (!value.items.length) return <div class="card"><Empty title="It has not run yet"><p>Runs are kept for pipelines that were submitted.</p></Empty></div>;
  return (
    <Table class="">
      <thead><tr><th class="n slim" scope="col">Run</th><th scope="col">Ended</th><th scope="col">Started</th><th class="n less" scope="col">Took</th><th class="n" scope="col">Records</th><th class="n less" scope="col">Version</th><th class="less" scope="col">Host</th><th scope="col">Why</th></tr></thead>
      <tbody>{value.items.map((run) => <Run key={run.number} run={run} />)}</tbody>
    </Table>
  );
}

function Order({ one, verb, close, done }: { one: OnePipeline; verb: 'stop' | 'restart'; close: () => void; done: () => void }) {
  const words = verb === 'stop' ? 'Stop' : ENDED.includes(one.state) ? 'Start' : 'Restart';
  return (
    <Act title={`${words} ${one.name}`} close={close} act={`${words} ${one.name}`} danger={verb === 'stop'}
      commands={[
        { words: 'The same on the command line', text: `headrace pipeline ${verb} ${quoted(one.name)}${viaKafka()}` },
        { words: 'The same with curl', text: `curl -X POST '${http()}/api/v1/pipelines/${encodeURIComponent(one.name)}/${verb}'` },
      ]}
      run={async () => {
        if (verb === 'stop') await post('/api/v1/pipelines/{pipeline}/stop', { pipeline: one.name }, undefined);
        else await post('/api/v1/pipelines/{pipeline}/restart', { pipeline: one.name }, undefined);
        tell(`${one.name} was asked to ${verb}`);
        done();
      }}>
      <p>{verb === 'stop' ? (one.submitted ? 'It ends when its round is done and stays stopped, on every supervisor, until it is started again. What it has written stays.' : 'Whoever runs it by hand is asked to end when the round is done.') : 'Its supervisor ends the run that it has, and begins another where that one stopped.'}</p>
    </Act>
  );
}

export function Page({ name }: { name: string }) {
  const tab = chosen('tab') || 'now';
  const { value, problem, again } = useLoad(`pipeline ${name}`, (signal) => get('/api/v1/pipelines/{pipeline}', { pipeline: name }, { signal }), 2_000);
  const [verb, setVerb] = useState<'stop' | 'restart' | undefined>();
  const may = useRights('topic', '_headrace_definitions');
  const crumb = <A href={to('pipelines')}>Pipelines</A>;
  if (problem && !value) return <div class="stack"><Head crumb={crumb} title={<Name of={name} />} /><ProblemBox of={problem} again={again} /></div>;
  if (!value) return <Waiting />;
  const ended = ENDED.includes(value.state);
  return (
    <>
      <Head crumb={crumb} title={<Name of={name} />} lead={<><State of={value.state} /> {visible(value.kind)}{value.submitted ? `, version ${value.version} by ${visible(value.by)}` : ', run by hand'}{value.since_ms ? <> · <Age ms={value.since_ms} /></> : null}</>}>
        {!ended && value.state !== 'lost' && <button class="danger" disabled={may('write') !== undefined} title={may('write')} onClick={() => setVerb('stop')}>Stop</button>}
        {value.submitted && <button disabled={may('write') !== undefined} title={may('write')} onClick={() => setVerb('restart')}>{ended ? 'Start' : 'Restart'}</button>}
      </Head>
      <Tabs all={[['now', 'Now'], ['runs', 'Runs'], ['definition', 'Definition']]} />
      {tab === 'now' && (
        <div class="stack">
          {value.error && <div class="problem"><strong>Last error</strong><pre class="mono">{visible(value.error)}</pre></div>}
          <Tiles one={value} />
          {value.batches.length > 0 && <section class="card"><h2>Where the time of a batch goes</h2><p class="soft">The last {count(value.batches.length)}, as {Object.keys(value.batches.at(-1)!.parts_ms).length ? 'Spark reports them' : 'the pipeline counts its rounds'}.</p><BarStack batches={value.batches} /></section>}
          <section class="card"><Facts one={value} /></section>
          <Command text={value.submitted ? `headrace pipeline logs ${quoted(name)} -f${viaKafka()}` : `headrace pipeline status ${quoted(name)}${viaKafka()}`} />
        </div>
      )}
      {tab === 'runs' && <Runs name={name} />}
      {tab === 'definition' && (
        <div class="stack">
          {value.toml ? <pre class="card mono">{visible(value.toml)}</pre> : <div class="card"><Empty title="Its definition is not in the cluster"><p>Somebody runs it by hand, from a file. Submit it, and any supervisor can run it.</p><Command text={`headrace pipeline submit FILE${viaKafka()}`} /></Empty></div>}
          {value.versions.length > 0 && (
            <Table class="">
              <thead><tr><th class="n slim" scope="col">Version</th><th scope="col">By</th><th scope="col">When</th><th scope="col"><span class="hidden">Back to it</span></th></tr></thead>
              <tbody>{value.versions.map((one) => <tr key={one.version}><td class="n">{one.version}</td><td><Name of={one.by} /></td><td><When ms={one.created_ms} /></td><td>{one.version === value.version ? <span class="chip accent">this one</span> : <code class="faint">headrace pipeline rollback {quoted(name)} {one.version}</code>}</td></tr>)}</tbody>
            </Table>
          )}
        </div>
      )}
      {verb && <Order one={value} verb={verb} close={() => setVerb(undefined)} done={again} />}
    </>
  );
}
