// The admin API, with the key that this tab was given.

const KEPT = "roskva.admin-key";

/** Thrown with words for people. `denied`: it is about the key. */
export class Failed extends Error {
  constructor(text, denied = false) {
    super(text);
    this.denied = denied;
  }
}

export const hasKey = () => sessionStorage.getItem(KEPT) !== null;
export const keepKey = (key) => sessionStorage.setItem(KEPT, key);
export const dropKey = () => sessionStorage.removeItem(KEPT);

async function request(path, options = {}) {
  const key = sessionStorage.getItem(KEPT);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options, headers, signal: AbortSignal.timeout(10000) });
  } catch {
    throw new Failed("The node does not answer. Trying again…");
  }
  if (response.ok) return response;
  const refused = await response.json().catch(() => null);
  const text = refused?.error?.text ?? `The node says ${response.status}.`;
  throw new Failed(text, response.status === 401 || response.status === 403);
}

export const get = async (path) => (await request(`/v1/admin/${path}`)).json();
export const picture = async (path) => URL.createObjectURL(await (await request(`/v1/admin/${path}`)).blob());

export const inPath = (text) => text.split("/").map(encodeURIComponent).join("/");

/** In development mode only: elsewhere it takes a publish key, and the console has none. */
export async function publish(object, version, text) {
  const [app, ...name] = object.split("/");
  const update = { app, name: name.join("/"), ...(version === null ? {} : { version }), ...(text ? { text } : {}) };
  const response = await request("/v1/publish", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(update),
  });
  return (await response.json()).results[0].version;
}
