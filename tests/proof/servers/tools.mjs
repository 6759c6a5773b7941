// The tools of both TypeScript servers: like those of sdk1.py.

import { z } from "zod";

const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==";
const text = (words) => ({ content: [{ type: "text", text: words }] });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export function offer(server, progress) {
  const tool = (name, inputSchema, work, more = {}) =>
    server.registerTool(name, { description: name, inputSchema: z.object(inputSchema), ...more }, work);

  tool("echo", { message: z.string() }, ({ message }) => text(message));
  const sum = { outputSchema: z.object({ result: z.number().int() }) };
  const add = ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } });
  tool("add", { a: z.number().int(), b: z.number().int() }, add, sum);
  const weather = z.object({ city: z.string(), celsius: z.number(), tags: z.array(z.string()) });
  tool("weather", { city: z.string() }, ({ city }) => {
    const found = { city, celsius: -3.5, tags: ["snow", "лёд", "氷"] };
    return { ...text(JSON.stringify(found)), structuredContent: found };
  }, { outputSchema: weather });
  tool("picture", {}, () => ({ content: [{ type: "image", data: PIXEL, mimeType: "image/png" }] }));
  tool("fail", { words: z.string() }, ({ words }) => ({ ...text(words), isError: true }));
  tool("big", { size: z.number().int() }, ({ size }) => text("x".repeat(size)));
  tool("count", { to: z.number().int() }, async ({ to }, context) => {
    for (let number = 1; number <= to; number += 1) {
      await progress(context, number, to);
      await pause(150);
    }
    return text(`counted to ${to}`);
  });
}
