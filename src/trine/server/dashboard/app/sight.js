// Whether this page is in sight. A browser keeps at most six connections to one address, for all its tabs together: one
// that has been hidden for a while must not hold any, or the seventh tab would never load.

const LEAVES_AFTER_MS = 3000;

/** Tells `leave` when the page has been hidden for a while, from which on `inSight` is false until it is shown again. */
class Sight extends EventTarget {
  constructor() {
    super();
    this.inSight = !document.hidden;
    document.addEventListener("visibilitychange", () => this.changed());
  }

  changed() {
    clearTimeout(this.timer);
    if (document.hidden) this.timer = setTimeout(() => this.set(false), LEAVES_AFTER_MS);
    else this.set(true);
  }

  set(inSight) {
    if (inSight === this.inSight) return;
    this.inSight = inSight;
    this.dispatchEvent(new Event(inSight ? "return" : "leave"));
  }

  /** Resolves at once, or when the page is shown again. */
  returned() {
    return this.inSight ? Promise.resolve() : new Promise((resolve) => this.addEventListener("return", resolve, { once: true }));
  }
}

export const sight = new Sight();
