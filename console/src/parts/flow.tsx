// The flow map (5.1): who writes, topics, who reads them, and where the dead go. Width is the rate, colour and dash the state; a table says the same.
import { useState } from 'preact/hooks';
import { get } from '../api/client.ts';
import type { ShownFlow } from '../api/types.ts';
import { go, to } from '../state/place.ts';
import { useWidth } from './charts.tsx';
import { useLoad } from './load.ts';
import { Name } from './ui.tsx';
import { count, rate, visible } from './words.ts';

type Node = ShownFlow['nodes'][number];
type Link = ShownFlow['links'][number];

// What each kind of line means; the legend draws them with the same styles, and only those that are there.
const STATES: [string, string][] = [['flowing', 'flowing'], ['slow', 'flows, and falls behind'], ['standing', 'something waits, and nothing moves'], ['idle', 'nothing to do']];
const HIGH = 40;
const GAP = 12;
const TOP = 26;
const NARROW = 600; // below this the boxes would lie on each other, and the table is shown instead
const id = (one: { kind: string; name: string }): string => `${one.kind} ${one.name}`;
const PAGES: Record<string, string> = { topic: 'topics', group: 'groups', queue: 'queues', pipeline: 'pipelines' };
// A writer has no page of its own: what it writes to has one, with all of its writers.
const page = (node: Node, links: Link[]): string => {
  const first = links.find((link) => id(link.from) === id(node));
  return node.kind === 'writer' ? `${to('topics', first?.to.name ?? '')}?tab=writers` : to(PAGES[node.kind] ?? 'topics', node.name);
};
const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function sub(node: Node): string {
  if (node.kind === 'writer') return `${rate(node.per_s)}/s`;
  if (node.kind === 'topic') return `${rate(node.per_s)}/s in · ${count(node.amount)}`;
  const words = node.kind === 'queue' ? `${rate(node.per_s)}/s done` : `${rate(node.per_s)}/s`;
  const rest = node.amount ? ` · ${count(node.amount)} ${node.kind === 'queue' ? 'waiting' : 'behind'}` : '';
  return `${words}${rest}${node.paused ? ' · paused' : ''}`;
}

// Queues that only take the dead stand in the last column; a queue with a topic of its own is drawn once.
function columns(flow: ShownFlow): { title: string; nodes: Node[] }[] {
  const dead = new Set(flow.links.filter((link) => link.kind === 'dead letters').map((link) => id(link.to)));
  const queues = new Set(flow.nodes.filter((node) => node.kind === 'queue').map((node) => node.name));
  const written = new Set(flow.links.filter((link) => link.kind === 'writes').map((link) => id(link.to)));
  const touched = new Set(flow.links.flatMap((link) => [id(link.from), id(link.to)]));
  const topics = flow.nodes.filter((node) => node.kind === 'topic' && (!queues.has(node.name) || (written.has(id(node)) && !dead.has(`queue ${node.name}`))) && (touched.has(id(node)) || node.per_s > 0 || node.amount > 0));
  const readers = flow.nodes.filter((node) => (node.kind === 'group' || node.kind === 'queue' || node.kind === 'pipeline') && !dead.has(id(node)));
  const writers = flow.nodes.filter((node) => node.kind === 'writer' && touched.has(id(node)));
  const last = flow.nodes.filter((node) => dead.has(id(node)));
  return [{ title: 'Writers', nodes: writers }, { title: 'Topics', nodes: topics }, { title: readers.some((node) => node.kind === 'pipeline') ? 'Groups, queues, pipelines' : 'Groups and queues', nodes: readers }, { title: 'Dead letters', nodes: last }].filter((column) => column.nodes.length);
}

