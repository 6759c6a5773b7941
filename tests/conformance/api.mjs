// The REST API as somebody with a token sees it.

export class Api {
  /** Its URL, without a slash at the end. */
  service;
  #token;

  constructor(service, token) {
    this.service = service.replace(/\/$/, "");
    this.#token = token;
  }

  get(path) {
    return this.#ask("GET", path);
  }

  post(path, body) {
    return this.#ask("POST", path, body);
  }

  delete(path) {
    return this.#ask("DELETE", path);
  }

  /** Whatever its status. */
  request(method, path, body) {
    const headers = { authorization: `Bearer ${this.#token}`, ...(body && { "content-type": "application/json" }) };
    return fetch(this.service + path, { method, headers, body: body && JSON.stringify(body) });
  }

  async #ask(method, path, body) {
    const answer = await this.request(method, path, body);
    const text = await answer.text();
    if (!answer.ok) throw new Refused(`${method} ${path}: ${answer.status} ${text}`, answer.status, text);
    return text ? JSON.parse(text) : null;
  }
}

/** An answer of 4xx or 5xx. */
export class Refused extends Error {
  constructor(words, status, text) {
    super(words);
    this.status = status;
    this.text = text;
  }
}
