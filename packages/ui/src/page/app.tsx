// The web app: navigation, the strip, and the page of the address.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./cluster.css";
import "./content.css";
import "./quantum.css";
import "./tables.css";
import { ClusterPage } from "./cluster.js";
import { ComparePage } from "./compare.js";
import { Command, Empty, useKeys } from "./parts.js";
import { QuantumPage } from "./quantum.js";
import { RunPage } from "./run.js";
import { RunsPage } from "./runs.js";
import { ScalingPage } from "./scaling.js";
import { go, type Route, startStore, useStore } from "./store.js";
import { Strip } from "./strip.js";
import { TimelinePage } from "./timeline.js";

interface Page {
  /** Name in the navigation; pages without one are reached from others. */
  title?: string;
  view: (route: Route) => preact.ComponentChildren;
}

const pages: Readonly<Record<string, Page>> = {
  runs: { title: "Runs", view: () => <RunsPage /> },
  run: { view: ({ argument }) => <RunPage id={argument} /> },
  scaling: { title: "Scaling", view: ({ argument }) => <ScalingPage id={argument} /> },
  cluster: { title: "Cluster", view: () => <ClusterPage /> },
  timeline: { title: "Timeline", view: ({ argument }) => <TimelinePage id={argument} /> },
  quantum: { title: "Quantum", view: ({ argument }) => <QuantumPage id={argument} /> },
  compare: { view: ({ search }) => <ComparePage ids={search.getAll("id")} /> },
};

/** The page of the navigation that a page belongs to. */
const parents: Readonly<Record<string, string>> = { run: "runs", compare: "runs" };

function App() {
  const route = useStore((state) => state.route);
  const problem = useStore((state) => state.problem);
  const listed = Object.entries(pages).filter(([, page]) => page.title !== undefined);
  const shown = Object.hasOwn(pages, route.page) ? route.page : "runs";
  const current = parents[shown] ?? shown;
  useKeys(Object.fromEntries(listed.map(([name], i) => [String(i + 1), () => go(`/${name}`)])));
  useEffect(() => {
    document.title = `${pages[shown].title ?? route.argument} · Weft`;
    document.querySelector("main")?.scrollTo(0, 0);
  }, [shown, route.argument]);
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </button>
      <header class="top">
        <a class="brand" href="#/runs">
          <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
            <path d="M4 8l6 16 6-16 6 16 6-16" />
          </svg>
          weft
        </a>
        <nav aria-label="Pages">
          {listed.map(([name, page]) => (
            <a key={name} href={`#/${name}`} aria-current={current === name ? "page" : undefined}>
              {page.title}
            </a>
          ))}
        </nav>
      </header>
      <Strip />
      <main id="main" tabIndex={-1}>
        {problem === "token" ? <NoToken /> : pages[shown].view(route)}
      </main>
    </>
  );
}

function NoToken() {
  return (
    <Empty title="This page needs its key">
      <p>
        Only you may see and stop your runs: weft ui prints an address with a token that is new at every start. Open
        that address, or start it again:
      </p>
      <Command text="weft ui" />
    </Empty>
  );
}

startStore();
render(<App />, document.getElementById("app")!);
