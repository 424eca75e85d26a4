// The frame around every page: where one is, how the broker is, and the keys.
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { remove } from './api/client.ts';
import { Login } from './parts/login.tsx';
import { Keys } from './parts/keys.tsx';
import { A, Empty, Toasts, Waiting } from './parts/ui.tsx';
import { count, span, visible, zone } from './parts/words.ts';
import { Home } from './pages/home.tsx';
import { useLive, type HomeNow } from './state/live.ts';
import { path } from './state/place.ts';
import { away, cluster, health, isOld, lookAgain, now, session, theme, utc, version } from './state/session.ts';

type Page = { Page: ComponentType<{ name: string }> };
type Place = { at: RegExp; load: () => Promise<Page> };

const PLACES: Place[] = [
  { at: /^\/topics$/, load: () => import('./pages/topics.tsx') },
  { at: /^\/topics\/([^/]+)$/, load: () => import('./pages/topic.tsx') },
  { at: /^\/queues$/, load: () => import('./pages/queues.tsx') },
  { at: /^\/queues\/([^/]+)$/, load: () => import('./pages/queue.tsx') },
  { at: /^\/dead$/, load: () => import('./pages/dead.tsx') },
  { at: /^\/schedules$/, load: () => import('./pages/schedules.tsx') },
  { at: /^\/webhooks$/, load: () => import('./pages/webhooks.tsx') },
  { at: /^\/pipelines$/, load: () => import('./pages/pipelines.tsx') },
  { at: /^\/pipelines\/([^/]+)$/, load: () => import('./pages/pipeline.tsx') },
  { at: /^\/happenings$/, load: () => import('./pages/happenings.tsx') },
  { at: /^\/cluster$/, load: () => import('./pages/cluster.tsx') },
  { at: /^\/security$/, load: () => import('./pages/security.tsx') },
  { at: /^\/api$/, load: () => import('./pages/api.tsx') },
  { at: /^\/groups$/, load: () => import('./pages/groups.tsx') },
  { at: /^\/groups\/([^/]+)$/, load: () => import('./pages/group.tsx') },
];
export const RAIL: { words: string; href: string; key: string; at: string }[] = [
  { words: 'Home', href: '/', key: 'h', at: '/' },
  { words: 'Topics', href: '/console/topics', key: 't', at: '/topics' },
  { words: 'Queues', href: '/console/queues', key: 'q', at: '/queues' },
  { words: 'Dead letters', href: '/console/dead', key: 'd', at: '/dead' },
  { words: 'Groups', href: '/console/groups', key: 'g', at: '/groups' },
  { words: 'Schedules', href: '/console/schedules', key: 's', at: '/schedules' },
  { words: 'Webhooks', href: '/console/webhooks', key: 'w', at: '/webhooks' },
  { words: 'Pipelines', href: '/console/pipelines', key: 'p', at: '/pipelines' },
  { words: 'Happenings', href: '/console/happenings', key: 'e', at: '/happenings' },
  { words: 'Cluster', href: '/console/cluster', key: 'c', at: '/cluster' },
  { words: 'Users and rights', href: '/console/security', key: 'u', at: '/security' },
  { words: 'API', href: '/console/api', key: 'a', at: '/api' },
];

function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#0b7285" />
      <path d="M6 11c3.300-3 6.700-3 10 0s6.700 3 10 0M6 17c3.300-3 6.700-3 10 0s6.700 3 10 0M6 23c3.300-3 6.700-3 10 0s6.700 3 10 0" fill="none" stroke="#e6fcff" stroke-width="2.400" stroke-linecap="round" />
    </svg>
  );
}

function Rail({ open, close }: { open: boolean; close: () => void }) {
  const here = path.value;
  const known = cluster.value;
  const live = useLive<HomeNow>('home');
  const dead = live?.dead.reduce((sum, one) => sum + one.messages, 0) ?? 0;
  const counts: Record<string, [number, string]> = { '/dead': [dead, 'letters'], '/groups': [live?.behind ?? 0, 'behind'], '/cluster': [health.value?.findings.length ?? 0, 'not well'] };
  return (
    <nav class={open ? 'rail open' : 'rail'} aria-label="Pages" onClick={(event) => { if ((event.target as Element).closest('a')) close(); }}>
      <A class="brand" href="/"><Mark />Headrace</A>
      <ul>
        {RAIL.map((item) => (
          <li key={item.href}>
            <A href={item.href} aria-current={(item.at === '/' ? here === '/' : here === item.at || here.startsWith(`${item.at}/`)) ? 'page' : undefined}>{item.words}{!!counts[item.at]?.[0] && <span class="tally num">{count(counts[item.at]![0])} <span class="hidden">{counts[item.at]![1]}</span></span>}</A>
          </li>
        ))}
      </ul>
      <div class="foot">
        <div class="narrow"><button class="quiet" onClick={() => dispatchEvent(new Event('headrace-views'))}>Saved views</button><Switches /></div>
        {known && !away.value && <p>Broker {known.answered_by} of {known.brokers.length + known.away.length} answers{known.away.length > 0 && <>; <A href="/console/cluster">{known.away.length} away</A></>}</p>}
        {version.value && <p>Version {version.value.version}</p>}
        {session.value && <p title="Who you are to this broker">{session.value.principal === 'User:ANONYMOUS' ? 'Nobody has to log in' : visible(session.value.principal)}</p>}
        {session.value?.csrf && <p><button class="small quiet" onClick={async () => { await remove('/api/v1/session', {}); lookAgain(); }}>Log out</button></p>}
      </div>
    </nav>
  );
}

