// The URL is the state (W6): which page, and everything that was chosen on it.
import { computed, signal } from '@preact/signals';

const current = signal(read());

function read(): URL {
  return new URL(location.href);
}

addEventListener('popstate', () => {
  current.value = read();
});

export const path = computed(() => current.value.pathname.replace(/^\/console/, '').replace(/\/+$/, '') || '/');
export const query = computed(() => current.value.searchParams);

export function go(to: string, replace = false): void {
  const target = new URL(to, location.origin);
  if (target.href === location.href) return;
  if (replace) history.replaceState(null, '', target);
  else history.pushState(null, '', target);
  const moved = target.pathname !== current.value.pathname;
  current.value = target;
  if (moved) scrollTo(0, 0);
}

// Change some of what was chosen; empty takes it out. Replaces the entry: back leads to the page before, not to a keystroke.
export function choose(changes: Record<string, string | number | undefined | null>): void {
  const target = new URL(current.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === null || value === '') target.searchParams.delete(name);
    else target.searchParams.set(name, String(value));
  }
  go(target.href, true);
}

export const chosen = (name: string): string => query.value.get(name) ?? '';

// Where a thing has its page.
export const to = (...parts: string[]): string => `/console/${parts.map(encodeURIComponent).join('/')}`;
