// Small pieces that every page is made of.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Problem } from '../api/types.ts';
import { choose, chosen, go } from '../state/place.ts';
import { lookAgain, now, utc } from '../state/session.ts';
import { ago, exact, time, visible } from './words.ts';

type Children = { children?: ComponentChildren };

// A link inside the console; with a modifier, or the middle button, the browser does what it always does.
type Link = Children & { href: string; class?: string; title?: string; id?: string; 'aria-current'?: 'page' | undefined; 'aria-label'?: string };

export function A({ href, children, ...rest }: Link) {
  const follow = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(href);
  };
  return <a {...rest} href={href} onClick={follow}>{children}</a>;
}

export function Name({ of }: { of: string }) {
  return <bdi>{visible(of)}</bdi>;
}

export function When({ ms }: { ms: number }) {
  return <time title={exact(ms, utc.value)} class="num">{time(ms, utc.value)}</time>;
}

export function Age({ ms }: { ms: number }) {
  return <time title={exact(ms, utc.value)} class="num">{ago(ms, now.value)}</time>;
}

export function Head({ title, lead, children, crumb }: Children & { title: ComponentChildren; lead?: ComponentChildren; crumb?: ComponentChildren }) {
  return (
    <div class="head">
      <div>
        {crumb && <p class="crumb">{crumb}</p>}
        <h1 tabIndex={-1} id="title">{title}</h1>
        {lead && <p class="lead">{lead}</p>}
      </div>
      {children && <div class="acts">{children}</div>}
    </div>
  );
}

export function Tabs({ all, name = 'tab' }: { all: [string, string][]; name?: string }) {
  const at = chosen(name) || all[0]![0];
  return (
    <nav class="tabs" aria-label="Parts of this page">
      {all.map(([id, words], place) => (
        <a key={id} href={`?${name}=${id}`} aria-current={at === id ? 'page' : undefined} onClick={(event) => {
          event.preventDefault();
          go(place === 0 ? location.pathname : `${location.pathname}?${name}=${id}`);
        }}>{words}</a>
      ))}
    </nav>
  );
}

export function ProblemBox({ of, again, remedy }: { of: Problem; again?: () => void; remedy?: ComponentChildren }) {
  return (
    <div class="problem" role="alert">
      <strong>{of.title}</strong>
      <p><Name of={of.detail} /></p>
      {of.hint && <p class="small"><Name of={of.hint} /></p>}
      <p class="small row">
        <span class="mono">{of.code}</span>
        {of.request_id && <span>request <span class="mono">{visible(of.request_id)}</span></span>}
        {of.request_id && <Copy text={JSON.stringify(of)} what="the whole answer" />}
        {again && <button class="small" onClick={again}>Try again</button>}
        {of.status === 404 && remedy}
        {of.status === 403 && <A class="button small" href="/console/security">Who may what</A>}
        {of.status === 401 && <button class="small" onClick={lookAgain}>Log in</button>}
        {(of.status === 409 || of.status === 412) && !again && <button class="small" onClick={() => location.reload()}>Look again</button>}
      </p>
    </div>
  );
}

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain HTTP on another host a browser has no clipboard for pages; the old way still works.
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

export function Copy({ text, what, words = 'Copy' }: { text: string; what: string; words?: string }) {
  const [done, setDone] = useState(false);
  return (
    <button class="small" type="button" aria-label={`${words} ${what}`} onClick={async () => {
      setDone(await copyText(text));
      setTimeout(() => setDone(false), 1500);
    }}>{done ? 'Copied' : words}</button>
  );
}

export function Command({ text, what = 'the command' }: { text: string; what?: string }) {
  return <div class="command"><pre>{visible(text)}</pre><Copy text={text} what={what} /></div>;
}

export function Empty({ title, children }: Children & { title: string }) {
  return <div class="empty"><h2>{title}</h2>{children}</div>;
}

// Nothing for 300 ms, then a word: what is quick does not flicker.
export function Waiting({ what = 'Loading' }: { what?: string }) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return <p class="waiting" role="status">{shown ? `${what} …` : ''}</p>;
}

export function Search({ label, placeholder, name = 'q' }: { label: string; placeholder: string; name?: string }) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(chosen(name));
  const timer = useRef(0);
  const own = useRef(chosen(name));
  const there = chosen(name);
  useEffect(() => {
    // Somebody else changed the address (back, a link): what is being typed is not overwritten by its own echo.
    if (there !== own.current) {
      own.current = there;
      setText(there);
    }
  }, [there]);
  return (
    <input ref={input} type="search" data-search aria-label={label} placeholder={placeholder} value={text} spellcheck={false} autocomplete="off"
      onInput={(event) => {
        const typed = event.currentTarget.value;
        setText(typed);
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => {
          own.current = typed;
          choose({ [name]: typed, at: undefined });
        }, 120);
      }} />
  );
}

// -- what was done --

type Note = { id: number; words: string; bad: boolean; act?: { words: string; run: () => void } };
const notes = signal<Note[]>([]);
let next = 0;

export function tell(words: string, options: { bad?: boolean; act?: Note['act']; ms?: number } = {}): void {
  const note: Note = { id: next++, words, bad: options.bad ?? false };
  if (options.act) note.act = options.act;
  notes.value = [...notes.value.slice(-3), note];
  setTimeout(() => drop(note.id), options.ms ?? (note.act ? 20_000 : 6_000));
}

function drop(id: number): void {
  notes.value = notes.value.filter((note) => note.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {notes.value.map((note) => (
        <div key={note.id} class={note.bad ? 'toast bad' : 'toast'}>
          <span class="grow">{visible(note.words)}</span>
          {note.act && <button class="small" onClick={() => { note.act!.run(); drop(note.id); }}>{note.act.words}</button>}
          <button class="small quiet" aria-label="Dismiss" onClick={() => drop(note.id)}>✕</button>
        </div>
      ))}
    </div>
  );
}
