// Who are you (W18): a name and a password, a token, or the link of `headrace open`. Nothing of it is kept by the page.
import { useEffect, useState } from 'preact/hooks';
import { asProblem, post } from '../api/client.ts';
import type { Problem } from '../api/types.ts';
import { lookAgain } from '../state/session.ts';
import { ProblemBox } from './ui.tsx';

export function Login() {
  const [user, setUser] = useState('');
  const [password, setPassword] = useState('');
  const [token, setToken] = useState('');
  const [byToken, setByToken] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | undefined>();
  const enter = async (body: Record<string, string>): Promise<void> => {
    setBusy(true);
    setProblem(undefined);
    try {
      await post('/api/v1/session', {}, body);
      lookAgain();
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(false);
  };
  useEffect(() => {
    const link = /^#login=([\w=-]+)$/.exec(location.hash)?.[1];
    if (!link) return;
    history.replaceState(null, '', location.pathname + location.search); // used once, and not left in the address
    void enter({ link });
  }, []);
  return (
    <form class="card login stack" onSubmit={(event) => { event.preventDefault(); void enter(byToken ? { token } : { user, password }); }}>
      <h1 id="title" tabIndex={-1}>Log in</h1>
      <p class="soft">This broker answers only those it knows.</p>
      {byToken
        ? <label class="field"><span>Token</span><input type="password" autocomplete="off" autofocus required value={token} onInput={(event) => setToken(event.currentTarget.value)} /></label>
        : (
          <>
            <label class="field"><span>User</span><input autocomplete="username" autofocus required spellcheck={false} value={user} onInput={(event) => setUser(event.currentTarget.value)} /></label>
            <label class="field"><span>Password</span><input type="password" autocomplete="current-password" required value={password} onInput={(event) => setPassword(event.currentTarget.value)} /></label>
          </>
        )}
      {problem && <ProblemBox of={problem} />}
      <div class="row">
        <button type="submit" class="main-act" disabled={busy}>{busy ? 'Asking …' : 'Log in'}</button>
        <button type="button" class="quiet" onClick={() => setByToken(!byToken)}>{byToken ? 'With a password' : 'With a token'}</button>
      </div>
      <p class="faint">On the command line: <span class="mono">headrace open</span> logs you in by a link.</p>
    </form>
  );
}
