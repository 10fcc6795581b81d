"""Pages for people, beside the API: each module of this package that has a ``PAGE`` is one, below ``/ui``.

Pages are open to all that can connect, without a token, so nothing on them comes from the state of the daemon. What
they need of it they would have to ask the API for, with a token that the reader brings."""