export function FlowMap({ flow }: { flow: ShownFlow }) {
  const [element, width] = useWidth();
  const [lit, setLit] = useState<string | undefined>();
  const drawn = columns(flow);
  if (drawn.length < 2) return null;
  const narrow = width < NARROW;
  const wide = Math.min(260, Math.max(110, width / drawn.length - 40));
  const step = drawn.length > 1 ? (width - wide) / (drawn.length - 1) : 0;
  const most = Math.max(...drawn.map((column) => column.nodes.length));
  const height = TOP + most * (HIGH + GAP);
  const at = new Map<string, { x: number; y: number; column: number }>();
  drawn.forEach((column, place) => column.nodes.forEach((node, row) => at.set(id(node), { x: place * step, y: TOP + row * (HIGH + GAP), column: place })));
  const links = flow.links.filter((link) => at.has(id(link.from)) && at.has(id(link.to)) && id(link.from) !== id(link.to));
  const path = new Set<string>();
  if (lit) {
    path.add(lit);
    for (let turn = 0; turn < 4; turn += 1) {
      for (const link of links) {
        if (path.has(id(link.to)) && at.get(id(link.to))!.column <= at.get(lit)!.column) path.add(id(link.from));
        if (path.has(id(link.from)) && at.get(id(link.from))!.column >= at.get(lit)!.column) path.add(id(link.to));
      }
    }
  }
  const on = (one: string): string => (path.has(one) ? ' on' : '');
  const letters = Math.floor(wide / 7.6);
  return (
    <figure ref={element}>
      {!narrow && <svg class={lit ? 'flow lit' : 'flow'} width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label="Flow map; the table after it says the same">
        {drawn.map((column, place) => <text key={column.title} class="column" x={place * step} y={12}>{column.title}</text>)}
        {links.map((link) => {
          const a = at.get(id(link.from))!;
          const b = at.get(id(link.to))!;
          const back = a.column > b.column; // a pipeline that writes to a topic again
          const [x1, y1, x2, y2] = back ? [a.x, a.y + HIGH / 2 + 8, b.x + wide, b.y + HIGH / 2 + 8] : [a.x + wide, a.y + HIGH / 2, b.x, b.y + HIGH / 2];
          const middle = (x1 + x2) / 2;
          const both = path.has(id(link.from)) && path.has(id(link.to));
          return (
            <g key={`${id(link.from)} ${id(link.to)}`} class={`link ${link.state}${both ? ' on' : ''}`}>
              <path stroke-width={1.5 + Math.min(7, Math.log10(1 + link.per_s) * 2)} d={`M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} />
              {link.state === 'flowing' && <path class="moving" d={`M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} />}
            </g>
          );
        })}
        {drawn.flatMap((column) => column.nodes).map((node) => {
          const { x, y } = at.get(id(node))!;
          const late = node.kind !== 'topic' && node.kind !== 'writer' && node.amount > 0 && node.per_s === 0;
          return (
            <g key={id(node)} class={`thing${on(id(node))}`} transform={`translate(${x} ${y})`} tabIndex={0} role="link"
              onMouseEnter={() => setLit(id(node))} onMouseLeave={() => setLit(undefined)} onFocus={() => setLit(id(node))} onBlur={() => setLit(undefined)}
              onClick={() => go(page(node, flow.links))} onKeyDown={(event) => { if (event.key === 'Enter') go(page(node, flow.links)); }}>
              <title>{visible(node.name)}</title>
              <rect class="node" width={wide} height={HIGH} rx={7} />
              <text x={10} y={17}>{cut(visible(node.name), letters)}</text>
              <text class={late ? 'sub late' : 'sub'} x={10} y={32}>{cut(sub(node), Math.floor(wide / 6))}</text>
            </g>
          );
        })}
      </svg>}
      <div class={narrow ? '' : 'hidden'}><table class="plain">
        <caption class="hidden">What flows where</caption>
        <thead><tr><th scope="col">From</th><th scope="col">To</th><th class="n" scope="col">A second</th><th class="n" scope="col">Behind</th><th class="less" scope="col">State</th></tr></thead>
        <tbody>{links.map((link: Link) => <tr key={`${id(link.from)} ${id(link.to)}`}><td><Name of={link.from.name} /></td><td><Name of={link.to.name} /></td><td class="n">{rate(link.per_s)}</td><td class="n">{count(link.behind)}</td><td class="less">{link.state}</td></tr>)}</tbody>
      </table></div>
      <figcaption class={narrow ? 'hidden' : 'legend'}>
        {STATES.filter(([state]) => links.some((link) => link.state === state)).map(([state, words]) => (
          <span key={state}><svg class="flow key" width="34" height="8" aria-hidden="true"><g class={`link ${state}`}><path stroke-width="2.500" d="M0 4H34" /></g></svg>{words}</span>
        ))}
        {flow.hidden.topics + flow.hidden.groups + flow.hidden.queues > 0 && <span>{count(flow.hidden.topics)} more topics, {count(flow.hidden.groups)} groups, {count(flow.hidden.queues)} queues</span>}
      </figcaption>
    </figure>
  );
}

export function Flow({ limit = 12 }: { limit?: number }) {
  const { value } = useLoad(`flow ${limit}`, (signal) => get('/api/v1/flow', {}, { query: { limit }, signal }), 2_000);
  if (!value || !value.links.length) return null;
  return <section class="card moves"><h2>What flows where</h2><FlowMap flow={value} /></section>;
}
