// The log of a run: its notes, epochs and end, and what its command printed.
import { useEffect, useRef, useState } from "preact/hooks";
import type { RunDetail } from "../wire/index.js";
import { Choice, Scroll } from "./parts.js";
import { clock } from "./text.js";

/** The log. */
export function RunLog({ log, outputs }: Pick<RunDetail, "log" | "outputs">) {
  const [shown, setShown] = useState("events");
  const box = useRef<HTMLElement>(null);
  const output = outputs.find(({ name }) => name === shown);
  useEffect(() => {
    // Follow the end, unless somebody has scrolled up to read.
    const element = box.current;
    if (element !== null && element.scrollHeight - element.scrollTop - element.clientHeight < 80)
      element.scrollTop = element.scrollHeight;
  }, [log, output]);
  return (
    <section class="card">
      <div class="toolbar">
        <h2>Log</h2>
        {outputs.length > 0 && (
          <Choice
            label="Source of the log"
            value={shown}
            options={[["events", "events"], ...outputs.map(({ name }) => [name, name] as const)]}
            onChange={setShown}
          />
        )}
      </div>
      <Scroll class="log" label="Log" box={box}>
        {output !== undefined ? (
          <pre>{output.text}</pre>
        ) : log.length === 0 ? (
          <p class="soft">Nothing was logged yet.</p>
        ) : (
          <ol>
            {log.map((line, i) => (
              <li key={i} class={line.level}>
                <time>{clock(line.t)}</time> <span>{line.text}</span>
              </li>
            ))}
          </ol>
        )}
      </Scroll>
    </section>
  );
}
