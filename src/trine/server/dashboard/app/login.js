// The login: a token or a code, typed or handed over by `trine dashboard` behind the # of the address, which is never
// sent and is removed at once.

import { el, fill, setText } from "./elements.js";
import { login } from "./session.js";

/** Returns who is logged in, after asking for a token or a code if there is no session. */
export async function loginPage(whoAmI) {
  const code = new URLSearchParams(location.hash.replace(/^#\/?/, "")).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname);
    try {
      await login(code);
    } catch {
      // A code that was used already: the session it made may still be there.
    }
  }
  for (;;) {
    try {
      const found = await whoAmI();
      return found ?? await asked(whoAmI);
    } catch (error) {
      fill(document.body, el("div", { class: "login" }, el("h1", {}, "trine"),
        el("p", { class: "alarm", role: "alert" }, error.status ? error.message : "The server does not answer; trying again.")));
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

function asked(whoAmI) {
  return new Promise((resolve) => {
    const failure = el("p", { class: "alarm", role: "alert" });
    const secret = el("input", { id: "secret", type: "password", autocomplete: "off", required: true, maxlength: 256 });
    const submit = async (event) => {
      event.preventDefault();
      try {
        await login(secret.value);
        resolve(await whoAmI());
      } catch (error) {
        setText(failure, error.status ? error.message : "The server does not answer.");
        secret.select();
      }
    };
    fill(document.body, el("form", { class: "login", onsubmit: submit }, el("h1", {}, "trine"),
      el("p", { class: "muted" }, "trine dashboard, typed where your token is, opens this page logged in, or prints a code for it. trine view prints one when it begins."),
      el("label", { for: "secret" }, "Token or code"), secret, failure,
      el("button", { class: "main" }, "Log in"), " ", el("a", { href: "/ui/about" }, "What is this?")));
    secret.focus();
  });
}
