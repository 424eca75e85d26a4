// The coming week of the calendar: when which schedule sends. Days are rows; a table of times says the same (W11).
import type { ShownSchedule } from '../api/types.ts';
import { now, utc } from '../state/session.ts';
import { Name } from './ui.tsx';
import { exact, time, visible } from './words.ts';

const DAY = 86_400_000;
const DAYS = 7;

function midnight(ms: number): number {
  const day = new Date(ms);
  if (utc.value) day.setUTCHours(0, 0, 0, 0);
  else day.setHours(0, 0, 0, 0);
  return day.getTime();
}

export function Week({ schedules }: { schedules: ShownSchedule[] }) {
  const first = midnight(now.value);
  const ticks = schedules.flatMap((one) => one.upcoming.map((text) => ({ name: one.name, topic: one.topic, ms: Date.parse(text) })));
  const days = Array.from({ length: DAYS }, (_, day) => midnight(first + day * DAY + DAY / 2));
  return (
    <figure class="week">
      <div class="hours" aria-hidden="true">{[0, 6, 12, 18].map((hour) => <span key={hour} style={{ left: `${(hour / 24) * 100}%` }}>{String(hour).padStart(2, '0')}:00</span>)}</div>
      {days.map((day) => (
        <div key={day} class="day">
          <span class="label">{new Date(day).toLocaleDateString(undefined, { weekday: 'short', day: 'numeric', ...(utc.value ? { timeZone: 'UTC' } : {}) })}</span>
          <div class="track">
            {day === first && <i class="now" style={{ left: `${((now.value - day) / DAY) * 100}%` }} title="now" />}
            {ticks.filter((tick) => tick.ms >= day && tick.ms < day + DAY).map((tick) => (
              <i key={`${tick.name} ${tick.ms}`} class="tick" style={{ left: `${((tick.ms - day) / DAY) * 100}%` }} title={`${visible(tick.name)} at ${exact(tick.ms, utc.value)}`} />
            ))}
          </div>
        </div>
      ))}
      <div class="hidden"><table><caption>The next times</caption><tbody>{ticks.sort((a, b) => a.ms - b.ms).slice(0, 50).map((tick) => <tr key={`${tick.name} ${tick.ms}`}><td>{time(tick.ms, utc.value)}</td><td><Name of={tick.name} /></td></tr>)}</tbody></table></div>
    </figure>
  );
}
