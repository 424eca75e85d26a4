// The API, from its own document: what there is, what it takes, and trying it. Whatever this console does is one of these.
import { useState } from 'preact/hooks';
import { useLoad } from '../parts/load.ts';
import { Act } from '../parts/dialog.tsx';
import { A, Command, Empty, Head, ProblemBox, Search, Waiting } from '../parts/ui.tsx';
import { count, quoted, visible } from '../parts/words.ts';
import { http } from '../state/places.ts';
import { choose, chosen } from '../state/place.ts';
import { raw } from '../api/client.ts';

type Param = { name: string; in: string; required?: boolean; description?: string; schema?: { type?: string; default?: unknown; enum?: unknown[] } };
type Operation = { operationId: string; summary: string; description?: string; tags: string[]; parameters?: Param[]; requestBody?: { content: Record<string, { schema: { $ref?: string } }> } };
type Document = { info: { version: string }; paths: Record<string, Record<string, Operation>>; components: { schemas: Record<string, unknown> } };
type Entry = { method: string; path: string; operation: Operation };

const METHODS = ['get', 'post', 'patch', 'put', 'delete'];
const ENDLESS = /\/(stream|tail|events|export)$/;

function entries(document: Document): Entry[] {
  return Object.entries(document.paths).flatMap(([path, item]) => METHODS.filter((method) => item[method]).map((method) => ({ method: method.toUpperCase(), path, operation: item[method]! })));
}

function address(entry: Entry, given: Record<string, string>): string {
  const all = entry.operation.parameters ?? [];
  const path = entry.path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(given[name] || name.toUpperCase()));
  const query = all.filter((one) => one.in === 'query' && given[one.name]).map((one) => `${encodeURIComponent(one.name)}=${encodeURIComponent(given[one.name]!)}`);
  return query.length ? `${path}?${query.join('&')}` : path;
}

function Try({ entry, document }: { entry: Entry; document: Document }) {
  const [given, setGiven] = useState<Record<string, string>>({});
  const [body, setBody] = useState('');
  const [answer, setAnswer] = useState<{ status: number; text: string; ms: number } | undefined>();
  const [sure, setSure] = useState(false);
  const { operation, method } = entry;
  const params = (operation.parameters ?? []).filter((one) => one.in !== 'header');
  const target = address(entry, given);
  const missing = params.some((one) => one.in === 'path' && !given[one.name]);
  const kind = operation.requestBody?.content['application/json']?.schema.$ref?.split('/').pop();
  const curl = `curl ${method === 'GET' ? '' : `-X ${method} `}${body ? `--json ${quoted(body)} ` : ''}'${http()}${target}'`;
  const run = async (): Promise<void> => {
    const began = performance.now();
    const got = await raw(method, target, body);
    setAnswer({ ...got, ms: performance.now() - began });
  };
  return (
    <div class="stack">
      {operation.description && <p class="soft">{visible(operation.description)}</p>}
      {params.length > 0 && (
        <div class="fields">{params.map((one) => (
          <label key={one.name} class="field"><span>{one.name}{one.in === 'path' ? ' *' : ''} <span class="faint">{visible(one.description ?? '')}</span></span>
            {one.schema?.enum ? (
              <select value={given[one.name] ?? ''} onChange={(event) => setGiven({ ...given, [one.name]: event.currentTarget.value })}><option value="">–</option>{one.schema.enum.map((value) => <option key={String(value)}>{String(value)}</option>)}</select>
            ) : <input value={given[one.name] ?? ''} placeholder={one.schema?.default === undefined ? '' : String(one.schema.default)} spellcheck={false} onInput={(event) => setGiven({ ...given, [one.name]: event.currentTarget.value })} />}
          </label>
        ))}</div>
      )}
      {operation.requestBody && (
        <label class="field"><span>Body (JSON{kind ? `, ${kind}` : ''})</span><textarea rows={4} value={body} spellcheck={false} placeholder={kind ? fieldsOf(document, kind) : ''} onInput={(event) => setBody(event.currentTarget.value)} /></label>
      )}
      <Command text={curl} what="the curl line" />
      <div class="row">
        {ENDLESS.test(entry.path) ? <span class="faint">A stream has no end: follow it with curl.</span> : <button class={method === 'GET' ? 'main-act' : 'danger'} disabled={missing} onClick={() => { if (method === 'GET') void run(); else setSure(true); }}>{method === 'GET' ? 'Ask' : `Send ${method}`}</button>}
        {answer && <span class={answer.status < 300 ? 'good-text num' : 'bad-text num'}>{answer.status} in {count(answer.ms)} ms</span>}
      </div>
      {answer && <pre class="payload mono">{visible(pretty(answer.text))}</pre>}
      {sure && <Act title={`${method} ${entry.path}`} close={() => setSure(false)} act={`Send ${method} to ${target}`} danger commands={[{ words: 'The same with curl', text: curl }]} run={run}><p>{visible(operation.summary)}. This changes something on the broker.</p></Act>}
    </div>
  );
}

