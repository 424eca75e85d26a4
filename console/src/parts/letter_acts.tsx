// What can be done with dead letters (5.3): send back, edit, discard. Each is counted by the server first, then done by it.
import { useState } from 'preact/hooks';
import { post } from '../api/client.ts';
import type { MoveSample, ShownLetter } from '../api/types.ts';
import { http, viaHttp } from '../state/places.ts';
import { Act } from './dialog.tsx';
import { useLoad } from './load.ts';
import { brief, plain } from './payload.tsx';
import { Name, ProblemBox, tell } from './ui.tsx';
import { count, many, quoted } from './words.ts';

type Body = { act: 'redrive' | 'edit' | 'discard'; to?: string; filter: string; set?: string[]; rate?: number; max?: number };
type Common = { queue: string; of: number; filter: string; close: () => void; done: () => void };

const VERB = { redrive: 'Move', edit: 'Edit', discard: 'Discard' } as const;

function usePlan(queue: string, body: Body, ready = true) {
  return useLoad(`plan ${queue} ${ready} ${JSON.stringify(body)}`, async (signal) => (ready ? post('/api/v1/queues/{queue}/moves', { queue }, { ...body, dry_run: true }, { signal }) : undefined));
}

function commands(queue: string, body: Body): { words: string; text: string }[] {
  const flags = [
    body.to && `--to ${quoted(body.to)}`, ...(body.set ?? []).map((one) => `--set ${quoted(one)}`), body.filter && `--filter ${quoted(body.filter)}`,
    body.rate && `--rate ${body.rate}/s`, body.max && `--max ${body.max}`,
  ].filter(Boolean).map((flag) => ` ${flag}`).join('');
  return [
    { words: 'The same on the command line', text: `headrace dlq ${body.act} ${quoted(queue)}${flags}${viaHttp()}` },
    { words: 'The same with curl', text: `curl --json ${quoted(JSON.stringify(body))} '${http()}/api/v1/queues/${encodeURIComponent(queue)}/moves'` },
  ];
}

async function begin(queue: string, body: Body, done: () => void): Promise<void> {
  await post('/api/v1/queues/{queue}/moves', { queue }, body);
  tell(`${{ redrive: 'Moving', edit: 'Editing', discard: 'Discarding' }[body.act]}; it goes on when this page is closed`);
  done();
}

function Filter({ value, change }: { value: string; change: (text: string) => void }) {
  return <label class="field"><span>Only those that match this filter (empty: all)</span><textarea rows={2} value={value} spellcheck={false} onInput={(event) => change(event.currentTarget.value)} /></label>;
}

function Samples({ of }: { of: MoveSample[] }) {
  if (!of.length) return null;
  return (
    <div class="samples" role="group" aria-label="Before and after">
      {of.map((one) => (
        <div key={`${one.before.partition}:${one.before.offset}`} class="sample">
          <p class="mono minus"><span class="hidden">before: </span>{brief(one.before.value, 2_000)}</p>
          <p class="mono plus"><span class="hidden">after: </span>{brief(one.after.value, 2_000)}</p>
        </div>
      ))}
    </div>
  );
}

export function Redrive({ queue, of, filter: first, close, done }: Common) {
  const [filter, setFilter] = useState(first);
  const [target, setTarget] = useState('');
  const [speed, setSpeed] = useState('');
  const [most, setMost] = useState('');
  const body: Body = { act: 'redrive', to: target, filter, rate: Number(speed) || 0, max: Number(most) || 0 };
  const plan = usePlan(queue, body);
  const number = plan.value?.to_move ?? 0;
  return (
    <Act title={`Send dead letters of ${queue} back`} close={close} wide act={plan.value ? `Move ${many(number, 'message')}` : 'Counting …'} ready={number > 0} commands={commands(queue, body)} run={() => begin(queue, body, done)}>
      <p role="status">
        {plan.value ? <><strong>{many(number, 'message')}</strong> of {count(of)} would go {target ? <>to <Name of={target} /></> : 'back to where each came from'}{plan.value.failure ? ` (${plan.value.failure})` : ''}.</> : plan.problem ? '' : 'Counting what matches …'}
      </p>
      {plan.problem && <ProblemBox of={plan.problem} />}
      <Filter value={filter} change={setFilter} />
      <div class="fields">
        <label class="field"><span>To</span><input placeholder="where each came from" value={target} spellcheck={false} onInput={(event) => setTarget(event.currentTarget.value)} /></label>
        <label class="field"><span>At most a second</span><input inputMode="numeric" placeholder="as fast as it goes" value={speed} onInput={(event) => setSpeed(event.currentTarget.value.replace(/\D/g, ''))} /></label>
        <label class="field"><span>At most in all</span><input inputMode="numeric" placeholder="all of them" value={most} onInput={(event) => setMost(event.currentTarget.value.replace(/\D/g, ''))} /></label>
      </div>
    </Act>
  );
}

