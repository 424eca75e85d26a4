// A key, a value or a header, as JSON, text or bytes. It is text to us, whatever it says (W8).
import { useState } from 'preact/hooks';
import { tree, type Node } from './json.ts';
import { Copy } from './ui.tsx';
import { count, size, visible } from './words.ts';

export type Bytes = unknown; // a text, {"base64": …} or null, as the API shows bytes

const CUT = 64 * 1024;
const encoder = new TextEncoder();

export function raw(value: Bytes): Uint8Array | null {
  if (value === null || value === undefined) return null;
  if (typeof value === 'string') return encoder.encode(value);
  const packed = (value as { base64?: string }).base64 ?? '';
  return Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
}

export const plain = (value: Bytes): string | undefined => (typeof value === 'string' ? value : undefined);

// One line for a table.
export function brief(value: Bytes, most = 240): string {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return visible(value.slice(0, most).replace(/\s+/g, ' '));
  const bytes = raw(value)!;
  return [...bytes.slice(0, 24)].map((one) => one.toString(16).padStart(2, '0')).join(' ') + (bytes.length > 24 ? ' …' : '');
}

function hex(bytes: Uint8Array): string {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const words = part.map((one) => one.toString(16).padStart(2, '0')).join(' ').padEnd(47);
    lines.push(`${at.toString(16).padStart(6, '0')}  ${words}  ${part.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : '·')).join('')}`);
  }
  return lines.join('\n');
}

function Branch({ node, depth }: { node: Node; depth: number }) {
  const [open, setOpen] = useState(depth < 3);
  if (node.kind === 'string') return <span class="str">"{visible(node.text)}"</span>;
  if (node.kind === 'literal') return <span class="lit">{node.text}</span>;
  const [begin, end] = node.kind === 'object' ? ['{', '}'] : ['[', ']'];
  const length = node.rows.length;
  if (!length) return <span>{begin}{end}</span>;
  return (
    <span>
      <button aria-expanded={open} aria-label={`${node.kind} of ${length}`} onClick={() => setOpen(!open)}>{open ? '▾' : '▸'}</button>
      {begin}{!open && <span class="faint"> {count(length)} … {end}</span>}
      {open && (
        <>
          <ul>
            {node.kind === 'object'
              ? node.rows.map(([name, one], place) => <li key={place}><span class="key">{visible(name)}</span>: <Branch node={one} depth={depth + 1} /></li>)
              : node.rows.map((one, place) => <li key={place}><Branch node={one} depth={depth + 1} /></li>)}
            {node.cut && <li class="faint">… cut after 10 000 values</li>}
          </ul>
          {end}
        </>
      )}
    </span>
  );
}

type View = 'tree' | 'text' | 'hex';

export function Payload({ value, what }: { value: Bytes; what: string }) {
  const text = plain(value);
  const [all, setAll] = useState(false);
  const node = text !== undefined && text.length <= 1024 * 1024 ? tree(text) : undefined;
  const [view, setView] = useState<View>(node ? 'tree' : text === undefined ? 'hex' : 'text');
  if (value === null || value === undefined) return <p class="faint">{what} is null</p>;
  const bytes = raw(value)!;
  if (!bytes.length) return <p class="faint">{what} is empty</p>;
  const views: [View, string, boolean][] = [['tree', 'JSON', node !== undefined], ['text', 'Text', text !== undefined], ['hex', 'Hex', true]];
  const cut = !all && bytes.length > CUT;
  const shownText = text === undefined ? '' : cut ? text.slice(0, CUT) : text;
  return (
    <div>
      <div class="row">
        {views.filter(([, , can]) => can).map(([id, words]) => <button key={id} class="small" aria-pressed={view === id} onClick={() => setView(id)}>{words}</button>)}
        <Copy text={text ?? (value as { base64: string }).base64} what={what} words={text === undefined ? 'Copy base64' : 'Copy'} />
        <span class="faint num">{size(bytes.length)}</span>
      </div>
      <div class="payload" tabIndex={0} role="region" aria-label={what}>
        {view === 'tree' && node && <div class="tree"><Branch node={node} depth={0} /></div>}
        {view === 'text' && <pre>{visible(shownText)}</pre>}
        {view === 'hex' && <pre>{hex(cut ? bytes.slice(0, CUT) : bytes)}</pre>}
        {cut && view !== 'tree' && <button class="small" onClick={() => setAll(true)}>Load all ({size(bytes.length)})</button>}
      </div>
    </div>
  );
}
