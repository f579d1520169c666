"""Proxied: whether a request shows that somebody passed it on. Pure.

No proxy need say so: the best that this can do is to refuse those that do. What lets callers in is
a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: Headers that proxies, load balancers and content delivery networks add, for whom they speak or
#: on what way. Browsers and programs send none of them. Matched against the whole name.
_ADDED: Final = re.compile(
    r"""
      .*forwarded.*                                  # RFC 7239, X-Forwarded-For
    | via | max-forwards | cdn-loop                  # RFC 9110, RFC 8586
    | .*(client|real|remote|originating|connecting|cluster|user|proxyuser|external)[-_]?
      (ip|addr|addrs|address|host|port)              # X-Real-IP, True-Client-IP, CF-Connecting-IP
    | x-(host|scheme|proto|original-.*|rewrite-url|url-scheme|request-start|queue-start)
    | (x-)?prox(y|ied)-.*                            # httpoxy's Proxy is not one: it is nobody's
    | (x-envoy|x-amzn|x-amz-cf|x-azure|x-appengine|x-vercel|x-varnish|x-arr|x-sigsci)-.*
    | (cf|fly|fastly|tailscale|true|x-nginx|x-haproxy|x-traefik|x-kong|x-cdn|x-akamai)-.*
    | (x-)?ssl-.* | front-end-https | surrogate-capability
    | x-varnish | x-cloud-trace-context | x-iisnode-.*
    """,
    re.VERBOSE,
)
_ONE_HOP: Final = frozenset({"1.0", "0.9"})


def is_proxied(http_version: str, headers: Iterable[str]) -> bool:
    """Tell whether the version or the names of *headers* are those of a proxy.

    HTTP/1.0 is what nginx speaks behind a bare `proxy_pass`, and it adds no header; no browser has
    spoken it for twenty years.
    """
    return http_version in _ONE_HOP or any(_ADDED.fullmatch(name.lower()) for name in headers)
