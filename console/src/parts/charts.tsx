// Lines and strips, drawn by ourselves: small, and each with its numbers in words for who can't see it (W11).
import { useRef, useState } from 'preact/hooks';
import { get } from '../api/client.ts';
import { utc } from '../state/session.ts';
import { useLoad } from './load.ts';
import { count, rate, time } from './words.ts';

export type Points = (number | null)[];

// Gaps are gaps: a broker that was away has no zeros. A busy one may miss a second, which is bridged where seconds are drawn.
function line(values: Points, width: number, height: number, top: number, bridged = 0): string {
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  let path = '';
  let open = false;
  let missed = 0;
  values.forEach((value, place) => {
    if (value === null) {
      missed += 1;
      if (missed > bridged) open = false;
      return;
    }
    missed = 0;
    path += `${open ? 'L' : 'M'}${(place * step).toFixed(1)} ${(height - (value / top) * height).toFixed(1)}`;
    open = true;
  });
  return path;
}

const latest = (values: Points): number => [...values].reverse().find((value) => value !== null) ?? 0;

// A broker that began a moment ago has a short line, not a dot at the right.
const LEAST = 20;

function begun(values: Points, least = LEAST): Points {
  const first = values.findIndex((value) => value !== null);
  return first <= 0 ? values : values.slice(Math.min(first, Math.max(0, values.length - least)));
}

export function Spark({ values: all, label }: { values: Points; label: string }) {
  const values = begun(all);
  const known = values.filter((value): value is number => value !== null);
  const top = Math.max(1e-9, ...known);
  const words = known.length ? `${label}: now ${rate(known[known.length - 1])}, highest ${rate(top)}` : `${label}: no numbers yet`;
  return (
    <svg class="spark" viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label={words}>
      <path d={line(values, 100, 27, top, 2)} transform="translate(0 2)" />
    </svg>
  );
}

export function useHistory(series: string[], step: '1s' | '15s' = '15s', everyMs = 15_000) {
  return useLoad(`history ${step} ${series.join(' ')}`, async (signal) => (series.length ? get('/api/v1/history', {}, { query: { series, step }, signal }) : undefined), series.length ? everyMs : 0);
}

// The width that an element has now.
export function useWidth(): [(element: HTMLElement | null) => void, number] {
  const [width, setWidth] = useState(800);
  const watch = useRef<ResizeObserver | undefined>(undefined);
  const attach = useRef((element: HTMLElement | null) => {
    watch.current?.disconnect();
    if (!element) return;
    watch.current = new ResizeObserver(() => setWidth(element.clientWidth));
    watch.current.observe(element);
    setWidth(element.clientWidth);
  });
  return [attach.current, width];
}

const COLOURS = ['var(--flow-1)', 'var(--flow-2)'];
const DASHES = ['', '5 4'];

function round(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= value) ?? value;
}

