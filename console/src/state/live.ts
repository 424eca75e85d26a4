// The one stream of a page (section 4): one tick a second with what has changed. A page says what it shows by looking at it.
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { away, now, suspect } from './session.ts';

export interface HomeNow {
  in_per_s: number; out_per_s: number; in_bytes_per_s: number; out_bytes_per_s: number; backlog: number; oldest_age_ms: number; lag: number;
  lags: { group: string; lag: number }[]; behind: number; dead: { queue: string; messages: number }[];
  free_bytes: number | null; full_in_ms: number | null; topics: number; groups: number; queues: number; missing: number[]; happened: number;
}
export interface TopicNow { in_per_s: number; in_bytes_per_s: number; out_bytes_per_s: number; messages: number; bytes: number; last_write_ms: number | null }
export interface GroupNow { members: number; lag: number; out_per_s: number }
export interface QueueNow { ready: number; in_flight: number; delayed: number; paused: boolean; done_per_s: number; oldest_ms: number | null }

type Views = Record<string, Record<string, unknown>>;

const HIDDEN_MS = 10_000;
const views = signal<Views>({});
export const tickedMs = signal(0); // when the last tick came; what is older than a few seconds is not shown as new (W5)

const interest = new Map<string, number>();
let stream: EventSource | undefined;
let shown = '';
let settle = 0;
let hide = 0;

function wanted(): string {
  return [...interest.keys()].sort().map((one) => `topics=${encodeURIComponent(one)}`).join('&');
}

function close(): void {
  stream?.close();
  stream = undefined;
  shown = '';
}

function connect(): void {
  const what = wanted();
  if (what === shown && stream && stream.readyState !== EventSource.CLOSED) return;
  close();
  if (!what || document.hidden) return;
  shown = what;
  const own = new EventSource(`/api/v1/events?${what}`);
  stream = own;
  own.addEventListener('tick', (event) => {
    const change = JSON.parse((event as MessageEvent<string>).data) as Record<string, Record<string, unknown> | number>;
    const next = { ...views.value };
    for (const [subject, fields] of Object.entries(change)) {
      if (typeof fields !== 'number') next[subject] = { ...next[subject], ...fields };
    }
    views.value = next;
    tickedMs.value = Date.now();
  });
  own.onerror = () => {
    suspect();
    if (own.readyState === EventSource.CLOSED) {
      shown = '';
      setTimeout(connect, 2_000);
    }
  };
}

const later = (): void => {
  clearTimeout(settle);
  settle = window.setTimeout(connect, 20);
};

document.addEventListener('visibilitychange', () => {
  clearTimeout(hide);
  if (document.hidden) hide = window.setTimeout(close, HIDDEN_MS);
  else later();
});

// A page that is left may live on in the browser's memory, to be shown again by "back". A browser has six connections for a broker, and
// streams of pages that nobody sees would take them all: the next page would wait for an answer until they are thrown out.
const streams = new Set<() => void>();
addEventListener('pagehide', () => {
  close();
  for (const end of streams) end();
});
addEventListener('pageshow', (event) => { if (event.persisted) later(); });

export function endsWithPage(end: () => void): () => void {
  streams.add(end);
  return () => { streams.delete(end); };
}

export function useLive<T>(subject: string): T | undefined {
  useEffect(() => {
    interest.set(subject, (interest.get(subject) ?? 0) + 1);
    later();
    return () => {
      const left = (interest.get(subject) ?? 1) - 1;
      if (left) interest.set(subject, left);
      else {
        interest.delete(subject);
        const { [subject]: _, ...rest } = views.value;
        views.value = rest;
      }
      later();
    };
  }, [subject]);
  const found = views.value[subject];
  return found && Object.keys(found).length ? (found as T) : undefined;
}

export const isStale = (): boolean => away.value !== undefined || (tickedMs.value > 0 && now.value - tickedMs.value > 4_000);
