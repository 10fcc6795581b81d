"""``/ui/about``: what answers at this address, and how to talk to it. It names no job or path."""

from __future__ import annotations

import html

from trine.server.dashboard.pages import Page

_SHELL = """export TRINE_API=URL TRINE_TOKEN=TOKEN
trine queue
trine submit --gpus 4 -- python train.py
trine explain JOB"""
_HTTP = """curl -H 'Authorization: Bearer TOKEN' URL/v1/jobs
curl -H 'Authorization: Bearer TOKEN' URL/openapi.json"""


def _body() -> str:
    return f"""<h1>trine</h1>
<p>This is the daemon of trine, a scheduler for clusters of GPUs. It takes jobs, decides which run where, and says
why the others wait.</p>
<h2>From a shell</h2>
<p>URL is the address of this daemon, TOKEN what its owner gave you (<code>trine token add USER</code>).
On the daemon's own machine its owner needs neither.</p>
<pre>{html.escape(_SHELL)}</pre>
<h2>Over HTTP</h2>
<p>Every call needs a token; <code>/openapi.json</code> describes them all. <code>/healthz</code> says whether the
daemon answers, and <code>/metrics</code> is for Prometheus.</p>
<pre>{html.escape(_HTTP)}</pre>"""


PAGE = Page("/about", "About trine", _body)
