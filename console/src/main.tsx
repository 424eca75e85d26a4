import { render } from 'preact';
import { App } from './app.tsx';
import { begin } from './state/session.ts';
import './style.css';

begin();
render(<App />, document.getElementById('app')!);