export function Discard({ queue, of, filter: first, close, done }: Common) {
  const [filter, setFilter] = useState(first);
  const body: Body = { act: 'discard', filter };
  const plan = usePlan(queue, body);
  const number = plan.value?.to_move ?? 0;
  return (
    <Act title={`Discard dead letters of ${queue}`} close={close} wide danger typed={queue} act={plan.value ? `Discard ${many(number, 'message')}` : 'Counting …'} ready={number > 0} commands={commands(queue, body)} run={() => begin(queue, body, done)}>
      <p role="status">{plan.value ? <><strong>{many(number, 'message')}</strong> of {count(of)} would be given up{plan.value.failure ? ` (${plan.value.failure})` : ''}. Their records stay in the topic until retention takes them.</> : plan.problem ? '' : 'Counting what matches …'}</p>
      {plan.problem && <ProblemBox of={plan.problem} />}
      <Filter value={filter} change={setFilter} />
    </Act>
  );
}

// One letter is edited as a form; for many, what is set in each of them.
export function Edit({ queue, of, filter: first, letter, close, done }: Common & { letter?: ShownLetter | undefined }) {
  const before = letter ? plain(letter.value) ?? '' : '';
  const [filter, setFilter] = useState(first);
  const [value, setValue] = useState(before);
  const [lines, setLines] = useState('');
  const [back, setBack] = useState(false);
  const set = letter ? (value === before ? [] : [`value = ${JSON.stringify(value)}`]) : lines.split('\n').map((line) => line.trim()).filter(Boolean);
  const body: Body = { act: back ? 'redrive' : 'edit', filter, set };
  const plan = usePlan(queue, body, set.length > 0);
  const number = plan.value?.to_move ?? 0;
  const act = set.length === 0 ? 'Nothing is changed yet' : plan.value ? `${back ? 'Edit and send back' : VERB.edit} ${many(number, 'message')}` : 'Counting …';
  return (
    <Act title={letter ? `Edit a dead letter of ${queue}` : `Edit dead letters of ${queue}`} close={close} wide act={act} ready={number > 0 && set.length > 0} commands={set.length ? commands(queue, body) : []} run={() => begin(queue, body, done)}>
      {letter
        ? <label class="field"><span>Value</span><textarea rows={Math.min(16, before.split('\n').length + 3)} value={value} spellcheck={false} onInput={(event) => setValue(event.currentTarget.value)} /></label>
        : <label class="field"><span>Set in each of them, a line for each change; the right side is JSON</span><textarea rows={3} value={lines} spellcheck={false} placeholder={'value.currency = "EUR"'} onInput={(event) => setLines(event.currentTarget.value)} /></label>}
      {!letter && <Filter value={filter} change={setFilter} />}
      <label class="tick"><input type="checkbox" checked={back} onChange={(event) => setBack(event.currentTarget.checked)} /> and send them back to where each came from</label>
      <p role="status">{plan.value ? <><strong>{many(number, 'message')}</strong> of {count(of)} would be edited{plan.value.skipped ? `; ${many(plan.value.skipped, 'message')} would stay as they are, because it does not fit them` : ''}{plan.value.failure ? ` (${plan.value.failure})` : ''}. Each says who edited it, and the record as it was can still be read.</> : set.length && !plan.problem ? 'Counting what matches …' : ''}</p>
      {plan.problem && <ProblemBox of={plan.problem} />}
      <Samples of={plan.value?.samples ?? []} />
    </Act>
  );
}
