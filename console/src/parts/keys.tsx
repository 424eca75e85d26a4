// The keyboard (W10): `/` searches here, `g t` goes, `j k Enter` walk through rows, `?` lists them all.
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { go } from '../state/place.ts';
import { Sheet } from './dialog.tsx';
import { Palette } from './palette.tsx';

type Rail = { words: string; href: string; key: string }[];

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

function walk(step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>('tr[data-row]')];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement as HTMLElement);
  rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + step))]!.focus();
}

export function Keys({ rail }: { rail: Rail }) {
  const [help, setHelp] = useState(false);
  const [all, setAll] = useState(false);
  const [views, setViews] = useState<{ Saved: ComponentType<{ close: () => void }> } | undefined>();
  useEffect(() => {
    let waits = 0; // after g
    const pressed = (event: KeyboardEvent): void => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        if (!document.querySelector('dialog[open]')) setAll(true);
        return;
      }
      if (typing(event.target)) {
        if (event.key === 'Escape' && !document.querySelector('dialog[open]')) (event.target as HTMLElement).blur();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
      const now = Date.now();
      if (now - waits < 1_500) {
        waits = 0;
        const place = rail.find((item) => item.key === event.key);
        if (place) {
          event.preventDefault();
          go(place.href);
          return;
        }
      }
      switch (event.key) {
        case 'g': waits = now; return;
        case '/': {
          const box = document.querySelector<HTMLInputElement>('[data-search]');
          if (box) {
            event.preventDefault();
            box.focus();
            box.select();
          }
          return;
        }
        case 'j': walk(1); return;
        case 'k': walk(-1); return;
        case '?': event.preventDefault(); setHelp(true); return;
        case 'v': event.preventDefault(); dispatchEvent(new Event('headrace-views')); return;
        case ' ': {
          const pause = document.querySelector<HTMLButtonElement>('[data-key="space"]');
          if (pause && !(event.target instanceof HTMLButtonElement)) {
            event.preventDefault();
            pause.click();
          }
          return;
        }
        default: {
          const act = /^[a-z]$/.test(event.key) ? document.querySelector<HTMLElement>(`[data-key="${event.key}"]`) : null;
          if (act) {
            event.preventDefault();
            act.click();
          }
        }
      }
    };
    addEventListener('keydown', pressed);
    const asked = (): void => setAll(true);
    addEventListener('headrace-search', asked);
    const saved = (): void => void import('./saved.tsx').then(setViews);
    addEventListener('headrace-views', saved);
    return () => {
      removeEventListener('headrace-views', saved);
      removeEventListener('keydown', pressed);
      removeEventListener('headrace-search', asked);
    };
  }, [rail]);
  if (views) return <views.Saved close={() => setViews(undefined)} />;
  if (all) return <Palette rail={rail} close={() => setAll(false)} />;
  if (!help) return null;
  const known: [string, string][] = [
    ['Ctrl-K', 'search everything'], ['/', 'search on this page'], ['j, k', 'next and previous row'], ['Enter', 'open the row'], ['x', 'select the row'], ['e', 'edit the message that is open'],
    ['Space', 'pause and resume'], ['v', 'saved views'], ['Esc', 'close'], ...rail.map((item): [string, string] => [`g ${item.key}`, item.words]), ['?', 'this list'],
  ];
  return (
    <Sheet title="Keys" close={() => setHelp(false)} foot={<button onClick={() => setHelp(false)}>Close</button>}>
      <table class="plain"><tbody>{known.map(([key, words]) => <tr key={key}><th scope="row" class="slim"><kbd class="mono">{key}</kbd></th><td>{words}</td></tr>)}</tbody></table>
    </Sheet>
  );
}
