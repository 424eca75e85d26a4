// The public API, typed by its own document. Whatever the console can do, curl can do.
import type { Delete, Get, Patch, Post, Problem, Put } from './types.ts';

export class ApiProblem extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

const AWAY: Problem = {
  type: 'about:blank', title: 'No answer', status: 0, code: 'NO_ANSWER', detail: 'The broker does not answer.',
  hint: 'It is asked again by itself; see that the process runs.', instance: '', request_id: '', kafka_error: null,
};

export type Values = Record<string, string | number | boolean | null | undefined | string[]>;

function address(template: string, names: Values, query: Values): string {
  const path = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(names[name])));
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === '' || value === false) continue;
    if (Array.isArray(value)) value.forEach((one) => words.append(name, one));
    else words.set(name, value === true ? '' : String(value));
  }
  const text = words.toString();
  return text ? `${path}?${text}` : path;
}

// Whole numbers beyond 2^53 (ids of producers, what somebody set) are kept as they were written, as text, and not as the nearest double (W21).
export function parse(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const exactly = (_: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? context.source : value;
  return JSON.parse(text, exactly as (key: string, value: unknown) => unknown);
}

// Of the session in the cookie (W18): changes carry it. And who is told when the broker says that nobody is logged in.
const session = { csrf: '', touched: true, ended: (): void => undefined };
export function useSession(csrf: string | null): void {
  session.csrf = csrf ?? '';
}
export function touch(): void {
  session.touched = true;
}
export function whenSessionEnds(told: () => void): void {
  session.ended = told;
}

async function ask(method: string, url: string, body?: unknown, signal?: AbortSignal, headers: Record<string, string> = {}): Promise<unknown> {
  const init: RequestInit = { method, headers: { accept: 'application/json', ...headers }, cache: 'no-store' };
  if (signal) init.signal = signal;
  if (session.csrf && method !== 'GET') init.headers = { ...init.headers, 'x-headrace-csrf': session.csrf };
  if (session.csrf && session.touched) {
    init.headers = { ...init.headers, 'x-headrace-touched': 'yes' };
    session.touched = false;
  }
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, 'content-type': 'application/json' };
  }
  let answer: Response;
  try {
    answer = await fetch(url, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiProblem(AWAY);
  }
  const text = await answer.text();
  if (answer.ok) return text ? parse(text) : undefined;
  let found: Problem;
  try {
    found = JSON.parse(text) as Problem;
  } catch {
    found = { ...AWAY, status: answer.status, title: answer.statusText, code: 'UNREADABLE', detail: `The answer was ${answer.status} and not readable.` };
  }
  if (answer.status === 401) session.ended();
  throw new ApiProblem(found);
}

// As it comes, whatever it is: for the page that tries operations out.
export async function raw(method: string, url: string, body: string): Promise<{ status: number; text: string }> {
  const headers: Record<string, string> = { accept: 'application/json' };
  if (session.csrf && method !== 'GET') headers['x-headrace-csrf'] = session.csrf;
  if (body) headers['content-type'] = 'application/json';
  try {
    const answer = await fetch(url, { method, headers, cache: 'no-store', ...(body ? { body } : {}) });
    if (answer.status === 401) session.ended();
    return { status: answer.status, text: await answer.text() };
  } catch {
    throw new ApiProblem(AWAY);
  }
}

type Options = { query?: Values; signal?: AbortSignal; headers?: Record<string, string> };

export const get = <P extends keyof Get>(path: P, names: Values = {}, options: Options = {}): Promise<Get[P]> =>
  ask('GET', address(path, names, options.query ?? {}), undefined, options.signal, options.headers) as Promise<Get[P]>;
export const post = <P extends keyof Post>(path: P, names: Values, body: unknown, options: Options = {}): Promise<Post[P]> =>
  ask('POST', address(path, names, options.query ?? {}), body, options.signal, options.headers) as Promise<Post[P]>;
export const put = <P extends keyof Put>(path: P, names: Values, body: unknown): Promise<Put[P]> =>
  ask('PUT', address(path, names, {}), body) as Promise<Put[P]>;
export const patch = <P extends keyof Patch>(path: P, names: Values, body: unknown, options: Options = {}): Promise<Patch[P]> =>
  ask('PATCH', address(path, names, options.query ?? {}), body, options.signal, options.headers) as Promise<Patch[P]>;
export const remove = <P extends keyof Delete>(path: P, names: Values, options: Options = {}): Promise<Delete[P]> =>
  ask('DELETE', address(path, names, options.query ?? {}), undefined, options.signal, options.headers) as Promise<Delete[P]>;

export function asProblem(error: unknown): Problem {
  if (error instanceof ApiProblem) return error.problem;
  return { ...AWAY, code: 'CONSOLE', title: 'The console failed', detail: String(error), hint: 'This is a bug of the console; reload the page.' };
}