function How() {
  const how = health.value;
  if (away.value) return <div class="how"><span class="dot bad" /><span>No answer</span></div>;
  if (session.value?.login) return <div class="how"><span class="dot" /><span>Locked</span></div>;
  if (!how) return <div class="how"><span class="dot" /><span>Asking …</span></div>;
  const kind = how.status === 'ok' ? 'good' : how.status === 'degraded' ? 'warn' : 'bad';
  const words = how.status === 'ok' ? 'Well' : how.status === 'degraded' ? 'In trouble, and serving' : 'Not ready';
  return <div class="how" role="status"><span class={`dot ${kind}`} /><span title={how.sentence}>{words}</span></div>;
}

const headed = (check: string): string => `${check.charAt(0).toUpperCase()}${visible(check.slice(1))}:`;

function Banners() {
  const gone = away.value;
  const how = health.value;
  return (
    <>
      {gone && (
        <div class="banner bad" role="alert">
          <strong>The broker does not answer</strong>{' '}
          <span>{now.value - gone.since < 2_000 ? 'any more' : `for ${span(now.value - gone.since)} now`}: what is shown is from before. It is asked again by itself; see that its process runs.</span>
        </div>
      )}
      {!gone && how?.findings.map((finding) => (
        <div key={finding.check} class={finding.severity === 'error' ? 'banner bad' : 'banner'}>
          <strong>{headed(finding.check)}</strong>{' '}
          <span>{visible(finding.detail)} <span class="soft">for {span(now.value - finding.since_ms)}. {visible(finding.hint)}</span></span>
        </div>
      ))}
      {isOld.value && (
        <div class="banner">
          <span>The broker was upgraded, and this page is of the version before.</span>
          <button class="small" onClick={() => location.reload()}>Reload</button>
        </div>
      )}
    </>
  );
}

// In the header, and where that has no room for them, in the menu (W7, W12).
function Switches() {
  const next = { system: 'dark', dark: 'light', light: 'system' } as const;
  const words = { system: 'Theme: system', dark: 'Theme: dark', light: 'Theme: light' } as const;
  return (
    <>
      <button class="quiet" title="Local time or UTC" aria-pressed={utc.value} onClick={() => { utc.value = !utc.value; }}>{utc.value ? 'UTC' : `UTC${zone(false)}`}</button>
      <button class="quiet" title="Dark, light, or as the system" onClick={() => { theme.value = next[theme.value]; }}>{words[theme.value]}</button>
    </>
  );
}

function Top({ open }: { open: () => void }) {
  return (
    <header class="top">
      <button class="menu small" aria-label="Pages" onClick={open}>☰</button>
      <How />
      <div class="right">
        <button class="search" onClick={() => dispatchEvent(new Event('headrace-search'))}>Search <kbd class="faint wide">Ctrl K</kbd></button>
        <button class="quiet wide" onClick={() => dispatchEvent(new Event('headrace-views'))}>Views</button>
        <span class="wide"><Switches /></span>
      </div>
    </header>
  );
}

// A page's own code is loaded when it is first opened.
function Content() {
  const here = path.value;
  const [found, setFound] = useState<{ place: Place; Page: Page['Page'] } | undefined>();
  const [failed, setFailed] = useState(false);
  const place = PLACES.find((one) => one.at.test(here));
  useEffect(() => {
    if (!place) return;
    let ended = false;
    setFailed(false);
    place.load().then(({ Page }) => { if (!ended) setFound({ place, Page }); }, () => { if (!ended) setFailed(true); });
    return () => { ended = true; };
  }, [place]);
  useEffect(() => {
    document.title = here === '/' ? 'Headrace' : `${decodeURIComponent(here.slice(1))} · Headrace`;
  }, [here]);
  if (here === '/') return <Home />;
  if (!place) return <Empty title="There is no such page"><A href="/">Home</A></Empty>;
  if (failed) return <Empty title="This page could not be loaded"><button onClick={() => location.reload()}>Reload</button></Empty>;
  if (!found || found.place !== place) return <Waiting />;
  const name = place.at.exec(here)?.[1] ?? '';
  return <found.Page key={name} name={decodeURIComponent(name)} />;
}

export function App() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <a class="skip" href="#title">To the content</a>
      <div class="frame">
        <Rail open={open} close={() => setOpen(false)} />
        <div class="main">
          <Top open={() => setOpen(!open)} />
          <Banners />
          <main class={away.value ? 'content stale' : 'content'}>{session.value?.login ? <Login /> : <Content />}</main>
        </div>
      </div>
      <Keys rail={RAIL} />
      <Toasts />
    </>
  );
}

