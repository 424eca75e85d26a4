// What every page shows: who we are, which broker answers, how it is, and how the page looks.
import { effect, signal } from '@preact/signals';
import { asProblem, get, touch, useSession, whenSessionEnds } from '../api/client.ts';
import type { Problem, ShownCluster, ShownHealth, ShownSession, ShownVersion } from '../api/types.ts';

export const health = signal<ShownHealth | undefined>(undefined);
export const cluster = signal<ShownCluster | undefined>(undefined);
export const session = signal<ShownSession | undefined>(undefined);
export const version = signal<ShownVersion | undefined>(undefined);
export const away = signal<{ since: number; problem: Problem } | undefined>(undefined);
export const isOld = signal(false); // the broker has another console than this page
export const now = signal(Date.now());

type Theme = 'system' | 'dark' | 'light';
const KEPT = { theme: 'headrace.theme', zone: 'headrace.utc' };

function kept(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function keep(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // A browser that keeps nothing still shows everything.
  }
}

export const theme = signal<Theme>((kept(KEPT.theme) as Theme | null) ?? 'system');
export const utc = signal(kept(KEPT.zone) === 'yes');

effect(() => {
  document.documentElement.dataset['theme'] = theme.value;
  keep(KEPT.theme, theme.value);
});
effect(() => keep(KEPT.zone, utc.value ? 'yes' : 'no'));

const EVERY_MS = 5_000;
// The broker ends a session that nobody touches (W18): it is told when somebody did, for an open page asks for numbers all by itself.
for (const sign of ['pointerdown', 'keydown', 'wheel']) addEventListener(sign, touch, { passive: true });

let wait = 1_000;
let first = '';

async function look(): Promise<void> {
  try {
    session.value = await get('/api/v1/session');
    useSession(session.value.csrf);
    if (session.value.login) {
      away.value = undefined;
      wait = 60_000; // whoever logs in asks again
      return;
    }
    const [how, all] = await Promise.all([get('/api/v1/health'), get('/api/v1/cluster')]);
    health.value = how;
    cluster.value = all;
    if (away.value !== undefined || version.value === undefined) {
      version.value = await get('/api/v1/version');
      const tag = version.value.console ?? '';
      if (first && tag && tag !== first) isOld.value = true;
      first = first || tag;
    }
    away.value = undefined;
    wait = EVERY_MS;
  } catch (error) {
    const problem = asProblem(error);
    if (away.value === undefined) {
      away.value = { since: Date.now(), problem };
      wait = 1_000;
    } else {
      away.value = { since: away.value.since, problem };
      wait = Math.min(wait * 1.5, EVERY_MS);
    }
  }
}

let timer = 0;
function again(): void {
  clearTimeout(timer);
  void look().finally(() => {
    timer = window.setTimeout(again, document.hidden ? 60_000 : wait);
  });
}

export function begin(): void {
  again();
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
  }, 1_000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) {
      now.value = Date.now();
      again();
    }
  });
}

// Logged in or out, here or by whoever ended the session: look again at once.
export const lookAgain = again;
whenSessionEnds(() => { if (session.value && !session.value.login && session.value.mode !== 'open') again(); });

// Somebody else noticed that the broker is gone: find out now, not in five seconds.
export function suspect(): void {
  if (away.value === undefined) again();
}