export function Chart({ fromMs: allFromMs, stepMs, lines: all, format = rate }: {
  fromMs: number; stepMs: number; lines: { name: string; values: Points }[]; format?: (value: number) => string;
}) {
  const [at, setAt] = useState<number | undefined>();
  const longest = Math.max(1, ...all.map((one) => one.values.length));
  const kept = Math.max(1, ...all.map((one) => begun(one.values).length));
  const fromMs = allFromMs + (longest - kept) * stepMs;
  const lines = all.map((one) => ({ name: one.name, values: one.values.slice(longest - kept) }));
  const length = Math.max(1, ...lines.map((one) => one.values.length));
  const top = round(Math.max(1, ...lines.flatMap((one) => one.values.map((value) => value ?? 0))));
  const [element, whole] = useWidth();
  const left = 54;
  const width = Math.max(120, whole - left - 4);
  const height = 140;
  const above = 12;
  const point = at === undefined ? undefined : Math.min(length - 1, Math.max(0, at));
  const ticks = width > 420 ? [0, 0.25, 0.5, 0.75, 1] : [0, 1];
  return (
    <figure ref={element}>
      <svg class="chart" viewBox={`0 0 ${width + left + 4} ${height + above + 24}`} role="img"
        aria-label={lines.map((one) => `${one.name}, latest ${format(latest(one.values))}`).join('; ')}
        onMouseMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          setAt(Math.round((((event.clientX - box.left) / box.width) * (width + left + 4) - left) / (width / Math.max(1, length - 1))));
        }}
        onMouseLeave={() => setAt(undefined)}>
        {[0, 0.5, 1].map((part) => (
          <g key={part}>
            <line class="grid" x1={left} x2={width + left} y1={above + (1 - part) * height} y2={above + (1 - part) * height} />
            <text x={left - 6} y={above + 4 + (1 - part) * height} text-anchor="end">{format(top * part)}</text>
          </g>
        ))}
        {ticks.map((part) => (
          <text key={part} x={left + part * width} y={height + above + 18} text-anchor={part === 0 ? 'start' : part === 1 ? 'end' : 'middle'}>
            {time(fromMs + part * stepMs * (length - 1), utc.value).slice(-12, -4)}
          </text>
        ))}
        <g transform={`translate(${left} ${above})`}>
          {lines.map((one, place) => (
            <path key={one.name} d={line(one.values, width, height, top)} stroke={COLOURS[place % 2]} stroke-dasharray={DASHES[place % 2]} />
          ))}
          {point !== undefined && <line class="grid" x1={(point * width) / Math.max(1, length - 1)} x2={(point * width) / Math.max(1, length - 1)} y1="0" y2={height} />}
        </g>
      </svg>
      <figcaption class="legend">
        {lines.map((one, place) => (
          <span key={one.name}>
            <i style={{ borderTopColor: COLOURS[place % 2], borderTopStyle: place % 2 ? 'dashed' : 'solid' }} />{one.name}
            {point !== undefined && `: ${one.values[point] === null || one.values[point] === undefined ? 'not known' : format(one.values[point])}`}
          </span>
        ))}
        {point !== undefined && <span>{time(fromMs + point * stepMs, utc.value)}</span>}
        {kept < longest && point === undefined && <span class="faint">Numbers begin when a broker does, or when there is something to count.</span>}
      </figcaption>
    </figure>
  );
}

// Messages over time (5.2); dragging over it picks a range.
export function TimeStrip({ fromMs, stepMs, counts, pick }: { fromMs: number; stepMs: number; counts: number[]; pick: (fromMs: number, untilMs: number) => void }) {
  const box = useRef<SVGSVGElement>(null);
  const [drag, setDrag] = useState<[number, number] | undefined>();
  const top = Math.max(1, ...counts);
  const total = counts.reduce((sum, one) => sum + one, 0);
  const width = 1000;
  const height = 60;
  const each = width / Math.max(1, counts.length);
  const place = (event: PointerEvent): number => {
    const size = box.current!.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - size.left) / size.width));
  };
  const span = stepMs * counts.length;
  return (
    <div class="strip">
      <svg ref={box} viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img"
        aria-label={`${count(total)} messages between ${time(fromMs, utc.value)} and ${time(fromMs + span, utc.value)}; at most ${count(top)} in one of ${counts.length} steps`}
        onPointerDown={(event) => { box.current!.setPointerCapture(event.pointerId); const at = place(event); setDrag([at, at]); }}
        onPointerMove={(event) => { if (drag) setDrag([drag[0], place(event)]); }}
        onPointerUp={() => {
          if (drag) {
            const [a, b] = [Math.min(...drag), Math.max(...drag)];
            if (b - a > 0.004) pick(Math.floor(fromMs + a * span), Math.ceil(fromMs + b * span));
          }
          setDrag(undefined);
        }}>
        {counts.map((value, at) => value > 0 && (
          <rect key={at} x={at * each} width={Math.max(0.5, each - (each > 3 ? 1 : 0))} y={height - Math.max(2, (value / top) * height)} height={Math.max(2, (value / top) * height)} fill="var(--bar)">
            <title>{`${count(value)} at ${time(fromMs + at * stepMs, utc.value)}`}</title>
          </rect>
        ))}
        {drag && <rect x={Math.min(...drag) * width} width={Math.abs(drag[1] - drag[0]) * width} y="0" height={height} fill="var(--accent)" opacity="0.25" />}
      </svg>
      <div class="scale"><span>{time(fromMs, utc.value)}</span><span>{count(total)} messages; drag to choose a time</span><span>{time(fromMs + span, utc.value)}</span></div>
    </div>
  );
}
