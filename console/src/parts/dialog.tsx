// One dialog for every change (W3): what will happen, the same as a command, and a button that names the act.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { asProblem } from '../api/client.ts';
import type { Problem } from '../api/types.ts';
import { Command, ProblemBox } from './ui.tsx';

export function Sheet({ title, close, children, foot, wide = false, plain = false }: {
  title: string; close: () => void; children: ComponentChildren; foot?: ComponentChildren; wide?: boolean; plain?: boolean;
}) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    return () => before?.focus?.(); // focus returns to where it was (W10)
  }, []);
  return (
    <dialog ref={element} class={`${wide ? 'wide ' : ''}${plain ? 'palette' : ''}`} aria-label={title}
      onCancel={(event) => { event.preventDefault(); close(); }}
      onClick={(event) => { if (event.target === element.current) close(); }}>
      {plain ? children : <div class="inside stack"><h2>{title}</h2>{children}</div>}
      {foot && <div class="foot">{foot}</div>}
    </dialog>
  );
}

export function Act({ title, close, act, run, children, commands = [], danger = false, ready = true, refused, typed, wide = false, stays = false }: {
  title: string;
  close: () => void;
  act: string; // what the button says it does: "Move 1 204 messages"
  run: () => Promise<void>;
  children?: ComponentChildren;
  commands?: { words: string; text: string }[];
  danger?: boolean;
  ready?: boolean;
  refused?: string | undefined; // why one may not (W15)
  typed?: string; // deleting and purging want the name typed
  wide?: boolean;
  stays?: boolean; // it has something to show when it is done
}) {
  const [problem, setProblem] = useState<Problem | undefined>();
  const [busy, setBusy] = useState(false);
  const [given, setGiven] = useState('');
  const allowed = ready && !refused && !busy && (typed === undefined || given === typed);
  const go = async (): Promise<void> => {
    if (!allowed) return;
    setBusy(true);
    setProblem(undefined);
    try {
      await run();
      if (!stays) close();
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  };
  return (
    <Sheet title={title} close={close} wide={wide} foot={
      <>
        <button onClick={close}>Cancel</button>
        <button class={danger ? 'main-act danger' : 'main-act'} disabled={!allowed} onClick={() => void go()}>{busy ? 'Working …' : act}</button>
      </>
    }>
      <form class="stack" onSubmit={(event) => { event.preventDefault(); void go(); }}>
        {children}
        {typed !== undefined && (
          <label class="field">
            <span>Type <strong class="mono">{typed}</strong> to go on</span>
            <input value={given} autocomplete="off" spellcheck={false} onInput={(event) => setGiven(event.currentTarget.value)} />
          </label>
        )}
        {commands.map((command) => (
          <div key={command.words}>
            <p class="faint">{command.words}</p>
            <Command text={command.text} />
          </div>
        ))}
        {refused && <p class="warn-text" role="status">{refused}</p>}
        {problem && <ProblemBox of={problem} />}
        <button type="submit" class="hidden" tabIndex={-1} aria-hidden="true">{act}</button>
      </form>
    </Sheet>
  );
}
