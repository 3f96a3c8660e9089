// What a model reads around the words of a person: ChatML where its template says so, bare text elsewhere.

const START = "<|im_start|>";
const END = "<|im_end|>";

export class Chat {
  /** @param tokenizer of the model; its template is recognised, not executed */
  constructor(tokenizer) {
    this.tokenizer = tokenizer;
    this.marked = tokenizer.template.includes(START) && tokenizer.template.includes(END);
    const system = /<\|im_start\|>system\n([^']*?)<\|im_end\|>/.exec(tokenizer.template);
    this.system = this.marked && system ? system[1] : "";
  }

  /** Ids from the beginning of a turn to where the model has to go on. What a person writes never becomes a mark. */
  turn(text, isFirst) {
    const { tokenizer } = this;
    const bos = isFirst && tokenizer.bos !== null ? [tokenizer.bos] : [];
    if (!this.marked) return [...bos, ...tokenizer.encode(`${text}\n`)];
    const system = isFirst && this.system ? `${START}system\n${this.system}${END}\n` : "";
    return [
      ...bos,
      ...tokenizer.encode(`${system}${START}user\n`, true),
      ...tokenizer.encode(text),
      ...tokenizer.encode(`${END}\n${START}assistant\n`, true),
    ];
  }

  /** Ids that end an answer, after those that the model said. */
  close(said) {
    if (!this.marked) return [];
    const end = this.tokenizer.encode(`${END}\n`, true);
    return said.at(-1) === this.tokenizer.eos ? end.slice(1) : end;
  }
}
