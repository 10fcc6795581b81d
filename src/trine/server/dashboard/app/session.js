// The login, and requests within it. The cookie is out of reach of scripts; the proof is kept for this very address.

const PROOF = "trine-proof";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function headers() {
  const proof = localStorage.getItem(PROOF);
  return proof ? { "Trine-Proof": proof } : {};
}

/** Ask the API; raises ApiError with the sentence of the answer. */
export async function request(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { ...headers(), ...options.headers }, redirect: "error" });
  if (!response.ok) throw await errorOf(response);
  return response;
}

export const getJson = async (path, options) => (await request(path, options)).json();

/** A verb; `body` is sent as JSON. */
export async function post(path, body) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await request(path, { method: "POST", ...sent });
  return response.status === 204 ? null : response.json();
}

async function errorOf(response) {
  try {
    const { code, message } = await response.json();
    return new ApiError(response.status, code, message);
  } catch {
    return new ApiError(response.status, "unknown", `The daemon answered with status ${response.status}.`);
  }
}

/** Who is logged in; null without a session. */
export async function whoAmI() {
  if (!localStorage.getItem(PROOF)) return null;
  try {
    return await getJson("/v1/session");
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

/** A token or a code becomes a session. */
export async function login(secret) {
  const found = await post("/ui/login", { secret });
  localStorage.setItem(PROOF, found.proof);
  return found;
}

export async function logout() {
  try {
    await post("/ui/logout");
  } finally {
    localStorage.removeItem(PROOF);
  }
}
