// What happened (elections, replicas, brokers, webhooks, dead letters), and who did what (the audit).
import { useState } from 'preact/hooks';
import { get } from '../api/client.ts';
import type { AuditRow } from '../api/types.ts';
import { Line } from '../parts/happened.tsx';
import { useLoad } from '../parts/load.ts';
import { Table } from '../parts/table.tsx';
import { Age, Command, Empty, Head, Name, ProblemBox, Search, Tabs, Waiting, When } from '../parts/ui.tsx';
import { count, many, visible } from '../parts/words.ts';
import { viaHttp } from '../state/places.ts';
import { choose, chosen } from '../state/place.ts';

const MOST = 500;

function Happened() {
  const severity = chosen('severity');
  const thing = chosen('thing');
  const name = chosen('name');
  const { value, problem, again } = useLoad(`happened ${severity} ${thing} ${name}`, (signal) => get('/api/v1/happenings', {}, { query: { severity, thing, name, limit: MOST }, signal }), 2_000);
  return (
    <>
      <div class="bar">
        <Search name="name" label="Only what happened to one of this name" placeholder="Name of a topic, queue or broker   ( / )" />
        <select aria-label="Severity" value={severity} onChange={(event) => choose({ severity: event.currentTarget.value })}>
          <option value="">Everything</option><option value="warning">Warnings and worse</option><option value="error">Errors</option>
        </select>
        <select aria-label="Kind of thing" value={thing} onChange={(event) => choose({ thing: event.currentTarget.value })}>
          <option value="">All things</option><option value="broker">Brokers</option><option value="partition">Partitions</option><option value="topic">Topics</option><option value="queue">Queues</option><option value="webhook">Webhooks</option>
        </select>
        <span class="right num">{value && `${count(value.items.length)} lines`}</span>
      </div>
      {problem && !value && <ProblemBox of={problem} again={again} />}
      {!value && !problem && <Waiting />}
      {value && value.missing.length > 0 && <p class="warn-text">Without what only broker {value.missing.join(', ')} has seen, which does not answer.</p>}
      {value && value.items.length === 0 && (
        <div class="card"><Empty title={severity || thing || name ? 'Nothing of that kind' : 'Nothing has happened yet'}><p>Elections, replicas that fall behind, brokers that come and go, webhooks that are disabled and dead letters that begin are told here.</p><Command text={`headrace cluster happenings${viaHttp()}`} /></Empty></div>
      )}
      {value && value.items.length > 0 && (
        <>
          <Table class="moves log">
            <thead><tr><th class="slim" scope="col">When</th><th class="slim" scope="col">Severity</th><th scope="col">What</th></tr></thead>
            <tbody>{value.items.map((row) => <Line key={`${row.seen_by} ${row.at_ms} ${row.kind} ${row.names[0]}`} row={row} />)}</tbody>
          </Table>
          <p class="faint">Kept in the memory of brokers; the oldest of them began <Age ms={value.began_ms} />.</p>
        </>
      )}
    </>
  );
}

function Change({ row }: { row: AuditRow }) {
  const names = [...new Set([...Object.keys(row.before), ...Object.keys(row.after)])];
  const [all, setAll] = useState(false);
  if (!names.length) return null;
  return (
    <>
      <dl class="change">{(all ? names : names.slice(0, 3)).map((name) => <><dt key={name}>{visible(name)}</dt><dd class="mono">{row.before[name] === undefined ? '' : <del>{visible(row.before[name])}</del>} {row.after[name] === undefined ? <span class="faint">gone</span> : visible(row.after[name])}</dd></>)}</dl>
      {names.length > 3 && <button class="small" aria-expanded={all} onClick={() => setAll(!all)}>{all ? 'Less' : `All ${names.length} fields`}</button>}
    </>
  );
}

const EVENTS: Record<string, string> = { login_failed: 'bad', denied: 'bad', would_deny: 'warn', nameless: 'warn', change: 'accent', console: 'accent' };

function Audit() {
  const q = chosen('q');
  const event = chosen('event');
  const principal = chosen('principal');
  const [limit, setLimit] = useState(50);
  const { value, problem, again } = useLoad(`audit ${q} ${event} ${principal} ${limit}`, (signal) => get('/api/v1/audit', {}, { query: { contains: q, event, principal, limit }, signal }), 5_000);
  return (
    <>
      <div class="bar">
        <Search label="Search the audit" placeholder="A word of the line   ( / )" />
        <select aria-label="Event" value={event} onChange={(one) => choose({ event: one.currentTarget.value })}>
          <option value="">Everything</option><option value="console">Changes in the console</option><option value="change">Changes of security</option><option value="login">Logins</option><option value="login_failed">Failed logins</option><option value="denied">Denied</option>
        </select>
        {principal && <button class="small" onClick={() => choose({ principal: '' })}><Name of={principal} /> ✕</button>}
        <span class="right num">{value && `${many(value.items.length, 'line')}${value.next_cursor === null ? '' : ' so far'}`}</span>
      </div>
      {problem && !value && <ProblemBox of={problem} again={again} />}
      {!value && !problem && <Waiting />}
      {value && value.items.length === 0 && (
        <div class="card"><Empty title={q || event || principal ? 'Nothing of that kind' : 'Nothing is in the audit yet'}><p>What is changed in this console is written down here; with security on, also who came, what was denied, and what was changed about rights.</p><Command text={`headrace security audit${viaHttp()}`} /></Empty></div>
      )}
      {value && value.items.length > 0 && (
        <Table class="log" after={value.next_cursor !== null && limit < MOST && <div class="more"><button class="small" onClick={() => setLimit(Math.min(MOST, limit * 4))}>More</button></div>}>
          <thead><tr><th class="slim" scope="col">When</th><th class="slim" scope="col">Event</th><th scope="col">Who</th><th class="less" scope="col">From</th><th scope="col">What</th></tr></thead>
          <tbody>{value.items.map((row, place) => (
            <tr key={`${row.at_ms} ${row.request_id} ${place}`} tabIndex={0} data-row>
              <td class="slim when"><When ms={row.at_ms} /></td>
              <td class="slim"><span class={`chip ${EVENTS[row.event] ?? ''}`}>{visible(row.event.replaceAll('_', ' '))}</span></td>
              <td class="wraps">{row.principal || row.name ? <button class="small quiet" onClick={() => choose({ principal: row.principal })} disabled={!row.principal}><Name of={row.principal || row.name} /></button> : <span class="faint">nobody</span>}</td>
              <td class="less"><Name of={row.host || '–'} /></td>
              <td class="wraps wide">
                {row.operation && <span class="mono">{visible(row.operation)} </span>}{visible(row.resource)} {row.principal && <span class="mono">{visible(row.name)}</span>} <span class="soft">{visible(row.text)}</span>
                {row.rule && <span class="faint"> · {visible(row.rule)}</span>}{row.mechanism && <span class="faint"> · {visible(row.mechanism)}</span>}{row.count > 1 && <span class="chip">{count(row.count)} × within a minute</span>}
                <Change row={row} />
              </td>
            </tr>
          ))}</tbody>
        </Table>
      )}
    </>
  );
}

export function Page(_: { name: string }) {
  const tab = chosen('tab') || 'happened';
  return (
    <>
      <Head title="Happenings" lead="What happened to the cluster lately, and who did what." />
      <Tabs all={[['happened', 'What happened'], ['audit', 'Who did what']]} />
      {tab === 'happened' ? <Happened /> : <Audit />}
    </>
  );
}
