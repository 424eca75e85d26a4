// Something from the API, asked for when the question changes, and again while it is shown.
import { useEffect, useRef, useState } from 'preact/hooks';
import { asProblem } from '../api/client.ts';
import type { Problem } from '../api/types.ts';
import { away, suspect } from '../state/session.ts';

export interface Loaded<T> {
  value: T | undefined;
  problem: Problem | undefined;
  again: () => void;
}

const PATIENCE_MS = 15_000;
const AGAIN_MS = 2_000;

// `key` is the question: as long as it is the same, the last answer stays while the next one is on its way.
export function useLoad<T>(key: string, ask: (signal: AbortSignal) => Promise<T>, everyMs = 0): Loaded<T> {
  const [state, setState] = useState<{ key: string; value: T | undefined; problem: Problem | undefined }>({ key, value: undefined, problem: undefined });
  const [turn, setTurn] = useState(0);
  const asking = useRef(ask);
  asking.current = ask;
  useEffect(() => {
    let control = new AbortController();
    let timer = 0;
    let ended = false;
    const run = async (): Promise<void> => {
      control = new AbortController(); // of this question alone: one that took too long must not end the next
      let wait = everyMs;
      const limit = setTimeout(() => control.abort(), PATIENCE_MS);
      try {
        const value = await asking.current(control.signal);
        if (!ended) setState({ key, value, problem: undefined });
      } catch (error) {
        if (ended) return;
        const problem = asProblem(control.signal.aborted ? new Error('no answer within 15 seconds') : error);
        if (problem.status === 0) {
          suspect();
          wait = everyMs || AGAIN_MS; // nobody answered: that passes, and nobody should have to press a button for it
        }
        setState((before) => ({ key, value: before.key === key ? before.value : undefined, problem }));
      } finally {
        clearTimeout(limit);
      }
      if (wait && !ended) timer = window.setTimeout(() => void tick(), wait);
    };
    const tick = async (): Promise<void> => {
      if (document.hidden) timer = window.setTimeout(() => void tick(), everyMs || AGAIN_MS);
      else await run();
    };
    void run();
    return () => {
      ended = true;
      control.abort();
      clearTimeout(timer);
    };
  }, [key, turn, everyMs, away.value === undefined]);
  const fits = state.key === key;
  return { value: fits ? state.value : undefined, problem: fits ? state.problem : undefined, again: () => setTurn((one) => one + 1) };
}
