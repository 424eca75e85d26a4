// Saved views (W6): the address under a name. They are this browser's, and hold what the address holds: no secrets, no payloads.
import { useState } from 'preact/hooks';
import { Sheet } from './dialog.tsx';
import { A, Copy } from './ui.tsx';
import { visible } from './words.ts';

interface View { name: string; href: string }
const KEPT = 'headrace.views';
const MOST = 50;

function read(): View[] {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? '[]') as unknown;
    if (!Array.isArray(found)) return [];
    return (found as View[]).filter((one) => typeof one?.name === 'string' && typeof one.href === 'string' && /^\/(console|$|\?)/.test(one.href));
  } catch {
    return [];
  }
}

function write(views: View[]): void {
  try {
    localStorage.setItem(KEPT, JSON.stringify(views.slice(0, MOST)));
  } catch {
    // A browser that keeps nothing still has its bookmarks.
  }
}

export function Saved({ close }: { close: () => void }) {
  const [views, setViews] = useState(read());
  const here = location.pathname + location.search;
  const [name, setName] = useState('');
  const change = (next: View[]): void => {
    write(next);
    setViews(next);
  };
  return (
    <Sheet title="Saved views" close={close} foot={<button onClick={close}>Close</button>}>
      <p class="soft">Page, search, filter, sort and time, as they stand in the address. They stay in this browser; a link shows somebody else the same.</p>
      <form class="row" onSubmit={(event) => { event.preventDefault(); if (!name) return; change([{ name, href: here }, ...views.filter((one) => one.name !== name)]); setName(''); }}>
        <label class="field grow"><span>Save this page as</span><input value={name} maxLength={80} autocomplete="off" spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} /></label>
        <button class="main-act" type="submit" disabled={!name}>Save</button>
      </form>
      <p class="mono faint">{visible(here)}</p>
      {views.length === 0 && <p class="faint">None yet.</p>}
      {views.length > 0 && (
        <table class="plain"><tbody>{views.map((one) => (
          <tr key={one.name}>
            <td class="name"><span onClick={close}><A href={one.href}>{visible(one.name)}</A></span></td>
            <td class="slim"><div class="row tight"><Copy text={`${location.origin}${one.href}`} what={`the link of ${one.name}`} words="Copy link" /><button class="small" onClick={() => change(views.filter((other) => other !== one))} aria-label={`Forget ${one.name}`}>Forget</button></div></td>
          </tr>
        ))}</tbody></table>
      )}
    </Sheet>
  );
}