function fieldsOf(document: Document, kind: string): string {
  const schema = document.components.schemas[kind] as { properties?: Record<string, unknown> } | undefined;
  return schema?.properties ? `{${Object.keys(schema.properties).slice(0, 8).map((name) => `"${name}": …`).join(', ')}}` : '';
}

function pretty(text: string): string {
  try {
    return text.length < 200_000 ? JSON.stringify(JSON.parse(text), null, 2) : text.slice(0, 200_000);
  } catch {
    return text.slice(0, 200_000);
  }
}

export function Page(_: { name: string }) {
  const { value, problem, again } = useLoad('openapi', async () => JSON.parse((await raw('GET', '/openapi.json', '')).text) as Document);
  const words = chosen('q').toLowerCase().split(/\s+/).filter(Boolean);
  const open = chosen('op');
  const all = value ? entries(value).filter((one) => words.every((word) => `${one.method} ${one.path} ${one.operation.summary} ${one.operation.tags[0]}`.toLowerCase().includes(word))) : [];
  const tags = [...new Set(all.map((one) => one.operation.tags[0] ?? ''))].sort();
  return (
    <div class="stack">
      <Head title="API" lead={<>Whatever this console does is one of these. The document: <a href="/openapi.json" target="_blank" rel="noreferrer">openapi.json</a>.</>} />
      <div class="bar"><Search label="Search operations" placeholder="Search operations   ( / )" /><span class="right num">{value && `${count(all.length)} operations`}</span></div>
      {problem && !value && <ProblemBox of={problem} again={again} />}
      {!value && !problem && <Waiting />}
      {value && all.length === 0 && <div class="card"><Empty title="No operation is called that"><p>Try a noun: topics, queues, groups, dead-letters.</p></Empty></div>}
      {value && tags.map((tag) => (
        <section key={tag} class="stack">
          <h2>{tag}</h2>
          <div class="card rows">{all.filter((one) => one.operation.tags[0] === tag).map((one) => {
            const id = `${one.method} ${one.path}`;
            return (
              <div key={id} class="op">
                <button class="quiet line" aria-expanded={open === id} data-row onClick={() => choose({ op: open === id ? '' : id })}>
                  <span class={`chip ${one.method === 'GET' ? 'good' : one.method === 'DELETE' ? 'bad' : 'warn'}`}>{one.method}</span><span class="mono path">{one.path}</span><span class="soft">{visible(one.operation.summary)}</span>
                </button>
                {open === id && <Try entry={one} document={value} />}
              </div>
            );
          })}</div>
        </section>
      ))}
      <p class="faint">In a shell: <A href="/openapi.json">the document</A>, or <span class="mono">curl {http()}/openapi.json</span></p>
    </div>
  );
}
