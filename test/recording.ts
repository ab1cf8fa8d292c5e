/** A recorded provider stream that makes many durable events: reasoning and text by turns. */
export function recording(turns: number): string {
  const chunk = (delta: object, finish: string | null = null): string =>
    JSON.stringify({
      id: "rec",
      object: "chat.completion.chunk",
      created: 1_764_657_993,
      model: "recorded",
      choices: [{ index: 0, delta, finish_reason: finish }],
    });
  const lines = Array.from({ length: turns }, (_, turn) =>
    chunk(
      turn % 2 === 0 ? { reasoning_content: `thought ${turn} ` } : { content: `word ${turn} ` },
    ),
  );
  return [...lines, chunk({}, "stop")].join("\n");
}
