// Who there is, what they prove it with, and what they may.
import { get } from '../api/client.ts';
import { Credentials } from '../parts/credentials.tsx';
import { useLoad } from '../parts/load.ts';
import { Rights } from '../parts/rights.tsx';
import { Head, Tabs } from '../parts/ui.tsx';
import { Users } from '../parts/users.tsx';
import { chosen } from '../state/place.ts';
import { useRights } from '../state/rights.ts';

const MODES: Record<string, string> = {
  open: 'This broker asks nobody who they are: what is set here protects nothing yet (headrace security observe, then enforce).',
  observe: 'Rights are looked at and nothing is refused yet: headrace security status says what would be.',
  enforced: 'Rights are enforced: everybody may what they are given, and administrators everything.',
};

export function Page(_: { name: string }) {
  const tab = chosen('tab') || 'users';
  const may = useRights('cluster');
  const refused = may('alter');
  const { value } = useLoad('security', (signal) => get('/api/v1/security', {}, { signal }), 5_000);
  return (
    <>
      <Head title="Users and rights" lead={value ? MODES[value.mode] : ' '} />
      <Tabs all={[['users', 'Users'], ['rights', 'Rights'], ['tokens', 'Tokens'], ['keys', 'Access keys']]} />
      {tab === 'users' && <Users refused={refused} />}
      {tab === 'rights' && <Rights refused={refused} />}
      {tab === 'tokens' && <Credentials key="token" kind="token" />}
      {tab === 'keys' && <Credentials key="key" kind="key" />}
    </>
  );
}
