// Numbers, sizes, times and other people's text, as people read them (W7, W8).

const THIN = '\u2009';

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  const text = String(Math.round(value));
  return text.replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (value === 0) return '0';
  if (value < 0.1) return '<0.1';
  return value < 10 ? value.toFixed(1) : count(value);
}

export function size(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined || Number.isNaN(bytes)) return '–';
  let value = bytes;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (value < 1024) return unit === 'B' ? `${Math.round(value)}${THIN}B` : `${value.toFixed(value < 10 ? 1 : 0)}${THIN}${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)}${THIN}TiB`;
}

export function span(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return '–';
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))}${THIN}ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${Math.floor(seconds)}${THIN}s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}${THIN}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)}${THIN}h`;
  return `${Math.floor(seconds / 86_400)}${THIN}d`;
}

// How long something took: with a tenth, where a tenth says something.
export const took = (ms: number | null | undefined): string => (ms !== null && ms !== undefined && ms >= 1_000 && ms < 10_000 ? `${(ms / 1000).toFixed(1)}${THIN}s` : span(ms));

export function ago(then: number, now: number): string {
  const ms = now - then;
  return ms < 2_000 && ms > -2_000 ? 'now' : ms < 0 ? `in ${span(-ms)}` : `${span(ms)} ago`;
}

const two = (value: number, width = 2): string => String(value).padStart(width, '0');

function offset(moment: Date): string {
  const minutes = -moment.getTimezoneOffset();
  const sign = minutes < 0 ? '−' : '+';
  return `${sign}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
}

function fields(ms: number, utc: boolean): [string, string, string] {
  const moment = new Date(ms);
  if (utc) {
    const text = moment.toISOString();
    return [text.slice(0, 10), text.slice(11, 23), 'Z'];
  }
  const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  const hour = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}.${two(moment.getMilliseconds(), 3)}`;
  return [day, hour, offset(moment)];
}

// 14:02:31.120 today, with the day otherwise.
export function time(ms: number, utc: boolean, now = Date.now()): string {
  if (!isDate(ms)) return String(ms);
  const [day, hour] = fields(ms, utc);
  return day === fields(now, utc)[0] ? hour : `${day} ${hour.slice(0, 8)}`;
}

export function exact(ms: number, utc: boolean): string {
  if (!isDate(ms)) return `${ms} ms`;
  const [day, hour, zone] = fields(ms, utc);
  return `${day} ${hour} ${zone}`;
}

export const zone = (utc: boolean): string => (utc ? 'UTC' : offset(new Date()));

const isDate = (ms: number): boolean => Number.isFinite(ms) && Math.abs(ms) <= 8.64e15;

// Control characters and those that turn the direction of text are shown as symbols: what is there can be seen, and nothing hides.
export function visible(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f\u0080-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g, (character) => {
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return '\u2421';
    return `⟨${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
  });
}

export const many = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? '' : 's'}`;

// For a shell: quoted when it has to be.
export const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
