// Small parts that several pages use.
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { RunState } from "../wire/index.js";

const stateWords: Record<RunState, string> = {
  running: "running",
  ok: "done",
  failed: "failed",
  timeout: "timed out",
  canceled: "stopped",
  died: "died",
  silent: "silent",
  unknown: "unknown",
};

/** The word for a state. */
export const stateWord = (state: RunState): string => stateWords[state];

/** A colored label with the state of a run. The words say it without the color. */
export function StateLabel({ state, message }: { state: RunState; message?: string | undefined }) {
  return (
    <span class={`state state-${state}`} title={message}>
      <span class="dot" aria-hidden="true" />
      {stateWords[state]}
    </span>
  );
}

/** A text that teaches what to type where there is nothing yet. `inside`: below the heading of a page. */
export function Empty(props: { title: string; inside?: boolean; children?: ComponentChildren }) {
  const { title, inside = false, children } = props;
  return (
    <section class="empty">
      {inside ? <h2>{title}</h2> : <h1>{title}</h1>}
      {children}
    </section>
  );
}

/** A command that can be copied. */
export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    void navigator.clipboard?.writeText(text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <div class="command">
      <code>{text}</code>
      <button type="button" class="quiet" onClick={copy} aria-label={`Copy the command ${text}`}>
        {copied ? "copied" : "copy"}
      </button>
    </div>
  );
}

/** A region that scrolls; the keyboard must reach it. */
export function Scroll(props: {
  label: string;
  class?: string;
  box?: RefObject<HTMLElement | null>;
  children: ComponentChildren;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: without it, the region cannot be scrolled with keys
    <section class={`scroll ${props.class ?? ""}`} aria-label={props.label} tabIndex={0} ref={props.box}>
      {props.children}
    </section>
  );
}

/** A figure with its name. */
export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Buttons of which one is chosen. */
export function Choice<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <fieldset class="choice">
      <legend class="visually-hidden">{props.label}</legend>
      {props.options.map(([value, text]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {text}
        </button>
      ))}
    </fieldset>
  );
}

/** The horizontal axis of curves. */
export type CurveAxis = "step" | "time";

export function AxisChoice({ value, onChange }: { value: CurveAxis; onChange: (value: CurveAxis) => void }) {
  const options = [
    ["step", "by step"],
    ["time", "by time"],
  ] as const;
  return <Choice label="Horizontal axis" value={value} options={options} onChange={onChange} />;
}

/** How much curves are smoothed: the weight of what came before. */
export function Smoothing({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  return (
    <label class="range">
      smooth
      <input
        type="range"
        min="0"
        max="0.99"
        step="0.01"
        value={value}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
    </label>
  );
}

/** Calls back for keys that are pressed outside of text fields. */
export function useKeys(keys: Record<string, (event: KeyboardEvent) => void>): void {
  // Handlers of the last drawing, not of the last effect: keys may come faster than frames.
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const listener = (event: KeyboardEvent): void => {
      const { target } = event;
      const isText =
        target instanceof HTMLElement &&
        /^(input|textarea|select)$/i.test(target.tagName) &&
        (target as HTMLInputElement).type !== "checkbox";
      if (isText || event.ctrlKey || event.metaKey || event.altKey) return;
      const handler = latest.current[event.key];
      if (handler === undefined) return;
      event.preventDefault();
      handler(event);
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
}
