// Ctrl-K: everything that has a name (W10). The server searches; the page shows what it finds.
import { useEffect, useState } from 'preact/hooks';
import { get } from '../api/client.ts';
import { go, to } from '../state/place.ts';
import { Sheet } from './dialog.tsx';
import { useLoad } from './load.ts';
import { Name } from './ui.tsx';

type Hit = { words: string; kind: string; href: string };
const EACH = 8;

async function find(q: string, rail: Hit[], signal: AbortSignal): Promise<Hit[]> {
  const query = { q, limit: EACH };
  const [topics, queues, groups] = await Promise.all([
    get('/api/v1/topics', {}, { query: { ...query, sort: '-in' }, signal }), get('/api/v1/queues', {}, { query, signal }), get('/api/v1/groups', {}, { query, signal }),
  ]);
  const own = new Set(queues.items.map((row) => row.name));
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  return [
    ...rail.filter((item) => words.every((word) => item.words.toLowerCase().includes(word))),
    ...queues.items.map((row) => ({ words: row.name, kind: row.kind, href: to('queues', row.name) })),
    ...topics.items.filter((row) => !own.has(row.name)).map((row) => ({ words: row.name, kind: 'topic', href: to('topics', row.name) })),
    ...groups.items.map((row) => ({ words: row.name, kind: 'group', href: to('groups', row.name) })),
  ];
}

export function Palette({ rail, close }: { rail: { words: string; href: string }[]; close: () => void }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const pages = rail.map((item) => ({ words: item.words, kind: 'page', href: item.href }));
  const { value } = useLoad(`palette ${text}`, (signal) => find(text, pages, signal));
  const [kept, setKept] = useState<Hit[]>(pages);
  useEffect(() => { if (value) { setKept(value); setAt(0); } }, [value]);
  const open = (hit: Hit | undefined): void => {
    if (!hit) return;
    close();
    go(hit.href);
  };
  const move = (step: number): void => setAt((one) => Math.min(kept.length - 1, Math.max(0, one + step)));
  return (
    <Sheet title="Search everything" close={close} plain>
      <input type="text" autofocus role="combobox" aria-expanded="true" aria-controls="palette-hits" aria-activedescendant={kept.length ? `hit-${at}` : undefined} aria-label="Search topics, queues, groups and pages" placeholder="Topics, queues, groups, pages"
        value={text} spellcheck={false} autocomplete="off" onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'ArrowDown') { event.preventDefault(); move(1); }
          if (event.key === 'ArrowUp') { event.preventDefault(); move(-1); }
          if (event.key === 'Enter') { event.preventDefault(); open(kept[at]); }
        }} />
      <ul id="palette-hits" role="listbox" aria-label="Found">
        {kept.map((hit, place) => (
          <li key={`${hit.kind} ${hit.words}`} id={`hit-${place}`} role="option" aria-selected={place === at} class={place === at ? 'on' : ''} onMouseDown={(event) => { event.preventDefault(); open(hit); }}>
            <Name of={hit.words} /><span class="faint">{hit.kind}</span>
          </li>
        ))}
        {kept.length === 0 && <li class="faint">Nothing is called that.</li>}
      </ul>
    </Sheet>
  );
}
