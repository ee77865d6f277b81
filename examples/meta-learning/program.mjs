// @ts-check
// Meta-learning: a policy network that maps the noise of a qubit to a pulse, and adapts to a new environment in a few steps.
import { MetaTrainer } from "@weft/quantum";
import { lineChart, savePicture, small, verify } from "../example.mjs";

const trainer = new MetaTrainer({
  preset: "debug",
  iterations: small ? 20 : 300,
  validation: { tasks: 20, every: small ? 10 : 25 },
});
console.log(trainer.explain());
trainer.run();
for (const { iteration, before, after } of trainer.validations)
  console.log(`iteration ${String(iteration).padStart(4)}: fidelity ${before.toFixed(4)}, adapted ${after.toFixed(4)}`);
const [first, last] = [trainer.validations[0], trainer.validations[trainer.validations.length - 1]];
verify("the policy learned: its fidelity on new environments rose", last.before > first.before);
savePicture(
  import.meta.dirname,
  "fidelity.svg",
  lineChart(
    [
      {
        name: "before adaptation",
        x: trainer.validations.map((v) => v.iteration),
        y: trainer.validations.map((v) => v.before),
      },
      {
        name: "after adaptation",
        x: trainer.validations.map((v) => v.iteration),
        y: trainer.validations.map((v) => v.after),
      },
    ],
    {
      title: "Fidelity in environments that training did not see",
      subtitle: "20 environments",
      x: "iteration",
      y: "fidelity",
    },
  ),
);
