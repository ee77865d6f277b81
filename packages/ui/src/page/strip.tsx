// The strip on every page: what the machine does, the load by others, and whether a measurement now would be valid.
import { useStore } from "./store.js";
import { formatBytes } from "./text.js";

const whole = (value: number | null): string => (value === null ? "–" : `${Math.round(value)}%`);

/** The strip. */
export function Strip() {
  const machine = useStore((state) => state.machine);
  const connection = useStore((state) => state.connection);
  const lost = connection === "lost" || connection === "refused";
  return (
    <section class="strip" aria-label="This machine now">
      {lost ? (
        <span class="strip-verdict bad" role="status">
          Connection lost: what you see is no longer live.{" "}
          {connection === "lost" ? "Trying again …" : "Start weft ui again."}
        </span>
      ) : machine === null ? (
        <span class="soft">Looking at this machine …</span>
      ) : (
        <>
          <span class={`strip-verdict ${machine.disturbance === null ? "good" : "bad"}`} role="status">
            {machine.disturbance === null ? "Quiet: measurements now are valid" : "Measurements now are not valid"}
          </span>
          {machine.disturbance !== null && <span class="strip-reason">{machine.disturbance}</span>}
          <span class="strip-facts">
            <Meter name="CPU" percent={machine.cpuPercent} others={machine.othersPercent} />
            <span>
              others <b>{whole(machine.othersPercent)}</b> of {machine.cores} cores
            </span>
            <span>
              memory <b>{formatBytes(machine.memoryBytes)}</b> of {formatBytes(machine.memoryTotalBytes)}
            </span>
            {machine.devices.slice(0, 4).map((device) => (
              <span key={device.index}>
                GPU {device.index} <b>{whole(device.utilizationPercent)}</b>
              </span>
            ))}
          </span>
        </>
      )}
    </section>
  );
}

function Meter({ name, percent, others }: { name: string; percent: number | null; others: number | null }) {
  const width = (value: number | null): string => `${Math.max(0, Math.min(100, value ?? 0))}%`;
  return (
    <span class="meter-group">
      {name} <b>{whole(percent)}</b>
      <span class="meter" aria-hidden="true">
        <span class="meter-all" style={{ width: width(percent) }} />
        <span class="meter-others" style={{ width: width(others) }} />
      </span>
    </span>
  );
}
