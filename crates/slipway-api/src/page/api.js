// Calls of the API.

export let session = null;

/** Learns who we are. */
export async function begin() {
  session = null;
  session = await call("GET", "/session");
}

export async function login(token) {
  await call("POST", "/login", { token });
  await begin();
}

export const may = (role) => ["read", "run", "admin"].indexOf(session?.role) >= ["read", "run", "admin"].indexOf(role);

/** One call. An answer that is no success becomes an error with `code`, `message` and `hint`. */
export async function call(method, path, body, type = "application/json") {
  const headers = {};
  if (session?.csrf) headers["X-CSRF-Token"] = session.csrf;
  if (body !== undefined) headers["Content-Type"] = type;
  const content = body === undefined || type !== "application/json" ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(`/api/v1${path}`, { method, headers, body: content, credentials: "same-origin" });
  } catch {
    throw Object.assign(new Error("the server does not answer"), { code: "unreachable" });
  }
  const text = await response.text();
  let answer = null;
  try { answer = text ? JSON.parse(text) : null; } catch { /* no JSON is told by the status below */ }
  if (response.ok) return answer;
  const error = answer?.error ?? { code: String(response.status), message: `the server answered ${response.status}` };
  throw Object.assign(new Error(error.message), error);
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body ?? {});
export const url = (id, rest) => `/campaigns/${encodeURIComponent(id)}${rest}`;
