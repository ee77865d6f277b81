"""LoRA adapters by PEFT: writes folders with expected outputs, and computes the outputs of folders that Weft wrote.

Standard input: {"out": DIR, "ids": [[...]], "cases": {name: {"model": key, "task": ..., "lora": {...}}}, "written": [{"base", "adapter", "task"}]}.
Standard output: {"cases": {name: [...]}, "written": [[...]]}, flat outputs.
"""
import json
import sys
import warnings

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
request = json.load(sys.stdin)
ids = torch.tensor(request["ids"])
classes = {
    "causal-lm": transformers.AutoModelForCausalLM,
    "classification": transformers.AutoModelForSequenceClassification,
    "token-classification": transformers.AutoModelForTokenClassification,
    "base": transformers.AutoModel,
}


def outputs(model):
    with torch.no_grad():
        found = model.eval()(input_ids=ids)
    values = found.last_hidden_state if getattr(found, "logits", None) is None else found.logits
    return values.flatten().tolist()


answer = {"cases": {}, "written": []}
torch.manual_seed(0)
for name, case in request["cases"].items():
    config = dict(case["config"])
    kind = config.pop("model_type")
    model = classes[case["task"]].from_config(transformers.AutoConfig.for_model(kind, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    folder = f"{request['out']}/{name}"
    model.save_pretrained(f"{folder}/base")
    adapted = get_peft_model(model, LoraConfig(**case["lora"]))
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    answer["cases"][name] = outputs(adapted)
    adapted.save_pretrained(f"{folder}/adapter")
for case in request["written"]:
    base = classes[case["task"]].from_pretrained(case["base"])
    answer["written"].append(outputs(PeftModel.from_pretrained(base, case["adapter"])))
json.dump(answer, sys.stdout)
